"""Can this photograph be graded at all? A score from its pixels, and the reasons in plain words.

Everything is measured on the prepared square scaled to 112 pixels, so that the size it was prepared at hardly matters,
and mostly on its green channel, where vessels show best. A pyramid of three steps (each the means of two by two pixels,
and how the four differ) tells detail of one pixel from detail of two; 14 × 14 tiles tell where it is:

    field       share of the retina's circle that shows something: inside the frame, and lit
    luminance   median grey level of the retina, 0 to 255
    glare       share of the retina that is over-exposed
    contrast    detail of two pixels (vessels) relative to the brightness around it, in the better fifth of the tiles
    sharpness   detail of one pixel over detail of two, in the same, less the noise in either: what a blur takes first
    noise       checkerboard detail of one pixel in the quieter tiles, in grey levels
    visible     share of the tiles in which there is detail to be seen, neither in the dark nor in glare

Each is mapped to a part between 0 and 1, which is 0.5 at the rule's limit and 1 in a typical sound photograph; the
score is the least of them, so that a photograph is as gradable as its worst fault allows. Whether it is a fundus
photograph in the first place is another question: it shows something round and lit before a dark surround, or is red
all over as a retina is, and in either case is less busy than other pictures are.

It finds gross faults. At the shipped limits it finds one in ten of the EyePACS photographs that people called
ungradable, and passes 98 in 100 of those they called gradable (`benchmarks/gradability.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fundoscope.data.photo import Pixels, Preparation, Prepared, prepare

SIDE, TILES = 112, 14  # pixels, and tiles of eight of them
RIM, CORNER = 0.95, 1.03  # of the radius: the retina proper ends before its edge, the surround begins behind it
LIT = 0.12  # of the retina's own brightness, and at least …
DIM = 6  # … grey levels
BLACK, OVEREXPOSED = 20, 230  # grey levels, of grey and of green, between which there is something to be seen
GREY = np.array([0.299, 0.587, 0.114], np.float32)
DETAIL = 0.003  # of two pixels, relative to the brightness around it: less is a blank

Plane = NDArray[np.floating]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Measures:
    """What the module's docstring lists, and what tells a fundus photograph from other pictures."""

    field: float
    luminance: float
    glare: float
    contrast: float
    sharpness: float
    noise: float
    visible: float
    surround: float  # share of the frame's part outside the circle that is dark; 0 where there is no such part
    solid: float  # share of the tiles with anything lit that are lit throughout
    warmth: float  # share of the lit part that is clearly redder than green and blue


@dataclass(frozen=True)
class Limit:
    """Where a measure makes a photograph half gradable, and its value in a typical sound one."""

    half: float
    sound: float

    def part(self, value: float) -> float:
        return min(1.0, max(0.0, 0.5 + 0.5 * (value - self.half) / (self.sound - self.half)))


@dataclass(frozen=True)
class GradabilityRule:
    """A limit for every fault, and what makes a fundus photograph."""

    # As `benchmarks/gradability.py` printed them on 2026-11-15, fitted on half of its photographs.
    field: Limit = Limit(0.766, 1.0)
    dark: Limit = Limit(27.8, 96.2)
    glare: Limit = Limit(0.13, 0.0)
    contrast: Limit = Limit(0.0128, 0.0438)
    sharpness: Limit = Limit(0.578, 0.898)
    noise: Limit = Limit(2.03, 0.68)
    visible: Limit = Limit(0.653, 0.859)
    # A fundus photograph before a dark surround: the least of the surround that is dark, of the circle that is lit,
    fundus_surround: float = 0.8
    fundus_field: float = 0.3
    fundus_contrast: float = 0.15  # the most contrast,
    fundus_solid: float = 0.53  # and the least that is lit throughout, …
    fundus_reddish: float = 0.2  # … or else that is coloured like a retina.
    # Without a surround: the least that is coloured like a retina, and the most contrast.
    fundus_warmth: float = 0.7
    fundus_warm_contrast: float = 0.09


DEFAULT_RULE = GradabilityRule()

# Each fault: the measure it shows in, and what to tell the photographer.
FAULTS = {
    "field": ("field", "too little of the retina in the picture"),
    "dark": ("luminance", "too dark"),
    "glare": ("glare", "over-exposed"),
    "contrast": ("contrast", "hazy: too little contrast"),
    "sharpness": ("sharpness", "out of focus"),
    "noise": ("noise", "too much noise"),
    "visible": ("visible", "detail to be seen in too small a part"),
}
NO_RETINA = "no retina found"
NOT_FUNDUS = "not a fundus photograph"


