"""The OpenAPI description, word for word where clients are made from it: keywords, types, every key of an answer."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from running import Running

# OpenAPI 3.1.0, 4.8.9 to 4.8.17, and the vocabularies of JSON Schema 2020-12 that it takes over: those we use.
METHODS = {"get", "post", "parameters"}
OPERATION = {"summary", "parameters", "requestBody", "responses"}
PARAMETER = {"name", "in", "required", "description", "schema"}
KEYWORDS = {
    "$ref", "additionalProperties", "allOf", "anyOf", "const", "contentEncoding", "description", "format", "items",
    "maxItems", "maxLength", "maximum", "minItems", "minLength", "minimum", "pattern", "properties", "required", "type",
}  # fmt: skip
TYPES = {"array", "boolean", "integer", "null", "number", "object", "string"}


@pytest.fixture
def description(server: Running) -> Any:
    return server.send("GET", "/openapi.json").json


def schemas_below(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield schema
        parts = [*schema.get("properties", {}).values(), *schema.get("anyOf", []), *schema.get("allOf", [])]
        for part in [*parts, schema.get("items"), schema.get("additionalProperties")]:
            yield from schemas_below(part)


def schemas_of(description: dict[str, Any]) -> Iterator[dict[str, Any]]:
    tops = list(description["components"]["schemas"].values())
    for path in description["paths"].values():
        for operation in (path[method] for method in ("get", "post") if method in path):
            bodies = [operation.get("requestBody", {}), *operation["responses"].values()]
            tops += [media["schema"] for body in bodies for media in body.get("content", {}).values()]
            tops += [one["schema"] for one in (*path.get("parameters", []), *operation.get("parameters", []))]
    for top in tops:
        yield from schemas_below(top)


def test_it_is_written_in_words_that_openapi_and_json_schema_know(description: Any) -> None:
    assert description["openapi"] == "3.1.0"
    for path in description["paths"].values():
        assert set(path) <= METHODS
        for operation in (path[method] for method in ("get", "post") if method in path):
            assert set(operation) <= OPERATION
            assert all(set(one) <= PARAMETER for one in operation.get("parameters", []))
            for body in [operation.get("requestBody", {}), *operation["responses"].values()]:
                assert set(body) <= {"description", "content", "required"}
                assert all(set(media) == {"schema"} for media in body.get("content", {}).values())
    schemas = list(schemas_of(description))
    assert len(schemas) > 100
    for schema in schemas:
        assert set(schema) <= KEYWORDS
        types = schema.get("type", [])
        assert set([types] if isinstance(types, str) else types) <= TYPES
        assert set(schema.get("required", [])) <= set(schema.get("properties", {}))


def fits(value: Any, schema: dict[str, Any], description: dict[str, Any]) -> bool:
    """Every key of the value is described, and what is required is there: stricter than JSON Schema."""
    if "$ref" in schema:
        return fits(value, description["components"]["schemas"][schema["$ref"].rpartition("/")[2]], description)
    if "anyOf" in schema:
        return any(fits(value, one, description) for one in schema["anyOf"])
    types = {"array": list, "boolean": bool, "integer": int, "null": type(None), "object": dict, "string": str}
    kinds = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    if not any(isinstance(value, types.get(kind, (int, float))) for kind in kinds):
        return False
    if isinstance(value, list):
        return all(fits(one, schema["items"], description) for one in value)
    if isinstance(value, dict):
        keys, rest = schema.get("properties", {}), schema.get("additionalProperties", False)
        return set(schema.get("required", [])) <= set(value) and all(
            (name in keys or rest is not False) and fits(one, keys.get(name, rest), description)
            for name, one in value.items()
        )
    return True


def test_every_key_of_a_grading_is_described(server: Running, description: Any, jpeg: bytes) -> None:
    answer = server.grade(jpeg).json
    schemas = description["components"]["schemas"]
    container = answer.pop("container")
    assert fits(container, schemas["Container"], description)
    assert fits(answer, schemas["Grading"], description)
    for name in ("grade", "probabilities", "predictions", "referral", "referral_probability", "gradable", "artefact"):
        assert not fits({key: answer[key] for key in answer if key != name}, schemas["Grading"], description), name
    assert not fits(answer | {"timings_ms": {"decode": "soon"}}, schemas["Grading"], description)


def test_gradings_and_refusals_in_one_answer_are_described(server: Running, description: Any, jpeg: bytes) -> None:
    sent = json.dumps({"photographs": [base64.b64encode(data).decode() for data in (jpeg, b"no photograph")]})
    reply = server.send("POST", "/invocations", sent.encode(), **{"content-type": "application/json"})
    one, several = description["paths"]["/invocations"]["post"]["responses"]["200"]["content"]["application/json"][
        "schema"
    ]["anyOf"]
    assert fits(reply.json, several, description)
    assert [part["$ref"].rpartition("/")[2] for part in one["allOf"][:1]] == ["Grading"]
    assert [set(row) & {"error", "hint"} for row in reply.json["gradings"]] == [set(), {"error", "hint"}]
    assert description["components"]["schemas"]["Refusal"] == {
        "type": "object",
        "required": ["error"],
        "properties": {"error": {"type": "string"}, "hint": {"type": "string"}},
    }


def test_a_tensor_of_photographs_is_described_by_its_name_and_type(description: Any) -> None:
    sent = description["paths"]["/v2/models/{name}/infer"]["post"]["requestBody"]["content"]["application/json"][
        "schema"
    ]
    tensor = sent["properties"]["inputs"]["items"]
    assert (sent["type"], tensor["type"]) == ("object", "object")
    assert sorted(tensor["required"]) == ["data", "datatype", "name", "shape"]
    assert tensor["properties"]["datatype"] == {"const": "BYTES"}
    assert tensor["properties"]["name"]["const"] == "photograph"
    assert tensor["properties"]["data"]["items"] == {"type": "string", "contentEncoding": "base64"}
    answer = description["paths"]["/v2/models/{name}/infer"]["post"]["responses"]["200"]["content"]["application/json"]
    assert answer["schema"]["type"] == "object"
    assert answer["schema"]["required"] == ["model_name", "outputs"]
