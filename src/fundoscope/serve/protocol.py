"""HTTP/1.1 as uvicorn speaks it, with the limits it lacks: on the length of a request's head, and on its slowness.

Without them a caller could fill the memory with one endless header, or hold every connection open with a byte a minute.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

HEAD_BYTES = 64 * 1024
HEAD_S = 20.0  # from the first byte, or from connecting, to the end of the headers


class BoundedProtocol(HttpToolsProtocol):
    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._head_bytes = 0  # of the request that is arriving
        self._in_head = True
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_arrived()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        # What one read brings may hold part of the body too: only a head that goes on is too long.
        if self._in_head and self._head_bytes > HEAD_BYTES and not self.transport.is_closing():
            self._refuse(431, "the headers are too long: send at most 64 kB of them")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if not self._in_head:  # the next request on this connection
            self._head_bytes = 0
            self._expect_head()

    def on_headers_complete(self) -> None:
        self._head_arrived()
        super().on_headers_complete()

    def _expect_head(self) -> None:
        self._in_head = True
        self._head_timer = self.loop.call_later(HEAD_S, self._too_slow)

    def _head_arrived(self) -> None:
        self._in_head = False
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _too_slow(self) -> None:
        if not self.transport.is_closing():
            self._refuse(408, "the request took too long to arrive")

    def _refuse(self, status: int, message: str) -> None:
        body = b'{"error": "' + message.encode() + b'"}'
        head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[status] + head + body)
        self.transport.close()
