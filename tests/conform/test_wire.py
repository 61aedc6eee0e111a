"""Answers as they come over the wire, and silences told apart."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from fundoscope.conform.target import free_port
from fundoscope.conform.wire import Reply, Silence, ask, connect_time, message, parse

# RFC 9112, 7.1: the grammar; the body is the example of the chunked article on MDN.
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7\r\nMozilla\r\n11\r\nDeveloper Network\r\n0\r\n\r\n"


@contextmanager
def answering(behave: Callable[[socket.socket], None]) -> Iterator[tuple[str, int]]:
    """A server for one connection that does what it is told with it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                behave(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()
        thread.join()


def test_a_chunked_answer_is_put_together() -> None:
    assert parse(CHUNKED, ended=False) == (200, {"transfer-encoding": "chunked"}, b"MozillaDeveloper Network")
    assert all(parse(CHUNKED[:n], ended=False) is None for n in range(len(CHUNKED) - 4))


def test_an_answer_is_whole_when_its_length_is_there() -> None:
    data = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 413 Too Large\r\nContent-Length: 4\r\n\r\nhigh"
    assert parse(data, ended=False) == (413, {"content-length": "4"}, b"high")
    assert parse(data[:-1], ended=True) is None


def test_an_answer_without_a_length_ends_with_the_connection() -> None:
    data = b"HTTP/1.0 200 OK\r\n\r\nall there is"
    assert parse(data, ended=False) is None
    assert parse(data, ended=True) == (200, {}, b"all there is")


def test_an_answer_that_comes_before_the_body_is_sent_is_read() -> None:
    def refuse(connection: socket.socket) -> None:
        connection.recv(100)
        connection.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nno!")
        connection.recv(100_000_000)

    head = message("POST", "/invocations", body=b"x" * 30_000_000)
    with answering(refuse) as address:
        reply = ask(address, head, within_s=10, pause_after=len(head) - 30_000_000, pause_s=5)
    assert isinstance(reply, Reply)
    assert (reply.status, reply.body) == (413, b"no!")
    assert reply.seconds < 5  # it did not wait to send what nobody wants


@pytest.mark.parametrize(
    ("behave", "why"),
    [
        (lambda connection: connection.recv(1), "without an answer"),
        (
            lambda connection: connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"),
            "without an answer",
        ),
    ],
)
def test_a_connection_that_ends_early_is_a_silence(behave: Callable[[socket.socket], None], why: str) -> None:
    with answering(behave) as address:
        silence = ask(address, message("GET", "/ping"), within_s=10)
    assert isinstance(silence, Silence)
    assert why in str(silence)
    assert (silence.status, silence.ok) == (0, False)


def test_a_server_that_says_nothing_is_left_in_time() -> None:
    over = threading.Event()
    with answering(lambda _: bool(over.wait(10)) and None) as address:
        silence = ask(address, message("GET", "/ping"), within_s=0.3)
        over.set()
    assert str(silence) == "did not answer in time"
    assert 0.3 <= silence.seconds < 3


def test_nobody_there_is_said() -> None:
    port = free_port()
    assert str(ask(("127.0.0.1", port), message("GET", "/ping"), within_s=1)) == "refused the connection"
    assert connect_time(("127.0.0.1", port), within_s=1)[1] == "refused"


def test_silences_are_told_apart_by_kind() -> None:
    nobody = ask(("127.0.0.1", free_port()), message("GET", "/ping"), within_s=1)
    assert (nobody.kind, nobody.hung_up) == ("refused", True)
    with answering(lambda connection: connection.recv(1000) and None) as address:
        closed = ask(address, message("GET", "/ping"), within_s=10)
    assert (closed.kind, closed.hung_up) == ("closed", True)
    over = threading.Event()
    with answering(lambda _: bool(over.wait(10)) and None) as address:
        late = ask(address, message("GET", "/ping"), within_s=0.2)
        over.set()
    assert (late.kind, late.hung_up) == ("late", False)
