"""The ground a drawn eye is painted on: the colour of the retina, its texture, macula and optic disc."""

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from PIL import Image

from fundoscope.data.drawn_camera import Camera, lit
from fundoscope.data.drawn_frame import DISC_RADIUS, FOVEA, Canvas, Floats, shade
from fundoscope.data.drawn_vessels import wiggle

GROUND_PX = 128  # the colours of the ground vary slowly: this many pixels across, then enlarged
DISC_PX = 64
BICUBIC = Image.Resampling.BICUBIC

# Mean colours of real photographs, from fair to dark fundi and from several cameras; every eye is a mixture of two.
GROUNDS = np.array(
    [
        (205, 112, 52),
        (190, 96, 34),
        (203, 128, 96),
        (168, 82, 34),
        (150, 66, 22),
        (176, 120, 62),
        (225, 118, 62),
        (150, 98, 88),
    ],
    dtype=float,
)


@dataclass(frozen=True)
class Look:
    """What both eyes of a patient share."""

    ground: tuple[float, float, float]  # mean colour of the retina
    youth: float  # 0..1: sheen of the nerve fibres and around the macula
    tessellation: float  # 0..1: how far the vessels of the choroid show through
    mottling: float  # 0..1
    disc: tuple[float, float]  # radii of the optic disc across and down, field radii
    cup: float  # cup-to-disc ratio
    tortuosity: float
    calibre: float
    drusen: bool  # harmless or another disease's spots: what a grader must not mistake for exudates


def look_of(rng: Generator) -> Look:
    first, second = rng.choice(len(GROUNDS), 2)
    share = rng.uniform()
    ground = (GROUNDS[first] * share + GROUNDS[second] * (1 - share)) * rng.normal(1, 0.04, 3)
    across = DISC_RADIUS * rng.uniform(0.88, 1.1)
    return Look(
        ground=(float(ground[0]), float(ground[1]), float(ground[2])),
        youth=float(rng.uniform() ** 1.5),
        tessellation=float(max(rng.uniform(-1.3, 1), 0)),
        mottling=float(rng.uniform(0.2, 1)),
        disc=(across, across * rng.uniform(1.0, 1.16)),
        cup=float(rng.uniform(0.25, 0.65)),
        tortuosity=float(rng.uniform(0.14, 0.3)),
        calibre=float(rng.uniform(0.88, 1.12)),
        drusen=bool(rng.uniform() < 0.12),
    )


def paint_ground(rng: Generator, look: Look, camera: Camera, canvas: Canvas) -> Image.Image:
    """Retina, macula, texture and disc, without vessels; at half the photograph's size, for nothing here is sharp."""
    ground = _colours(rng, look, camera, canvas).resize(canvas.half_size, BICUBIC)
    rough = 0.24 * look.mottling
    ground = shade(ground, _texture(rng, canvas), (1 - 0.5 * rough, 1 - rough, 1 - rough))
    if look.tessellation > 0:
        _draw_choroid(rng, canvas)
        gain = 1 + 0.3 * look.tessellation
        ground = shade(ground, canvas.layer("choroid", blur=0.011), (gain, gain * 1.02, gain * 0.94))
    if look.youth > 0.25:
        _draw_fibres(rng, canvas)
        sheen = 1 + 0.5 * look.youth
        ground = shade(ground, canvas.layer("fibres"), (1 + 0.3 * look.youth, sheen, sheen))
    _paste_disc(rng, ground, look, canvas)
    return ground


def _grid(canvas: Canvas) -> tuple[Floats, Floats]:
    """Retina coordinates (x, y) of the pixels of the small ground."""
    frame, (width, height), photograph = canvas.frame, canvas.size, canvas.photograph[0]
    rows = max(round(GROUND_PX * height / width), 1)
    x = ((np.arange(GROUND_PX) + 0.5) / GROUND_PX * width + canvas.left) / photograph - frame.x
    y = ((np.arange(rows) + 0.5) / rows * height + canvas.top) / photograph - frame.y
    x, y = x / frame.unit, y / frame.unit
    x, y = np.meshgrid(x * frame.temple, y)
    cos, sin = np.cos(frame.turn), np.sin(frame.turn)
    return x * cos + y * sin + frame.look[0], y * cos - x * sin + frame.look[1]


