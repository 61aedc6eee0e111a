"""The service as SageMaker and its callers see it: a real process, real HTTP."""

import base64
import ctypes
import errno
import io
import json
import os
import re
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np
import pytest
import simplejpeg
from PIL import Image
from prometheus_client.parser import text_string_to_metric_families
from pytest import approx
from running import DEADLINE_S, Running, send, serving, until

from fundoscope.artefact.artefact import Artefact
from fundoscope.artefact.runtime import open_predictor
from fundoscope.data.draw import draw_eye
from fundoscope.data.photo import encode_png
from fundoscope.serve.grading import Grader
from fundoscope.serve.launch import DRAIN_S

HERE = Path(__file__).parent
PATIENT = [sys.executable, str(HERE / "patient_server.py"), "serve", "--port", "0"]
PIDFD_GETFD = 438  # the number of this system call, on every machine


def green() -> bytes:
    """What stuck_server.py is slow with."""
    disc = np.hypot(*np.mgrid[-128:128, -128:128]) < 110
    return bytes(simplejpeg.encode_jpeg((disc[..., None] * np.array([20, 200, 40])).astype(np.uint8), quality=95))


def stuck_server(until_exists: Path) -> list[str]:
    return [sys.executable, str(HERE / "stuck_server.py"), str(until_exists), "serve", "--port", "0"]


def test_ping_is_answered_with_an_empty_body(server: Running) -> None:
    reply = server.send("GET", "/ping")
    assert (reply.status, reply.body) == (200, b"")


def test_a_photograph_gets_the_grading_that_the_artefact_gives_it(
    server: Running, artefact_folder: Path, jpeg: bytes
) -> None:
    artefact = Artefact.open(artefact_folder)
    grader = Grader(artefact, open_predictor(artefact, threads=1))
    expected = grader.grade([grader.read(jpeg)])[0]
    got = server.grade(jpeg).json
    assert got["probabilities"] == approx(list(expected.probabilities), abs=1e-5)
    assert got["predictions"] == got["probabilities"]
    assert sum(got["probabilities"]) == approx(1, abs=1e-5)
    assert got["grade"] == expected.grade
    assert got["name"] == {"en": expected.name.en, "pt": expected.name.pt}  # type: ignore[union-attr]
    assert (
        got["referral"] == (got["referral_probability"] >= got["operating_point"]["threshold"]) or not got["gradable"]
    )
    assert got["artefact"] == artefact.digest
    timings = got["timings_ms"]
    assert set(timings) == {"queue", "decode", "predict", "total"}
    assert timings["total"] == approx(timings["queue"] + timings["decode"] + timings["predict"], abs=0.01)


def test_the_same_photograph_in_any_lossless_form_gets_the_same_answer(server: Running) -> None:
    pixels = draw_eye(5, 1, size=300).pixels
    answers = {}
    for form in ("PNG", "TIFF", "BMP", "PPM"):
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, form)
        reply = server.send("POST", "/invocations", file.getvalue(), content_type="application/octet-stream")
        answers[form] = reply.json["probabilities"]
    assert answers["TIFF"] == answers["BMP"] == answers["PPM"] == answers["PNG"]


def test_several_photographs_in_json_are_answered_in_their_order(server: Running, jpeg: bytes) -> None:
    other = encode_png(draw_eye(5, 2, size=256).pixels)
    sent = {"photographs": [base64.b64encode(p).decode() for p in (jpeg, b"no picture", other)]}
    reply = server.send("POST", "/invocations", json.dumps(sent).encode(), content_type="application/json")
    gradings = reply.json["gradings"]
    assert reply.status == 200
    assert gradings[0]["probabilities"] == approx(server.grade(jpeg).json["probabilities"], abs=1e-5)
    assert gradings[1] == {
        "error": "the file is not a picture in a format we read",
        "hint": "send the photograph as a JPEG, PNG, TIFF, BMP or WebP file",
    }
    assert gradings[2]["probabilities"] == approx(server.grade(other).json["probabilities"], abs=1e-5)
    assert reply.json["predictions"] == [gradings[0]["predictions"], None, gradings[2]["predictions"]]


