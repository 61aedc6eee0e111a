"""Drawn eyes: synthetic fundus photographs with their grades, from a seed. The offline default.

For trying and testing the software; nothing about medicine is concluded from them. An eye is planned first (cheap:
grades without pictures), then painted. Everything random comes from (seed, patient, eye, purpose), never from the
order of drawing, so that any number of processes gives the same bytes, and an eye drawn with another grade is the same
eye with other lesions.
"""

import csv
import io
import json
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from pathlib import Path
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
import simplejpeg
from numpy.random import Generator, SeedSequence
from numpy.typing import NDArray
from PIL import Image, ImageChops

from fundoscope.data.drawn_camera import SPOILS, camera_of, develop, frame_of
from fundoscope.data.drawn_frame import Canvas, cover, doubled, shade
from fundoscope.data.drawn_lesions import Site, paint_lesions
from fundoscope.data.drawn_loads import LOADS, harmless
from fundoscope.data.drawn_retina import Look, look_of, paint_ground
from fundoscope.data.drawn_vessels import draw_vessels, grow_tree
from fundoscope.data.parallel import spread
from fundoscope.errors import FundoscopeError
from fundoscope.progress import Track, quiet
from fundoscope.provenance import write_json, write_whole

Eye = Literal["left", "right"]

DRAWING = 1  # counts up whenever the same seed would give other pictures
GRADE_SHARES = (0.45, 0.12, 0.25, 0.09, 0.09)
BETWEEN_EYES = 0.75  # correlation of what lies behind the grades of the two eyes of a patient
SPOILT_SHARE = 0.06
SMALLEST_PX, LARGEST_PX = 64, 8192
COLUMNS = ("file", "grade", "patient", "eye", "gradable")
BATCH = 16  # photographs a process draws at a time


@dataclass(frozen=True)
class DrawnEye:
    pixels: NDArray[np.uint8]  # (height, width, 3) RGB, the longest side `size`
    grade: int
    eye: Eye
    patient: str
    gradable: bool
    jpeg_quality: int

    def jpeg(self) -> bytes:
        encoded: bytes = simplejpeg.encode_jpeg(self.pixels, self.jpeg_quality, "RGB", "420")
        return encoded