def _colours(rng: Generator, look: Look, camera: Camera, canvas: Canvas) -> Image.Image:
    (x, y), frame = _grid(canvas), canvas.frame
    height, width = x.shape
    fovea_r = np.hypot(x - FOVEA[0], (y - FOVEA[1]) * 1.08)
    disc_r = np.hypot(x, y)
    light = 1 + 0.16 * rng.uniform() * np.exp(-((disc_r / 0.42) ** 2))  # nerve fibres scatter light around the disc
    light += 0.07 * look.youth * np.exp(-(((fovea_r - 0.36) / 0.07) ** 2))
    clouds = smooth_noise(rng, (height, width), 5) * 0.065 + smooth_noise(rng, (height, width), 13) * 0.05
    hue = smooth_noise(rng, (height, width), 4) * 0.04
    wide, deep = rng.uniform(0.2, 0.34), rng.uniform(0.22, 0.42)
    macula = deep * np.exp(-((fovea_r / wide) ** 2)) + rng.uniform(0.1, 0.26) * np.exp(-((fovea_r / 0.085) ** 2))
    colours = np.empty((height, width, 3))
    for channel, (clouded, hued, absorbed) in enumerate(((0.6, 0.3, 0.62), (1, -1, 1.0), (1, -0.8, 1.1))):
        colours[..., channel] = (
            look.ground[channel] * light * (1 + clouded * clouds + hued * hue) * (1 - absorbed * macula).clip(0.05)
        )
    if rng.uniform() < 0.4:  # the little mirror at the bottom of the fovea
        colours += 60 * rng.uniform(0.3, 1) * np.exp(-((fovea_r / 0.016) ** 2))[..., None]
    colours = lit(colours, camera, x - frame.look[0], y - frame.look[1])
    return Image.fromarray(colours.clip(0, 255).astype(np.uint8))


def smooth_noise(rng: Generator, shape: tuple[int, int], cells: int) -> Floats:
    """Random hills of unit height, about `cells` of them across."""
    coarse = rng.normal(0, 1, (cells + 1, cells + 1)).astype(np.float32)
    return np.asarray(Image.fromarray(coarse).resize((shape[1], shape[0]), BICUBIC), dtype=float)


@cache
def _texture_tile() -> Image.Image:
    """A square of retinal grain; every eye shows another part of it."""
    rng, side = np.random.default_rng(20_150_217), 1024
    grain = np.zeros((side, side), np.float32)
    for cells, weight in ((24, 0.5), (70, 0.6), (180, 0.8), (420, 0.8)):
        coarse = Image.fromarray(rng.normal(0, 1, (cells, cells)).astype(np.float32))
        grain += weight * np.asarray(coarse.resize((side, side), BICUBIC))
    return Image.fromarray((128 + 58 * grain / grain.std()).clip(0, 255).astype(np.uint8))


def _texture(rng: Generator, canvas: Canvas) -> Image.Image:
    tile, size = _texture_tile(), canvas.half_size
    across = 900 * rng.uniform(0.7, 1)
    left, top = rng.uniform(0, 1024 - across, 2)
    longest = max(size)
    box = (left, top, left + across * size[0] / longest, top + across * size[1] / longest)
    part = tile.resize(size, Image.Resampling.BILINEAR, box=box)
    return part.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if rng.uniform() < 0.5 else part


