"""Files that were photographs once: what a broken upload, a broken camera or an enemy may send."""

import io
import random
import struct
from collections.abc import Iterator

import simplejpeg
from PIL import Image

from fundoscope.data.draw import draw_eye


def seeds() -> list[bytes]:
    """One small picture in every form that is read, and some that are not."""
    picture = Image.fromarray(draw_eye(9, 0, size=160).pixels)
    files = [bytes(simplejpeg.encode_jpeg(draw_eye(9, 1, size=160).pixels, quality=60))]
    forms = [
        ("PNG", {}),
        ("TIFF", {}),
        ("TIFF", {"compression": "tiff_lzw"}),
        ("TIFF", {"compression": "tiff_deflate"}),
        ("BMP", {}),
        ("WEBP", {}),
        ("GIF", {}),
        ("PPM", {}),
        ("JPEG", {"progressive": True}),
    ]
    for form, options in forms:
        file = io.BytesIO()
        picture.save(file, form, **options)
        files.append(file.getvalue())
    cmyk, grey16 = io.BytesIO(), io.BytesIO()
    picture.convert("CMYK").save(cmyk, "JPEG")
    picture.convert("I;16").save(grey16, "PNG")
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = io.BytesIO()
    picture.save(turned, "JPEG", exif=exif)
    return [*files, cmyk.getvalue(), grey16.getvalue(), turned.getvalue(), b"", b"\xff\xd8\xff", b"GIF89a", b"II*\0"]


def mutated(n: int, seed: int) -> Iterator[bytes]:
    """`n` files, each a few changes away from one of the seeds."""
    chance, originals = random.Random(seed), seeds()
    for _ in range(n):
        data = bytearray(chance.choice(originals))
        for _ in range(chance.choice((1, 1, 2, 4, 16))):
            data = chance.choice(CHANGES)(data, chance, originals)
        yield bytes(data[:2_000_000])


def _flip(data: bytearray, chance: random.Random, _: list[bytes]) -> bytearray:
    for _ in range(chance.randint(1, 8)):
        if data:
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return data


def _header(data: bytearray, chance: random.Random, _: list[bytes]) -> bytearray:
    """Sizes, counts and offsets are near the beginning."""
    if data:
        data[chance.randrange(min(len(data), 64))] = chance.randrange(256)
    return data


def _number(data: bytearray, chance: random.Random, _: list[bytes]) -> bytearray:
    extreme = chance.choice((0, 1, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF))
    place = chance.randrange(len(data) + 1)
    data[place : place + 4] = struct.pack(chance.choice("<>") + "I", extreme)
    return data


def _cut(data: bytearray, chance: random.Random, _: list[bytes]) -> bytearray:
    return data[: chance.randrange(len(data) + 1)]


def _remove(data: bytearray, chance: random.Random, _: list[bytes]) -> bytearray:
    place = chance.randrange(len(data) + 1)
    del data[place : place + chance.randint(1, 200)]
    return data


def _repeat(data: bytearray, chance: random.Random, _: list[bytes]) -> bytearray:
    place = chance.randrange(len(data) + 1)
    data[place:place] = data[place : place + chance.randint(1, 500)] * chance.randint(1, 20)
    return data


def _splice(data: bytearray, chance: random.Random, originals: list[bytes]) -> bytearray:
    other = chance.choice(originals)
    return data[: chance.randrange(len(data) + 1)] + other[chance.randrange(len(other) + 1) :]


def _noise(data: bytearray, chance: random.Random, _: list[bytes]) -> bytearray:
    place = chance.randrange(len(data) + 1)
    data[place : place + 32] = chance.randbytes(32)
    return data


CHANGES = (_flip, _header, _number, _cut, _remove, _repeat, _splice, _noise)
