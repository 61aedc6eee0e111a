"""Whatever is sent to /invocations: an answer, no 5xx but 503, no growth, no hang.

`make test` sends a thousand mutated files and a hundred requests made from the OpenAPI description; `make nightly`
sends 20,000 and 2,000 (FUZZ=20).
"""

import json
import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from mutations import mutated
from running import DEADLINE_S, Running, send, serving

TIMES = int(os.environ.get("FUZZ", "1"))
GROWTH_BYTES = 40e6  # of resident memory, over the whole of it, once everything has been in use


def test_mutated_photographs_are_answered_or_refused(artefact_folder: Path) -> None:
    kinds = ("image/jpeg", "image/png", "image/tiff", "application/octet-stream")
    with serving(artefact_folder) as running, ThreadPoolExecutor(4) as pool:

        def post(numbered: tuple[int, bytes]) -> int:
            number, photo = numbered
            return running.grade(photo, **{"content-type": kinds[number % len(kinds)]}).status

        warm = Counter(pool.map(post, enumerate(mutated(300, seed=1))))
        before = running.metrics()["process_resident_memory_bytes"]
        statuses = Counter(pool.map(post, enumerate(mutated(1000 * TIMES, seed=2))))
        after = running.metrics()
    assert sum(statuses.values()) == 1000 * TIMES
    assert set(warm) | set(statuses) <= {200, 400, 503}, statuses
    assert statuses[200] >= 100 * TIMES  # mild changes are survived …
    assert statuses[400] >= 300 * TIMES  # … and others seen
    assert after["process_resident_memory_bytes"] - before < GROWTH_BYTES
    assert after["fundoscope_workers_replaced_total"] == 0
    assert after['fundoscope_requests_total{status="500"}'] == 0


VERTEX = {"AIP_HEALTH_ROUTE": "/vertex/health", "AIP_PREDICT_ROUTE": "/vertex/predict"}
ADDRESSES = (
    "/invocations",
    "/endpoints/{name}/invocations",
    "/vertex/predict",
    "/v2/models/{name}/infer",
)
GETS = ("/ping", "/execution-parameters", "/metrics", "/v2", "/v2/health/live", "/v2/health/ready")
OF_A_NAME = ("/v2/models/{name}", "/v2/models/{name}/ready")


@pytest.fixture(scope="module")
def everywhere(artefact_folder: Path) -> Iterator[Running]:
    """A server that answers at all addresses there are."""
    with serving(artefact_folder, **VERTEX) as running:
        yield running


@pytest.fixture(scope="module")
def described(everywhere: Running) -> Any:
    return schemathesis.openapi.from_dict(everywhere.send("GET", "/openapi.json").json)


def test_the_description_is_valid_openapi_and_names_every_address(described: Any) -> None:
    found = {(operation.ok().method.upper(), operation.ok().path) for operation in described.get_all_operations()}
    assert found == {
        ("GET", "/ping"),
        ("POST", "/invocations"),
        ("POST", "/endpoints/{name}/invocations"),
        ("GET", "/execution-parameters"),
        ("GET", "/metrics"),
        ("GET", "/v2"),
        ("GET", "/v2/health/live"),
        ("GET", "/v2/health/ready"),
        ("GET", "/v2/models/{name}"),
        ("GET", "/v2/models/{name}/ready"),
        ("POST", "/v2/models/{name}/infer"),
        ("GET", "/vertex/health"),
        ("POST", "/vertex/predict"),
    }


@pytest.mark.parametrize("path", [*GETS, *OF_A_NAME])
def test_every_address_to_get_is_answered_as_the_description_says(
    everywhere: Running, described: Any, path: str
) -> None:
    reply = everywhere.send("GET", path.format(name="dr-mobilenet"))
    assert reply.status == 200
    said = described[path]["GET"].responses.status_codes
    assert "200" in said


