"""The web service inside the container, as SageMaker calls it. Knows HTTP, and nothing about models or processes.

GET  /ping                   200, empty, once a photograph has been answered
POST /invocations            a photograph, or several as JSON -> Grading
POST /endpoints/NAME/invocations   the same, where boto3's sagemaker-runtime client looks for it
GET  /execution-parameters   for batch transform
GET  /metrics                Prometheus
GET  /openapi.json
GET, POST /models …          where the server holds several models (multi-model)
GET, POST /v2 …              the Open Inference Protocol, for KServe
What other platforms name by environment variables is answered where they say: docs/platforms.md.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from fundoscope.serve.http import (
    Answer,
    Disconnected,
    Receive,
    Refusal,
    Request,
    Send,
    json_answer,
    refused,
    request_of,
    send_answer,
)
from fundoscope.serve.invoke import invoke
from fundoscope.serve.log import log
from fundoscope.serve.model_routes import Route, model_routes
from fundoscope.serve.models import ONLY
from fundoscope.serve.service import Service


def create_app(service: Service) -> Callable[[Mapping[str, Any], Receive, Send], Awaitable[None]]:
    """The ASGI application around `service`."""
    routes = _routes(service)

    async def app(scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        began = time.perf_counter()
        request = request_of(scope, receive)
        try:
            answer = await _answered(service, routes, request)
        except Disconnected:
            return
        if service.settings.log_requests:
            log("request", method=request.method, route=_shown(request.path, routes), status=answer.status, began=began)
        await send_answer(send, answer)

    return app


async def _answered(service: Service, routes: "Routes", request: Request) -> Answer:
    """Whatever happens, an answer that says so."""
    try:
        return await _route(service, routes, request)(service, request)
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


def _route(service: Service, routes: "Routes", request: Request) -> Route:
    methods = routes.get(request.path) or _more_routes(service, request.path)
    if methods is None:
        raise Refusal(404, "there is nothing here", "post photographs to /invocations")
    if request.method not in methods:
        allowed = ", ".join(methods)
        raise Refusal(405, f"{request.method} is not for this address", f"use {allowed}", {"allow": allowed})
    return methods[request.method]


def _more_routes(service: Service, path: str) -> dict[str, Route] | None:
    """Of the addresses that have a name in them."""
    if ENDPOINT.fullmatch(path):
        return ROUTES["/invocations"]
    if path == "/v2" or path.startswith("/v2/"):
        from fundoscope.serve import open_inference

        return open_inference.routes(path)
    return model_routes(path) if service.settings.multi_model else None


async def _ping(service: Service, _: Request) -> Answer:
    return Answer(200 if service.healthy else 503)


async def _metrics(service: Service, _: Request) -> Answer:
    artefacts = [
        {"model": name, "digest": g.artefact.digest, "format": g.artefact.format, "precision": g.artefact.precision}
        for name, _, g in service.models
    ]
    text = service.metrics.text(artefacts, service.container.start_s)
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
    if service.settings.multi_model:
        raise Refusal(404, "this server holds several models", "post photographs to /models/NAME/invoke")
    return await invoke(service, request, ONLY)


async def _predict(service: Service, request: Request) -> Answer:
    from fundoscope.serve.vertex import predict

    return await predict(service, request)


Routes = dict[str, dict[str, Route]]
ROUTES: Routes = {
    "/ping": {"GET": _ping},
    "/invocations": {"POST": _invocations},
    "/execution-parameters": {"GET": _execution_parameters},
    "/metrics": {"GET": _metrics},
    "/openapi.json": {"GET": _openapi},
}


# InvokeEndpoint's own address, and what it allows as a name (API reference of the SageMaker runtime).
ENDPOINT = re.compile(r"/endpoints/[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}/invocations")


def _routes(service: Service) -> Routes:
    """Ours, and those that the platform has named."""
    settings, routes = service.settings, {path: dict(methods) for path, methods in ROUTES.items()}
    if settings.health_route:
        routes.setdefault(settings.health_route, {})["GET"] = _ping
    if settings.predict_route:
        routes.setdefault(settings.predict_route, {})["POST"] = _predict
    return routes


def _shown(path: str, routes: Routes) -> str:
    """For the log: of what a caller sent, only what we know already."""
    if path in routes:
        return path
    return next((name for name in ("/models", "/endpoints", "/v2") if path.startswith(name)), "other")
