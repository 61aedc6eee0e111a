"""The OpenAPI description of the service: what it takes, what it answers, what it refuses."""

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from fundoscope.serve.invoke import ATTRIBUTES, ATTRIBUTES_LENGTH, CSV, JSON, JSON_LINES, PHOTO_TYPES
from fundoscope.serve.service import Service

Schema = dict[str, Any]


def describe(service: Service) -> Schema:
    graders = [grader for _, _, grader in service.models]
    notice = graders[0].artefact.notice.en if graders else "Not a medical device."
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Fundoscope: grading of diabetic retinopathy",
            "version": _version(),
            "description": f"{notice} Ungradable photographs are answered too, and referred.",
        },
        "paths": {
            "/ping": {
                "get": _get("Whether photographs are answered", {"200": _empty("Yes"), "503": _empty("Not yet")})
            },
            "/invocations": {"post": _invocations(service)},
            "/execution-parameters": {"get": _get("What batch transform asks", {"200": _json("The parameters", {})})},
            "/metrics": {"get": _get("Prometheus metrics", {"200": {"description": "The metrics", "content": _TEXT}})},
        },
        "components": {"schemas": {"Grading": GRADING, "Refusal": REFUSAL}},
    }


def _version() -> str:
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


_TEXT = {"text/plain": {"schema": {"type": "string"}}}


def _invocations(service: Service) -> Schema:
    binary = {"schema": {"type": "string", "format": "binary"}}
    refusals = {
        "400": "The photograph cannot be read, or the JSON holds none",
        "406": "No kind of answer that you accept",
        "408": "The photograph did not arrive in time",
        "413": f"More than {service.settings.payload_bytes // 2**20} MB, or too many photographs",
        "415": "Not a kind of photograph",
        "431": "The headers are too long",
        "503": "Busy, stopping, or no answer in time; Retry-After says when to try again",
    }
    answers = {
        JSON: {"schema": {"anyOf": [{"$ref": "#/components/schemas/Grading"}, _GRADINGS]}},
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
            **{code: _json(said, {"$ref": "#/components/schemas/Refusal"}) for code, said in refusals.items()},
        },
    }


def _photographs(service: Service) -> Schema:
    encoded = {"type": "string", "contentEncoding": "base64"}
    return {
        "type": "object",
        "required": ["photographs"],
        "properties": {
            "photographs": {"type": "array", "items": encoded, "minItems": 1, "maxItems": service.settings.queue}
        },
    }


_PROBABILITIES: Schema = {"type": "array", "items": {"type": "number"}, "minItems": 1, "maxItems": 5}
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
_GRADINGS: Schema = {
    "type": "object",
    "required": ["gradings", "predictions"],
    "properties": {
        "gradings": {"type": "array", "items": {"anyOf": [{"$ref": "#/components/schemas/Grading"}, REFUSAL]}},
        "predictions": {"type": "array", "items": {"anyOf": [_PROBABILITIES, {"type": "null"}]}},
    },
}
