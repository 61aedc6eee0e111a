"""Bytes of a picture file -> RGB pixels as displayed, at full size or scaled down while decoding.

JPEG goes to libjpeg-turbo (simplejpeg), which decodes at 1/2, 1/4 or 1/8 of the size for a fraction of the work;
everything else to Pillow, then averaged down by the same factor, so that the same photograph gives the same
pixels whatever file it came in. Sizes are checked before a single pixel is decoded: whatever the file claims,
reading it takes less than 1 GB.
"""

import io
import re
import threading
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from fundoscope.errors import FundoscopeError

Pixels = NDArray[np.uint8]

JPEG = ("JPEG", "MPO")  # MPO: a JPEG with more pictures behind the first
FORMATS = ("JPEG", "PNG", "TIFF", "BMP", "WEBP", "GIF", "PPM")
MAX_PIXELS = 100_000_000  # of a JPEG decoded scaled; a progressive one is held whole, at six bytes per pixel
WHOLE_PART = 0.5  # of that, where a picture is decoded at full size, which takes up to sixteen bytes per pixel …
WEBP_PART = 0.4  # … and twenty-four of a WebP
MAX_SCANS = 200  # of a JPEG; real ones have up to some twenty, and each costs a pass over the whole picture
READS, READ_BYTES = 20_000, 256  # so many reads of any file, and one more for so many bytes; a PNG needs one for 2,000
SCALES = (8, 4, 2)  # the ones libjpeg-turbo has fast code for
HINT = "send the photograph as a JPEG, PNG, TIFF, BMP or WebP file"

# What people send instead of a picture, by its first bytes.
OTHER_FILES = {
    b"%PDF": "a PDF document",
    b"<svg": "an SVG drawing",
    b"<?xml": "an XML or SVG file",
    b"PK\x03\x04": "a ZIP archive",
    b"\x1f\x8b": "a gzip archive",
    b"8BPS": "a Photoshop file",
}


class UnreadablePhoto(FundoscopeError):  # noqa: N818  # a photograph, not a fault of ours
    """There are no pixels to be had from these bytes; the message says why, in one sentence."""


@dataclass(frozen=True)
class Decoded:
    pixels: Pixels  # (height, width, 3) RGB, rounded up after scaling
    scale: int  # 1, 2, 4 or 8 pixels of the photograph to one of these
    width: int  # of the photograph as displayed
    height: int


