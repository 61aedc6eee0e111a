"""Requests as an enemy makes them: others are answered meanwhile, and afterwards nothing is left of it."""

import base64
import json
import socket
import struct
import sys
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import simplejpeg
from pytest import approx
from running import Running, serving, until
from watching import MB, Watch

from fundoscope.data.decode import decoding_pixels
from fundoscope.data.draw import draw_eye
from fundoscope.data.photo import encode_png

GATED = str(Path(__file__).parent / "gated_server.py")
LARGEST = 25 * MB
PATHS = ("/invocations", "/vertex/predict", "/v2/models/dr/infer")


@pytest.fixture(scope="module")
def enemy_of(artefact_folder: Path, jpeg: bytes) -> Iterator[Running]:
    """A server of its own, warm: its memory is watched."""
    with serving(artefact_folder, AIP_HEALTH_ROUTE="/health", AIP_PREDICT_ROUTE="/vertex/predict") as running:
        with ThreadPoolExecutor(8) as pool:
            assert set(pool.map(lambda _: running.grade(jpeg).status, range(40))) == {200}
        yield running


@dataclass
class Gate:
    """Where a server waits: `gated_server.py`."""

    file: Path

    def program(self, module: str, function: str) -> list[str]:
        return [sys.executable, GATED, str(self.file), module, function, "serve", "--port", "0"]

    def reached(self) -> bool:
        return self.file.with_name(self.file.name + ".reached").exists()

    def open(self) -> None:
        self.file.touch()


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path / "gate")


PREDICTION = ("fundoscope.artefact.runtime", "OnnxPredictor.probabilities")


def several(*photos: bytes) -> bytes:
    return json.dumps({"photographs": [base64.b64encode(photo).decode() for photo in photos]}).encode()


def post_json(running: Running, body: bytes, path: str = "/invocations") -> tuple[int, str]:
    reply = running.send("POST", path, body, content_type="application/json")
    return reply.status, reply.json.get("error", "")


def filled(beginning: bytes, piece: bytes, end: bytes) -> bytes:
    """As long as a body may be."""
    return beginning + piece * ((LARGEST - len(beginning) - len(end)) // len(piece)) + end


HOSTILE = {
    "lists": filled(b'{"photographs": [', b"[[]],", b"1]}"),
    "depth": filled(b"", b"[", b""),
    "objects": filled(b'{"inputs": [', b'{"a":{}},', b"1]}"),
    "numbers": filled(b'{"instances": [', b"1,", b"1]}"),
    "texts": filled(b'{"photographs": [', b'"",', b"1]}"),
    "quotation marks": filled(b'{"photographs": ["', b'\\"', b'"]}'),
    "spaces": filled(b'{"photographs": [', b" ", b"1]}"),
    "not numbers": filled(b'{"photographs": [', b"NaN,", b"1]}"),
    "a text without an end": filled(b'{"photographs": ["', b"A", b""),
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_json_is_refused_before_it_is_built(enemy_of: Running, kind: str, path: str) -> None:
    """As it was parsed whole, the first of these took 4.5 s and 900 MB."""
    watch = Watch(enemy_of.worker)
    status, error = post_json(enemy_of, HOSTILE[kind], path)
    assert (status, bool(error)) == (400, True)
    assert watch.cpu_s() < 0.5
    assert watch.peak_mb() < 100  # the body, its parts and a copy
    assert until(lambda: watch.grown_mb() < 50)


def test_escapes_are_read_in_slices_and_cost_little(enemy_of: Running) -> None:
    watch = Watch(enemy_of.worker)
    body = filled(b'{"photographs": ["', b"\\u0041" * 4, b'"]}')
    assert post_json(enemy_of, body) == (400, "the file is not a picture in a format we read")
    assert watch.cpu_s() < 1
    assert watch.peak_mb() < 100


def test_base64_may_be_escaped_as_other_languages_do_it(server: Running) -> None:
    """.NET writes "+" as "\\u002B", Gson "=" as "\\u003d", PHP "/" as "\\/"."""
    picture = encode_png(draw_eye(5, 1, size=512).pixels)
    photo = picture + bytes(1 + -len(picture) % 3)  # so that there is padding
    text = base64.b64encode(photo)  # of more than one slice
    assert len(text) > 200_000
    assert text.endswith(b"==")
    escaped = text.replace(b"+", rb"\u002B").replace(b"=", rb"\u003d").replace(b"/", rb"\/")
    body = b'{"by": "a \\"clinic\\" with ' + b"a long name " * 200 + b'", "photographs": ["' + escaped + b'"]}'
    reply = server.send("POST", "/invocations", body, content_type="application/json")
    assert reply.json["gradings"][0]["probabilities"] == approx(server.grade(photo).json["probabilities"], abs=1e-5)


@pytest.mark.parametrize(
    "text", [b"AA==AAAA" * 40_000, b"A" * 4097, b"AA\\" * 700 + b"\\", b"A" * 200_000 + b"\\u00e9"]
)
def test_what_is_not_base64_is_called_that(server: Running, text: bytes) -> None:
    expected = (400, "a photograph in the request is not base64")
    assert post_json(server, b'{"photographs": ["' + text + b'"]}') == expected


def test_ping_is_answered_while_json_is_read(artefact_folder: Path, jpeg: bytes, gate: Gate) -> None:
    program = gate.program("fundoscope.serve.invoke", "parsed")
    with serving(artefact_folder, program=program) as running, ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(post_json, running, several(jpeg)) for _ in range(3)]
        until(gate.reached)
        assert running.send("GET", "/ping").status == 200
        assert running.grade(jpeg).status == 200  # a photograph by itself goes another way
        gate.open()
        assert [request.result() for request in waiting] == [(200, "")] * 3


def test_ping_says_no_until_a_photograph_has_been_answered(artefact_folder: Path, gate: Gate) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def first_answer() -> int | None:
        until(gate.reached)  # the model is open, and warms up
        status: int | None = until(lambda: _ping(port))
        gate.open()
        return status

    program = [*gate.program(*PREDICTION)[:-1], str(port)]
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(first_answer)
        with serving(artefact_folder, program=program) as running:
            assert first.result() == 503
            assert (running.port, _ping(port)) == (port, 200)


def _ping(port: int) -> int | None:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=60) as wire:
            wire.sendall(b"GET /ping HTTP/1.1\r\n\r\n")
            return int(wire.recv(12)[9:])
    except OSError:
        return None  # not yet