def test_the_answer_comes_in_the_form_that_is_accepted(server: Running, jpeg: bytes) -> None:
    plain = server.grade(jpeg)
    assert plain.headers["content-type"] == "application/json"
    csv = server.grade(jpeg, accept="text/csv")
    assert csv.headers["content-type"] == "text/csv"
    assert [float(p) for p in csv.body.decode().split(",")] == approx(plain.json["probabilities"], abs=1e-5)
    lines = server.grade(jpeg, accept="application/jsonlines;q=0.9, text/csv;q=0.1")
    assert json.loads(lines.body)["grade"] == plain.json["grade"]
    refused = server.grade(jpeg, accept="image/png")
    assert refused.status == 406
    assert refused.json["hint"] == "accept application/json"


def test_custom_attributes_come_back_as_they_were_sent_and_no_longer_than_allowed(server: Running, jpeg: bytes) -> None:
    name = "x-amzn-sagemaker-custom-attributes"
    longest = "".join(chr(33 + i % 94) for i in range(1024))
    assert server.grade(jpeg, **{name: longest}).headers[name] == longest
    assert name not in server.grade(jpeg).headers
    refused = server.grade(jpeg, **{name: longest + "x"})
    assert (refused.status, refused.json["error"]) == (
        400,
        "custom attributes are at most 1024 visible ASCII characters",
    )


def test_unknown_addresses_and_methods_are_refused(server: Running) -> None:
    assert server.send("GET", "/").status == 404
    assert server.send("GET", "/models").status == 404  # not a multi-model server
    reply = server.send("GET", "/invocations")
    assert (reply.status, reply.headers["allow"]) == (405, "POST")


