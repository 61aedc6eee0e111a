"""One HTTP request, byte by byte, and what came back: an answer, or silence and its reason.

Not an HTTP library: a check must be able to send what a library would refuse to send, and to see what it would hide.
The socket does not block, so that an answer that comes before the body is sent (413) is read, not lost.
"""

import errno
import select
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import ClassVar, Literal

Address = tuple[str, int]

CHUNK = 256 * 1024

# Why there was no answer, for code to decide on; the sentences are for people.
SilenceKind = Literal["not accepted", "refused", "broken", "closed", "late"]
SENTENCES: dict[SilenceKind, str] = {
    "not accepted": "did not accept the connection in time",
    "refused": "refused the connection",
    "broken": "broke the connection without an answer",
    "closed": "closed the connection without an answer",
    "late": "did not answer in time",
}


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes
    began: float  # perf_counter, as the next two
    sent: float  # when the last byte was given to the kernel, or when the answer came first
    ended: float
    connect_s: float
    kind: ClassVar[None] = None  # of silence: there was none
    hung_up: ClassVar[bool] = False

    @property
    def seconds(self) -> float:
        return self.ended - self.began

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    def __str__(self) -> str:
        return f"{self.status}"


@dataclass(frozen=True)
class Silence:
    """No whole answer came. Its text goes into sentences: "the server {silence}"."""

    kind: SilenceKind
    began: float
    sent: float | None
    ended: float
    connect_s: float | None = None
    status: int = 0  # no status at all, so that replies and silences compare alike
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    ok: bool = False

    @property
    def seconds(self) -> float:
        return self.ended - self.began

    def __str__(self) -> str:
        return SENTENCES[self.kind]

    @property
    def hung_up(self) -> bool:
        """Whether the server ended the connection, and did not just leave it open."""
        return self.kind in ("refused", "broken", "closed")


Answer = Reply | Silence


