"""Preparing photographs: the published algorithm, written plainly with OpenCV, against ours, on one core.

Both start from a file's bytes and end with an encoded square of 299 pixels, as each stores it: JPEG of quality 100 as
published, PNG as ours. The published darkening is done by a table, as anyone would who wants it fast. The photographs
are taken in random order, and one after the other by either way, so that whatever else the machine does falls on both.
The interval of the ratio is over photographs (bootstrap, 95 %). Where our own time goes stands below the table.

    python benchmarks/prepare.py [--quick] [--json FILE] [--photographs FOLDER]
"""

import argparse
import io
import json
import random
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fundoscope.data.photo import Preparation, decode, encode_png, prepare

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data" / "fundus"
SIZE = 299
REACH = 5.0  # times as fast, and …
AGREE = 1.0  # … % of the diameter, in centre and radius

# There are only 256 values: the table gives the very pixels that the published power of every pixel gives.
DARKENED = ((255.0 / 1.3) * (np.arange(256) / (255.0 / 1.5)) ** 2).astype(np.int64).astype(np.uint8)

Pixels = NDArray[np.uint8]
Found = tuple[float, float, float]  # x, y, radius in pixels


def published(photo: bytes) -> tuple[Found | None, bytes]:
    """Voets et al. (2019), at its best: its darkening, written for every pixel in floating point, by a table."""
    image: Any = cv2.imdecode(np.frombuffer(photo, np.uint8), cv2.IMREAD_UNCHANGED)
    grey = cv2.cvtColor(cv2.LUT(image, DARKENED), cv2.COLOR_BGR2GRAY)
    contours = cv2.findContours(grey, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)[-2]
    if len(contours) == 0:
        return None, b""
    contour = max(contours, key=cv2.contourArea)
    _, radius = cv2.minEnclosingCircle(contour)
    if radius <= 100:
        return None, b""
    moments = cv2.moments(contour)
    x, y = int(moments["m10"] / moments["m00"]), int(moments["m01"] / moments["m00"])
    left, top, side = max(0, int(x - radius)), max(0, int(y - radius)), int(radius * 2)
    crop = image[top : top + side, left : left + side]
    scale = (SIZE / 2) / radius
    crop = cv2.resize(crop, (0, 0), fx=scale, fy=scale)
    rows, columns = SIZE - crop.shape[0], SIZE - crop.shape[1]
    border = (rows - rows // 2, rows // 2, columns - columns // 2, columns // 2)
    square = cv2.copyMakeBorder(crop, *border, cv2.BORDER_CONSTANT, value=(0, 0, 0))
    return (x, y, radius), cv2.imencode(".jpg", square, [cv2.IMWRITE_JPEG_QUALITY, 100])[1].tobytes()


def ours(photo: bytes) -> tuple[Found | None, bytes]:
    prepared = prepare(photo, Preparation(size=SIZE))
    circle = prepared.circle
    found = (circle.x, circle.y, circle.radius) if circle else None
    return found, encode_png(prepared.pixels)


WAYS: dict[str, Callable[[bytes], tuple[Found | None, bytes]]] = {"published": published, "ours": ours}


def photographs(folder: Path) -> Iterator[tuple[str, str, bytes]]:
    """Set, name and bytes of every full-resolution photograph."""
    for archive in sorted(folder.glob("*fullres*.tar")):
        with tarfile.open(archive) as tar:
            for member in tar:
                if member.name.startswith("images/") and (file := tar.extractfile(member)) is not None:
                    yield archive.stem, Path(member.name).name, file.read()


def measure(photos: list[tuple[str, str, bytes]], repetitions: int) -> tuple[NDArray[np.float64], list[dict[str, Any]]]:
    """CPU seconds by way, photograph and repetition; and the circles each way finds."""
    seconds = np.zeros((len(WAYS), len(photos), repetitions))
    circles: list[dict[str, Any]] = [{} for _ in photos]
    shuffled = random.Random(1)
    for repetition in range(repetitions):
        for index in shuffled.sample(range(len(photos)), len(photos)):
            for way in shuffled.sample(list(WAYS), len(WAYS)):
                start = time.process_time()
                found, _ = WAYS[way](photos[index][2])
                seconds[list(WAYS).index(way), index, repetition] = time.process_time() - start
                circles[index][way] = found
    return seconds, circles


def ratio(seconds: NDArray[np.float64]) -> tuple[float, float, float]:
    """How many times as fast, over all photographs, with a bootstrap interval over photographs."""
    typical = np.median(seconds, axis=2)  # of the repetitions
    resampled = np.random.default_rng(2).integers(0, typical.shape[1], (2000, typical.shape[1]))
    ratios = typical[0][resampled].sum(axis=1) / typical[1][resampled].sum(axis=1)
    low, high = np.percentile(ratios, [2.5, 97.5])
    return float(typical[0].sum() / typical[1].sum()), float(low), float(high)


def agreement(circles: list[dict[str, Any]]) -> dict[str, Any]:
    """How far our circles lie from the published ones, in % of the diameter, where there are any."""
    both = [(one["published"], one["ours"]) for one in circles if one["published"] and one["ours"]]
    centre = [100 * np.hypot(p[0] - o[0], p[1] - o[1]) / (2 * p[2]) for p, o in both]
    radius = [100 * abs(p[2] - o[2]) / (2 * p[2]) for p, o in both]
    found = {way: sum(one[way] is not None for one in circles) for way in WAYS}
    return {"found": found, "centre_percent": float(max(centre)), "radius_percent": float(max(radius))}


def our_parts(photos: list[tuple[str, str, bytes]], repetitions: int) -> dict[str, float]:
    """CPU milliseconds of a photograph by part of our way, the median of the repetitions."""
    preparation = Preparation(size=SIZE)
    seconds: dict[str, list[list[float]]] = {"decode, scaled": [], "circle and crop": [], "PNG": []}
    for _, _, photo in photos:
        spent: dict[str, list[float]] = {name: [] for name in seconds}
        for _ in range(repetitions):
            moments = [time.process_time()]
            decode(photo, at_least=SIZE)
            moments.append(time.process_time())
            pixels = prepare(photo, preparation).pixels
            moments.append(time.process_time())
            encode_png(pixels)
            moments.append(time.process_time())
            decoded, prepared, encoded = np.diff(moments)
            spent["decode, scaled"].append(decoded)
            spent["circle and crop"].append(prepared - decoded)
            spent["PNG"].append(encoded)
        for name, values in spent.items():
            seconds[name].append(values)
    return {name: 1e3 * float(np.median(values, axis=1).mean()) for name, values in seconds.items()}


def encodings(squares: list[Pixels]) -> list[dict[str, Any]]:
    """Milliseconds and kilobytes per square of ways to store it without loss."""

    def pillow(pixels: Pixels, level: int) -> bytes:
        out = io.BytesIO()
        Image.fromarray(pixels).save(out, "PNG", compress_level=level)
        return out.getvalue()

    def opencv(pixels: Pixels) -> bytes:
        return bytes(cv2.imencode(".png", pixels, [cv2.IMWRITE_PNG_COMPRESSION, 1])[1].tobytes())

    rows = []
    named: dict[str, Callable[[Pixels], bytes]] = {
        "PNG, ours": encode_png,
        "PNG, Pillow, level 1": lambda pixels: pillow(pixels, 1),
        "PNG, Pillow, level 6": lambda pixels: pillow(pixels, 6),
        "PNG, OpenCV, level 1": opencv,
    }
    for name, encode in named.items():
        start = time.process_time()
        size = sum(len(encode(square)) for square in squares)
        spent = time.process_time() - start
        rows.append({"encoding": name, "ms": 1e3 * spent / len(squares), "kB": size / 1e3 / len(squares)})
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one repetition")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    parser.add_argument("--photographs", type=Path, default=SHARED, metavar="FOLDER", help="holds *fullres*.tar")
    arguments = parser.parse_args()
    cv2.setNumThreads(1)
    photos = list(photographs(arguments.photographs))
    if not photos:
        print(f"skipped: no *fullres*.tar in {arguments.photographs}")
        return 0
    for _, _, photo in photos[:2]:  # both ways once before the clock runs
        for way in WAYS.values():
            way(photo)
    seconds, circles = measure(photos, 1 if arguments.quick else 5)
    report = table(photos, seconds, circles, our_parts(photos, 1 if arguments.quick else 5))
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 0 if report["reached"] else 1


def table(
    photos: list[tuple[str, str, bytes]],
    seconds: NDArray[np.float64],
    circles: list[dict[str, Any]],
    parts: dict[str, float],
) -> dict[str, Any]:
    print(
        f"{'set':22}{'n':>4}{'published ms':>14}{'ours ms':>9}{'times as fast (95 %)':>26}  found  centre %  radius %"
    )
    sets = [*sorted({name for name, _, _ in photos}), "all"]
    rows = []
    for name in sets:
        mine = [index for index, photo in enumerate(photos) if name in (photo[0], "all")]
        times, part = seconds[:, mine], agreement([circles[index] for index in mine])
        fast, low, high = ratio(times)
        ms = 1e3 * np.median(times, axis=2).mean(axis=1)
        found = f"{part['found']['published']}/{part['found']['ours']}"
        interval = f"{fast:.1f} ({low:.1f} to {high:.1f})"
        print(
            f"{name:22}{len(mine):4}{ms[0]:14.1f}{ms[1]:9.1f}{interval:>26}  {found:>5}"
            f"  {part['centre_percent']:8.2f}  {part['radius_percent']:8.2f}"
        )
        speed = {"published_ms": float(ms[0]), "ours_ms": float(ms[1]), "ratio": fast, "ratio_95": [low, high]}
        rows.append({"set": name, "n": len(mine), **speed, **part})
    most = rows[-1]["published_ms"] / parts["decode, scaled"]
    print("\nour time: " + ", ".join(f"{name} {ms:.1f} ms" for name, ms in parts.items()))
    print(f"with the decode alone it would be {most:.1f} times as fast: more needs another JPEG decoder")
    squares = [prepare(photo, Preparation(size=224)).pixels for _, _, photo in photos]
    stored = encodings(squares)
    print("\nstoring a square of 224 pixels without loss")
    for row in stored:
        print(f"{row['encoding']:22}{row['ms']:8.2f} ms{row['kB']:8.1f} kB")
    whole = rows[-1]
    reached = whole["ratio"] >= REACH and max(whole["centre_percent"], whole["radius_percent"]) <= AGREE
    verdict = "reached" if reached else "NOT reached"
    least = whole["ratio_95"][0]
    print(f"\n{verdict}: {REACH:g} times as fast ({least:.1f} at the least), and within {AGREE:g} % of the diameter")
    return {"rows": rows, "our_parts_ms": parts, "encodings": stored, "reached": bool(reached), "size": SIZE}


if __name__ == "__main__":
    sys.exit(main())