def test_what_is_not_a_photograph_is_refused_with_what_to_send(server: Running, jpeg: bytes) -> None:
    def refusal(body: bytes, kind: str = "image/jpeg") -> tuple[int, str]:
        reply = server.send("POST", "/invocations", body, content_type=kind)
        assert reply.json["hint"]
        return reply.status, reply.json["error"]

    assert refusal(b"1,2,3", "text/csv") == (415, "text/csv is not a kind of photograph")
    assert refusal(b"") == (400, "the file is empty")
    assert refusal(jpeg[: len(jpeg) // 2]) == (400, "the file is truncated: part of the picture is missing")
    assert refusal(b"%PDF-1.7 and so on") == (400, "the file is a PDF document, not a photograph")
    assert refusal(b"{}", "application/json") == (400, "the JSON holds no photographs")
    assert refusal(b"[" * 100_000, "application/json") == (400, "the JSON holds no photographs")
    assert refusal(b'{"photographs": ["***"]}', "application/json") == (
        400,
        "a photograph in the request is not base64",
    )
    many = json.dumps({"photographs": ["AA=="] * 65}).encode()
    assert refusal(many, "application/json") == (413, "there are 65 photographs in the request")


def test_a_decompression_bomb_is_refused_before_it_is_decoded(server: Running) -> None:
    header = struct.pack(">IIBBBBB", 9_000, 9_000, 8, 2, 0, 0, 0)

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    zeros = zlib.compress(bytes(10_000_000))
    bomb = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zeros) + chunk(b"IEND", b"")
    before = server.metrics()["process_resident_memory_bytes"]
    reply = server.grade(bomb)
    assert (reply.status, reply.json["error"]) == (400, "the picture has more than 50 million pixels")
    assert server.metrics()["process_resident_memory_bytes"] - before < 50e6


def test_grey_transparent_and_tiny_pictures_are_answered(server: Running) -> None:
    eye = Image.fromarray(draw_eye(5, 3, size=256).pixels)
    for picture in (eye.convert("L"), eye.convert("RGBA"), eye.convert("P"), eye.resize((1, 1)), eye.convert("I;16")):
        file = io.BytesIO()
        picture.save(file, "PNG")
        assert server.grade(file.getvalue()).status == 200, picture.mode


def test_a_body_larger_than_the_platform_takes_is_refused_and_read(server: Running) -> None:
    at_limit = server.send("POST", "/invocations", bytes(25 * 2**20), content_type="image/jpeg")
    assert at_limit.status == 400  # taken, and not a photograph
    over = server.send("POST", "/invocations", bytes(25 * 2**20 + 1), content_type="image/jpeg")
    assert (over.status, over.json["error"]) == (413, "the request is larger than 25 MB, the most taken here")


def test_a_chunked_body_is_stopped_at_the_limit(artefact_folder: Path) -> None:
    with (
        serving(artefact_folder, "--platform", "serverless") as running,
        socket.create_connection(("127.0.0.1", running.port), timeout=DEADLINE_S) as wire,
    ):
        wire.sendall(b"POST /invocations HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        chunk = b"100000\r\n" + bytes(2**20) + b"\r\n"
        try:
            for _ in range(40):  # far beyond 4 MB
                wire.sendall(chunk)
        except OSError:
            pass  # it hung up, rightly
        assert running.metrics()['fundoscope_requests_total{status="413"}'] == 1


def test_endless_headers_are_refused(server: Running) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE_S) as wire:
        wire.sendall(b"GET /ping HTTP/1.1\r\nx: ")
        try:
            for _ in range(100):
                wire.sendall(b"a" * 65536)
        except OSError:
            return  # closed before we could read why: bounded all the same
        assert wire.recv(65536).startswith(b"HTTP/1.1 431 ")


def test_metrics_are_what_prometheus_reads_and_count_what_happened(artefact_folder: Path, jpeg: bytes) -> None:
    with serving(artefact_folder) as running:
        for photo in (jpeg, jpeg, b"no picture"):
            running.grade(photo)
        text = running.send("GET", "/metrics").body.decode()
        families = {family.name: family for family in text_string_to_metric_families(text)}
        samples = {(s.name, *sorted(s.labels.items())): s.value for f in families.values() for s in f.samples}
    assert samples["fundoscope_requests_total", ("status", "200")] == 2
    assert samples["fundoscope_requests_total", ("status", "400")] == 1
    graded = [samples["fundoscope_photographs_total", ("outcome", o)] for o in ("graded", "ungradable")]
    assert sum(graded) == 2
    assert samples["fundoscope_photographs_total", ("outcome", "unreadable")] == 1
    assert samples["fundoscope_seconds_count", ("phase", "predict")] == 2
    assert samples["fundoscope_seconds_bucket", ("le", "+Inf"), ("phase", "predict")] == 2
    assert samples["fundoscope_in_flight",] == 0
    (info,) = families["fundoscope_artefact_info"].samples
    assert info.labels["digest"] == Artefact.open(artefact_folder).digest


def test_execution_parameters_keep_within_what_batch_transform_allows(server: Running) -> None:
    parameters = server.send("GET", "/execution-parameters").json
    assert set(parameters) == {"MaxConcurrentTransforms", "BatchStrategy", "MaxPayloadInMB"}
    assert parameters["MaxConcurrentTransforms"] * parameters["MaxPayloadInMB"] <= 100


def test_nothing_of_a_photograph_or_of_whose_it_is_reaches_the_log(artefact_folder: Path, jpeg: bytes) -> None:
    with serving(artefact_folder, "--log-requests") as running:
        running.grade(jpeg, **{"x-amzn-sagemaker-custom-attributes": "patient=Maria"})
        running.grade(b"Maria's photograph")
        running.send("POST", "/invocations", b'{"Maria": 1}', content_type="application/json")
        running.send("GET", "/patients/Maria")
        assert until(lambda: len(running.events("request")) == 4)
        assert "Maria" not in "".join(running.lines)
        assert [event["status"] for event in running.events("request")] == [200, 400, 400, 404]


@pytest.fixture
def go_on(tmp_path: Path) -> Path:
    """Where a stuck server looks for leave to go on."""
    return tmp_path / "go on"


def test_ping_is_answered_while_a_prediction_runs(artefact_folder: Path, go_on: Path) -> None:
    with serving(artefact_folder, program=stuck_server(go_on)) as running, ThreadPoolExecutor(1) as pool:
        slow = pool.submit(running.grade, green())
        until(lambda: running.metrics()["fundoscope_queue"] == 1)
        assert running.send("GET", "/ping").status == 200
        assert not slow.done()
        go_on.touch()
        assert slow.result().status == 200


def test_a_full_line_sends_callers_away_and_says_when_to_come_back(artefact_folder: Path, go_on: Path) -> None:
    with (
        serving(artefact_folder, "--queue", "2", program=stuck_server(go_on)) as running,
        ThreadPoolExecutor(2) as pool,
    ):
        waiting = [pool.submit(running.grade, green()) for _ in range(2)]
        until(lambda: running.metrics()["fundoscope_queue"] == 2)
        refused = running.grade(green())
        assert (refused.status, refused.json["error"]) == (503, "all places are taken: the server is busy")
        assert int(refused.headers["retry-after"]) >= 1
        go_on.touch()
        assert [one.result().status for one in waiting] == [200, 200]
        assert running.metrics()['fundoscope_photographs_total{outcome="busy"}'] == 1


def test_photographs_that_come_together_are_predicted_together(artefact_folder: Path, jpeg: bytes, go_on: Path) -> None:
    with serving(artefact_folder, "--batch", "8", "--threads", "1", program=stuck_server(go_on)) as running:
        expected = running.grade(jpeg).json["probabilities"]
        with ThreadPoolExecutor(9) as pool:
            slow = pool.submit(running.grade, green())  # while this one is predicted, the others gather
            until(lambda: running.metrics()["fundoscope_queue"] == 1)
            together = [pool.submit(running.grade, jpeg) for _ in range(8)]
            until(lambda: running.metrics()["fundoscope_queue"] == 9)
            go_on.touch()
            replies = [one.result() for one in together]
            assert slow.result().status == 200
        assert all(reply.json["probabilities"] == approx(expected, abs=1e-5) for reply in replies)
        counted = running.metrics()
        assert counted['fundoscope_batch_photographs_bucket{le="2"}'] == 2  # the first, and the slow one
        assert counted["fundoscope_batch_photographs_sum"] == 2 + 8 * 8  # each of the eight in company of eight


def test_a_prediction_that_never_ends_is_given_up_and_its_worker_replaced(
    artefact_folder: Path, jpeg: bytes, go_on: Path
) -> None:
    with serving(artefact_folder, "--timeout-s", "1", program=stuck_server(go_on)) as running:
        first = running.worker
        start = time.monotonic()
        reply = running.grade(green())
        assert (reply.status, reply.json["error"]) == (503, "there was no answer within 1 s")
        assert time.monotonic() - start >= 1  # no sooner; and it never ends by itself
        running.wait_for("ready", 2)
        assert running.worker != first
        assert running.send("GET", "/ping").status == 200
        assert running.grade(jpeg).status == 200
        counted = running.metrics()
        assert counted["fundoscope_workers_replaced_total"] == 1
        assert counted['fundoscope_photographs_total{outcome="timeout"}'] == 1  # what was counted before is kept


def test_a_worker_that_crashes_is_replaced_and_callers_wait_meanwhile(artefact_folder: Path, jpeg: bytes) -> None:
    with serving(artefact_folder) as running:
        assert running.grade(jpeg).status == 200
        os.kill(running.worker, signal.SIGKILL)
        assert until(lambda: _patiently(running.port, jpeg)) == 200
        assert len(running.events("worker replaced")) == 1
        assert running.metrics()['fundoscope_requests_total{status="200"}'] == 2  # one was answered by the first


def _patiently(port: int, jpeg: bytes) -> int | None:
    """The status; None where the connection went down with the worker that was killed."""
    try:
        return send(port, "POST", "/invocations", jpeg, content_type="image/jpeg").status
    except OSError:
        return None


def test_a_worker_that_cannot_live_is_not_replaced_for_ever(artefact_folder: Path) -> None:
    with serving(artefact_folder, program=PATIENT) as running:
        for crash in range(1, 6):
            running.wait_for("ready", crash)
            os.kill(running.worker, signal.SIGKILL)
        assert running.process.wait(DEADLINE_S) == 1
        assert len(running.events("worker replaced")) == 4


def test_sigterm_answers_what_was_accepted_and_ends_with_0(artefact_folder: Path, go_on: Path) -> None:
    with serving(artefact_folder, program=stuck_server(go_on)) as running, ThreadPoolExecutor(1) as pool:
        slow = pool.submit(running.grade, green())
        until(lambda: running.metrics()["fundoscope_queue"] == 1)
        running.process.terminate()
        until(lambda: _refuses(running.port))
        assert not slow.done()
        go_on.touch()
        assert slow.result().status == 200
        assert running.process.wait(DEADLINE_S) == 0
    assert DRAIN_S < 30  # when the platform kills


def _refuses(port: int) -> bool:
    """Whether nobody listens there."""
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED


def test_sigterm_does_not_wait_for_a_photograph_that_has_only_half_arrived(artefact_folder: Path) -> None:
    with (
        serving(artefact_folder) as running,
        socket.create_connection(("127.0.0.1", running.port), timeout=DEADLINE_S) as wire,
    ):
        wire.sendall(b"POST /invocations HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\nhalf")
        until(lambda: running.metrics()["fundoscope_in_flight"] == 1)
        running.process.terminate()
        # Were it waited for, the server would hang up without a word when DRAIN_S is over.
        assert wire.recv(65536).startswith(b"HTTP/1.1 408 ")
        assert running.process.wait(DEADLINE_S) == 0


@pytest.mark.parametrize("workers", [1, 2])
def test_answers_are_not_held_back_for_acknowledgements(workers: int, artefact_folder: Path) -> None:
    """Nagle's delay would add 40 ms to every second small answer on a kept connection."""
    with (
        serving(artefact_folder, "--workers", str(workers)) as running,
        socket.create_connection(("127.0.0.1", running.port), timeout=DEADLINE_S) as wire,
    ):
        running.wait_for("ready", workers)
        wire.sendall(b"GET /ping HTTP/1.1\r\nhost: x\r\n\r\n")
        assert wire.recv(65536).startswith(b"HTTP/1.1 200 ")
        pids = [int(event["worker"]) for event in running.events("ready")]
        (option,) = [s for pid in pids for s in _nodelay(pid, of=wire.getsockname())]
        assert option == 1


def _nodelay(pid: int, *, of: tuple[str, int]) -> list[int]:
    """TCP_NODELAY of what a process has open to that caller."""
    libc = ctypes.CDLL(None, use_errno=True)
    process, options = os.pidfd_open(pid), []
    try:
        for number in [int(path.name) for path in Path(f"/proc/{pid}/fd").iterdir()]:
            descriptor = libc.syscall(PIDFD_GETFD, process, number, 0)
            if descriptor < 0 and ctypes.get_errno() in (errno.EPERM, errno.ENOSYS):
                pytest.skip("this machine does not let one process look at another's sockets")
            if descriptor >= 0 and stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                with socket.socket(fileno=descriptor) as its, suppress(OSError):
                    if its.getpeername() == of:
                        options.append(its.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            elif descriptor >= 0:
                os.close(descriptor)
    finally:
        os.close(process)
    return options


def test_a_photograph_that_waits_for_the_model_is_its_warm_up(artefact_folder: Path, jpeg: bytes) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = [sys.executable, "-m", "fundoscope.cli.main", "serve", "--port", str(port)]
    process = subprocess.Popen([*program, str(artefact_folder)], stderr=subprocess.DEVNULL)
    try:
        assert until(lambda: _patiently(port, jpeg)) == 200
        assert until(lambda: send(port, "GET", "/ping").status == 200)
    finally:
        process.terminate()
        assert process.wait(DEADLINE_S) == 0


def test_the_worker_ends_when_the_supervisor_is_killed(artefact_folder: Path) -> None:
    with serving(artefact_folder) as running:
        worker = running.worker
        running.process.kill()
        assert until(lambda: not Path(f"/proc/{worker}").exists() or _is_zombie(worker))


def _is_zombie(pid: int) -> bool:
    try:
        return re.search(r"^State:\s+Z", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE) is not None
    except OSError:
        return True


def test_loading_at_the_first_request_says_it_is_healthy_before_it_is(artefact_folder: Path, jpeg: bytes) -> None:
    with serving(artefact_folder, "--load", "first-request") as running:
        assert running.send("GET", "/ping").status == 200
        assert not [name for name in running.metrics() if name.startswith("fundoscope_artefact_info")]
        assert running.grade(jpeg).status == 200
        assert [name for name in running.metrics() if name.startswith("fundoscope_artefact_info")]


def test_the_port_is_the_platforms(artefact_folder: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = [sys.executable, "-m", "fundoscope.cli.main", "serve"]
    with serving(artefact_folder, program=program, SAGEMAKER_BIND_TO_PORT=str(port)) as running:
        assert running.port == port
        assert running.send("GET", "/ping").status == 200


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "error: nowhere is not an artefact: it has no artefact.json"),
        (["ARTEFACT", "--operating-point", "high_sensitvity"], "hint: use high_sensitivity"),
    ],
)
def test_what_cannot_be_served_is_said_in_one_sentence(artefact_folder: Path, arguments: list[str], said: str) -> None:
    chosen = [str(artefact_folder) if argument == "ARTEFACT" else argument for argument in arguments]
    with serving(*chosen) as running:
        assert running.process.wait(60) == 2
        assert until(lambda: [line for line in running.lines if said in line])
        assert not [line for line in running.lines if "Traceback" in line]


