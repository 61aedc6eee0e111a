"""The OpenAPI description of the service: what it takes, what it answers, what it refuses."""

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from fundoscope.serve.container import START_PHASES
from fundoscope.serve.invoke import ATTRIBUTES, ATTRIBUTES_LENGTH, CSV, JSON, JSON_LINES, PHOTO_TYPES
from fundoscope.serve.open_inference import INPUT
from fundoscope.serve.open_inference import NAME as MODEL_NAME
from fundoscope.serve.service import Service

Schema = dict[str, Any]


def describe(service: Service) -> Schema:
    graders = [grader for _, _, grader in service.models]
    notice = graders[0].artefact.notice.en if graders else "Not a medical device."
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Fundoscope: grading of diabetic retinopathy",
            "version": package_version(),
            "description": f"{notice} Ungradable photographs are answered too, and referred.",
        },
        "paths": {
            "/ping": {
                "get": _get("Whether photographs are answered", {"200": _empty("Yes"), "503": _empty("Not yet")})
            },
            "/invocations": {"post": _invocations(service)},
            "/endpoints/{name}/invocations": {"parameters": [_ENDPOINT], "post": _invocations(service)},
            "/execution-parameters": {"get": _get("What batch transform asks", {"200": _json("The parameters", {})})},
            "/metrics": {"get": _get("Prometheus metrics", {"200": {"description": "The metrics", "content": _TEXT}})},
            **_open_inference(service),
            **_vertex(service),
        },
        "components": {"schemas": {"Grading": GRADING, "Container": CONTAINER, "Refusal": REFUSAL}},
    }


def package_version() -> str:
    try:
        return version("fundoscope")
    except PackageNotFoundError:  # run from its source
        return "0"


def _get(summary: str, responses: Schema) -> Schema:
    return {"summary": summary, "responses": responses}


def _empty(description: str) -> Schema:
    return {"description": description}


def _json(description: str, schema: Schema) -> Schema:
    return {"description": description, "content": {JSON: {"schema": schema}}}


_ENDPOINT = {
    "name": "name",
    "in": "path",
    "required": True,
    "description": "Any name: so that boto3's sagemaker-runtime client can be pointed here",
    "schema": {"type": "string", "pattern": "^[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}$"},
}
_TEXT = {"text/plain": {"schema": {"type": "string"}}}


def _invocations(service: Service) -> Schema:
    binary = {"schema": {"type": "string", "format": "binary"}}
    answers = {
        JSON: {"schema": {"anyOf": [_ONE_GRADING, _GRADINGS]}},
        JSON_LINES: {"schema": {"type": "string"}},
        CSV: {"schema": {"type": "string"}},
    }
    return {
        "summary": "Grade one photograph, or several",
        "parameters": [
            {
                "name": ATTRIBUTES,
                "in": "header",
                "required": False,
                "description": "Sent back as it came",
                "schema": {"type": "string", "maxLength": ATTRIBUTES_LENGTH, "pattern": "^[ -~]*$"},
            }
        ],
        "requestBody": {
            "required": True,
            "content": dict.fromkeys(PHOTO_TYPES, binary) | {JSON: {"schema": _photographs(service)}},
        },
        "responses": {
            "200": {"description": "The grading, or gradings in the order sent", "content": answers},
            **_refusals(service),
        },
    }


def _refusals(service: Service) -> Schema:
    payload_mb, megapixels = service.settings.payload_bytes // 2**20, service.settings.request_pixels // 10**6
    said = {
        "400": "The photograph cannot be read, or the JSON holds none, or much besides",
        "406": "No kind of answer that you accept",
        "408": "The photograph did not arrive in time, or too slowly",
        "413": f"More than {payload_mb} MB, too many photographs, or more than {megapixels} million pixels in all",
        "415": "Not a kind of photograph",
        "431": "The headers, or the trailers, are too long",
        "503": "Busy, stopping, or no answer in time; Retry-After says when to try again",
    }
    return {code: _json(words, {"$ref": "#/components/schemas/Refusal"}) for code, words in said.items()}


def _vertex(service: Service) -> Schema:
    """At the addresses that Vertex AI has named, unless they are ours."""
    settings, ping = service.settings, {"200": _empty("Yes"), "503": _empty("Not yet")}
    found: Schema = {}
    if settings.health_route not in ("", "/ping"):
        found[settings.health_route] = {"get": _get("Whether photographs are answered", ping)}
    if settings.predict_route not in ("", "/invocations"):
        encoded = {"type": "object", "required": ["b64"], "properties": {"b64": _BASE64}}
        answer = {"type": "object", "required": ["predictions"], "properties": {"predictions": _EACH}}
        found[settings.predict_route] = {"post": _posted(service, "instances", encoded, answer)}
    return found


def _posted(service: Service, key: str, item: Schema, answer: Schema) -> Schema:
    """A JSON object with a list of `item` under `key`."""
    items = {"type": "array", "items": item, "minItems": 1, "maxItems": service.settings.queue}
    sent = {"type": "object", "required": [key], "properties": {key: items}}
    return {
        "summary": "Grade photographs",
        "requestBody": {"required": True, "content": {JSON: {"schema": sent}}},
        "responses": {"200": _json("Their gradings, in the order sent", answer), **_refusals(service)},
    }


