"""Bytes of a photograph -> the pixels a network sees. The same code trains, serves and screens.

The recommended way decodes no more pixels than it needs, finds the retina on a thumbnail of those, and resamples
once, to a square that just holds the retina's circle. The published ways are in `published.py`.
"""

import struct
import zlib
from dataclasses import dataclass
from math import ceil, floor
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fundoscope.data.circle import Circle, find_circle
from fundoscope.data.decode import MAX_PIXELS, Decoded, UnreadablePhoto, decode

# Callers find everything about one photograph here.
__all__ = [
    "Circle",
    "Decoded",
    "Preparation",
    "Prepared",
    "UnreadablePhoto",
    "decode",
    "decode_png",
    "encode_png",
    "prepare",
]

Pixels = NDArray[np.uint8]

THUMBNAIL = 320  # pixels, the longer side of the picture the retina is looked for in


@dataclass(frozen=True)
class Preparation:
    """Everything that decides the pixels; travels with the records and the artefact."""

    size: int = 224  # pixels, of both sides
    way: Literal["recommended", "voets", "gaussian"] = "recommended"
    max_pixels: int = MAX_PIXELS  # more are refused before they are decoded

    def __post_init__(self) -> None:
        if not 16 <= self.size <= 2048:
            raise ValueError(f"size is {self.size}, not between 16 and 2048")
        if self.max_pixels < 1:
            raise ValueError(f"max_pixels is {self.max_pixels}, not 1 or more")


@dataclass(frozen=True)
class Prepared:
    """What became of one photograph."""

    pixels: Pixels  # (size, size, 3), RGB
    circle: Circle | None  # the retina, in pixels of the photograph as displayed; None: there is none to be seen
    width: int  # of the photograph as displayed
    height: int


def prepare(photo: bytes, preparation: Preparation) -> Prepared:
    """The retina, filling a square; the whole photograph where no retina is to be seen.

    Raises UnreadablePhoto where there are no pixels to be had, or (the published ways) no retina is found.
    """
    if preparation.way != "recommended":
        from fundoscope.data.published import prepare_as_published

        return prepare_as_published(photo, preparation)
    decoded = decode(photo, at_least=preparation.size, max_pixels=preparation.max_pixels)
    image = Image.fromarray(decoded.pixels)
    circle = _find(decoded.pixels, image, decoded.scale)
    if circle is not None and decoded.scale > 1 and 2 * circle.radius < preparation.size * decoded.scale:
        # A small retina in a large frame: take it from more pixels than were needed to find it.
        finer = preparation.size * min(decoded.width, decoded.height) / (2 * circle.radius)
        decoded = decode(photo, at_least=ceil(finer), max_pixels=preparation.max_pixels)
        image = Image.fromarray(decoded.pixels)
    frame = circle or _frame(decoded.width, decoded.height)
    pixels = _crop(image, frame.scaled(1 / decoded.scale), preparation.size)
    return Prepared(pixels, circle, decoded.width, decoded.height)


def _find(pixels: Pixels, image: Image.Image, scale: int) -> Circle | None:
    smaller = -(-max(image.size) // THUMBNAIL)
    circle = find_circle(np.asarray(image.reduce(smaller)) if smaller > 1 else pixels)
    return circle and circle.scaled(smaller * scale)


def _frame(width: int, height: int) -> Circle:
    """A circle whose square holds the whole photograph."""
    return Circle((width - 1) / 2, (height - 1) / 2, max(width, height) / 2)


def _crop(image: Image.Image, circle: Circle, size: int) -> Pixels:
    """The circle's square, resampled once; black where it sticks out of the picture."""
    step = 2 * circle.radius / size  # pixels of the picture to one of the crop
    x, columns, (left, right) = _shown(circle.x - circle.radius, step, image.width, size)
    y, rows, (top, bottom) = _shown(circle.y - circle.radius, step, image.height, size)
    pixels = np.zeros((size, size, 3), np.uint8)
    if columns > 0 and rows > 0:
        # On full-resolution photographs bicubic from the scaled decode is 50 dB from a Lanczos of every pixel; box 44.
        part = image.resize((columns, rows), Image.Resampling.BICUBIC, box=(left, top, right, bottom))
        pixels[y : y + rows, x : x + columns] = np.asarray(part)
    return pixels


def _shown(start: float, step: float, length: int, size: int) -> tuple[int, int, tuple[float, float]]:
    """Along one axis: the crop's first pixel and number of pixels that show the picture, and what they show of it."""
    start += 0.5  # from the centre of a pixel to its edge, where resize counts from
    first = max(0, ceil(-start / step - 1e-6))
    after = min(size, floor((length - start) / step + 1e-6))
    return first, after - first, (max(0.0, start + first * step), min(float(length), start + after * step))


def encode_png(pixels: Pixels) -> bytes:
    """A PNG of 8-bit RGB pixels, lossless and without metadata: 2.6 times as fast as Pillow's fastest, and smaller.

    Every row holds differences from the mean of the pixels above and to the left; what is left of a photograph
    then repeats so little that searching it for repetitions, most of a PNG's cost, is better left out.
    """
    height, width = pixels.shape[:2]
    flat = pixels.reshape(height, width * 3)
    above, left = np.zeros_like(flat), np.zeros_like(flat)
    above[1:], left[:, 3:] = flat[:-1], flat[:, :-3]
    rows = np.full((height, 1 + width * 3), 3, np.uint8)  # 3 names the filter, "Average", in front of each row
    rows[:, 1:] = flat - ((above & left) + ((above ^ left) >> 1))  # their mean, rounded down, in 8 bits
    deflate = zlib.compressobj(1, zlib.DEFLATED, 15, 9, zlib.Z_RLE)
    data = deflate.compress(rows.tobytes()) + deflate.flush()
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits, RGB, not interlaced
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def decode_png(encoded: bytes) -> Pixels:
    return decode(encoded).pixels
