"""The vessels of a drawn eye: trunks out of the disc, arcades around the macula, branches down to twigs."""

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from fundoscope.data.drawn_frame import FOVEA, Brush, Floats

STEP = 0.04  # field radii between two points of a vessel
FOVEAL_ZONE = 0.15  # radius without vessels
VEIN_DENSITY, ARTERY_DENSITY = 205, 140


@dataclass(frozen=True)
class Trunk:
    """One vessel out of the disc. Headings in degrees: 0 to the temple, -90 up, 180 to the nose."""

    heading: float
    final: float  # heading it bends to …
    bend: float  # … within about so many field radii
    length: float
    width: float
    vein: bool
    branches: int


def _mirrored(trunk: Trunk) -> Trunk:
    return Trunk(-trunk.heading, -trunk.final, trunk.bend, trunk.length, trunk.width, trunk.vein, trunk.branches)


UPPER = (
    Trunk(-101, 26, 0.66, 2.2, 0.032, True, 8),
    Trunk(-84, 14, 0.58, 2.1, 0.023, False, 7),
    Trunk(-122, -152, 0.35, 1.3, 0.022, True, 4),
    Trunk(-136, -165, 0.35, 1.2, 0.018, False, 3),
    Trunk(-52, 4, 0.3, 0.62, 0.009, False, 2),
    Trunk(-24, 14, 0.3, 0.5, 0.007, True, 1),
)
TRUNKS = UPPER + tuple(map(_mirrored, UPPER)) + (Trunk(176, 182, 0.3, 0.8, 0.010, True, 2),)
ARCADE_VEINS = [0, len(UPPER)]  # of TRUNKS: the great ones above and below the macula


@dataclass(frozen=True)
class Vessels:
    """Vessels of one generation, as arrays over (vessel, step)."""

    points: Floats  # (n, steps, 2)
    heading: Floats  # (n, steps), radians
    width: Floats  # (n, steps)
    steps: NDArray[np.int64]  # (n,), how many of the steps exist
    vein: NDArray[np.bool_]  # (n,)


def grow_tree(rng: Generator, *, tortuosity: float, calibre: float) -> list[Vessels]:
    """The generations, thickest first."""
    trunks = _trunks(rng, tortuosity, calibre)
    counts = np.array([trunk.branches for trunk in TRUNKS])
    branches = _branch(rng, trunks, counts, length=(0.3, 1.0), tortuosity=1.3 * tortuosity)
    twigs = _branch(
        rng, branches, rng.integers(1, 5, len(branches.vein)), length=(0.14, 0.5), tortuosity=1.6 * tortuosity
    )
    ends = _branch(rng, twigs, rng.integers(0, 3, len(twigs.vein)), length=(0.06, 0.22), tortuosity=2 * tortuosity)
    return [trunks, branches, twigs, ends]


def _trunks(rng: Generator, tortuosity: float, calibre: float) -> Vessels:
    n, steps = len(TRUNKS), round(max(trunk.length for trunk in TRUNKS) / STEP)
    first = np.radians([trunk.heading for trunk in TRUNKS]) + rng.normal(0, 0.12, n)
    final = np.radians([trunk.final for trunk in TRUNKS]) + rng.normal(0, 0.14, n)
    bend = np.array([trunk.bend for trunk in TRUNKS]) * rng.uniform(0.85, 1.2, n)
    along = np.arange(steps) * STEP
    heading = final[:, None] + (first - final)[:, None] * np.exp(-along / bend[:, None])
    thin = np.array([trunk.width < 0.012 for trunk in TRUNKS])  # these come out at the rim of the disc
    bent = tortuosity * np.where(thin, 1.8, 1)[:, None]
    heading += wiggle(rng, n, steps, 1) * bent * np.minimum(along / 0.15, 1)
    away = np.where(thin, 0.09, 0.0)[:, None] * np.stack([np.cos(first), np.sin(first)], axis=-1)
    start = away + np.stack([rng.normal(-0.03, 0.012, n), -0.03 * np.sin(first) + rng.normal(0, 0.008, n)], axis=-1)
    moves = np.stack([np.cos(heading), np.sin(heading)], axis=-1) * STEP
    points = start[:, None] + np.cumsum(moves, axis=1) - moves
    length = np.array([trunk.length for trunk in TRUNKS])
    width = np.array([trunk.width for trunk in TRUNKS]) * calibre * rng.uniform(0.88, 1.12, n)
    taper = (1 - 0.68 * np.minimum(along / length[:, None], 1)) * np.minimum(0.45 + along / 0.1, 1)
    existing = _until_fovea(points, np.round(length / STEP).astype(int))
    return Vessels(points, heading, width[:, None] * taper, existing, np.array([t.vein for t in TRUNKS]))


