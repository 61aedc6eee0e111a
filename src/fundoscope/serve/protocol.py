"""HTTP/1.1 as uvicorn speaks it, with the limits it lacks: on what a connection may send, and on its slowness.

Without them a caller could fill the memory with one endless header, with the trailers of a chunked body or with
requests that wait for the one before them, or hold every connection open with a byte a minute.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

HEAD_BYTES = 64 * 1024  # of a request's headers, and of its trailers
HEAD_S = 20.0  # from the first byte, or from connecting, to the end of the headers
REST_S = 30.0  # for the rest of a body that was answered before it had arrived and the next request, or to take answers
PIPELINED = 16  # requests of one connection that may wait for the one before them; hardly anybody sends two


class BoundedProtocol(HttpToolsProtocol):
    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._fields_bytes = 0  # of the headers, then of the trailers, of the request that is arriving
        self._unfinished_bytes = 0  # since the parser last had something to tell: of a field, or of a chunk's extension
        self._in_head, self._arrived = True, False  # of the newest request: its head is arriving; it is all here
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self.idle_since = self.loop.time()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._make_room()
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        super().connection_lost(exc)

    @property
    def idle(self) -> bool:
        """Whether nothing that it asked for is still to be answered."""
        return self.cycle is None or self.cycle.response_complete

    def data_received(self, data: bytes) -> None:
        if self._arrived and not self._in_head:  # were it an empty line: a caller could send those for ever
            self._expect_head()
        self._unfinished_bytes += len(data)
        super().data_received(data)
        if self._unfinished_bytes > HEAD_BYTES:
            self._refuse(431, TOO_LONG)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._fields_bytes = self._unfinished_bytes = 0
        self._arrived = False
        self._stop("rest")  # no sooner: uvicorn forgets its own timer where a body comes after its answer
        if not self._in_head:  # the next request on this connection
            self._expect_head()

    def on_url(self, url: bytes) -> None:
        if self._fits(url):
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._fits(name, value) and self._in_head:  # nothing here asks for trailers: they are read and forgotten
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head, self._fields_bytes = False, 0
        self._stop("head")
        if self.transport.is_closing():  # refused, and the parser goes on with what it has been given
            return
        super().on_headers_complete()
        if len(self.pipeline) > PIPELINED:
            self._refuse(503, "too many requests wait on this connection: send the next after an answer")

    def on_chunk_header(self) -> None:
        self._unfinished_bytes = 0

    def on_body(self, body: bytes) -> None:
        self._unfinished_bytes = 0
        if not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._unfinished_bytes, self._arrived = 0, True
        if not self.transport.is_closing():
            super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.idle_since = self.loop.time()
        if self.transport.is_closing():
            return
        if self.pipeline:  # what is here already comes first
            self.flow.pause_reading()
        elif not self._arrived and not self._in_head:
            self._start("rest", REST_S, self.transport.close)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start("answer", REST_S, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop("answer")

    def _fits(self, *parts: bytes) -> bool:
        """Whether the headers, or the trailers, may hold this too."""
        self._unfinished_bytes = 0
        self._fields_bytes += sum(map(len, parts)) + 4  # a colon, a space, the end of the line
        if self._fields_bytes > HEAD_BYTES:
            self._refuse(431, TOO_LONG)
        return self._fields_bytes <= HEAD_BYTES

    def _expect_head(self) -> None:
        self._in_head = True
        self._start("head", HEAD_S, self._refuse, 408, "the request took too long to arrive")

    def _make_room(self) -> None:
        """At the limit the connection that has been idle for longest goes, so that the newest is answered."""
        if self.limit_concurrency is None or len(self.connections) < self.limit_concurrency:
            return
        others = [other for other in self.connections if isinstance(other, BoundedProtocol) and other is not self]
        idle = [other for other in others if other.idle and not other.transport.is_closing()]
        if idle:
            min(idle, key=lambda other: other.idle_since).transport.close()

    def _start(self, timer: str, seconds: float, action: Any, *arguments: Any) -> None:
        self._stop(timer)
        self._timers[timer] = self.loop.call_later(seconds, action, *arguments)

    def _stop(self, timer: str) -> None:
        if (running := self._timers.pop(timer, None)) is not None:
            running.cancel()

    def _refuse(self, status: int, message: str) -> None:
        if self.transport.is_closing():
            return
        body = b'{"error": "' + message.encode() + b'"}'
        head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[status] + head + body)
        self.transport.close()


TOO_LONG = "the headers are too long: send at most 64 kB of them"
