"""What is sent to try a server's endurance: JSON that is dear to parse, and photographs that are dear to decode."""

import base64
import binascii
import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from fundoscope.conform.photographs import Payload

JSON = "application/json"
SIDE = 7000  # pixels: 49 million, 147 MB once decoded, 0.14 MB in the file; most decoders take it
MOST = 64  # of them in one request
PICTURES = (b"\xff\xd8\xff", b"\x89PNG", b"II*\0", b"MM\0*", b"BM", b"RIFF")


def json_bodies(size: int) -> Iterator[tuple[str, bytes]]:
    """Each about `size` bytes, and dear in its own way: in objects, in depth, in letters."""
    begin, end = b'{"photographs": [', b"]}"
    room = size - 64
    yield "many empty lists", begin + b"[[]]," * (room // 5) + b"[]" + end
    yield "many numbers", begin + b"0.1," * (room // 4) + b"0" + end
    yield "many names", b"{" + b"".join(b'"%06x":0,' % number for number in range(room // 11)) + b'"":0}'
    yield "lists nested without end", b"[" * room
    yield "a text of escapes", begin + b'"' + b"\\u0041" * (room // 6) + b'"' + end


@cache
def wide_png() -> bytes:
    """One colour, so that little is sent and much is decoded."""
    compressor = zlib.compressobj(9)
    row = bytes(1 + 3 * SIDE)
    data = b"".join(compressor.compress(row) for _ in range(SIDE)) + compressor.flush()
    header = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def alone(payload: Payload, picture: bytes) -> Payload | None:
    """`picture` sent as the plain photograph is, by itself or as text in the same JSON; None where that holds none."""
    if _is_plain(payload):
        kind = "image/png" if payload.content_type.startswith("image/") else payload.content_type
        return Payload("one", picture, kind)
    form = _Form.read(payload)
    return None if form is None else form.payload(picture, 1)


def plain_picture(payload: Payload) -> bytes | None:
    """The photograph in what is sent."""
    if _is_plain(payload):
        return payload.data
    form = _Form.read(payload)
    return None if form is None else base64.b64decode(form.picture)


def several(payload: Payload, picture: bytes, n: int) -> list[Payload]:
    """`n` times in one request, in each of the forms that the server might take."""
    if _is_plain(payload):
        text = base64.b64encode(picture).decode()
        forms: tuple[dict[str, Any], ...] = ({"photographs": [text] * n}, {"instances": [{"b64": text}] * n})
        return [Payload(f"{n}", json.dumps(form).encode(), JSON) for form in forms]
    form = _Form.read(payload)
    return [form.payload(picture, n)] if form is not None and form.listed else []


@dataclass(frozen=True)
class _Form:
    """A JSON request with one picture in it, as base64: somebody's own protocol, of which that much can be read."""

    table: Any
    picture: str
    listed: bool  # it stands in a list, where more could stand

    @classmethod
    def read(cls, payload: Payload) -> "_Form | None":
        try:
            table = json.loads(payload.data)
        except ValueError:
            return None
        pictures = list(_pictures(table, listed=False))
        return cls(table, *pictures[0]) if len(pictures) == 1 else None

    def payload(self, picture: bytes, n: int) -> Payload:
        text = base64.b64encode(picture).decode()
        return Payload(f"{n}", json.dumps(self._filled(self.table, text, n)).encode(), JSON)

    def _filled(self, value: Any, text: str, n: int) -> Any:
        if isinstance(value, dict):
            table = {key: self._filled(inner, text, n) for key, inner in value.items()}
            if self.picture in (value.get("data") or ()) and isinstance(value.get("shape"), list):
                table["shape"] = [n, *value["shape"][1:]]  # a tensor of the Open Inference Protocol says how many
            return table
        if isinstance(value, list):
            return [text] * n if value == [self.picture] else [self._filled(inner, text, n) for inner in value]
        return text if value == self.picture else value


def _pictures(value: Any, *, listed: bool) -> Iterator[tuple[str, bool]]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from _pictures(inner, listed=False)
    elif isinstance(value, list):
        for inner in value:
            yield from _pictures(inner, listed=len(value) == 1)
    elif isinstance(value, str) and _is_picture(value):
        yield value, listed


def _is_plain(payload: Payload) -> bool:
    """Whether the request's body is the photograph, whatever its type is called."""
    return payload.content_type.startswith("image/") or payload.data.startswith(PICTURES)


def _is_picture(text: str) -> bool:
    try:
        return base64.b64decode(text[:16]).startswith(PICTURES)
    except (binascii.Error, ValueError):
        return False
