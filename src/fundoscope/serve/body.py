"""Bodies of requests: the time each has to arrive, and the memory that all of them may take.

Memory is counted as bytes arrive: what a caller only promises keeps nobody out. Bodies that are still arriving have
half of it and no more. Where that is full, the slowest of the uploads that hold most gives way to the others.
"""

import asyncio
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fundoscope.serve.http import Disconnected, Refusal, Request

BODY_S = 30.0  # for a body to arrive
STALL_S, LEAST_BYTES = 10.0, 128 * 1024  # within so long so many bytes more, or the rest
LINGER = 4  # times the limit: a body longer than allowed, but not absurdly so, is read to its end and thrown away
ARRIVING_SHARE = 0.5  # of the memory for bodies
ARRIVING = 256  # uploads at once
RECENT_S = 1.0  # over which an upload's rate is taken


class Upload:
    """One request's body: it arrives, and is kept until the request is answered."""

    def __init__(self, uploads: "Uploads") -> None:
        self._uploads, self._now = uploads, asyncio.get_running_loop().time
        self._last, self._rate = self._now(), 0.0  # bytes per second, lately
        self._ends = self._last + BODY_S
        self._received_bytes, self._due_bytes = 0, LEAST_BYTES
        self.kept_bytes = 0
        self.deadline = asyncio.timeout_at(self._last + min(STALL_S, BODY_S))
        self.refusal: Refusal | None = None

    def received(self, size_bytes: int, *, kept: bool) -> None:
        """Count a part that has arrived. Raises Refusal where it cannot be kept."""
        now = self._now()
        self._rate, self._last = self.rate(now) + size_bytes / RECENT_S, now
        self._received_bytes += size_bytes
        if kept:
            self._uploads.keep(self, size_bytes)
        if self.refusal is not None:
            raise self.refusal
        if self._received_bytes >= self._due_bytes:
            self._due_bytes = self._received_bytes + LEAST_BYTES
            self._move(min(now + STALL_S, self._ends))

    def rate(self, now: float) -> float:
        return self._rate * math.exp((self._last - now) / RECENT_S)

    def hurry(self, seconds: float) -> None:
        """The rest within so long, whatever was allowed before."""
        self._ends = self._now() + seconds
        self._move(self._ends)

    def arrived(self) -> None:
        self._uploads.whole(self)

    def cut(self, refusal: Refusal) -> None:
        self.refusal = refusal
        self._move(self._now())

    def _move(self, deadline: float) -> None:
        if not self.deadline.expired():  # or it is being cut already, and may not be asked again
            self.deadline.reschedule(deadline)


class Uploads:
    """All bodies of one worker. Touched on the event loop only."""

    def __init__(self, budget_bytes: int, busy: Callable[[], Refusal]) -> None:
        self._budget_bytes, self._busy = budget_bytes, busy
        self._arriving: set[Upload] = set()
        self._arriving_bytes = self._whole_bytes = 0

    @contextmanager
    def expect(self, promised_bytes: int = 0) -> Iterator[Upload]:
        """An upload, and memory for it until the end of the `with`. Raises Refusal where there will be none."""
        if self._whole_bytes and self._whole_bytes + promised_bytes > self._budget_bytes:
            raise self._busy()  # the promise keeps nobody else out: it spares this caller the sending
        if len(self._arriving) >= ARRIVING:
            self._cut(0.0)
        upload = Upload(self)
        self._arriving.add(upload)
        try:
            yield upload
        finally:
            if not self._leave(upload):
                self._whole_bytes -= upload.kept_bytes

    def keep(self, upload: Upload, size_bytes: int) -> None:
        """Count a part of `upload`, and make room for it: at the worst by giving up this very one."""
        upload.kept_bytes += size_bytes
        self._arriving_bytes += size_bytes
        while self._arriving and not self._fits():
            self._cut(self._arriving_bytes / len(self._arriving))

    def whole(self, upload: Upload) -> None:
        """It has arrived."""
        if self._leave(upload):
            self._whole_bytes += upload.kept_bytes

    def hurry(self, seconds: float) -> None:
        for upload in self._arriving:
            upload.hurry(seconds)

    def _fits(self) -> bool:
        return (
            self._arriving_bytes <= ARRIVING_SHARE * self._budget_bytes
            and self._arriving_bytes + self._whole_bytes <= self._budget_bytes
        )

    def _cut(self, at_least_bytes: float) -> None:
        """Of the uploads that keep so much, the slowest."""
        now = asyncio.get_running_loop().time()
        slowest = min(
            (upload for upload in self._arriving if upload.kept_bytes >= at_least_bytes),
            key=lambda upload: upload.rate(now),
        )
        self._leave(slowest)
        slowest.kept_bytes = 0
        slowest.cut(self._busy())

    def _leave(self, upload: Upload) -> bool:
        """No longer one of those that arrive; whether it was."""
        if upload not in self._arriving:
            return False
        self._arriving.remove(upload)
        self._arriving_bytes -= upload.kept_bytes
        return True


async def read_body(request: Request, upload: Upload, *, limit_bytes: int) -> bytes:
    """All of the body, or a refusal as soon as it is known to be too long, too slow, or one too many."""
    too_long = (request.content_length or 0) > limit_bytes
    if too_long and not _worth_reading(request, limit_bytes):
        raise _too_large(limit_bytes)
    parts, received = [], 0
    try:
        async with upload.deadline:
            more = True
            while more:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise Disconnected
                part, more = message.get("body", b""), message.get("more_body", False)
                received += len(part)
                upload.received(len(part), kept=not too_long)
                if not too_long:
                    parts.append(part)
                    if received > limit_bytes:
                        raise _too_large(limit_bytes)
    except TimeoutError:
        if upload.refusal is not None:
            raise upload.refusal from None
        if not too_long:
            raise Refusal(408, "the photograph did not arrive in time", "send it again", _CLOSE) from None
    if too_long:
        raise _too_large(limit_bytes)
    upload.arrived()
    return parts[0] if len(parts) == 1 else b"".join(parts)


_CLOSE = {"connection": "close"}


def _worth_reading(request: Request, limit_bytes: int) -> bool:
    """A body that will be refused all the same: a caller still sending when the connection closes never reads why."""
    asks_first = request.headers.get("expect", "").lower() == "100-continue"
    return not asks_first and (request.content_length or 0) <= LINGER * limit_bytes


def _too_large(limit_bytes: int) -> Refusal:
    hint = "send a smaller JPEG: 1,500 pixels a side are more than the network sees"
    return Refusal(413, f"the request is larger than {limit_bytes // 2**20} MB, the most taken here", hint, _CLOSE)
