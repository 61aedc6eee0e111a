"""Requests and answers, on plain ASGI: a body read within limits, an answer in the form that was asked for.

Plain, because a framework's import would be a quarter of the time this server takes to start.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

BODY_S = 30.0  # for a body to arrive
LINGER = 4  # times the limit: a body longer than allowed, but not absurdly so, is read to its end and thrown away


class Refusal(Exception):  # noqa: N818  # an answer, not a fault
    """A request that is not granted: one sentence, and what to send instead."""

    def __init__(self, status: int, message: str, hint: str = "", headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.hint, self.headers = status, message, hint, dict(headers or {})


class Disconnected(Exception):  # noqa: N818
    """The caller has gone; there is nobody to answer."""


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: bytes
    headers: Mapping[str, str]  # names in lower case; the last value of a name
    receive: Receive

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "").split(";")[0].strip().lower()

    @property
    def content_length(self) -> int | None:
        length = self.headers.get("content-length", "")
        return int(length) if length.isascii() and length.isdigit() else None


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


def request_of(scope: Mapping[str, Any], receive: Receive) -> Request:
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    return Request(scope["method"], scope["path"], scope["query_string"], headers, receive)


def json_answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    return Answer(status, _ENCODER.encode(value).encode(), headers=headers or {})


_ENCODER = json.JSONEncoder(ensure_ascii=False)  # json.dumps would make one for every answer


def refused(refusal: Refusal) -> Answer:
    said = {"error": refusal.message} | ({"hint": refusal.hint} if refusal.hint else {})
    return json_answer(said, refusal.status, refusal.headers)


async def send_answer(send: Send, answer: Answer) -> None:
    headers = {"content-length": str(len(answer.body)), **answer.headers}
    if answer.body:
        headers["content-type"] = answer.content_type
    pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": answer.status, "headers": pairs})
    await send({"type": "http.response.body", "body": answer.body})


async def read_body(request: Request, *, limit_bytes: int, arriving: set[asyncio.Timeout]) -> bytes:
    """All of the body, or a refusal as soon as it is known to be longer than allowed.

    While it is being read its deadline is in `arriving`, for a server that stops to bring forward.
    """
    too_long = (request.content_length or 0) > limit_bytes
    if too_long and not _worth_reading(request, limit_bytes):
        raise _too_large(limit_bytes)
    parts, received = [], 0
    deadline = asyncio.timeout(BODY_S)
    try:
        async with deadline:
            arriving.add(deadline)
            more = True
            while more:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise Disconnected
                part, more = message.get("body", b""), message.get("more_body", False)
                received += len(part)
                if not too_long:
                    parts.append(part)
                    if received > limit_bytes:
                        raise _too_large(limit_bytes)
    except TimeoutError:
        if not too_long:
            raise Refusal(408, "the photograph did not arrive in time", "send it again", _CLOSE) from None
    finally:
        arriving.discard(deadline)
    if too_long:
        raise _too_large(limit_bytes)
    return parts[0] if len(parts) == 1 else b"".join(parts)


_CLOSE = {"connection": "close"}


def _worth_reading(request: Request, limit_bytes: int) -> bool:
    """A body that will be refused all the same: a caller still sending when the connection closes never reads why."""
    asks_first = request.headers.get("expect", "").lower() == "100-continue"
    return not asks_first and (request.content_length or 0) <= LINGER * limit_bytes


def _too_large(limit_bytes: int) -> Refusal:
    hint = "send a smaller JPEG: 1,500 pixels a side are more than the network sees"
    return Refusal(413, f"the request is larger than {limit_bytes // 2**20} MB, the most taken here", hint, _CLOSE)


def accepted(header: str, offered: Iterable[str]) -> str | None:
    """The first of `offered` that the Accept header allows with the highest weight; None: none of them."""
    offered = list(offered)
    if not header.strip():
        return offered[0]
    wanted = [_media_range(part) for part in header.split(",") if part.strip()]
    best, weight = None, 0.0
    for kind in offered:
        main = kind.split("/")[0]
        matching = [(len(pattern), q) for pattern, q in wanted if pattern in (kind, f"{main}/*", "*/*")]
        q = max(matching, default=(0, 0.0))[1]  # the most specific range decides
        if q > weight:
            best, weight = kind, q
    return best


def _media_range(part: str) -> tuple[str, float]:
    pattern, *parameters = (piece.strip().lower() for piece in part.split(";"))
    weight = next((p[2:].strip() for p in parameters if p.startswith("q=")), "1")
    try:
        return ("*/*" if pattern == "*" else pattern), float(weight)
    except ValueError:
        return pattern, 0.0
