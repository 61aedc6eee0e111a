"""The Open Inference Protocol, V2, as KServe speaks it: JSON over HTTP, no versions, no binary tensors.

GET  /v2, /v2/health/live, /v2/health/ready, /v2/models/NAME, /v2/models/NAME/ready
POST /v2/models/NAME/infer   one tensor of photographs in base64 -> a tensor for each part of the grading

Imported when first asked for: other platforms' servers need not start with it. A server of one model answers by any
name, which is for whoever deploys it to choose. (github.com/kserve/open-inference-protocol, inference_rest.md)
"""

import math
import re
from collections.abc import Sequence
from typing import Any

from fundoscope.serve.envelope import parsed
from fundoscope.serve.grading import Grader, Grading
from fundoscope.serve.http import Answer, Refusal, Request, json_answer
from fundoscope.serve.invoke import JSON, counted, decoded, graded
from fundoscope.serve.model_routes import Route
from fundoscope.serve.models import ONLY, NotLoaded
from fundoscope.serve.service import Service

INPUT = "photograph"
PLATFORMS = {"onnx": "onnx_onnxv1", "savedmodel": "tensorflow_savedmodel"}
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}"
MODEL = re.compile(rf"/v2/models/({NAME})(|/ready|/infer)")
FORM = f'{{"inputs": [{{"name": "{INPUT}", "datatype": "BYTES", "shape": [1], "data": ["<base64 of a JPEG>"]}}]}}'

DIMENSIONS = 4  # more than photographs can have

Table = dict[str, Any]


def routes(path: str) -> dict[str, Route] | None:
    if path in FIXED:
        return {"GET": FIXED[path]}
    found = MODEL.fullmatch(path)
    return OF_A_MODEL[found[2]] if found else None


async def _server(_: Service, __: Request) -> Answer:
    from fundoscope.serve.openapi import package_version

    return json_answer({"name": "fundoscope", "version": package_version(), "extensions": []})


async def _live(service: Service, _: Request) -> Answer:
    live = not service.stuck.is_set()
    return json_answer({"live": live}, 200 if live else 503)


async def _ready(service: Service, _: Request) -> Answer:
    return json_answer({"live": True, "ready": service.healthy}, 200 if service.healthy else 503)


async def _model_ready(service: Service, request: Request) -> Answer:
    name = _name(request)
    ready = service.healthy and (not service.settings.multi_model or _opened(service, name) is not None)
    return json_answer({"name": name, "ready": ready}, 200 if ready else 503)


async def _model(service: Service, request: Request) -> Answer:
    name = _name(request)
    grader = _opened(service, name)
    if grader is None:
        raise Refusal(503 if not service.settings.multi_model else 404, "this model is not open", "try again later")
    tensors = [(INPUT, "BYTES", [-1])]
    classes = grader.artefact.output.shape[-1] or 1
    tensors += [
        (output, kind, [-1, classes] if output == "probabilities" else [-1]) for output, kind in _kinds(classes)
    ]
    shown = [{"name": output, "datatype": kind, "shape": shape} for output, kind, shape in tensors]
    platform = PLATFORMS.get(grader.artefact.format, grader.artefact.format)
    return json_answer({"name": name, "platform": platform, "inputs": shown[:1], "outputs": shown[1:]})


async def _infer(service: Service, request: Request) -> Answer:
    if service.settings.multi_model and _opened(service, _name(request)) is None:
        raise Refusal(404, "there is no model of that name here", "load it: POST /models")
    return await counted(service, request, _name(request) if service.settings.multi_model else ONLY, _inferred)


OF_A_MODEL: dict[str, dict[str, Route]] = {
    "": {"GET": _model},
    "/ready": {"GET": _model_ready},
    "/infer": {"POST": _infer},
}
FIXED: dict[str, Route] = {"/v2": _server, "/v2/": _server, "/v2/health/live": _live, "/v2/health/ready": _ready}


