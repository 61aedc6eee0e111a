"""Which photographs are one and the same, re-encoded, resized, brightened or mirrored.

All fundus photographs resemble each other; what tells eyes apart is the fine vessels. So a fingerprint is the
green channel of the prepared retina at 64 × 64, band-passed to the scale of vessels, evened out, and of length
one: the product of two is their correlation. Of 3,102 photographs from five sets, those that are there at 640 and
at 4,288 pixels reach 0.94 or more, two exposures of one eye 0.90, and all others at most 0.48 (that pair is one
eye, too, photographed twice). Saved again at JPEG quality 75, or at half the size, 0.78 or more is left; at
quality 40, of pictures of only 224 pixels, 2 in 100 are missed. Copies that were rotated, cropped inside the
retina, or darkened until half of it is black are not found.

Every pair is compared: 88,702 photographs are 3.9 thousand million pairs, and each twice for the mirror image.
So 256 random combinations of a fingerprint's 2,716 numbers are compared first, which is right to ± 0.06, and
only what might be alike in full: about a minute on two cores, by extrapolation from 18,612 (2 to 9 s).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fundoscope.data.mapped import mapped_array

SIDE = 64  # pixels of a fingerprint
FINE, COARSE = 0.5, 2.0  # standard deviations of the band's two blurs, in those pixels
ALIKE = 0.65  # correlation from which two photographs are one
SKETCH = 256  # numbers compared first
MAYBE = ALIKE - 0.30  # four standard deviations of a sketch's error below
BLOCK = 2048  # photographs compared at a time: 16 MB of products
BLACK = 16  # grey levels; darker is beside the retina

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Pair:
    first: int
    second: int
    likeness: float
    mirrored: bool


def fingerprint(pixels: NDArray[np.uint8]) -> Floats | None:
    """Of a prepared photograph; None where there is nothing to tell it by (no retina, no structure)."""
    small = np.asarray(Image.fromarray(pixels).resize((SIDE, SIDE), Image.Resampling.BOX, _frame(pixels)), np.float32)
    seen = (small.max(axis=2) > BLACK).astype(np.float32)
    green = small[..., 1]
    band = (_blur(green, FINE, seen) - _blur(green, COARSE, seen)) * seen
    # Evened out, so that a bright disc or a dark half does not outweigh everything; the 1 keeps noise small.
    evened = band / np.sqrt(_blur(band * band, 2 * COARSE, seen) + 1)
    # Not where the picture was cut off: photographs of one camera share those edges.
    whole = (_blur(seen, 1.5, np.ones_like(seen)) > 0.95)[_disc()]
    kept = evened[_disc()]
    if whole.sum() < 0.25 * kept.size:
        return None
    kept = np.where(whole, kept - kept[whole].mean(), 0)
    length = float(np.linalg.norm(kept))
    # Less than a tenth of the usual structure is a photograph of nothing: black, fogged, out of focus.
    return (kept / length).astype(np.float32) if length > 0.07 * np.sqrt(whole.sum()) else None


def _frame(pixels: NDArray[np.uint8]) -> tuple[float, float, float, float]:
    """The square around what is seen, to the pixel where many are: a circle around all of it moves by 5 % with the
    specks that JPEG leaves beside the rim, and by half of that two vessels no longer cover each other."""
    bright = np.maximum(np.maximum(pixels[..., 0], pixels[..., 1]), pixels[..., 2])  # 20 × max(axis=2)
    seen = bright > max(BLACK, 0.12 * np.percentile(bright[::4, ::4], 95))
    (left, right), (top, bottom) = (_span(seen.mean(axis=axis)) for axis in (0, 1))
    half = max(right - left, bottom - top) / 2
    x, y = (left + right) / 2, (top + bottom) / 2
    size = len(pixels)
    x, y = min(max(x, half), size - half), min(max(y, half), size - half)  # within the picture
    return x - half, y - half, x + half, y + half


def _span(shares: NDArray[np.floating]) -> tuple[float, float]:
    """From the first to the last line of which a twentieth is seen."""
    lines = np.flatnonzero(shares > 0.05)
    return (float(lines[0]), float(lines[-1] + 1)) if len(lines) else (0.0, float(len(shares)))


def _blur(picture: Floats, sigma: float, seen: Floats) -> Floats:
    """A Gaussian mean over what is seen only."""
    kernel = _kernel(sigma)
    weight = kernel @ seen @ kernel.T
    return np.asarray((kernel @ (picture * seen) @ kernel.T) / np.maximum(weight, 1e-3))


@cache
def _kernel(sigma: float) -> Floats:
    """[to, from]: a Gaussian along one axis; as a matrix, since so small a blur is quickest as a product."""
    distance = np.arange(SIDE)[:, None] - np.arange(SIDE)
    weight = np.exp(-0.5 * (distance / sigma) ** 2)
    return np.asarray(weight / weight.sum(axis=1, keepdims=True), np.float32)


@cache
def _disc() -> NDArray[np.bool_]:
    """Where a fingerprint is taken: inside the rim."""
    place = np.arange(SIDE) - (SIDE - 1) / 2
    return np.asarray(np.hypot(place[:, None], place) <= 0.92 * SIDE / 2)


@cache
def _mirror() -> NDArray[np.intp]:
    """The order of a fingerprint's numbers in the mirror image's."""
    places = np.zeros((SIDE, SIDE), np.intp)
    places[_disc()] = np.arange(_disc().sum())
    return places[:, ::-1][_disc()]


class Fingerprints:
    """Many of them: 5 kB each, in a file; 1 kB each in memory while they are compared."""

    def __init__(self, file: Path, n: int) -> None:
        self.n = n
        self.vectors = mapped_array(file, np.float16, (max(n, 1), int(_disc().sum())))

    def __setitem__(self, i: int, vector: Floats) -> None:
        self.vectors[i] = vector

    def pairs(self) -> Iterator[Pair]:
        """All that are alike, each once."""
        sketches, mirrored = self._sketches(np.arange(self.vectors.shape[1])), self._sketches(_mirror())
        for start in range(0, self.n, BLOCK):
            rows = sketches[start : start + BLOCK].astype(np.float32)
            for other in range(0, start + 1, BLOCK):
                for is_mirrored, others in ((False, sketches), (True, mirrored)):
                    products = rows @ others[other : other + BLOCK].astype(np.float32).T
                    yield from self._alike(np.argwhere(products > MAYBE), start, other, mirrored=is_mirrored)

    def _sketches(self, order: NDArray[np.intp]) -> NDArray[np.float16]:
        found = np.zeros((self.n, SKETCH), np.float16)
        for start in range(0, self.n, BLOCK):
            block = self.vectors[start : min(start + BLOCK, self.n)].astype(np.float32)
            found[start : start + BLOCK] = block[:, order] @ _combinations()
        return found

    def _alike(self, maybe: NDArray[np.intp], start: int, other: int, *, mirrored: bool) -> Iterator[Pair]:
        for i, j in maybe:
            first, second = other + int(j), start + int(i)
            if first < second and (likeness := self._likeness(first, second, mirrored)) >= ALIKE:
                yield Pair(first, second, likeness, mirrored)

    def _likeness(self, first: int, second: int, mirrored: bool) -> float:
        vector = self.vectors[first].astype(np.float32)
        return float((vector[_mirror()] if mirrored else vector) @ self.vectors[second].astype(np.float32))


@cache
def _combinations() -> Floats:
    shape = (int(_disc().sum()), SKETCH)
    return np.asarray(np.random.default_rng(0).standard_normal(shape) / np.sqrt(SKETCH), np.float32)
