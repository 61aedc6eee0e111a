"""The web service inside the container, as SageMaker calls it. Knows HTTP, and nothing about models or processes.

GET  /ping                   200, empty, once a photograph has been answered
POST /invocations            a photograph, or several as JSON -> Grading
GET  /execution-parameters   for batch transform
GET  /metrics                Prometheus
GET  /openapi.json
GET, POST /models …          where the server holds several models (multi-model)
"""

import asyncio
import base64
import binascii
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qs, unquote

from fundoscope.data.photo import UnreadablePhoto
from fundoscope.errors import FundoscopeError
from fundoscope.serve.grading import Grading
from fundoscope.serve.http import (
    Answer,
    Disconnected,
    Receive,
    Refusal,
    Request,
    Send,
    accepted,
    json_answer,
    read_body,
    refused,
    request_of,
    send_answer,
)
from fundoscope.serve.log import log
from fundoscope.serve.models import ONLY, AlreadyLoaded, NoMemory, NotLoaded
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
PAGE = 100  # models listed at a time

Route = Callable[[Service, Request], Awaitable[Answer]]


def create_app(service: Service) -> Callable[[Mapping[str, Any], Receive, Send], Awaitable[None]]:
    """The ASGI application around `service`."""

    async def app(scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        began = time.perf_counter()
        request = request_of(scope, receive)
        try:
            answer = await _answered(service, request)
        except Disconnected:
            return
        if service.settings.log_requests:
            log("request", method=request.method, route=_shown(request.path), status=answer.status, began=began)
        await send_answer(send, answer)

    return app


async def _answered(service: Service, request: Request) -> Answer:
    """Whatever happens, an answer that says so."""
    try:
        return await _route(service, request)(service, request)
    except Refusal as refusal:
        return refused(refusal)
    except (Disconnected, asyncio.CancelledError):
        raise
    except Exception as problem:
        # The kind of problem and where, never its text: that may quote what was sent.
        where = problem.__traceback__
        while where and where.tb_next:
            where = where.tb_next
        place = f"{where.tb_frame.f_code.co_filename}:{where.tb_lineno}" if where else ""
        log("failed", problem=type(problem).__name__, where=place)
        return refused(Refusal(500, "the server failed on this request", "the server's log says where"))


def _route(service: Service, request: Request) -> Route:
    methods = ROUTES.get(request.path)
    if methods is None and service.settings.multi_model:
        methods = _model_route(request.path)
    if methods is None:
        raise Refusal(404, "there is nothing here", "post photographs to /invocations")
    if request.method not in methods:
        allowed = ", ".join(methods)
        raise Refusal(405, f"{request.method} is not for this address", f"use {allowed}", {"allow": allowed})
    return methods[request.method]


async def _ping(service: Service, _: Request) -> Answer:
    return Answer(200 if service.healthy else 503)


async def _metrics(service: Service, _: Request) -> Answer:
    artefacts = [
        {"model": name, "digest": g.artefact.digest, "format": g.artefact.format, "precision": g.artefact.precision}
        for name, _, g in service.models
    ]
    text = service.metrics.text(artefacts)
    return Answer(200, text.encode(), "text/plain; version=0.0.4; charset=utf-8")


async def _execution_parameters(service: Service, _: Request) -> Answer:
    """For batch transform, which asks that payload times concurrency stay within 100 MB."""
    payload_mb = min(service.settings.payload_bytes // 2**20, 25)
    concurrent = max(1, min(2 * service.settings.predict_threads, 100 // payload_mb))
    return json_answer(
        {"MaxConcurrentTransforms": concurrent, "BatchStrategy": "SINGLE_RECORD", "MaxPayloadInMB": payload_mb}
    )


async def _openapi(service: Service, _: Request) -> Answer:
    from fundoscope.serve.openapi import describe

    return json_answer(describe(service))


async def _invocations(service: Service, request: Request) -> Answer:
    """One request, counted by what became of it."""
    service.metrics.gauge("fundoscope_in_flight", 1)
    status = 500
    try:
        answer = await _invoke(service, request, ONLY)
        status = answer.status
        return answer
    except Refusal as refusal:
        status = refusal.status
        raise
    finally:
        service.metrics.gauge("fundoscope_in_flight", -1)
        service.metrics.request(status)


async def _invoke(service: Service, request: Request, model: str) -> Answer:
    began = time.perf_counter()
    several = request.content_type == JSON
    if not several and request.content_type not in (*PHOTO_TYPES, ""):
        raise Refusal(415, f"{request.content_type[:80]} is not a kind of photograph", SEND)
    form = accepted(request.headers.get("accept", ""), (JSON, JSON_LINES, CSV))
    if form is None:
        raise Refusal(406, "none of the kinds of answer you accept is given here", f"accept {JSON}")
    attributes = _attributes(request)
    size_bytes = min(request.content_length or service.settings.payload_bytes, service.settings.payload_bytes)
    service.hold(size_bytes)
    try:
        body = await read_body(request, limit_bytes=service.settings.payload_bytes, arriving=service.arriving)
        photos = _photographs(body, service.settings.queue) if several else [body]
        grader = await service.grader(model)
        outcomes = await service.grade(grader, photos, began=began)
    finally:
        service.let_go(size_bytes)
    for problem in outcomes:
        if isinstance(problem, Exception) and not isinstance(problem, UnreadablePhoto):
            raise problem
        if isinstance(problem, UnreadablePhoto) and (not several or len(outcomes) == 1):
            raise Refusal(400, problem.message, problem.hint or SEND)
    return _written(outcomes, form, several=several, headers=attributes)


def _attributes(request: Request) -> dict[str, str]:
    """Custom attributes, to be sent back as they came."""
    value = request.headers.get(ATTRIBUTES)
    if value is None:
        return {}
    if len(value) > ATTRIBUTES_LENGTH or not all(" " <= character <= "~" for character in value):
        message = f"custom attributes are at most {ATTRIBUTES_LENGTH} visible ASCII characters"
        raise Refusal(400, message, "shorten them, or leave them out")
    return {ATTRIBUTES: value}


def _photographs(body: bytes, most: int) -> list[bytes]:
    """Photographs sent as JSON: {"photographs": ["<base64>", …]}, or {"instances": [{"b64": "<base64>"}, …]}."""
    form = '{"photographs": ["<base64 of a JPEG>", …]}'
    try:
        table = json.loads(body)
        texts = table["photographs"] if "photographs" in table else [one["b64"] for one in table["instances"]]
        if not isinstance(texts, list) or not texts:
            raise TypeError
        if len(texts) > most:
            raise Refusal(413, f"there are {len(texts)} photographs in the request", f"send at most {most} at a time")
        return [base64.b64decode(text.encode(), validate=True) for text in texts]
    except binascii.Error:
        raise Refusal(400, "a photograph in the request is not base64", f"send {form}") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise Refusal(400, "the JSON holds no photographs", f"send {form}") from None


def _written(
    outcomes: list[Grading | UnreadablePhoto | Exception], form: str, *, several: bool, headers: Mapping[str, str]
) -> Answer:
    rows = [_row(outcome) for outcome in outcomes]
    if form == JSON:
        value = {"gradings": rows, "predictions": [row.get("predictions") for row in rows]} if several else rows[0]
        return json_answer(value, headers=headers)
    if form == JSON_LINES:
        lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    else:
        lines = [",".join(f"{p:.7g}" for p in row.get("predictions", ())) for row in rows]
    return Answer(200, ("\n".join(lines) + "\n").encode(), form, headers)


def _row(outcome: Grading | UnreadablePhoto | Exception) -> dict[str, Any]:
    if isinstance(outcome, Grading):
        return outcome.to_json()
    assert isinstance(outcome, UnreadablePhoto)  # all others were raised
    return {"error": outcome.message, "hint": outcome.hint}


def _model_route(path: str) -> dict[str, Route] | None:
    parts = path.strip("/").split("/")
    if parts[0] != "models" or len(parts) > 3:
        return None
    if len(parts) == 1:
        return {"GET": _list_models, "POST": _load_model}
    if len(parts) == 2:
        return {"GET": _show_model, "DELETE": _unload_model}
    return {"POST": _invoke_model} if parts[2] == "invoke" else None


def _name(request: Request) -> str:
    return unquote(request.path.strip("/").split("/")[1])


def _known(service: Service, name: str) -> dict[str, str]:
    try:
        return {"modelName": name, "modelUrl": str(service.models.folder(name))}
    except NotLoaded:
        raise Refusal(404, "there is no model of that name here", "load it: POST /models") from None


async def _list_models(service: Service, request: Request) -> Answer:
    token = parse_qs(request.query.decode("latin-1")).get("next_page_token", ["0"])[0]
    start = int(token) if token.isascii() and token.isdigit() and len(token) < 10 else 0
    names = [name for name, _, _ in service.models]
    page = {"models": [_known(service, name) for name in names[start : start + PAGE]]}
    return json_answer(page | ({"nextPageToken": str(start + PAGE)} if start + PAGE < len(names) else {}))


async def _load_model(service: Service, request: Request) -> Answer:
    form = '{"model_name": "…", "url": "/opt/ml/models/…/model"}'
    try:
        table = json.loads(await read_body(request, limit_bytes=64 * 1024, arriving=service.arriving))
        name, url = table["model_name"], table["url"]
        if not (isinstance(name, str) and isinstance(url, str) and name and "\0" not in url):
            raise TypeError
    except (ValueError, TypeError, KeyError, RecursionError):
        raise Refusal(400, "the JSON does not say which model to load", f"send {form}") from None
    loop = asyncio.get_running_loop()
    try:
        folder = service.models.folder_of(url)
        await loop.run_in_executor(service.aside, service.models.load, name, folder)
    except AlreadyLoaded:
        raise Refusal(409, "a model of that name is loaded already", f"unload it: DELETE /models/{name}") from None
    except (NoMemory, MemoryError):
        raise Refusal(507, "there is not enough memory for another model", "unload one: DELETE /models/…") from None
    except FundoscopeError as problem:
        raise Refusal(400, problem.message, problem.hint) from None
    return json_answer(_known(service, name))


async def _show_model(service: Service, request: Request) -> Answer:
    return json_answer(_known(service, _name(request)))


async def _unload_model(service: Service, request: Request) -> Answer:
    known = _known(service, _name(request))
    service.models.unload(known["modelName"])
    return json_answer(known)


async def _invoke_model(service: Service, request: Request) -> Answer:
    _known(service, _name(request))
    return await _invoke(service, request, _name(request))


ROUTES: dict[str, dict[str, Route]] = {
    "/ping": {"GET": _ping},
    "/invocations": {"POST": _invocations},
    "/execution-parameters": {"GET": _execution_parameters},
    "/metrics": {"GET": _metrics},
    "/openapi.json": {"GET": _openapi},
}


def _shown(path: str) -> str:
    return path if path in ROUTES else "/models" if path.startswith("/models") else "other"
