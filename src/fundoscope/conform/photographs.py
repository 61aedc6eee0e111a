"""What is sent: a photograph that any server of fundus pictures takes, the same at any size, and ones that try it."""

import io
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from fundoscope.data.draw import draw_eye
from fundoscope.errors import FundoscopeError

SIDE = 224  # the published server takes no other size and no other mode
TYPES = {
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".png": "image/png",
    ".tif": "image/tiff",
    ".tiff": "image/tiff",
    ".json": "application/json",
    ".csv": "text/csv",
}


@dataclass(frozen=True)
class Payload:
    name: str
    data: bytes
    content_type: str


def default_payload() -> Payload:
    """A drawn eye, 224 × 224, so that nobody's photograph is needed to try a server."""
    eye = Image.fromarray(draw_eye(7, 0, size=SIDE).pixels)
    square = Image.new("RGB", (SIDE, SIDE))
    square.paste(eye, ((SIDE - eye.width) // 2, (SIDE - eye.height) // 2))
    return Payload("a drawn eye", _file(square, "JPEG", quality=90), "image/jpeg")


def read_payload(path: Path, content_type: str | None) -> Payload:
    try:
        data = path.read_bytes()
    except OSError as problem:
        raise FundoscopeError(f"cannot read {path}: {problem.strerror}", "name a photograph to send") from None
    guessed = content_type or TYPES.get(path.suffix.lower())
    if guessed is None:
        raise FundoscopeError(f"cannot tell the type of {path.name}", "say it: --content-type image/jpeg")
    return Payload(path.name, data, guessed)


def padded(data: bytes, size: int) -> bytes:
    """The same photograph in exactly `size` bytes: comments in a JPEG, an ancillary chunk in a PNG, else spaces."""
    missing = size - len(data)
    if missing <= 0:
        return data
    if data.startswith(b"\xff\xd8"):
        return data[:2] + b"".join(_comments(missing)) + data[2:]
    if data.startswith(b"\x89PNG") and missing >= 12:
        kind, filling = b"fuNd", bytes(missing - 12)  # lower case first: readers that do not know it pass over it
        chunk = struct.pack(">I", len(filling)) + kind + filling + struct.pack(">I", zlib.crc32(kind + filling))
        return data[:33] + chunk + data[33:]
    return data + b" " * missing


def _comments(missing: int) -> Iterator[bytes]:
    """JPEG comment segments of `missing` bytes in all; fewer than four have no room for one and follow as fill."""
    while missing >= 4:
        length = min(missing, 65_000)
        if 0 < missing - length < 4:
            length -= 4
        yield b"\xff\xfe" + struct.pack(">H", length - 2) + b" " * (length - 4)
        missing -= length
    yield b"\xff" * missing


def odd_payloads(payload: Payload) -> list[Payload]:
    """What people and programs send by mistake or worse. Each must get an answer that says something, never a 5xx."""
    kind, data = payload.content_type, payload.data
    broken = [
        Payload("empty", b"", kind),
        Payload("truncated", data[: len(data) // 2], kind),
        Payload("text", b"this is no photograph\n", kind),
        Payload("random bytes", np.random.default_rng(5).bytes(4096), kind),
    ]
    return broken + (_pictures() if kind.startswith("image/") else [])


def _pictures() -> list[Payload]:
    rgb = Image.fromarray(draw_eye(7, 1, size=SIDE).pixels)
    deep = Image.fromarray((np.asarray(rgb.convert("L")).astype(np.uint16)) * 257)
    huge = _file(Image.new("1", (8, 8)), "PNG")
    header = struct.pack(">II", 60_000, 60_000) + huge[24:29]  # 3.6 thousand million pixels, it claims
    bomb = huge[:16] + header + struct.pack(">I", zlib.crc32(b"IHDR" + header)) + huge[33:]
    return [
        Payload("grey", _file(rgb.convert("L"), "JPEG"), "image/jpeg"),
        Payload("with transparency", _file(rgb.convert("RGBA"), "PNG"), "image/png"),
        Payload("one pixel", _file(Image.new("RGB", (1, 1), "red"), "PNG"), "image/png"),
        Payload("CMYK", _file(rgb.convert("CMYK"), "JPEG"), "image/jpeg"),
        Payload("16 bit", _file(deep, "PNG"), "image/png"),
        Payload("claims 60,000 × 60,000 pixels", bomb, "image/png"),
        Payload("no image type", _file(rgb, "JPEG"), "text/plain"),
    ]


def _file(image: Image.Image, format: str, **options: int) -> bytes:
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()
