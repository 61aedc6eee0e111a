"""How each lesion of a drawn eye is painted; and what looks like one, but is harmless."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from fundoscope.data.drawn_frame import DISC_RADIUS, FOVEA, Canvas, Floats
from fundoscope.data.drawn_loads import Load
from fundoscope.data.drawn_vessels import ARCADE_VEINS, Vessels, wiggle


@dataclass(frozen=True)
class Site:
    """Where lesions go: a canvas, and the trunk vessels some of them hang on."""

    canvas: Canvas
    trunks: Vessels


def places(
    rng: Generator, site: Site, n: int, *, clear_of_disc: float = 0.2, clear_of_fovea: float = 0.0, margin: float = 0.06
) -> Floats:
    """`n` points of the retina that the photograph shows, no nearer to disc and fovea than said."""
    tried = rng.uniform(-1.3, 1.3, (40 * n + 60, 2)) + site.canvas.frame.look
    good = site.canvas.frame.shows(tried, margin=margin) & (np.hypot(*tried.T) > clear_of_disc)
    good &= np.hypot(tried[:, 0] - FOVEA[0], tried[:, 1] - FOVEA[1]) > clear_of_fovea
    return np.asarray(tried[good][:n])


def blobs(rng: Generator, middles: Floats, radii: Floats, *, ragged: float = 0.25) -> Floats:
    """Outlines (n, 18, 2) of irregular spots."""
    n, angle = len(middles), np.linspace(0, 2 * np.pi, 18, endpoint=False)
    waves = np.zeros((n, 18))
    for k in (1, 2, 3, 5):
        waves += rng.normal(0, ragged / k, (n, 1)) * np.sin(k * angle + rng.uniform(0, 6.3, (n, 1)))
    r = radii[:, None] * (1 + waves).clip(0.35)
    outline = np.stack([r * np.cos(angle), r * np.sin(angle) * rng.uniform(0.75, 1, (n, 1))], axis=-1)
    return np.asarray(middles[:, None] + outline)


def _bleed(site: Site, outlines: Floats, densities: Floats) -> None:
    """Blood that thins out towards its edge."""
    brush, middles = site.canvas.plain("haemorrhages"), outlines.mean(axis=1, keepdims=True)
    brush.shapes(outlines, 0.65 * densities)
    brush.shapes(middles + 0.78 * (outlines - middles), densities)


def microaneurysm(rng: Generator, site: Site, n: int) -> None:
    at = places(rng, site, n)
    site.canvas.sharp("blood").dots(at, rng.uniform(0.0055, 0.0115, len(at)), rng.uniform(160, 240, len(at)))


def dot(rng: Generator, site: Site, n: int) -> None:
    at = places(rng, site, n)
    _bleed(site, blobs(rng, at, rng.uniform(0.0105, 0.02, len(at))), rng.uniform(165, 245, len(at)))


def blot(rng: Generator, site: Site, n: int) -> None:
    at = places(rng, site, n, margin=0.09)
    _bleed(site, blobs(rng, at, 0.022 * rng.lognormal(0.25, 0.35, len(at)), ragged=0.4), rng.uniform(165, 245, len(at)))


def flame(rng: Generator, site: Site, n: int) -> None:
    """Blood between the nerve fibres: strokes that run as they do, away from the disc."""
    brush = site.canvas.plain("haemorrhages")
    for at in places(rng, site, n, clear_of_disc=0.22, clear_of_fovea=0.25):
        strokes, length = int(rng.integers(7, 14)), rng.uniform(0.04, 0.1)
        angle = np.arctan2(at[1], at[0]) + rng.normal(0, 0.2)
        along, across = np.array([np.cos(angle), np.sin(angle)]), np.array([-np.sin(angle), np.cos(angle)])
        middle = at + across * rng.normal(0, 0.01, (strokes, 1)) + along * rng.normal(0, 0.2 * length, (strokes, 1))
        half, thick = (
            along * length * rng.uniform(0.3, 0.6, (strokes, 1)),
            across * rng.uniform(0.003, 0.007, (strokes, 1)),
        )
        outlines = np.stack([middle - half, middle + thick, middle + half, middle - thick], axis=1)
        brush.shapes(outlines, rng.uniform(140, 230, strokes))


def exudates(rng: Generator, site: Site, n: int) -> None:
    """Yellow specks with sharp edges: scattered, or in a ring around a leak."""
    brush = site.canvas.sharp("exudates")
    for middle in places(rng, site, n, clear_of_disc=0.3, margin=0.15):
        middle = middle + rng.uniform(0.1, 0.6) * (np.array(FOVEA) - middle)  # they gather near the macula
        many = int(rng.lognormal(3.3, 0.5)) + 8
        if rng.uniform() < 0.45:
            angle = rng.uniform(0, 6.3) + rng.uniform(0, rng.uniform(2, 5.5), many)
            away = rng.uniform(0.07, 0.17) * rng.normal(1, 0.13, many)
        else:
            angle, away = rng.uniform(0, 6.3, many), rng.rayleigh(rng.uniform(0.03, 0.08), many)
        spots = middle + np.stack([np.cos(angle), np.sin(angle) * rng.uniform(0.6, 1)], axis=-1) * away[:, None]
        radii = np.minimum(0.0055 * rng.lognormal(0, 0.55, many), 0.02)
        brush.shapes(blobs(rng, spots, radii, ragged=0.45), rng.uniform(130, 235, many))


def cotton_wool(rng: Generator, site: Site, n: int) -> None:
    brush = site.canvas.soft("cotton")
    for at in places(rng, site, n, clear_of_disc=0.3, clear_of_fovea=0.3, margin=0.12):
        size = rng.uniform(0.025, 0.05)
        tufts = at + rng.normal(0, 0.45 * size, (4, 2))
        brush.shapes(blobs(rng, tufts, size * rng.uniform(0.5, 0.9, 4)), rng.uniform(120, 220, 4))


def abnormal_capillaries(rng: Generator, site: Site, n: int) -> None:
    """Short, thin, sharply bent vessels within the retina (IRMA)."""
    for at in places(rng, site, n, clear_of_disc=0.35, clear_of_fovea=0.3, margin=0.1):
        _tangle(rng, site, at, many=int(rng.integers(4, 9)), reach=rng.uniform(0.04, 0.08), width=0.0045, density=150)


def new_vessels_disc(rng: Generator, site: Site, n: int) -> None:  # noqa: ARG001
    angle = rng.uniform(0, 6.3)
    middle = 0.6 * DISC_RADIUS * np.array([np.cos(angle), np.sin(angle)])
    _tangle(rng, site, middle, many=int(rng.integers(28, 50)), reach=rng.uniform(0.14, 0.24), width=0.005, density=190)


def new_vessels(rng: Generator, site: Site, n: int) -> None:
    """Fronds that sprout from the great veins of the arcades."""
    veins = site.trunks.points[ARCADE_VEINS, 8:34].reshape(-1, 2)
    shown = veins[site.canvas.frame.shows(veins, margin=0.15)]
    for at in shown[rng.permutation(len(shown))[:n]]:
        _tangle(rng, site, at, many=int(rng.integers(35, 65)), reach=rng.uniform(0.1, 0.19), width=0.005, density=200)


def _tangle(rng: Generator, site: Site, middle: Floats, *, many: int, reach: float, width: float, density: int) -> None:
    """Curling threads on one side of where they sprout."""
    steps = 14
    heading = rng.uniform(0, 6.3) + rng.normal(0, 1.1, (many, 1)) + np.cumsum(wiggle(rng, many, steps, 0.75), axis=1)
    stride = reach / steps * rng.uniform(0.8, 2, (many, 1, 1))
    moves = np.stack([np.cos(heading), np.sin(heading)], axis=-1) * stride
    paths = middle + rng.normal(0, 0.3 * reach, (many, 1, 2)) + np.cumsum(moves, axis=1)
    widths, densities = width * rng.uniform(0.6, 1.2, many), density * rng.uniform(0.6, 1, many)
    site.canvas.sharp("blood").lines(paths, widths, densities)


def preretinal(rng: Generator, site: Site, n: int) -> None:
    """A pool in front of the retina, level at the top because blood settles."""
    at = places(rng, site, n, clear_of_disc=0.3, margin=0.3)
    angle, n = np.linspace(0, np.pi, 24), len(at)
    half, deep = rng.uniform(0.1, 0.28, (n, 1)), rng.uniform(0.1, 0.22, (n, 1))
    ragged = 1 + 0.04 * np.sin(7 * angle + rng.uniform(0, 6.3, (n, 1)))
    below = np.stack([half * np.cos(angle), deep * np.sin(angle) ** 0.7 * ragged], axis=-1)
    site.canvas.plain("pool").shapes(at[:, None] + below, rng.uniform(200, 255, n))


def vitreous(rng: Generator, site: Site, n: int) -> None:
    """Blood adrift in the vitreous: clouds and strands, out of focus."""
    brush = site.canvas.soft("cloud")
    for at in places(rng, site, n, clear_of_disc=0.0, margin=0.2):
        clouds, strands = int(rng.integers(3, 8)), int(rng.integers(2, 6))
        outlines = blobs(rng, at + rng.normal(0, 0.2, (clouds, 2)), rng.uniform(0.06, 0.22, clouds), ragged=0.5)
        brush.shapes(outlines, rng.uniform(90, 220, clouds))
        for _ in range(strands):
            outline = _strand(rng, at + rng.normal(0, 0.2, 2), rng.uniform(0.02, 0.05))
            brush.shapes(outline, rng.uniform(120, 220, 1))


def fibrous(rng: Generator, site: Site, n: int) -> None:  # noqa: ARG001
    """Pale scar tissue along an arcade: a veil, and folds in it."""
    trunk, brush = site.trunks.points[rng.choice(ARCADE_VEINS)], site.canvas.soft("fibrous")
    first = int(rng.integers(2, 14))
    part = trunk[first : first + int(rng.integers(8, 16))]
    radii = rng.uniform(0.03, 0.08, len(part))
    brush.shapes(
        blobs(rng, part + rng.normal(0, 0.02, part.shape), radii, ragged=0.4), np.full(len(part), rng.uniform(60, 110))
    )
    folds = part[:, None] + rng.normal(0, 0.035, (1, 9, 2)) + rng.normal(0, 0.006, (len(part), 9, 2))
    brush.lines(folds.swapaxes(0, 1), rng.uniform(0.004, 0.012, 9), rng.uniform(90, 200, 9))


def _strand(rng: Generator, start: Floats, width: float) -> Floats:
    """The outline (1, …, 2) of a winding band that tapers at both ends."""
    steps = int(rng.integers(8, 18))
    heading = rng.uniform(0, 6.3) + np.cumsum(wiggle(rng, 1, steps, 0.22)[0])
    path = start + np.cumsum(np.stack([np.cos(heading), np.sin(heading)], axis=-1) * 0.04, axis=0)
    normal = np.stack([-np.sin(heading), np.cos(heading)], axis=-1)
    half = (width / 2 * np.sin(np.linspace(0.3, np.pi, steps)) * rng.uniform(0.6, 1.4, steps))[:, None]
    return np.concatenate([path + normal * half, (path - normal * half)[::-1]])[None]


def laser(rng: Generator, site: Site, n: int) -> None:
    """Burns of a panretinal treatment: pale spots outside the arcades, many with a dark speck."""
    at = places(rng, site, n, clear_of_disc=0.42, clear_of_fovea=0.62, margin=0.03)
    n = len(at)
    radii = rng.uniform(0.014, 0.026, n)
    site.canvas.soft("scars").shapes(blobs(rng, at, radii), rng.uniform(60, 180, n))
    dark = rng.uniform(size=n) < 0.6
    specks, size = at + rng.normal(0, 0.3, (n, 2)) * radii[:, None], radii * rng.uniform(0.25, 0.7, n)
    site.canvas.soft("pigment").dots(specks[dark], size[dark], rng.uniform(80, 210, n)[dark])


def drusen(rng: Generator, site: Site, n: int) -> None:
    """Not retinopathy: pale soft spots of age, around the macula."""
    angle, away = rng.uniform(0, 6.3, n), rng.uniform(0.05, 0.5, (n, 1))
    at = np.array(FOVEA) + away * np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    site.canvas.soft("drusen").dots(at, 0.009 * rng.lognormal(0, 0.35, n), rng.uniform(50, 130, n))


def specks(rng: Generator, site: Site, n: int) -> None:
    """Not retinopathy: grains of pigment, or dust in the camera."""
    at = places(rng, site, n, clear_of_disc=0.15, margin=0.03)
    site.canvas.soft("specks").dots(at, rng.uniform(0.006, 0.014, len(at)), rng.uniform(60, 190, len(at)))


def naevus(rng: Generator, site: Site, n: int) -> None:
    """Not retinopathy: a flat grey-brown mole of the choroid."""
    at = places(rng, site, n, clear_of_disc=0.3, clear_of_fovea=0.3, margin=0.1)
    outlines = blobs(rng, at, rng.uniform(0.04, 0.1, len(at)))
    site.canvas.soft("naevus").shapes(outlines, rng.uniform(80, 150, len(at)))


PAINTERS: dict[str, Callable[[Generator, Site, int], None]] = {
    "microaneurysm": microaneurysm,
    "dot": dot,
    "blot": blot,
    "flame": flame,
    "exudates": exudates,
    "cotton_wool": cotton_wool,
    "abnormal_capillaries": abnormal_capillaries,
    "new_vessels_disc": new_vessels_disc,
    "new_vessels": new_vessels,
    "preretinal": preretinal,
    "vitreous": vitreous,
    "fibrous": fibrous,
    "laser": laser,
    "drusen": drusen,
    "specks": specks,
    "naevus": naevus,
}


def paint_lesions(rng: Generator, site: Site, load: Load) -> None:
    """Draw every lesion of the load; beaded veins are the vessels' own business."""
    for lesion, paint in PAINTERS.items():
        if load.get(lesion, 0):
            paint(rng, site, load[lesion])