def stall(running: Running, sent: bytes, promised: int) -> socket.socket:
    """A caller who stops sending."""
    wire = socket.create_connection(("127.0.0.1", running.port), timeout=60)
    wire.sendall(b"POST /invocations HTTP/1.1\r\nhost: x\r\ncontent-type: image/jpeg\r\n")
    wire.sendall(b"content-length: %d\r\n\r\n" % promised)
    wire.sendall(sent)
    return wire


def test_twelve_callers_who_stall_keep_nobody_out(artefact_folder: Path, jpeg: bytes) -> None:
    with serving(artefact_folder) as running, ExitStack() as stalled:
        for _ in range(12):
            stalled.enter_context(stall(running, b"a", LARGEST))
        until(lambda: running.metrics()["fundoscope_in_flight"] == 12)
        assert running.grade(jpeg).status == 200
        assert post_json(running, several(jpeg, jpeg)) == (200, "")
        assert running.grade(jpeg + bytes(LARGEST - len(jpeg))).status == 200  # as large as they come


def test_uploads_that_stall_near_their_end_keep_half_of_the_memory_for_bodies(
    artefact_folder: Path, jpeg: bytes
) -> None:
    """4 MB at most each, 32 MB in all: 16 MB may be of such as are not complete, which is four of 3.9 MB."""
    program = [sys.executable, str(Path(GATED).with_name("limited_server.py")), "body.STALL_S=3600", "body.BODY_S=3600"]
    arguments = (artefact_folder, "--platform", "serverless")
    with serving(*arguments, program=[*program, "serve", "--port", "0"]) as running, ExitStack() as stalled:
        for number in range(1, 13):
            stalled.enter_context(stall(running, bytes(3_900_000), 4_000_000))
            until(lambda n=number: running.metrics()['fundoscope_requests_total{status="503"}'] == max(0, n - 4))
        assert running.metrics()["fundoscope_in_flight"] == 4
        assert running.grade(jpeg).status == 200
        assert running.grade(jpeg + bytes(4 * MB - len(jpeg))).status == 200
        counted = running.metrics()
        assert counted['fundoscope_requests_total{status="503"}'] == 9  # one of them gave way to it
        assert counted["fundoscope_in_flight"] == 3