def test_a_taken_port_is_said_in_one_sentence(server: Running, artefact_folder: Path) -> None:
    program = [sys.executable, "-m", "fundoscope.cli.main", "serve"]
    with serving(artefact_folder, "--port", str(server.port), program=program) as running:
        assert running.process.wait(60) == 2
        until(lambda: len(running.lines) >= 2)
        assert running.lines == [
            f"error: cannot listen on 127.0.0.1:{server.port}: Address already in use",
            "hint: stop what listens there, or give another --port",
        ]


def test_the_server_imports_no_framework_and_no_training_code() -> None:
    code = (
        "import sys, fundoscope.serve.app, fundoscope.serve.service, fundoscope.serve.protocol, onnxruntime\n"
        "print(sorted({name.split('.')[0] for name in sys.modules} & "
        "{'keras', 'tensorflow', 'jax', 'torch', 'scipy', 'starlette', 'fastapi', 'pydantic', 'matplotlib'}),"
        " [name for name in sys.modules if name.startswith('fundoscope.model')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] []"


def test_hundreds_of_callers_at_once_are_all_answered_or_refused(server: Running, jpeg: bytes) -> None:
    statuses = []
    lock = threading.Lock()

    def call() -> None:
        for _ in range(5):
            status = server.grade(jpeg).status
            with lock:
                statuses.append(status)

    callers = [threading.Thread(target=call) for _ in range(100)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(statuses) == 500
    assert set(statuses) <= {200, 503}
    assert statuses.count(200) >= 64
    assert until(lambda: server.metrics()["fundoscope_queue"] == 0)


def test_callers_who_come_at_the_same_moment_are_shared_among_the_workers(artefact_folder: Path) -> None:
    """They keep their connections: what one worker has taken, another cannot help with."""
    with serving(artefact_folder, "--workers", "2", program=PATIENT) as running:
        running.wait_for("ready", 2)
        workers = [int(event["worker"]) for event in running.events("ready")]
        before = [sockets(worker) for worker in workers]

        def shared() -> bool:
            return sum(map(sockets, workers)) == sum(before) + 16

        with ExitStack() as open_ones:
            for _ in range(16):
                open_ones.enter_context(socket.create_connection(("127.0.0.1", running.port)))
            until(shared)
            assert [sockets(worker) - had for worker, had in zip(workers, before, strict=True)] == [8, 8]


def test_a_worker_that_accepts_nobody_does_not_keep_the_others_from_it(artefact_folder: Path) -> None:
    with serving(artefact_folder, "--workers", "2") as running:
        running.wait_for("ready", 2)
        stopped = running.worker
        os.kill(stopped, signal.SIGSTOP)
        try:
            statuses = [running.send("GET", "/ping").status for _ in range(6)]
        finally:
            os.kill(stopped, signal.SIGCONT)
        assert statuses == [200] * 6


def sockets(process: int) -> int:
    """How many a process has open."""
    count = 0
    for descriptor in Path(f"/proc/{process}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            count += str(descriptor.readlink()).startswith("socket:")
    return count
