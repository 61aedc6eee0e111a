"""One invocation: what may be sent, what is answered, what is refused. Every one is counted by what became of it."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from fundoscope.data.decode import decoding_pixels
from fundoscope.data.photo import UnreadablePhoto
from fundoscope.serve.body import read_body
from fundoscope.serve.envelope import Text, parsed, photograph
from fundoscope.serve.grading import Grading
from fundoscope.serve.http import Answer, Refusal, Request, accepted, json_answer
from fundoscope.serve.service import Service
from fundoscope.serve.settings import Settings

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
Reader = Callable[[bytes, int], list[bytes]]  # of a body, and of the most photographs that it may hold
Handler = Callable[[Service, Request, str], Awaitable[Answer]]


async def invoke(service: Service, request: Request, model: str) -> Answer:
    """The answer of `model`, by name."""
    return await counted(service, request, model, _invoke)


async def counted(service: Service, request: Request, model: str, handler: Handler) -> Answer:
    """What `handler` answers, in whichever platform's words."""
    service.began()
    status = 500
    try:
        answer = await handler(service, request, model)
        status = answer.status
        return answer
    except Refusal as refusal:
        status = refusal.status
        raise
    finally:
        service.ended(status)


async def _invoke(service: Service, request: Request, model: str) -> Answer:
    several = request.content_type == JSON
    if not several and request.content_type not in (*PHOTO_TYPES, ""):
        raise Refusal(415, f"{request.content_type[:80]} is not a kind of photograph", SEND)
    form = accepted(request.headers.get("accept", ""), (JSON, JSON_LINES, CSV))
    if form is None:
        raise Refusal(406, "none of the kinds of answer you accept is given here", f"accept {JSON}")
    attributes = _attributes(request)
    outcomes = await graded(service, request, model, photographs if several else None)
    return _written(service, outcomes, form, several=several, headers=attributes)


async def graded(service: Service, request: Request, model: str, read: Reader | None = None) -> Outcomes:
    """Every photograph that `read` finds in the body, within the server's limits. One alone that is none: a refusal."""
    began = time.perf_counter()
    limit_bytes = service.settings.payload_bytes
    with service.uploads.expect(min(request.content_length or 0, limit_bytes)) as upload:
        photos = [await read_body(request, upload, limit_bytes=limit_bytes)]
        if read is not None:
            photos = await asyncio.get_running_loop().run_in_executor(
                service.reader, _read, read, photos.pop(), service.settings
            )
        grader = await service.grader(model)
        found = await service.grade(grader, photos, began=began)
    outcomes: Outcomes = []
    for outcome in found:
        if isinstance(outcome, UnreadablePhoto) and len(found) == 1:
            raise Refusal(400, outcome.message, outcome.hint or SEND)
        if not isinstance(outcome, Grading | UnreadablePhoto):
            raise outcome
        outcomes.append(outcome)
    return outcomes


def _read(read: Reader, body: bytes, settings: Settings) -> list[bytes]:
    """The photographs in `body`. In a thread of its own: it may take longer than /ping may wait."""
    photos = read(body, settings.queue)
    most = settings.request_pixels
    if len(photos) > 1 and sum(map(decoding_pixels, photos)) > most:  # one alone has a limit of its own
        message = f"the photographs of the request have more than {most / 1e6:g} million pixels together"
        raise Refusal(413, message, "send fewer at a time, or smaller ones: 1,500 pixels a side are more than enough")
    return photos


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
        table = parsed(body, photographs=most)
        texts = table["photographs"] if "photographs" in table else [one["b64"] for one in table["instances"]]
        if not isinstance(texts, list) or not texts:
            raise TypeError
        return decoded(texts, most, form)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise Refusal(400, "the JSON holds no photographs", f"send {form}") from None


def decoded(texts: Sequence[Text], most: int, form: str) -> list[bytes]:
    """Photographs in base64, not more than `most`. Raises what is no text as it comes."""
    if len(texts) > most:
        raise Refusal(413, f"there are {len(texts)} photographs in the request", f"send at most {most} at a time")
    try:
        return [photograph(text) for text in texts]
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