@dataclass(frozen=True)
class Gradability:
    score: float  # 0 to 1, higher is better
    gradable: bool  # score of 0.5 or more
    is_fundus: bool
    reasons: tuple[str, ...]  # why it is not gradable, worst first; none if it is
    parts: Mapping[str, float]  # between 0 and 1, by fault; none where no retina was found
    measures: Measures | None  # None where no retina was found


def assess(prepared: Prepared, rule: GradabilityRule = DEFAULT_RULE) -> Gradability:
    """Made for the recommended preparation at 112 pixels or more; a filtered photograph is ungradable to it."""
    measures = measure(prepared)
    if measures is None:
        return Gradability(0.0, False, False, (NO_RETINA,), {}, None)
    return judge(measures, rule)


def assess_photo(photo: bytes, prepared: Prepared, preparation: Preparation, rule: GradabilityRule) -> Gradability:
    """The same of a photograph prepared in any way: where it was filtered, it is prepared once more as recommended."""
    return assess(prepared if preparation.way == "recommended" else prepare(photo, Preparation()), rule)


def judge(measures: Measures, rule: GradabilityRule) -> Gradability:
    values, limits = vars(measures), {name: getattr(rule, name) for name in FAULTS}
    parts = {name: limits[name].part(values[FAULTS[name][0]]) for name in FAULTS}
    is_fundus = _is_fundus(measures, rule)
    score = min(parts.values()) if is_fundus else 0.0
    failed = sorted((part, name) for name, part in parts.items() if part < 0.5)
    reasons = [FAULTS[name][1] for _, name in failed]
    return Gradability(
        score=score,
        gradable=score >= 0.5,
        is_fundus=is_fundus,
        reasons=tuple(reasons if is_fundus else [NOT_FUNDUS]),
        parts=parts,
        measures=measures,
    )


def _is_fundus(measures: Measures, rule: GradabilityRule) -> bool:
    if measures.surround < rule.fundus_surround:
        return measures.warmth >= rule.fundus_warmth and measures.contrast <= rule.fundus_warm_contrast
    is_lit = measures.field >= rule.fundus_field and measures.contrast <= rule.fundus_contrast
    return is_lit and (measures.solid >= rule.fundus_solid or measures.warmth >= rule.fundus_reddish)


def measure(prepared: Prepared) -> Measures | None:
    """The measures of one photograph, or None where no retina was found in it."""
    if prepared.circle is None:
        return None
    red, green, blue = planes = _planes(prepared.pixels)
    grey, brightest = (GREY @ planes.reshape(3, -1)).reshape(SIDE, SIDE), np.maximum(np.maximum(red, green), blue)
    in_frame = _in_frame(prepared)
    retina = _circle() & in_frame
    if not retina.any():  # a circle beside a picture one pixel wide
        return None
    floor = max(DIM, LIT * _percentile(brightest[retina], 75))
    lit, glare = retina & (brightest > floor), green > OVEREXPOSED
    lit_tiles = _tiles(lit)
    plain_tiles = (_tiles(grey) > BLACK) & (_tiles(glare) < 0.5)  # neither in the dark nor in glare
    return Measures(
        field=float(np.count_nonzero(lit) / np.count_nonzero(_circle())),
        luminance=_percentile(grey[retina], 50),
        glare=_share(glare, retina),
        **_detail(green, whole=_tiles(retina) > 0.99, inside=lit_tiles > 0.99, plain=plain_tiles),
        surround=_share(brightest <= max(2 * DIM, 2 * floor), _surround() & in_frame),
        solid=float((lit_tiles > 0.99).sum() / max(1, (lit_tiles > 0.01).sum())),
        warmth=_share((red > 1.1 * green) & (red > 1.2 * blue), lit),
    )


def _planes(pixels: Pixels) -> Plane:
    """Red, green and blue of 112 pixels a side, one after the other: interleaved they take twice as long.

    Plain averages: of all filters they keep the measures most alike from whatever size they start.
    """
    if pixels.shape[:2] != (2 * SIDE, 2 * SIDE):
        picture = Image.fromarray(pixels).resize((SIDE, SIDE), Image.Resampling.BOX, reducing_gap=1.0)
        return np.asarray(picture).transpose(2, 0, 1).astype(np.float32, order="C")
    # The size most networks see, to the same values in a third of the time.
    rows = pixels.reshape(SIDE, 2, 6 * SIDE).astype(np.uint16)
    rows = rows[:, 0] + rows[:, 1]
    planes = np.empty((3, SIDE, SIDE), np.float32)
    for channel in range(3):
        planes[channel] = (rows[:, channel::6] + rows[:, channel + 3 :: 6] + 2) >> 2
    return planes


