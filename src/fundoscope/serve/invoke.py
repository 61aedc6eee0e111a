"""One invocation: what may be sent, what is answered, what is refused. Every one is counted by what became of it."""

import base64
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from fundoscope.data.photo import UnreadablePhoto
from fundoscope.serve.grading import Grading
from fundoscope.serve.http import Answer, Refusal, Request, accepted, json_answer, read_body
from fundoscope.serve.service import Service

# What a photograph may be sent as. Of a file's content only the decoder is believed.
PHOTO_TYPES = (
    "image/jpeg",
    "image/png",
    "image/tiff",
    "image/bmp",
    "image/webp",
    "image/gif",
    "image/jpg",
    "image/x-portable-pixmap",
    "application/octet-stream",
    "application/x-image",  # as SageMaker's own image classifiers are called
)
JSON, JSON_LINES, CSV = "application/json", "application/jsonlines", "text/csv"
SEND = "send one photograph as image/jpeg, image/png or image/tiff, or several as application/json"
ATTRIBUTES, ATTRIBUTES_LENGTH = "x-amzn-sagemaker-custom-attributes", 1024


Outcomes = list[Grading | UnreadablePhoto]
Handler = Callable[[Service, Request, str], Awaitable[Answer]]


async def invoke(service: Service, request: Request, model: str) -> Answer:
    """The answer of `model`, by name."""
    return await counted(service, request, model, _invoke)


async def counted(service: Service, request: Request, model: str, handler: Handler) -> Answer:
    """What `handler` answers, in whichever platform's words."""
    service.metrics.gauge("fundoscope_in_flight", 1)
    status = 500
    try:
        answer = await handler(service, request, model)
        status = answer.status
        return answer
    except Refusal as refusal:
        status = refusal.status
        raise
    finally:
        service.metrics.gauge("fundoscope_in_flight", -1)
        service.metrics.request(status)


async def _invoke(service: Service, request: Request, model: str) -> Answer:
    several = request.content_type == JSON
    if not several and request.content_type not in (*PHOTO_TYPES, ""):
        raise Refusal(415, f"{request.content_type[:80]} is not a kind of photograph", SEND)
    form = accepted(request.headers.get("accept", ""), (JSON, JSON_LINES, CSV))
    if form is None:
        raise Refusal(406, "none of the kinds of answer you accept is given here", f"accept {JSON}")
    attributes = _attributes(request)
    if several:
        outcomes = await graded(service, request, model, lambda body: photographs(body, service.settings.queue))
    else:
        outcomes = await graded(service, request, model, lambda body: [body])
    return _written(service, outcomes, form, several=several, headers=attributes)


async def graded(service: Service, request: Request, model: str, read: Callable[[bytes], list[bytes]]) -> Outcomes:
    """Every photograph that `read` finds in the body, within the server's limits. One alone that is none: a refusal."""
    began = time.perf_counter()
    size_bytes = min(request.content_length or service.settings.payload_bytes, service.settings.payload_bytes)
    service.hold(size_bytes)
    try:
        body = await read_body(request, limit_bytes=service.settings.payload_bytes, arriving=service.arriving)
        photos = read(body)
        grader = await service.grader(model)
        found = await service.grade(grader, photos, began=began)
    finally:
        service.let_go(size_bytes)
    outcomes: Outcomes = []
    for outcome in found:
        if isinstance(outcome, UnreadablePhoto) and len(found) == 1:
            raise Refusal(400, outcome.message, outcome.hint or SEND)
        if not isinstance(outcome, Grading | UnreadablePhoto):
            raise outcome
        outcomes.append(outcome)
    return outcomes


def _attributes(request: Request) -> dict[str, str]:
    """Custom attributes, to be sent back as they came."""
    value = request.headers.get(ATTRIBUTES)
    if value is None:
        return {}
    if len(value) > ATTRIBUTES_LENGTH or not all(" " <= character <= "~" for character in value):
        message = f"custom attributes are at most {ATTRIBUTES_LENGTH} visible ASCII characters"
        raise Refusal(400, message, "shorten them, or leave them out")
    return {ATTRIBUTES: value}


def photographs(body: bytes, most: int) -> list[bytes]:
    """Photographs sent as JSON: {"photographs": ["<base64>", …]}, or {"instances": [{"b64": "<base64>"}, …]}."""
    form = '{"photographs": ["<base64 of a JPEG>", …]}'
    try:
        table = json.loads(body)
        texts = table["photographs"] if "photographs" in table else [one["b64"] for one in table["instances"]]
        if not isinstance(texts, list) or not texts:
            raise TypeError
        return decoded(texts, most, form)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise Refusal(400, "the JSON holds no photographs", f"send {form}") from None


def decoded(texts: list[str], most: int, form: str) -> list[bytes]:
    """Photographs in base64, not more than `most`. Raises what is no text as it comes."""
    if len(texts) > most:
        raise Refusal(413, f"there are {len(texts)} photographs in the request", f"send at most {most} at a time")
    try:
        return [base64.b64decode(text.encode(), validate=True) for text in texts]
    except ValueError:  # of base64, or of half a character
        raise Refusal(400, "a photograph in the request is not base64", f"send {form}") from None


def _written(service: Service, outcomes: Outcomes, form: str, *, several: bool, headers: Mapping[str, str]) -> Answer:
    rows = [row(outcome) for outcome in outcomes]
    container = service.container.answered()
    if form == JSON:
        value = {"gradings": rows, "predictions": [one.get("predictions") for one in rows]} if several else rows[0]
        return json_answer(value | {"container": container}, headers=headers)
    if form == JSON_LINES:
        lines = [json.dumps(one, ensure_ascii=False) for one in rows]
    else:
        lines = [",".join(f"{p:.7g}" for p in one.get("predictions", ())) for one in rows]
    return Answer(200, ("\n".join(lines) + "\n").encode(), form, headers)


def row(outcome: Grading | UnreadablePhoto) -> dict[str, Any]:
    if isinstance(outcome, Grading):
        return outcome.to_json()
    return {"error": outcome.message, "hint": outcome.hint}