@pytest.mark.parametrize("path", ADDRESSES)
def test_requests_made_from_the_description_are_answered_as_it_says(
    everywhere: Running, described: Any, path: str
) -> None:
    operation = described[path]["POST"]
    allowed = {int(status) for status in operation.responses.status_codes}
    seen: Counter[int] = Counter()

    @settings(
        max_examples=100 * TIMES,
        deadline=DEADLINE_S * 1000,
        derandomize=True,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    @given(case=operation.as_strategy())
    def answered(case: Any) -> None:
        headers = {str(name): str(value) for name, value in dict(case.headers or {}).items()}
        headers = {name: value for name, value in headers.items() if value.isascii() and value.isprintable()}
        body = case.as_transport_kwargs(base_url=f"http://127.0.0.1:{everywhere.port}").get("data") or b""
        kind = case.media_type or "application/json"
        sent = body.encode() if isinstance(body, str) else bytes(body)
        reply = send(everywhere.port, "POST", case.formatted_path, sent, **headers | {"content-type": kind})
        seen[reply.status] += 1
        assert reply.status in allowed
        assert reply.status < 500 or reply.status == 503
        assert reply.json

    answered()
    assert sum(seen.values()) >= 50 * TIMES
    assert seen[400] >= (10 if path == "/invocations" else 1), seen


PROTOCOLS = {
    "/invocations": '{"photographs": ["AA=="]}',
    "/vertex/predict": '{"instances": [{"b64": "AA=="}]}',
    "/v2/models/x/infer": (
        '{"id": "7", "inputs": [{"name": "photograph", "datatype": "BYTES", "shape": [1], "data": ["AA=="]}],'
        ' "outputs": [{"name": "grade"}]}'
    ),
}
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.just("AA=="),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize("path", PROTOCOLS)
def test_json_that_is_nearly_right_is_refused_in_a_sentence(everywhere: Running, path: str) -> None:
    """Any one part of a right request, replaced by anything."""
    right = json.loads(PROTOCOLS[path])
    statuses: Counter[int] = Counter()

    @settings(max_examples=200 * TIMES, deadline=None, derandomize=True, database=None)
    @given(place=st.sampled_from(list(_places(right))), value=ANYTHING)
    def refused(place: tuple[str | int, ...], value: Any) -> None:
        body = json.dumps(_replaced(right, place, value)).encode()
        reply = everywhere.send("POST", path, body, content_type="application/json")
        statuses[reply.status] += 1
        assert reply.status in (200, 400, 413)
        # Two bytes are no photograph, however they are wrapped; of several, each gets to hear it.
        rows = reply.json.get("gradings", reply.json.get("predictions")) if reply.status == 200 else [reply.json]
        assert all(set(one) == {"error", "hint"} for one in rows)

    refused()
    assert statuses[400] >= 100 * TIMES


def _places(table: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    yield path
    inside = table.items() if isinstance(table, dict) else enumerate(table) if isinstance(table, list) else ()
    for key, value in inside:
        yield from _places(value, (*path, key))


def _replaced(table: Any, path: tuple[str | int, ...], value: Any) -> Any:
    if not path:
        return value
    copy = dict(table) if isinstance(table, dict) else list(table)
    copy[path[0]] = _replaced(table[path[0]], path[1:], value)
    return copy


@pytest.mark.parametrize("path", PROTOCOLS)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe",
        b"[" * 200_000,
        b'{"inputs":' * 50_000,
        b"1" * 5_000,
        b'{"inputs": [{"name": "photograph", "datatype": "BYTES", "data": ["AA=="], "shape": [' + b"9" * 4000 + b"]}]}",
        b'{"inputs": [{"name": "photograph", "datatype": "BYTES", "data": ["AA=="], "shape": ['
        + b"9999999," * 100_000
        + b"1]}]}",
        b'{"inputs": [{"name": "photograph", "datatype": "BYTES", "data": [[["AA=="]]], "shape": [1]}]}',
        b'{"inputs": [{"name": "photograph", "datatype": "BYTES", "data": "AA==", "shape": [4]}]}',
        b'{"inputs": [{"name": "photograph", "datatype": "BYTES", "data": ["AA=="], "shape": [true]}]}',
        b'{"inputs": [{"name": "photograph", "datatype": "BYTES", "data": ["\\ud800"], "shape": [1]}]}',
        b'{"instances": [{"b64": "\\ud800"}]}',
    ],
    ids=range(12),
)
def test_hostile_json_is_refused_at_once(everywhere: Running, path: str, body: bytes) -> None:
    reply = everywhere.send("POST", path, body, content_type="application/json")
    assert reply.status == 400
    assert reply.json["error"]
    assert everywhere.send("GET", "/ping").status == 200