def _draw_choroid(rng: Generator, canvas: Canvas) -> None:
    """Broad winding bands that leave the disc's surroundings and the macula alone."""
    brush, n, steps = canvas.soft("choroid"), 140, 22
    points = rng.uniform(-1, 1, (n, 2)) * 1.35 + canvas.frame.look
    away = points - FOVEA
    heading = np.arctan2(away[:, 1], away[:, 0])[:, None] + rng.normal(0, 0.5, (n, 1)) + wiggle(rng, n, steps, 0.7)
    path = points[:, None] + np.cumsum(np.stack([np.cos(heading), np.sin(heading)], axis=-1) * 0.035, axis=1)
    far = np.hypot(path[..., 0] - FOVEA[0], path[..., 1] - FOVEA[1]) / 0.75
    path = np.where((far > rng.uniform(0.55, 1, (n, 1)))[..., None], path, path[:, -1:])
    brush.lines(path, rng.uniform(0.018, 0.045, n), rng.uniform(90, 240, n))


def _draw_fibres(rng: Generator, canvas: Canvas) -> None:
    """Fine streaks of the nerve-fibre layer, fanning out above and below the disc."""
    brush, n, steps = canvas.soft("fibres"), 130, 20
    upper = rng.uniform(size=n) < 0.5
    first = np.where(upper, -1, 1) * np.radians(rng.uniform(40, 130, n))
    along = np.arange(steps) * 0.04
    heading = first[:, None] * (0.25 + 0.75 * np.exp(-along / 0.6)) + wiggle(rng, n, steps, 0.03)
    start = 0.13 * np.stack([np.cos(first), np.sin(first)], axis=-1)
    path = start[:, None] + np.cumsum(np.stack([np.cos(heading), np.sin(heading)], axis=-1) * 0.04, axis=1)
    brush.lines(path, np.full(n, 0.004), rng.uniform(30, 110, n))


def _paste_disc(rng: Generator, ground: Image.Image, look: Look, canvas: Canvas) -> None:
    """The optic disc: a pink rim, paler towards the temple, a white cup, perhaps a crescent beside it."""
    reach = 1.9  # the patch, in disc radii from its middle
    span = (np.arange(DISC_PX) + 0.5) / DISC_PX * 2 * reach - reach
    x, y = np.meshgrid(span * canvas.frame.temple, span)
    r, temporal = np.hypot(x, y), x / np.maximum(np.hypot(x, y), 1e-6)
    edge = (
        1
        + 0.03 * np.sin(2 * np.arctan2(y, x) + rng.uniform(0, 6))
        + 0.02 * np.sin(3 * np.arctan2(y, x) + rng.uniform(0, 6))
    )
    disc = _step(edge - r, rng.uniform(0.09, 0.2))
    cup = _step(look.cup - np.hypot(x - 0.1, y * 0.95 - rng.uniform(-0.05, 0.05)), 0.26)
    pallor = (0.55 + 0.3 * temporal * np.minimum(r, 1))[..., None]
    flat = np.array(look.ground)
    rim = flat * (1 - pallor) + np.array([255, 205, 140]) * pallor + np.array([22, 0, 0])
    colour = rim + (np.array([255, 240, 196]) - rim) * (0.25 + 0.6 * rng.uniform()) * cup[..., None]
    crescent = rng.uniform(0, 0.5) * _step(1.0 + rng.uniform(0.08, 0.4) * np.maximum(temporal, 0) - r, 0.1)
    halo = flat * np.array([1.12, 1.3, 1.3])
    colour = halo + (colour - halo) * disc[..., None]
    alpha = np.maximum(disc, crescent)
    across, down = (axis * reach * canvas.px_per_unit / 2 for axis in look.disc)
    middle = (canvas.frame.place(np.zeros(2)) * canvas.photograph[0] - (canvas.left, canvas.top)) / 2
    size = (max(round(2 * across), 1), max(round(2 * down), 1))
    corner = (round(middle[0] - across), round(middle[1] - down))
    patch = Image.fromarray(colour.clip(0, 255).astype(np.uint8)).resize(size, BICUBIC)
    mask = Image.fromarray((alpha * 255).astype(np.uint8)).resize(size, BICUBIC)
    ground.paste(patch, corner, mask)


def _step(distance: NDArray[np.float64], softness: float) -> Floats:
    """1 inside, 0 outside, and a smooth edge `softness` wide."""
    t = (distance / softness + 0.5).clip(0, 1)
    return np.asarray(t * t * (3 - 2 * t))
