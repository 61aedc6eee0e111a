"""The published stack, repaired: real nginx, real gunicorn, real TensorFlow."""

import http.client
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from PIL import Image

from fundoscope.artefact.artefact import Artefact
from fundoscope.artefact.runtime import open_predictor
from fundoscope.data.draw import draw_eye
from fundoscope.data.photo import encode_png, prepare

NGINX = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
needs_nginx = pytest.mark.skipif(NGINX is None, reason="nginx is not installed here")

RUN = """
import json, sys
from pathlib import Path
from fundoscope.errors import FundoscopeError
from fundoscope.serve.published import run
from fundoscope.serve.settings import Settings

settings = json.loads(sys.argv[1])
try:
    sys.exit(run(Settings(**settings | {"model": Path(settings["model"])})))
except FundoscopeError as problem:
    sys.exit(f"error: {problem.message}\\nhint: {problem.hint}")
"""
DEFAULTS = {"stack": "published", "port": 0, "workers": 1, "platform": "serverless"}
DEADLINE_S = 180.0


@dataclass(frozen=True)
class Stack:
    process: "subprocess.Popen[str]"
    port: int

    def send(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, bytes, dict[str, str]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        try:
            connection.request(method, path, body or None, {name.replace("_", "-"): v for name, v in headers.items()})
            answer = connection.getresponse()
            return answer.status, answer.read(), dict(answer.getheaders())
        finally:
            connection.close()

    def grade(self, photo: bytes) -> dict[str, Any]:
        status, body, _ = self.send("POST", "/invocations", photo, Content_Type="image/png")
        assert status == 200, body
        return dict(json.loads(body))

    def workers(self) -> set[int]:
        """gunicorn's own children: supervisor -> gunicorn -> workers."""
        children = psutil.Process(self.process.pid).children()
        (gunicorn,) = [child for child in children if "gunicorn" in " ".join(child.cmdline())]
        return {worker.pid for worker in gunicorn.children()}


def command(model: Path, **changes: Any) -> list[str]:
    return [sys.executable, "-c", RUN, json.dumps(DEFAULTS | {"model": str(model)} | changes)]


@contextmanager
def started(model: Path, **changes: Any) -> Iterator[Stack]:
    process = subprocess.Popen(command(model, **changes), stderr=subprocess.PIPE, text=True, process_group=0)
    try:
        assert process.stderr is not None
        heard = []
        for line in process.stderr:
            heard.append(line)
            if line.startswith('{"event": "ready"'):
                yield Stack(process, json.loads(line)["port"])
                return
        pytest.fail("it ended before it was ready:\n" + "".join(heard))
    finally:
        process.terminate()
        try:
            process.communicate(timeout=DEADLINE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # the group we started
            process.communicate()


@pytest.fixture(scope="module")
def savedmodel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from untrained_run import draw_records, fabricate_run, keras_warnings_are_its_own

    from fundoscope.artefact.export import export

    folder = tmp_path_factory.mktemp("published")
    with keras_warnings_are_its_own():
        run = fabricate_run(folder / "run", draw_records(folder / "drawn"))
        return export(run.folder, folder / "savedmodel", format="savedmodel").artefact.folder


@pytest.fixture(scope="module")
def stack(savedmodel: Path) -> Iterator[Stack]:
    if NGINX is None:
        pytest.skip("nginx is not installed here")
    with started(savedmodel) as up:
        yield up


@pytest.fixture(scope="module")
def photo() -> bytes:
    return encode_png(draw_eye(5, 3, size=256).pixels)


def test_it_answers_with_the_published_keys_and_our_grading(stack: Stack, savedmodel: Path, photo: bytes) -> None:
    artefact = Artefact.open(savedmodel)
    pixels = prepare(photo, artefact.input.preparation).pixels
    expected = open_predictor(artefact, threads=0).probabilities(pixels[None])[0]
    answer = stack.grade(photo)
    np.testing.assert_allclose(answer["predictions"], expected, atol=1e-5)
    assert answer["grade"] == int(expected.argmax())
    assert answer["artefact"] == artefact.digest
    # Seconds, as published: the whole takes longer than its part, and neither is milliseconds.
    assert 0 < answer["predictionLatency"] < answer["requestLatency"] < 10
    assert answer["requestLatency"] == pytest.approx(answer["timings_ms"]["total"] / 1000, abs=1e-5)


def test_boto3s_address_leads_to_the_same_answer(stack: Stack, photo: bytes) -> None:
    status, body, _ = stack.send("POST", "/endpoints/dr-vgg19/invocations", photo, Content_Type="image/png")
    assert (status, json.loads(body)["predictions"]) == (200, pytest.approx(stack.grade(photo)["predictions"]))
    assert stack.send("POST", "/endpoints/a/b/invocations", photo, Content_Type="image/png")[0] == 404


def test_ping_is_empty(stack: Stack) -> None:
    status, body, _ = stack.send("GET", "/ping")
    assert (status, body) == (200, b"")


@pytest.mark.parametrize(
    ("path", "body", "type", "status", "error"),
    [
        ("/invocations", b"not a picture", "image/jpeg", 400, "the file is not a picture in a format we read"),
        ("/invocations", b"{}", "application/json", 415, "this service reads photographs, not application/json"),
        ("/invocations", bytes(4 * 2**20 + 1), "image/jpeg", 413, "the request is larger than 4 MB"),
        ("/elsewhere", b"x", "image/jpeg", 404, "there is nothing here"),
    ],
)
def test_what_cannot_be_answered_is_refused_in_a_sentence(
    stack: Stack, path: str, body: bytes, type: str, status: int, error: str
) -> None:
    refused, answer, headers = stack.send("POST", path, body, Content_Type=type)
    assert (refused, json.loads(answer)["error"]) == (status, error)
    assert json.loads(answer)["hint"]
    assert headers["Content-Type"].startswith("application/json")


def test_a_grey_photograph_is_answered(stack: Stack) -> None:
    """The published one failed with 500 (its array has two dimensions)."""
    grey = io.BytesIO()
    Image.fromarray(draw_eye(5, 3, size=256).pixels).convert("L").save(grey, "PNG")
    assert len(stack.grade(grey.getvalue())["predictions"]) == 5


def test_a_killed_worker_is_replaced(stack: Stack, photo: bytes) -> None:
    before = stack.grade(photo)
    (victim,) = stack.workers()
    os.kill(victim, signal.SIGKILL)
    deadline = time.monotonic() + DEADLINE_S
    while True:  # requests that come meanwhile wait for the new one, or are refused politely
        status, body, headers = stack.send("POST", "/invocations", photo, Content_Type="image/png")
        if status == 200 or time.monotonic() > deadline:
            break
        assert (status, headers["Retry-After"]) == (503, "1")
    assert json.loads(body)["predictions"] == before["predictions"]
    (successor,) = stack.workers()
    assert successor != victim


@needs_nginx
def test_lazy_loading_is_healthy_before_it_is_ready_and_sigterm_loses_no_request(
    savedmodel: Path, photo: bytes
) -> None:
    with started(savedmodel, load="first-request") as lazy:  # so /ping was 200
        first, second = lazy.grade(photo), lazy.grade(photo)
        assert first["predictions"] == second["predictions"]
        assert first["predictionLatency"] > 2 * second["predictionLatency"]  # it includes loading, as published
        assert _answer_across(lazy, photo, signal.SIGTERM)["predictions"] == first["predictions"]
        assert lazy.process.wait(DEADLINE_S) == 0


def _answer_across(stack: Stack, photo: bytes, number: signal.Signals) -> dict[str, Any]:
    """The answer to a request whose second half is sent when the service has already closed its door."""
    head = f"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Type: image/png\r\nContent-Length: {len(photo)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", stack.port), DEADLINE_S) as connection:
        connection.sendall(head.encode() + photo[:100])
        stack.send("GET", "/ping")  # connections are accepted in their order: ours is in
        stack.process.send_signal(number)
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            try:
                stack.send("GET", "/ping")
            except ConnectionRefusedError:
                break
        connection.sendall(photo[100:])
        answer = http.client.HTTPResponse(connection, method="POST")
        answer.begin()
        assert answer.status == 200
        return dict(json.loads(answer.read()))


@needs_nginx
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"operating_point": "high_sensitivty"}, "there is no operating point called 'high_sensitivty'"),
        ({"host": "203.0.113.1"}, "cannot listen on 203.0.113.1:0"),
    ],
)
def test_what_cannot_be_started_is_said_in_a_sentence(savedmodel: Path, changes: dict[str, Any], words: str) -> None:
    done = subprocess.run(command(savedmodel, **changes), capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {words}"), done.stderr
    assert "hint: " in done.stderr


def test_an_artefact_in_another_format_is_not_served(savedmodel: Path, tmp_path: Path) -> None:
    table = json.loads((savedmodel / "artefact.json").read_text()) | {"format": "onnx"}
    (tmp_path / "artefact.json").write_text(json.dumps(table))
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    stand_in = tmp_path / "nginx"  # it is not started: the model is looked at first
    stand_in.touch(0o755)
    done = subprocess.run(command(tmp_path), capture_output=True, text=True, timeout=DEADLINE_S, env=environment)
    assert f"the published stack serves a SavedModel, and {tmp_path} holds onnx" in done.stderr