def message(
    method: str, path: str, *, body: bytes = b"", headers: Iterable[tuple[str, str]] = (), host: str = "127.0.0.1"
) -> bytes:
    """A request as bytes. Content-Length goes with every POST and every body."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", "Connection: close"]
    if (body or method == "POST") and not any(name.lower() == "transfer-encoding" for name, _ in headers):
        lines.append(f"Content-Length: {len(body)}")
    lines += [f"{name}: {value}" for name, value in headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def chunked(data: bytes, size: int = 2**20) -> bytes:
    """A body in chunks, to its end."""
    parts = (data[start : start + size] for start in range(0, len(data), size))
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def ask(address: Address, request: bytes, *, within_s: float, pause_after: int = 0, pause_s: float = 0) -> Answer:
    """Send `request`, return what came back within `within_s`.

    `pause_after` bytes in, the sender waits up to `pause_s` for an early answer before it goes on.
    """
    began = perf_counter()
    with socket.socket(_family(address), socket.SOCK_STREAM) as connection:
        connection.setblocking(False)
        problem = _connect(connection, address, within_s)
        connected = perf_counter()
        if problem:
            return Silence(problem, began, None, connected)
        exchange = _Exchange(connection, memoryview(request), began + within_s, pause_after, pause_s)
        silence = exchange.run()
        ended, took = perf_counter(), connected - began
        if silence is not None or exchange.answer is None:
            return Silence(silence or "closed", began, exchange.sent_at, ended, took)
        status, headers, body = exchange.answer
        return Reply(status, headers, body, began, exchange.sent_at or ended, ended, took)


def connect_time(address: Address, *, within_s: float) -> tuple[float, SilenceKind | None]:
    """Seconds until the connection stood, and what went wrong otherwise."""
    began = perf_counter()
    with socket.socket(_family(address), socket.SOCK_STREAM) as connection:
        connection.setblocking(False)
        problem = _connect(connection, address, within_s)
        return perf_counter() - began, problem


def _family(address: Address) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address[0] else socket.AF_INET


def _connect(connection: socket.socket, address: Address, within_s: float) -> SilenceKind | None:
    try:
        connection.connect(address)
    except BlockingIOError:
        poll = select.poll()
        poll.register(connection, select.POLLOUT)
        if not poll.poll(1000 * within_s):
            return "not accepted"
    except OSError as problem:
        return _kind_of(problem.errno)
    code = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    return _kind_of(code) if code else None


def _kind_of(code: int | None) -> SilenceKind:
    return "refused" if code == errno.ECONNREFUSED else "broken"


class _Exchange:
    """Sends and receives at once until an answer is whole, the connection ends or time is up."""

    def __init__(
        self, connection: socket.socket, request: memoryview, deadline: float, pause_after: int, pause_s: float
    ) -> None:
        self.connection, self.request, self.deadline = connection, request, deadline
        self.pause_after, self.pause_s, self.paused_until = pause_after, pause_s, 0.0
        self.offset, self.received = 0, bytearray()
        self.sending = True
        self.sent_at: float | None = None
        self.answer: tuple[int, dict[str, str], bytes] | None = None

    def run(self) -> SilenceKind | None:
        """Why there is no answer; None: `answer` holds it."""
        poll = select.poll()
        while True:
            now = perf_counter()
            if now >= self.deadline:
                return "late"
            pausing = now < self.paused_until
            poll.register(self.connection, select.POLLIN | (select.POLLOUT if self.sending and not pausing else 0))
            wait_s = min(self.deadline, self.paused_until) - now if pausing else self.deadline - now
            for _, events in poll.poll(max(1000 * wait_s, 1)):
                if events & (select.POLLIN | select.POLLHUP | select.POLLERR):
                    silence = self._receive()
                    if silence or self.answer:
                        return silence
                if events & select.POLLOUT:
                    self._send()

    def _send(self) -> None:
        stop = self.pause_after if self.pause_s and self.offset < self.pause_after else len(self.request)
        try:
            self.offset += self.connection.send(self.request[self.offset : min(self.offset + CHUNK, stop)])
        except OSError:  # closed on us; the answer may be in the buffer yet
            self.sending = False
            return
        if self.pause_s and self.offset == self.pause_after:
            self.paused_until = perf_counter() + self.pause_s
        if self.offset == len(self.request):
            self.sending, self.sent_at = False, perf_counter()

    def _receive(self) -> SilenceKind | None:
        """Why there will be no answer, if so."""
        try:
            data = self.connection.recv(CHUNK)
        except BlockingIOError:
            return None
        except OSError:
            return "broken"
        self.received += data
        self.answer = parse(bytes(self.received), ended=not data)
        return None if data or self.answer else "closed"


def parse(data: bytes, *, ended: bool) -> tuple[int, dict[str, str], bytes] | None:
    """The answer in `data` if it is whole; `ended` where no more will come."""
    while True:
        head, separator, rest = data.partition(b"\r\n\r\n")
        if not separator:
            return None
        first, *lines = head.decode("latin-1").split("\r\n")
        words = first.split(" ", 2)
        if len(words) < 2 or not words[0].startswith("HTTP/") or not words[1].isdigit():
            return None
        status = int(words[1])
        if status != 101 and 100 <= status < 200:  # 100 Continue; the answer proper follows
            data = rest
            continue
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = _body(status, headers, rest, ended=ended)
        return None if body is None else (status, headers, body)


def _body(status: int, headers: Mapping[str, str], rest: bytes, *, ended: bool) -> bytes | None:
    if status in (101, 204, 304):
        return b""
    if "chunked" in headers.get("transfer-encoding", ""):
        return _joined(rest)
    length = headers.get("content-length", "")
    if length.isdigit():
        return rest[: int(length)] if len(rest) >= int(length) else None
    return rest if ended else None


def _joined(rest: bytes) -> bytes | None:
    """The body of a chunked answer, or nothing before its last chunk is there."""
    body = b""
    while True:
        size, separator, rest = rest.partition(b"\r\n")
        if not separator:
            return None
        try:
            length = int(size.split(b";")[0], 16)
        except ValueError:
            return None
        if length == 0:
            return body
        if len(rest) < length + 2:
            return None
        body, rest = body + rest[:length], rest[length + 2 :]