@dataclass(frozen=True)
class Plan:
    """Everything about a drawn eye but its pixels."""

    seed: int
    index: int
    grade: int
    spoilt: str  # why it cannot be graded; "" = it can

    @property
    def patient(self) -> str:
        return f"drawn-{self.seed}-{self.index // 2:05d}"  # two drawings share no patient

    @property
    def eye(self) -> Eye:
        return "right" if self.index % 2 else "left"

    @property
    def gradable(self) -> bool:
        return not self.spoilt

    def rng(self, purpose: str, *, both_eyes: bool = False) -> Generator:
        # The purpose's letters, not hash(): that one changes from process to process.
        return _generator(self.seed, self.index // 2, 2 if both_eyes else self.index % 2, purpose)


def _generator(seed: int, patient: int, eye: int, purpose: str) -> Generator:
    return np.random.default_rng(SeedSequence([seed, patient, eye, *purpose.encode()]))


def plan_eye(seed: int, index: int) -> Plan:
    """The label of an eye, without drawing it. Indices 2k and 2k + 1 are the eyes of patient k."""
    if seed < 0 or index < 0:
        raise FundoscopeError(f"there is no drawn eye {index} of seed {seed}", "use whole numbers from 0 up")
    patient, eye = divmod(index, 2)
    shared = _generator(seed, patient, 2, "severity").normal()
    rng = _generator(seed, patient, eye, "severity")
    severity = BETWEEN_EYES**0.5 * shared + (1 - BETWEEN_EYES) ** 0.5 * rng.normal()
    spoilt = str(rng.choice(list(SPOILS))) if rng.uniform() < SPOILT_SHARE else ""
    return Plan(seed, index, grade=int(np.searchsorted(_thresholds(), severity)), spoilt=spoilt)


@cache
def _thresholds() -> list[float]:
    """Where a standard normal severity passes from one grade to the next."""
    return [NormalDist().inv_cdf(float(share)) for share in np.cumsum(GRADE_SHARES)[:-1]]


def draw_eye(seed: int, index: int, *, size: int = 1024) -> DrawnEye:
    """One drawn photograph; the same (seed, index, size) always gives the same pixels."""
    _check_size(size)
    return paint(plan_eye(seed, index), size=size)


def paint(plan: Plan, *, size: int) -> DrawnEye:
    look, camera = look_of(plan.rng("look", both_eyes=True)), camera_of(plan.rng("camera", both_eyes=True))
    canvas = Canvas(frame_of(plan.rng("frame"), camera, plan.eye), size)
    picture = paint_ground(plan.rng("ground"), look, camera, canvas)
    _draw_layers(plan, look, canvas)
    for layer, blur, colour in BEHIND:
        cover(picture, canvas.layer(layer, blur=blur), colour)
    picture = doubled(picture, canvas.size)
    cover(picture, canvas.layer("exudates", blur=camera.defocus), EXUDATE)
    picture = shade(picture, _blood(canvas, camera.defocus), BLOOD)
    picture = shade(picture, canvas.layer("pool", blur=0.01), THICK_BLOOD)
    picture = shade(picture, canvas.layer("cloud", blur=0.05), THICK_BLOOD)
    cover(picture, canvas.layer("fibrous", blur=0.012), SCAR)
    pixels = develop(plan.rng("development"), picture, camera, canvas, plan.spoilt)
    return DrawnEye(pixels, plan.grade, plan.eye, plan.patient, plan.gradable, camera.jpeg_quality)


# Soft layers, their blur in field radii and their colours, from the deepest up.
BEHIND = (
    ("naevus", 0.015, (96, 62, 44)),
    ("specks", 0.003, (74, 50, 40)),
    ("drusen", 0.008, (240, 200, 120)),
    ("scars", 0.004, (232, 200, 140)),
    ("pigment", 0.003, (50, 32, 26)),
    ("cotton", 0.014, (246, 226, 180)),
)
EXUDATE, SCAR = (255, 232, 140), (214, 206, 190)
# Blood leaves red and takes green and blue.
BLOOD, THICK_BLOOD = (0.7, 0.36, 0.42), (0.52, 0.19, 0.18)


def _draw_layers(plan: Plan, look: Look, canvas: Canvas) -> None:
    rng = plan.rng("lesions")
    load = LOADS[plan.grade](rng)
    tree = grow_tree(plan.rng("vessels"), tortuosity=look.tortuosity, calibre=look.calibre)
    draw_vessels(canvas.sharp("blood"), tree, beading=0.3 if load.get("beading") else 0.0)
    site = Site(canvas, tree[0])
    paint_lesions(rng, site, load)
    rng = plan.rng("harmless")
    paint_lesions(rng, site, harmless(rng, drusen=look.drusen))


def _blood(canvas: Canvas, defocus: float) -> Image.Image | None:
    vessels, spilt = canvas.layer("blood", blur=defocus), canvas.layer("haemorrhages", blur=max(defocus, 0.0035))
    return ImageChops.lighter(vessels, spilt) if vessels and spilt else vessels


def draw_folder(
    out: Path, *, n: int, seed: int, size: int = 1024, processes: int | None = None, track: Track = quiet
) -> Path:
    """Write images/NNNNN.jpg and, when all are there, labels.csv. Returns the folder."""
    _check_size(size)
    if n < 1:
        raise FundoscopeError(f"cannot draw {n} photographs", "ask for one or more")
    plan_eye(seed, 0)  # a bad seed is better refused before the folder is made
    _claim(out, {"drawing": DRAWING, "n": n, "seed": seed, "size": size})
    batches = [range(start, min(start + BATCH, n)) for start in range(0, n, BATCH)]
    done = spread(partial(_write_batch, out / "images", seed, size), batches, processes=processes)
    for _ in track(chain.from_iterable(done), total=n, label="drawing"):
        pass
    write_whole(out / "labels.csv", _labels(n, seed).encode())
    return out


def _check_size(size: int) -> None:
    if not SMALLEST_PX <= size <= LARGEST_PX:
        raise FundoscopeError(f"cannot draw a photograph of {size} pixels", f"use {SMALLEST_PX} to {LARGEST_PX}")


def _claim(out: Path, parameters: dict[str, int]) -> None:
    """Make the folder ours, or refuse one that holds something else: two drawings in one folder are neither."""
    if out.exists() and not out.is_dir():
        raise FundoscopeError(f"{out} is a file, not a folder", "name another folder")
    note = out / "drawn.json"
    if note.exists():
        found = _read_note(note)
        if found != parameters:
            told = ", ".join(f"{name} {found.get(name)}" for name in parameters if found.get(name) != parameters[name])
            raise FundoscopeError(f"{out} already holds another drawing ({told})", "name another folder, or remove it")
    elif (out / "images").exists() or (out / "labels.csv").exists():
        raise FundoscopeError(f"{out} already holds photographs that were not drawn", "name another folder")
    write_json(note, parameters)


def _read_note(note: Path) -> dict[str, Any]:
    try:
        found = json.loads(note.read_text(encoding="utf-8"))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise FundoscopeError(f"{note} cannot be read", "name another folder, or remove this one")
    return found


def _write_batch(images: Path, seed: int, size: int, batch: range) -> range:
    for index in batch:
        picture = draw_eye(seed, index, size=size).jpeg()
        write_whole(images / _file(index), picture, lasting=False)  # the seed draws it again
    return batch


def _file(index: int) -> str:
    return f"{index:05d}.jpg"


def _labels(n: int, seed: int) -> str:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    for index in range(n):
        plan = plan_eye(seed, index)
        table.writerow((_file(index), plan.grade, plan.patient, plan.eye, str(plan.gradable).lower()))
    return text.getvalue()
