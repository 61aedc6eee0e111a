"""Which photographs come in which order, and how each is turned and recoloured: numbers only, no framework.

Everything is drawn from (seed, epoch), so that epoch 7 is the same whether or not the training stopped after 6.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Augmentation:
    """How far a photograph may be changed and still be one of the same eye."""

    rotate_degrees: float = 0.0
    flip: bool = False
    zoom: float = 0.0  # 0.1: between 0.9 and 1.1 times as large
    shift: float = 0.0  # of the photograph's side
    brightness: float = 0.0  # 0.2: between 0.8 and 1.2 times as bright
    colour: float = 0.0  # the same, for each of red, green and blue apart
    saturation: float = 0.0


AUGMENTATIONS = {
    "none": Augmentation(),
    # The eye has no upright: disc and macula lie left or right, and cameras turn. Colour differs from camera to
    # camera more than between eyes, but hue is what tells a haemorrhage from an exudate, so it changes little.
    "fundus": Augmentation(180, True, zoom=0.12, shift=0.03, brightness=0.2, colour=0.08, saturation=0.2),
    # Voets (and so the first paper): a mirror image and colour, no turning.
    "published": Augmentation(0, True, brightness=0.125, colour=0.1, saturation=0.5),
}


@dataclass(frozen=True)
class Batch:
    rows: NDArray[np.int64]  # which photographs
    transform: NDArray[np.float32]  # (n, 8) projective transform, output to input, as image libraries define it
    colour: NDArray[np.float32]  # (n, 4) saturation, then gains of red, green and blue


def batches(
    rows: NDArray[np.int64], *, batch: int, size: int, augmentation: Augmentation, seed: int, epoch: int
) -> Iterator[Batch]:
    """One epoch: every photograph once, shuffled, in whole batches.

    The few that do not fill a last batch sit this epoch out: a batch of another shape costs a compilation.
    """
    rng = np.random.default_rng([seed, epoch])
    order = rng.permutation(rows)
    transform = _transforms(rng, len(order), size, augmentation)
    colour = _colours(rng, len(order), augmentation)
    for start in range(0, steps(len(order), batch) * min(batch, len(order)), min(batch, len(order))):
        part = slice(start, start + batch)
        yield Batch(order[part], transform[part], colour[part])


def steps(n: int, batch: int) -> int:
    """Batches in an epoch of n photographs."""
    return max(n // batch, 1)


def _transforms(rng: np.random.Generator, n: int, size: int, a: Augmentation) -> NDArray[np.float32]:
    angle = np.deg2rad(rng.uniform(-a.rotate_degrees, a.rotate_degrees, n))
    scale = 1 / rng.uniform(1 - a.zoom, 1 + a.zoom, n)
    mirror = np.where(rng.random(n) < 0.5, -1.0, 1.0) if a.flip else np.ones(n)
    shift_x, shift_y = rng.uniform(-a.shift, a.shift, (2, n)) * size
    cos, sin, middle = np.cos(angle) * scale, np.sin(angle) * scale, (size - 1) / 2
    a0, a1, b0, b1 = mirror * cos, -mirror * sin, sin, cos
    # About the middle: input = A (output - middle) + middle + shift.
    a2 = middle - (a0 + a1) * middle + shift_x
    b2 = middle - (b0 + b1) * middle + shift_y
    zero = np.zeros(n)
    return np.stack([a0, a1, a2, b0, b1, b2, zero, zero], axis=1).astype(np.float32)


def _colours(rng: np.random.Generator, n: int, a: Augmentation) -> NDArray[np.float32]:
    saturation = rng.uniform(1 - a.saturation, 1 + a.saturation, (n, 1))
    brightness = rng.uniform(1 - a.brightness, 1 + a.brightness, (n, 1))
    gains = brightness * rng.uniform(1 - a.colour, 1 + a.colour, (n, 3))
    return np.concatenate([saturation, gains], axis=1).astype(np.float32)


def grade_weights(grades: NDArray[np.int64], balance: float) -> NDArray[np.float32]:
    """A weight per photograph: 0 leaves the balance as it is, 1 gives every grade the same say; mean 1."""
    counts = np.bincount(grades, minlength=5).astype(float)
    per_grade = np.where(counts > 0, 1 / np.maximum(counts, 1) ** balance, 0.0)
    weights = per_grade[grades]
    return np.asarray(weights / weights.mean(), dtype=np.float32)
