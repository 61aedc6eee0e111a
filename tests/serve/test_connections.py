"""Connections as an enemy uses them: raw sockets to a real server, watched from outside."""

import re
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from running import Running, serving, until
from watching import Watch

LIMITED = str(Path(__file__).parent / "limited_server.py")
FLOOD = 300_000_000  # bytes
IN_BUFFERS = 100_000_000  # that the kernel may take before a caller learns that nobody reads on
CHUNKED = b"POST /invocations HTTP/1.1\r\nhost: x\r\ncontent-type: image/jpeg\r\ntransfer-encoding: chunked\r\n\r\n"


def limited(*limits: str) -> list[str]:
    return [sys.executable, LIMITED, *limits, "serve", "--port", "0"]


@pytest.fixture(scope="module")
def hasty(artefact_folder: Path) -> Iterator[Running]:
    """A server that allows a second where others have half a minute."""
    limits = limited("protocol.HEAD_S=1", "protocol.REST_S=1", "body.STALL_S=1", "protocol.PIPELINED=1e9")
    with serving(artefact_folder, program=limits) as running:
        yield running


def connected(running: Running) -> socket.socket:
    return socket.create_connection(("127.0.0.1", running.port), timeout=60)


def flooded(wire: socket.socket, piece: bytes) -> int:
    """Bytes sent until the server hung up, FLOOD at the most."""
    sent = 0
    try:
        while sent < FLOOD:
            wire.sendall(piece)
            sent += len(piece)
    except TimeoutError:
        raise AssertionError("the server neither reads on nor hangs up") from None
    except OSError:
        pass
    return sent


def trickled(wire: socket.socket, piece: bytes) -> bytes:
    """What the server says to a caller who sends `piece` again and again, slowly, until it hangs up."""
    heard, wire_timeout = b"", 0.05
    for _ in range(600):  # half a minute, where a second is allowed
        wire.settimeout(wire_timeout)
        try:
            part = wire.recv(65536)
            if not part:
                return heard
            heard += part
        except TimeoutError:
            try:
                wire.sendall(piece)
            except OSError:
                return heard
        except OSError:
            return heard
    raise AssertionError("the server listens for ever")


@pytest.mark.parametrize(
    ("beginning", "piece"),
    [
        (CHUNKED + b"3\r\nabc\r\n0\r\n", b"x-a: 1\r\n" * 8192),
        (CHUNKED + b"3\r\nabc\r\n0\r\nx: ", b"a" * 65536),
        (CHUNKED + b"3\r\nabc\r\n0\r\n", b"a" * 65536),
        (CHUNKED + b"3;x=", b"a" * 65536),
        (b"GET /ping HTTP/1.1\r\n", b"x-a: 1\r\n" * 8192),
        (b"GET /ping HTTP/1.1\r\nx: ", b"a" * 65536),
        (b"GET /", b"a" * 65536),
        (b"", b"\r\n" * 32768),
    ],
    ids=["trailers", "a trailer", "a trailer's name", "a chunk's extension", "headers", "a header", "a path", "lines"],
)
def test_what_is_around_a_body_is_cut_off_before_it_fills_the_memory(
    server: Running, beginning: bytes, piece: bytes
) -> None:
    watch = Watch(server.worker)
    with connected(server) as wire:
        wire.sendall(beginning)
        assert flooded(wire, piece) < IN_BUFFERS
    assert watch.peak_mb() < 10
    assert server.send("GET", "/ping").status == 200


def test_headers_of_more_than_64_kb_are_refused_even_if_they_come_at_once(server: Running) -> None:
    def status(header_bytes: int) -> bytes:
        with connected(server) as wire:
            wire.sendall(b"GET /ping HTTP/1.1\r\nx: " + b"a" * header_bytes + b"\r\n\r\n")
            return wire.recv(12)

    assert status(60_000) == b"HTTP/1.1 200"
    assert status(70_000) == b"HTTP/1.1 431"