def wiggle(rng: Generator, n: int, steps: int, size: float, *, every: int = 3) -> Floats:
    """Smooth random turns of the heading that do not add up: vessels waver, but hold their course."""
    kinks = rng.normal(0, size, (n, steps // every + 2))
    at = np.arange(steps) / every
    before = at.astype(int)
    part = at - before
    return np.asarray(kinks[:, before] * (1 - part) + kinks[:, before + 1] * part)


def _branch(
    rng: Generator, parents: Vessels, counts: NDArray[np.int64], *, length: tuple[float, float], tortuosity: float
) -> Vessels:
    parent = np.repeat(np.arange(len(counts)), counts)
    n = len(parent)
    rank = np.arange(n) - np.repeat(np.cumsum(counts) - counts, counts)
    # One branch in each equal part of the parent, on alternating sides.
    part = (rank + rng.uniform(0.15, 0.85, n)) / np.maximum(counts[parent], 1)
    at = ((0.08 + 0.9 * part) * (parents.steps[parent] - 1)).clip(0).astype(int)
    side = np.where((rank + rng.integers(0, 2, len(counts))[parent]) % 2 == 0, 1.0, -1.0)
    point, width = parents.points[parent, at], parents.width[parent, at] * rng.uniform(0.42, 0.74, n)
    heading = parents.heading[parent, at] + side * rng.uniform(0.4, 1.0, n)
    steps = round(length[1] / STEP)
    long = rng.uniform(*length, n) * (0.55 + 0.45 * (width / width.max() if n else width))
    points, headings = _wander(point, heading, wiggle(rng, n, steps, tortuosity, every=2))
    taper = 1 - 0.8 * np.minimum(np.arange(steps) * STEP / long[:, None], 1)
    existing = _until_fovea(points, np.maximum(np.round(long / STEP), 2).astype(int))
    return Vessels(points, headings, width[:, None] * taper, existing, parents.vein[parent])


def _wander(point: Floats, heading: Floats, noise: Floats) -> tuple[Floats, Floats]:
    """Walk all branches at once: those that set out towards the macula go on there, the others outwards."""
    to_fovea = np.array(FOVEA) - point
    facing = np.cos(heading) * to_fovea[:, 0] + np.sin(heading) * to_fovea[:, 1] > 0
    inwards = facing & (point[:, 0] > 0.1) & (np.hypot(*to_fovea.T) < 1.1)
    points, headings = np.empty((*noise.shape, 2)), np.empty(noise.shape)
    for k in range(noise.shape[1]):
        now = heading + noise[:, k]
        points[:, k], headings[:, k] = point, now
        point = point + np.stack([np.cos(now), np.sin(now)], axis=-1) * STEP
        in_x, in_y = FOVEA[0] - point[:, 0], FOVEA[1] - point[:, 1]
        out_x, out_y = point[:, 0] - 0.6 * in_x, point[:, 1] - 0.6 * in_y
        wanted = np.where(inwards, np.arctan2(in_y, in_x), np.arctan2(out_y, out_x))
        heading = heading + 0.13 * np.sin(wanted - heading)
    return points, headings


def _until_fovea(points: Floats, steps: NDArray[np.int64]) -> NDArray[np.int64]:
    """Cut vessels off where they reach the foveal zone."""
    inside = np.hypot(points[..., 0] - FOVEA[0], points[..., 1] - FOVEA[1]) < FOVEAL_ZONE
    reached = np.where(inside.any(axis=1), inside.argmax(axis=1), points.shape[1])
    return np.asarray(np.minimum(steps, reached))


def draw_vessels(brush: Brush, tree: list[Vessels], *, beading: float) -> None:
    """Thin ones first, so that trunks cross over twigs; arteries over veins."""
    for vessels in reversed(tree):
        seen = brush.frame.shows(vessels.points, margin=-0.05)
        seen &= np.arange(seen.shape[1]) < vessels.steps[:, None]
        shown = np.flatnonzero(seen.any(axis=1) & (vessels.steps > 1))
        shown = shown[np.argsort(~vessels.vein[shown], kind="stable")]
        width = _beaded(vessels, beading) if beading else vessels.width
        # In pixels, all at once: one vessel at a time takes three times as long.
        middle, left, right = (brush.px(line[shown]) for line in _lines(vessels, width))
        for middle_px, left_px, right_px, i in zip(middle, left, right, shown.tolist(), strict=True):
            k = int(vessels.steps[i])
            outline = np.concatenate([left_px[:k], right_px[:k][::-1]])
            _draw_one(brush, middle_px[:k], outline, float(width[i, 0]), bool(vessels.vein[i]))


def _beaded(vessels: Vessels, beading: float) -> Floats:
    """Veins of a severe retinopathy look like strings of beads."""
    beads = (1 + 0.4 * beading) * (1 + beading * np.sin(np.arange(vessels.width.shape[1]) * 2.0))
    return np.where(vessels.vein[:, None] & (vessels.width > 0.01), vessels.width * beads, vessels.width)


def _lines(vessels: Vessels, width: Floats) -> tuple[Floats, Floats, Floats]:
    """The middle and both edges."""
    # Normals from the mean of neighbouring headings: at the kinks the edges then meet without a gap.
    between = vessels.heading.copy()
    between[:, 1:] = (between[:, 1:] + vessels.heading[:, :-1]) / 2
    normal = np.stack([-np.sin(between), np.cos(between)], axis=-1) * width[..., None] / 2
    return vessels.points, vessels.points + normal, vessels.points - normal


def _draw_one(brush: Brush, middle: Floats, outline: Floats, calibre: float, vein: bool) -> None:
    density = (VEIN_DENSITY if vein else ARTERY_DENSITY) * min(1.0, 0.4 + calibre / 0.03)  # thin ones hold less blood
    calibre_px = calibre * brush.px_per_unit
    path = middle.ravel().tolist()
    if calibre_px < 4:
        brush.draw.line(path, fill=int(density * min(calibre_px, 1)), width=max(round(0.75 * calibre_px), 1))
        return
    brush.draw.polygon(outline.ravel().tolist(), fill=int(density))
    if calibre > 0.012:  # light reflected along the middle of the wall, brightest on arteries
        reflex = int(density * (0.84 if vein else 0.62))
        brush.draw.line(path, fill=reflex, width=max(round(0.28 * calibre_px), 1))