async def _inferred(service: Service, request: Request, model: str) -> Answer:
    if request.content_type not in (JSON, ""):
        raise Refusal(415, f"{request.content_type[:80]} is not what this protocol sends", f"send {JSON}: {FORM}")
    asked: Table = {}

    def read(body: bytes, most: int) -> list[bytes]:
        asked.update(_asked(body, most))
        return decoded(asked.pop("data"), most, FORM)

    outcomes = await graded(service, request, model, read)
    gradings = [outcome for outcome in outcomes if isinstance(outcome, Grading)]
    for number, outcome in enumerate(outcomes, 1):  # a tensor has no place for a refusal
        if not isinstance(outcome, Grading):
            raise Refusal(400, f"photograph {number} of {len(outcomes)}: {outcome.message}", outcome.hint)
    service.container.answered()
    said = {"model_name": _name(request)} | ({"id": asked["id"]} if "id" in asked else {})
    point = gradings[0].operating_point.name
    parameters = {"artefact": gradings[0].artefact, "operating_point": point}
    return json_answer(said | {"parameters": parameters, "outputs": _tensors(gradings, asked["outputs"])})


def _asked(body: bytes, most: int) -> Table:
    """The request's photographs, the outputs it wants (empty: all), and its id where it has one."""
    try:
        table = parsed(body, photographs=most)
        (tensor,) = table["inputs"]
        outputs = [output["name"] for output in table.get("outputs") or []]
        flat = [text for item in tensor["data"] for text in (item if isinstance(item, list) else [item])]
        shape = tensor["shape"]
        right = (
            (tensor["name"], tensor["datatype"]) == (INPUT, "BYTES")
            and isinstance(tensor["data"], list)
            and 0 < len(shape) <= DIMENSIONS
            and all(type(size) is int and 0 < size <= len(flat) for size in shape)
            and math.prod(shape) == len(flat) > 0
            and all(isinstance(text, str | bytes) for text in flat)
            and all(isinstance(text, str) for text in [*outputs, table.get("id", "")])
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        right = False
    if not right:
        raise Refusal(400, f"the JSON holds no tensor of BYTES called {INPUT}, of the shape it says", f"send {FORM}")
    if unknown := [name for name in outputs if name not in dict(_kinds(5))]:
        raise Refusal(400, f"there is no output called {unknown[0][:80]}", "ask for " + ", ".join(dict(_kinds(5))))
    return {"data": flat, "outputs": outputs} | ({"id": table["id"]} if "id" in table else {})


def _kinds(classes: int) -> list[tuple[str, str]]:
    """Outputs and their types; a model that answers referral only has no grade to give."""
    grade = [("grade", "INT32")] if classes > 1 else []
    return [
        *grade,
        ("probabilities", "FP32"),
        ("referral", "BOOL"),
        ("referral_probability", "FP32"),
        ("gradable", "BOOL"),
    ]


def _tensors(gradings: Sequence[Grading], wanted: Sequence[str]) -> list[Table]:
    n, classes = len(gradings), len(gradings[0].probabilities)
    data: dict[str, list[Any]] = {
        "grade": [grading.grade for grading in gradings],
        "probabilities": [p for grading in gradings for p in grading.probabilities],
        "referral": [grading.referral for grading in gradings],
        "referral_probability": [grading.referral_probability for grading in gradings],
        "gradable": [grading.gradability.gradable for grading in gradings],
    }
    return [
        {"name": name, "datatype": kind, "shape": [n, classes] if name == "probabilities" else [n], "data": data[name]}
        for name, kind in _kinds(classes)
        if not wanted or name in wanted
    ]


def _name(request: Request) -> str:
    found = MODEL.fullmatch(request.path)
    assert found is not None  # it was routed here
    return found[1]


def _opened(service: Service, name: str) -> Grader | None:
    try:
        return service.models.get(name if service.settings.multi_model else ONLY)
    except NotLoaded:
        return None