def _open_inference(service: Service) -> Schema:
    def tensor(data: Schema) -> Schema:
        sizes = {"type": "array", "items": {"type": "integer", "minimum": 1}, "minItems": 1, "maxItems": 4}
        properties = {"name": {"type": "string"}, "datatype": {"type": "string"}, "shape": sizes, "data": data}
        return {"type": "object", "required": list(properties), "properties": properties}

    name = {"name": "name", "in": "path", "required": True, "schema": {"type": "string", "pattern": f"^{MODEL_NAME}$"}}
    photographs = tensor({"type": "array", "items": _BASE64, "minItems": 1, "maxItems": service.settings.queue})
    photographs["properties"] |= {"name": {"const": INPUT}, "datatype": {"const": "BYTES"}}
    output = tensor({"type": "array", "items": {"type": ["number", "boolean"]}})
    answer = {
        "type": "object",
        "required": ["model_name", "outputs"],
        "properties": {"model_name": {"type": "string"}, "outputs": {"type": "array", "items": output}},
    }
    infer = _posted(service, "inputs", photographs, answer)
    yes_or_no = {"200": _json("Yes", {"type": "object"}), "503": _json("No, or not yet", {"type": "object"})}
    return {
        "/v2": {"get": _get("The server, by the Open Inference Protocol", {"200": _json("Its name and version", {})})},
        "/v2/health/live": {"get": _get("Whether it lives", yes_or_no)},
        "/v2/health/ready": {"get": _get("Whether photographs are answered", yes_or_no)},
        "/v2/models/{name}": {"parameters": [name], "get": _get("The model's tensors", yes_or_no)},
        "/v2/models/{name}/ready": {"parameters": [name], "get": _get("Whether it answers", yes_or_no)},
        "/v2/models/{name}/infer": {"parameters": [name], "post": infer},
    }


def _photographs(service: Service) -> Schema:
    return {
        "type": "object",
        "required": ["photographs"],
        "properties": {
            "photographs": {"type": "array", "items": _BASE64, "minItems": 1, "maxItems": service.settings.queue}
        },
    }


_PROBABILITIES: Schema = {"type": "array", "items": {"type": "number"}, "minItems": 1, "maxItems": 5}
_BASE64: Schema = {"type": "string", "contentEncoding": "base64"}
_TEXTS: Schema = {"type": "array", "items": {"type": "string"}}
_NAME: Schema = {"type": ["object", "null"], "properties": {"en": {"type": "string"}, "pt": {"type": "string"}}}
GRADING: Schema = {
    "type": "object",
    "required": ["grade", "probabilities", "predictions", "referral", "referral_probability", "gradable", "artefact"],
    "properties": {
        "grade": {"type": ["integer", "null"], "minimum": 0, "maximum": 4, "description": "ICDR; null: referral only"},
        "name": _NAME,
        "probabilities": _PROBABILITIES,
        "predictions": _PROBABILITIES,
        "referral": {"type": "boolean", "description": "At the operating point; true where it cannot be graded"},
        "referral_probability": {"type": "number", "minimum": 0, "maximum": 1},
        "operating_point": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "threshold": {"type": "number"}},
        },
        "gradable": {"type": "boolean"},
        "gradability": {
            "type": "object",
            "properties": {"score": {"type": "number", "minimum": 0, "maximum": 1}, "reasons": _TEXTS},
        },
        "artefact": {"type": "string", "description": "Digest of the model that answered"},
        "timings_ms": {"type": "object", "additionalProperties": {"type": "number", "minimum": 0}},
    },
}
REFUSAL: Schema = {
    "type": "object",
    "required": ["error"],
    "properties": {"error": {"type": "string"}, "hint": {"type": "string"}},
}
_EACH: Schema = {"type": "array", "items": {"anyOf": [{"$ref": "#/components/schemas/Grading"}, REFUSAL]}}
CONTAINER: Schema = {
    "type": "object",
    "description": "Which container answered, and what its start took",
    "required": ["id", "image", "started", "answered", "phases_s"],
    "properties": {
        "id": {"type": "string", "pattern": "^[0-9a-f]{16}$", "description": "Random, drawn when the container starts"},
        "image": {"type": ["string", "null"], "maxLength": 255, "description": "As FUNDOSCOPE_IMAGE says"},
        "started": {"type": "number", "description": "Unix time at which its first process started"},
        "answered": {"type": "integer", "minimum": 1, "description": "Gradings answered by this worker, this included"},
        "phases_s": {
            "type": "object",
            "description": "Seconds that each phase of the start took, one after the other",
            "properties": {key: {"type": "number", "minimum": 0} for key in (*START_PHASES, "first_prediction")},
            "additionalProperties": False,
        },
    },
}
_CONTAINER: Schema = {"$ref": "#/components/schemas/Container"}
_ONE_GRADING: Schema = {
    "allOf": [
        {"$ref": "#/components/schemas/Grading"},
        {"type": "object", "required": ["container"], "properties": {"container": _CONTAINER}},
    ]
}
_GRADINGS: Schema = {
    "type": "object",
    "required": ["gradings", "predictions", "container"],
    "properties": {
        "container": _CONTAINER,
        "gradings": _EACH,
        "predictions": {"type": "array", "items": {"anyOf": [_PROBABILITIES, {"type": "null"}]}},
    },
}
