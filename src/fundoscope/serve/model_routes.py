"""Several models behind one address: the verbs of SageMaker's multi-model contract.

GET, POST          /models               list, load (409: there already; 507: no memory for it)
GET, DELETE        /models/{name}        show, unload (404: not there)
POST               /models/{name}/invoke
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qs, unquote

from fundoscope.errors import FundoscopeError
from fundoscope.serve.body import read_body
from fundoscope.serve.http import Answer, Refusal, Request, json_answer
from fundoscope.serve.invoke import invoke
from fundoscope.serve.models import AlreadyLoaded, NoMemory, NotLoaded
from fundoscope.serve.service import Service

PAGE = 100  # models listed at a time

Route = Callable[[Service, Request], Awaitable[Answer]]


def model_routes(path: str) -> dict[str, Route] | None:
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
        with service.uploads.expect() as upload:
            table = json.loads(await read_body(request, upload, limit_bytes=64 * 1024))
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
    return await invoke(service, request, _name(request))