def test_trailers_of_more_than_64_kb_are_refused_even_if_they_come_at_once(server: Running, jpeg: bytes) -> None:
    def status(trailers: int) -> bytes:
        with connected(server) as wire:
            chunks = b"%x;note=1\r\n%b\r\n0\r\n" % (len(jpeg), jpeg)
            wire.sendall(CHUNKED + chunks + b"x-checksum: 12345678\r\n" * trailers + b"\r\n")
            return wire.recv(12)

    assert status(1) == b"HTTP/1.1 200"
    assert status(2000) == b"HTTP/1.1 200"
    assert status(4000) == b"HTTP/1.1 431"


def test_a_connection_that_asks_without_waiting_for_answers_is_cut_off(server: Running) -> None:
    watch = Watch(server.worker)
    with connected(server) as wire:
        assert flooded(wire, b"POST /nowhere HTTP/1.1\r\ncontent-length: 1\r\n\r\na" * 2000) < IN_BUFFERS
    assert watch.peak_mb() < 10


def test_a_few_requests_sent_together_are_answered_in_their_order(server: Running) -> None:
    with connected(server) as wire:
        wire.sendall(b"GET /ping HTTP/1.1\r\n\r\nGET /nowhere HTTP/1.1\r\n\r\n" * 8)
        heard = b""
        while heard.count(b"HTTP/1.1") < 16:
            heard += wire.recv(65536)
    assert re.findall(rb"HTTP/1.1 (\d+) ", heard) == [b"200", b"404"] * 8


@pytest.mark.parametrize("piece", [b"", b"a"], ids=["nothing more", "a byte at a time"])
def test_headers_that_come_too_slowly_are_cut_off(hasty: Running, piece: bytes) -> None:
    with connected(hasty) as wire:
        wire.sendall(b"GET /ping HTTP/1.1\r\nx: ")
        assert trickled(wire, piece).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("piece", [b"", b"a"], ids=["nothing more", "a byte at a time"])
def test_a_body_that_comes_too_slowly_is_cut_off(hasty: Running, piece: bytes) -> None:
    with connected(hasty) as wire:
        wire.sendall(b"POST /invocations HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\na")
        heard = trickled(wire, piece)
    assert heard.startswith(b"HTTP/1.1 408 ")
    assert b"the photograph did not arrive in time" in heard


def test_empty_lines_after_an_answer_do_not_keep_a_connection(hasty: Running) -> None:
    with connected(hasty) as wire:
        wire.sendall(b"GET /ping HTTP/1.1\r\n\r\n")
        assert trickled(wire, b"\r\n").startswith(b"HTTP/1.1 200 ")


def test_the_rest_of_a_body_that_was_refused_is_not_waited_for(hasty: Running) -> None:
    with connected(hasty) as wire:
        wire.sendall(b"POST /nowhere HTTP/1.1\r\ncontent-length: 1000000\r\n\r\na")
        assert trickled(wire, b"a").startswith(b"HTTP/1.1 404 ")


def test_a_connection_whose_body_came_after_its_answer_is_not_kept_for_ever(server: Running, hasty: Running) -> None:
    for running, next_request in ((server, b"GET /ping HTTP/1.1\r\nconnection: close\r\n\r\n"), (hasty, b"")):
        with connected(running) as wire:
            wire.sendall(b"POST /nowhere HTTP/1.1\r\ncontent-length: 2\r\n\r\na")
            assert wire.recv(12) == b"HTTP/1.1 404"
            wire.sendall(b"a" + next_request)
            assert (b"HTTP/1.1 200" in trickled(wire, b"")) == bool(next_request)


def test_a_caller_who_takes_no_answers_is_cut_off(hasty: Running) -> None:
    with connected(hasty) as wire:
        assert flooded(wire, b"GET /openapi.json HTTP/1.1\r\n\r\n") < FLOOD


def test_idle_connections_make_way_for_new_ones(artefact_folder: Path, jpeg: bytes) -> None:
    """Of 128 files the server keeps 64 for itself: 64 are left for connections."""
    with serving(artefact_folder, program=limited("files=128")) as running, ExitStack() as idle:
        for _ in range(200):
            idle.enter_context(connected(running))
        assert running.send("GET", "/ping").status == 200
        assert running.grade(jpeg).status == 200
        assert until(lambda: sockets(running.worker) < 128 - 32)


def sockets(process: int) -> int:
    return sum(str(file.readlink()).startswith("socket:") for file in Path(f"/proc/{process}/fd").iterdir())