def test_bodies_in_memory_are_bounded_and_the_next_caller_is_told_to_come_back(
    artefact_folder: Path, jpeg: bytes, gate: Gate
) -> None:
    largest = jpeg + bytes(4 * MB - len(jpeg))  # of a serverless request; eight of them are kept
    arguments = (artefact_folder, "--platform", "serverless", "--load", "first-request")
    with serving(*arguments, program=gate.program(*PREDICTION)) as running, ThreadPoolExecutor(8) as pool:
        kept = []
        for number in range(1, 9):  # one by one: those that arrive have half of the memory
            kept.append(pool.submit(running.grade, largest))
            until(lambda n=number: running.metrics()["fundoscope_queue"] == n)
        refused = running.grade(jpeg)
        assert (refused.status, refused.json["error"]) == (503, "all places are taken: the server is busy")
        assert int(refused.headers["retry-after"]) >= 1
        gate.open()
        assert [request.result().status for request in kept] == [200] * 8
        assert running.grade(jpeg).status == 200


def test_a_request_of_many_photographs_leaves_room_in_the_line(artefact_folder: Path, jpeg: bytes, gate: Gate) -> None:
    arguments = (artefact_folder, "--queue", "4", "--load", "first-request")
    with serving(*arguments, program=gate.program(*PREDICTION)) as running, ThreadPoolExecutor(3) as pool:
        many = pool.submit(post_json, running, several(*[jpeg] * 4))
        until(lambda: running.metrics()["fundoscope_queue"] == 4)
        others = []
        for number in (5, 6):
            others.append(pool.submit(running.grade, jpeg))
            until(lambda n=number: running.metrics()["fundoscope_queue"] == n)
        assert running.grade(jpeg).status == 503  # two of the four places are the first request's, two are taken
        gate.open()
        assert many.result() == (200, "")
        assert [request.result().status for request in others] == [200, 200]


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(width: int, height: int, before: bytes = b"") -> bytes:
    """A PNG that ends where its pixels begin."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + before + chunk(b"IDAT", zlib.compress(bytes(1000)))


def test_a_request_may_hold_400_million_pixels(enemy_of: Running) -> None:
    """A PNG's count twice: they are all decoded."""
    watch = Watch(enemy_of.worker)
    message = "the photographs of the request have more than 400 million pixels together"
    assert post_json(enemy_of, several(*[png(7000, 7000)] * 5)) == (413, message)
    reply = enemy_of.send("POST", "/invocations", several(*[png(7000, 7000)] * 4), content_type="application/json")
    assert [grading["error"] for grading in reply.json["gradings"]] == [
        "the file is truncated: part of the picture is missing"
    ] * 4
    tensor = {"name": "photograph", "datatype": "BYTES", "shape": [64]}
    tensor |= {"data": [base64.b64encode(png(7000, 7000)).decode()] * 64}
    assert post_json(enemy_of, json.dumps({"inputs": [tensor]}).encode(), PATHS[2]) == (413, message)
    assert post_json(enemy_of, several(*[png(7000, 7000)] * 64), PATHS[1]) == (413, message)
    assert watch.cpu_s() < 2


def test_pixels_are_counted_by_the_header_alone() -> None:
    assert decoding_pixels(simplejpeg.encode_jpeg(np.zeros((200, 300, 3), np.uint8))) == 300 * 200
    assert decoding_pixels(png(300, 200)) == 2 * 300 * 200
    assert decoding_pixels(b"no picture") == 0


LARGE = 24 * MB
HEADERS = {
    "JPEG of empty parts": b"\xff\xd8" + b"\xff\xe5\x00\x02" * (LARGE // 4),
    "JPEG of padding": b"\xff\xd8" + b"\xff" * LARGE,
    "PNG of empty chunks": png(64, 64, chunk(b"abCd", b"") * (LARGE // 12)),
    "PNG of remarks": png(64, 64, chunk(b"tEXt", b"a\0") * (LARGE // 14)),
    "GIF of remarks": b"GIF89a" + bytes((64, 0, 64, 0, 0, 0, 0)) + b"!\xfe\x01a\0" * (LARGE // 5),
    "PPM of remarks": b"P6\n" + b"#\n" * (LARGE // 2) + b"1 1 255\nabc",
}


@pytest.mark.parametrize("kind", HEADERS)
def test_a_picture_of_endless_headers_does_not_hold_up_the_line(enemy_of: Running, kind: str) -> None:
    """Pillow took 9 s for the first of these, and nothing else was decoded meanwhile."""
    watch = Watch(enemy_of.worker)
    assert enemy_of.grade(HEADERS[kind]).status == 400
    assert watch.cpu_s() < 2


def test_what_was_used_for_large_requests_is_given_back(enemy_of: Running, jpeg: bytes) -> None:
    watch = Watch(enemy_of.worker)
    large = several(jpeg + bytes(18 * MB))
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(lambda _: post_json(enemy_of, large), range(8))) == {(200, "")}
    assert watch.peak_mb() > 50
    assert until(lambda: watch.grown_mb() < 50)