def _detail(green: Plane, *, whole: Mask, inside: Mask, plain: Mask) -> dict[str, float]:
    """What there is of it in the tiles of the retina, in those that are lit, and in those where it can be seen."""
    if not inside.any():  # a sliver of a retina
        return {"contrast": 0.0, "sharpness": 0.0, "noise": 0.0, "visible": 0.0}
    half, one, checker = _halved(green)
    quarter, two, _ = _halved(half)
    mean, four, _ = _halved(quarter)  # one pixel to a tile
    one, checker, two = _tiles(one), _tiles(checker), _tiles(two)
    relative = 1 / (mean + 10)  # ten grey levels are too few to divide by

    def amount(energy: Plane) -> Plane:
        return np.sqrt(np.maximum(energy, 0)) * relative

    def better_fifth(energy: Plane) -> float:
        return _percentile(amount(energy)[inside], 80)

    # Noise is everywhere, detail is not: the quieter tiles show how much there is of it. White noise puts as much into
    # each of the three differences of a step, and a quarter of that into each of the next.
    noise = 1.15 * _percentile(checker[inside], 30)
    # A slope, as at the edge of a shadow, is no detail: its differences double from step to step.
    visible = (amount(two - four / 4 - noise / 2) > DETAIL) & plain
    return {
        "contrast": better_fifth(two),
        "sharpness": better_fifth(one - 2 * noise) / (better_fifth(two - noise / 2) + 0.001),
        "noise": noise**0.5,
        "visible": float(visible[whole].mean()),
    }


def _halved(plane: Plane) -> tuple[Plane, Plane, Plane]:
    """Of every two by two pixels: their mean, and the energy of their differences across the sides and the corners."""
    sums, differences = plane[::2] + plane[1::2], plane[::2] - plane[1::2]
    across, checker = sums[:, ::2] - sums[:, 1::2], differences[:, ::2] - differences[:, 1::2]
    whole, down = sums[:, ::2] + sums[:, 1::2], differences[:, ::2] + differences[:, 1::2]
    return whole / 4, (across**2 + down**2) / 16, checker**2 / 16


def _tiles(plane: Plane | Mask) -> Plane:
    """The mean over every tile."""
    averaging = _averaging(len(plane))  # a matrix: numpy's own means take twice as long
    means: Plane = averaging @ plane.astype(np.float32, copy=False) @ averaging.T
    return means


@cache
def _averaging(pixels: int) -> Plane:
    """The matrix that takes so many pixels to the means of tiles of them."""
    matrix: Plane = np.repeat(np.eye(TILES, dtype=np.float32), pixels // TILES, axis=1) * np.float32(TILES / pixels)
    return matrix


def _percentile(values: Plane, percent: float) -> float:
    """As numpy's, interpolated; which takes longer to check what it was given than to answer."""
    place = (len(values) - 1) * percent / 100
    below = int(place)
    pair = np.partition(values, (below, min(below + 1, len(values) - 1)))[below : below + 2]
    return float(pair[0] + (place - below) * (pair[-1] - pair[0]))


def _share(which: Mask, of: Mask) -> float:
    """How much of one mask is in another; 0 of nothing."""
    return int(np.count_nonzero(which & of)) / max(1, int(np.count_nonzero(of)))


@cache
def _circle() -> Mask:
    """The retina proper, were all of it in the frame."""
    return _from_centre() < RIM


@cache
def _everywhere() -> Mask:
    return np.ones((SIDE, SIDE), np.bool_)


@cache
def _surround() -> Mask:
    return _from_centre() > CORNER


def _from_centre() -> Plane:
    """How far each pixel lies from the middle, in radii."""
    offsets = np.arange(SIDE, dtype=np.float32) - (SIDE - 1) / 2
    distances: Plane = np.hypot(offsets[:, None], offsets) / (SIDE / 2)
    return distances


def _in_frame(prepared: Prepared) -> Mask:
    """Which pixels show the photograph, and not what lies beyond its edges."""
    circle = prepared.circle
    assert circle is not None  # asked for by the caller
    reach = circle.radius * (SIDE - 1) / SIDE  # from the middle to the centre of the last pixel
    if (
        min(circle.x, circle.y) - reach > -0.5
        and max(circle.x - prepared.width, circle.y - prepared.height) + reach < -0.5
    ):
        return _everywhere()
    offsets = (np.arange(SIDE) - (SIDE - 1) / 2) * (2 * circle.radius / SIDE)
    columns, rows = circle.x + offsets, circle.y + offsets
    across = (columns > -0.5) & (columns < prepared.width - 0.5)
    down = (rows > -0.5) & (rows < prepared.height - 0.5)
    inside: Mask = down[:, None] & across
    return inside


assert set(FAULTS) <= {one.name for one in fields(GradabilityRule)}
