"""Whatever is sent to /invocations: an answer, no 5xx but 503, no growth, no hang.

`make test` sends a thousand mutated files and a hundred requests made from the OpenAPI description; `make nightly`
sends 20,000 and 2,000 (FUZZ=20).
"""

import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
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


@pytest.fixture(scope="module")
def described(server: Running) -> Any:
    return schemathesis.openapi.from_dict(server.send("GET", "/openapi.json").json)


def test_the_description_is_valid_openapi_and_names_every_address(described: Any) -> None:
    found = {(operation.ok().method.upper(), operation.ok().path) for operation in described.get_all_operations()}
    assert found == {
        ("GET", "/ping"),
        ("POST", "/invocations"),
        ("GET", "/execution-parameters"),
        ("GET", "/metrics"),
    }


def test_requests_made_from_the_description_are_answered_as_it_says(server: Running, described: Any) -> None:
    operation = described["/invocations"]["POST"]
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
        body = case.as_transport_kwargs(base_url=f"http://127.0.0.1:{server.port}").get("data") or b""
        kind = case.media_type or "application/json"
        sent = body.encode() if isinstance(body, str) else bytes(body)
        reply = send(server.port, "POST", "/invocations", sent, **headers | {"content-type": kind})
        seen[reply.status] += 1
        assert reply.status in allowed
        assert reply.status < 500 or reply.status == 503
        assert reply.json

    answered()
    assert sum(seen.values()) >= 50 * TIMES
    assert seen[400] >= 10