def decode(photo: bytes, *, at_least: int = 0, max_pixels: int = MAX_PIXELS) -> Decoded:
    """The pixels as displayed, scaled down as far as both sides stay `at_least` so long; 0: at full size."""
    image = _open(photo, max_pixels)
    is_jpeg = image.format in JPEG
    scale = next((s for s in SCALES if at_least and min(image.size) // s >= at_least), 1)
    whole = int(max_pixels * (WEBP_PART if image.format == "WEBP" else WHOLE_PART))
    if is_jpeg and at_least and image.width * image.height > whole:
        scale = max(scale, 2)  # too large to be held whole: half of it is better than none
    _check_size(photo, image, max_pixels if is_jpeg and scale > 1 else whole)
    orientation = _orientation(image)
    width, height = image.size
    pixels = _decode_jpeg(photo, image, scale) if is_jpeg else _decode_whole(photo, image, scale)
    if orientation >= 5:  # lying on its side
        width, height = height, width
    return Decoded(_upright(pixels, orientation), scale, width, height)


def decoding_pixels(photo: bytes) -> int:
    """How much there is to decode, by the file's header alone: JPEG's pixels, or twice those of what is decoded whole.

    0 where it is not a picture that is read, which `decode` finds out as quickly.
    """
    try:
        image = _open(photo, MAX_PIXELS)
    except UnreadablePhoto:
        return 0
    pixels = image.width * image.height
    return pixels if image.format in JPEG else int(pixels / WHOLE_PART)


class _File(io.BytesIO):
    """A file that is read in no more pieces than a picture needs: 25 MB of empty parts would take Pillow 9 s."""

    def __init__(self, photo: bytes) -> None:
        super().__init__(photo)
        self._reads = READS + len(photo) // READ_BYTES

    def read(self, size: int | None = -1, /) -> bytes:
        self._reads -= 1
        if self._reads < 0:
            raise ValueError("the file has more parts than a picture")
        return super().read(size)


# Pillow warns of odd files, and the filters that silence it belong to the whole process: one thread at a time.
_FILTERS = threading.Lock()


def _open(photo: bytes, max_pixels: int) -> Image.Image:
    """The picture's header, if it is one we read."""
    if not photo:
        raise UnreadablePhoto("the file is empty", HINT)
    try:
        with _FILTERS, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = Image.open(_File(photo), formats=FORMATS)
    except Image.DecompressionBombError:
        raise _too_large(max_pixels) from None
    except Exception as problem:  # Pillow raises whatever a malformed header leads it to
        raise _unreadable(photo, problem) from problem
    return image


def _check_size(photo: bytes, image: Image.Image, allowed: int) -> None:
    if image.width * image.height > allowed or _tile_pixels(image) > allowed:
        raise _too_large(allowed)
    if image.format in JPEG and _scans(photo) > MAX_SCANS:
        raise UnreadablePhoto(f"the JPEG has more than {MAX_SCANS} scans, as no camera writes", HINT)


def _scans(photo: bytes) -> int:
    """How often a JPEG's mark of a scan, FF DA, occurs; from two bytes to two, which is faster than `count`."""
    pairs = (np.frombuffer(photo, "<u2", (len(photo) - start) // 2, start) for start in (0, 1))
    return sum(int(np.count_nonzero(pair == 0xDAFF)) for pair in pairs)


def _tile_pixels(image: Image.Image) -> int:
    """The size of a TIFF's tiles, which are decoded whole even where they stick out of the picture."""
    tags = getattr(image, "tag_v2", {})
    sides = [tags.get(tag, 0) for tag in (322, 323)]
    return sides[0] * sides[1] if all(isinstance(side, int) for side in sides) else 0


def _too_large(allowed: int) -> UnreadablePhoto:
    message = f"the picture has more than {allowed / 1e6:g} million pixels"
    return UnreadablePhoto(message, "scale it down, or raise max_pixels and the memory with it")


def _unreadable(photo: bytes, problem: Exception) -> UnreadablePhoto:
    start = photo[:256].lstrip(b"\xef\xbb\xbf \t\r\n")
    for magic, name in OTHER_FILES.items():
        if start.startswith(magic):
            return UnreadablePhoto(f"the file is {name}, not a photograph", HINT)
    if photo[128:132] == b"DICM":
        return UnreadablePhoto("the file is a DICOM file, not a photograph", "export the frame as JPEG or PNG")
    if _ends_early(photo) or re.search("truncated|premature end", str(problem), re.IGNORECASE):
        return UnreadablePhoto("the file is truncated: part of the picture is missing", "copy it again")
    if isinstance(problem, UnidentifiedImageError):
        return UnreadablePhoto("the file is not a picture in a format we read", HINT)
    return UnreadablePhoto("the file is damaged: its pixels cannot be decoded", "copy or export it again")


def _ends_early(photo: bytes) -> bool:
    """Whether a JPEG, PNG or WebP stops before the end that its format marks."""
    if photo.startswith(b"\xff\xd8"):
        return not photo.rstrip(b"\0").endswith(b"\xff\xd9")
    if photo.startswith(b"\x89PNG"):
        return b"IEND" not in photo
    return photo.startswith(b"RIFF") and int.from_bytes(photo[4:8], "little") + 8 > len(photo)


def _orientation(image: Image.Image) -> int:
    """The EXIF orientation still to be applied, 1 (upright) to 8."""
    if image.format == "TIFF":
        return 1  # Pillow turns those itself
    try:
        value = image.getexif().get(0x0112, 1)
    except Exception:  # a malformed EXIF block says nothing, and the pixels may be sound
        return 1
    return value if isinstance(value, int) and 1 <= value <= 8 else 1


def _upright(pixels: Pixels, orientation: int) -> Pixels:
    if orientation >= 5:
        pixels = pixels.transpose(1, 0, 2)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return np.ascontiguousarray(pixels)


def _decode_jpeg(photo: bytes, image: Image.Image, scale: int) -> Pixels:
    wanted: dict[str, Any] = {
        "min_factor": scale,
        "min_width": -(-image.width // scale),
        "min_height": -(-image.height // scale),
    }
    wanted["colorspace"] = "CMYK" if image.mode == "CMYK" else "RGB"
    try:
        pixels = _simplejpeg(photo, wanted)
    except Exception as problem:
        raise _unreadable(photo, problem) from problem
    if image.mode == "CMYK":  # stored inverted, as Adobe began and everyone does
        size = (pixels.shape[1], pixels.shape[0])
        return np.asarray(Image.frombytes("CMYK", size, pixels.tobytes(), "raw", "CMYK;I").convert("RGB"))
    return pixels


def _simplejpeg(photo: bytes, wanted: dict[str, Any]) -> Pixels:
    try:
        return np.asarray(simplejpeg.decode_jpeg(photo, strict=True, **wanted))
    except ValueError as problem:
        if not _harmless(str(problem)):
            raise
    return np.asarray(simplejpeg.decode_jpeg(photo, strict=False, **wanted))


def _harmless(complaint: str) -> bool:
    """Whether every pixel is there all the same: some cameras pad, or fill in a field that is not used."""
    padding = re.search(r"(\d+) extraneous bytes before marker", complaint)
    return (padding is not None and int(padding[1]) <= 16) or "Invalid SOS parameters" in complaint


def _decode_whole(photo: bytes, image: Image.Image, scale: int) -> Pixels:
    try:
        image.load()
        converted = _to_rgb(image)
        if scale > 1:
            converted = converted.reduce(scale)
        return np.asarray(converted)[..., :3]
    except UnreadablePhoto:
        raise
    except Exception as problem:  # as above: no telling what a malformed file leads Pillow to
        raise _unreadable(photo, problem) from problem


def _to_rgb(image: Image.Image) -> Image.Image:
    """8 bits of red, green, blue first in each pixel, on black where the picture is transparent."""
    if image.mode.startswith("I;16"):
        # Pillow's own conversion clips at 255; its 16-bit colour keeps the high byte, so grey does too.
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
    if image.mode in ("I", "F", "LAB"):
        message = f"the picture stores its pixels in a way we do not read (Pillow's mode {image.mode})"
        raise UnreadablePhoto(message, "export it with 8 or 16 bits per channel")
    if image.has_transparency_data:
        # A photograph's surroundings are black, so what is left out of one belongs with them.
        # Premultiplied colour is just that: the picture composed on black.
        return (image if image.mode == "RGBA" else image.convert("RGBA")).convert("RGBa")
    return image if image.mode == "RGB" else image.convert("RGB")
