"""Requests and answers, on plain ASGI: what a request says of itself, an answer in the form that was asked for.

Plain, because a framework's import would be a quarter of the time this server takes to start.
"""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


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
