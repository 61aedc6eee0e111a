"""Gradability: fit the rule's limits on one half of the photographs, and say how well it does on the other.

Sound are real photographs (APTOS, IDRiD, the part of EyePACS that people called gradable), drawn eyes that are so by
design, and copies spoilt a little; unsound are copies spoilt badly, each in one way, and drawn eyes that are so by
design. All copies of a photograph fall into the same half; the intervals count them as independent, and those over all
kinds are a little too narrow for it. The limits for what is a fundus photograph were set by eye, on the pictures they
are shown with here.

Apart from that, the rule is held against people, where their word is at hand: the authors of the published study judged
EyePACS photographs themselves (one judgement each, of the full size) and published them as
eyepacs_gradability_grades.csv in mikevoets/jama16-retina-replication. Give that file with --judgements; without it
EyePACS is left out of the fit, and the limits come out a little different from those shipped.

    python benchmarks/gradability.py [--quick] [--json FILE] [--judgements FILE]

Longer than most for its list of photographs and its ways to spoil them, which nothing else needs.
"""

import argparse
import gzip
import json
import random
import sys
import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

from fundoscope.data.draw import draw_eye
from fundoscope.data.gradability import DEFAULT_RULE, FAULTS, GradabilityRule, Limit, Measures, judge, measure
from fundoscope.data.photo import Preparation, decode, encode_png, prepare
from fundoscope.model.intervals import wilson

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
PREPARATION = Preparation(size=224)
Pixels = NDArray[np.uint8]
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Case:
    source: str  # of the photograph: aptos, idrid, eyepacs, drawn
    name: str
    kind: str  # "as taken", or how it was spoilt
    sound: bool | None  # None: only people's word for it
    measures: Measures | None

    @property
    def group(self) -> str:
        return f"as taken, {self.source}" if self.kind == "as taken" else self.kind

    @property
    def is_for_fitting(self) -> bool:
        return zlib.crc32(f"{self.source}/{self.name}".encode()) % 2 == 0


# How to spoil a photograph whose retina is `across` pixels wide; strengths that leave it gradable, and that do not.


def blurred(picture: Floats, strength: float, across: float, _: Generator) -> Floats:
    image = Image.fromarray(picture.astype(np.uint8))
    return np.asarray(image.filter(ImageFilter.GaussianBlur(strength * across / 224)), np.float32)


def exposed(picture: Floats, strength: float, _: float, __: Generator) -> Floats:
    return picture * np.float32(strength)


def hazy(picture: Floats, strength: float, _: float, __: Generator) -> Floats:
    veil = np.array([150, 140, 130], np.float32)
    return np.where(_lit(picture), picture * (1 - strength) + strength * veil, picture).astype(np.float32)


def covered(picture: Floats, strength: float, across: float, rng: Generator) -> Floats:
    """A lid or a lash over that share of the retina, from any side, with a soft edge."""
    rows, columns = np.nonzero(_lit(picture)[..., 0])
    angle = rng.uniform(0, 2 * np.pi)
    edge = np.quantile(np.cos(angle) * columns + np.sin(angle) * rows, 1 - strength)
    height, width = picture.shape[:2]
    beyond = np.cos(angle) * np.arange(width) + np.sin(angle) * np.arange(height)[:, None] - edge
    cover = (1 / (1 + np.exp(np.clip(-beyond * 60 / across, -30, 30))))[..., None]
    lid = np.array([40, 15, 8]) * _lit(picture)
    return np.asarray(picture * (1 - cover) + lid * cover, np.float32)


def noisy(picture: Floats, strength: float, _: float, rng: Generator) -> Floats:
    noise = rng.normal(0, strength, picture.shape)
    return np.where(_lit(picture), picture + noise, picture).astype(np.float32)


def cut(picture: Floats, strength: float, across: float, _: Generator) -> Floats:
    """That share of the retina's width beyond the right edge of the frame."""
    right = int(np.flatnonzero(_lit(picture)[..., 0].any(axis=0))[-1])
    return picture[:, : max(8, int(right - strength * across))]


def _lit(picture: Floats) -> NDArray[np.bool_]:
    lit: NDArray[np.bool_] = picture.max(axis=2, keepdims=True) > 12
    return lit


Spoil = Callable[[Floats, float, float, Generator], Floats]
SPOILS: dict[str, tuple[Spoil, tuple[float, ...], tuple[float, ...], str]] = {
    "blur": (blurred, (0.4, 0.8), (3, 4, 6), "sharpness"),  # sigma, in pixels of a retina of 224
    "darkness": (exposed, (0.6, 0.8), (0.1, 0.15, 0.2), "dark"),  # gain
    "over-exposure": (exposed, (1.1, 1.3), (4, 6), "glare"),
    "haze": (hazy, (0.1, 0.25), (0.75, 0.85), "contrast"),  # share of the veil
    "lid": (covered, (0.03, 0.08), (0.5, 0.65), "visible"),  # share of the retina
    "noise": (noisy, (2, 4), (25, 50), "noise"),  # standard deviation in grey levels, of the photograph's pixels
    "cut off": (cut, (0.05, 0.15), (0.5, 0.6), "field"),  # share of the width
}


def photographs(quick: bool) -> Iterator[tuple[str, str, bytes]]:
    for source, archive, n in (
        ("aptos", "aptos2019_224", 100 if quick else 600),
        ("eyepacs", "eyepacs2015_224", 500),
        ("idrid", "idrid_640", 50 if quick else 405),
    ):
        with tarfile.open(SHARED / "fundus" / f"{archive}.tar") as tar:
            members = [member for member in tar if member.name.startswith("images/")]
            for member in sorted(random.Random(1).sample(members, min(n, len(members))), key=lambda one: one.name):
                if (file := tar.extractfile(member)) is not None:
                    yield source, Path(member.name).stem, file.read()


def cases(quick: bool, judged: dict[str, bool]) -> Iterator[Case]:
    """Every photograph as taken, and some copies of it."""
    for index, (source, name, photo) in enumerate(photographs(quick)):
        sound = source != "eyepacs" or judged.get(name, False)
        yield Case(source, name, "as taken", sound or None, measure(prepare(photo, PREPARATION)))
        if sound and (not quick or index % 3 == 0):
            yield from copies(source, name, photo)
    for index in range(100 if quick else 1000):
        eye = draw_eye(20_261_115, index, size=512)
        kind = "as taken" if eye.gradable else "drawn so"
        yield Case("drawn", f"{index:05}", kind, eye.gradable, measure(prepare(eye.jpeg(), PREPARATION)))
        if eye.gradable and index % 4 == 0:
            yield from copies("drawn", f"{index:05}", eye.jpeg())


def judgements(file: Path | None) -> dict[str, bool]:
    """Photograph -> whether people called it gradable."""
    lines = file.read_text().splitlines()[1:] if file else []
    return {name: verdict == "1" for name, verdict in (line.split() for line in lines)}


def copies(source: str, name: str, photo: bytes) -> Iterator[Case]:
    picture = decode(photo).pixels.astype(np.float32)
    circle = prepare(photo, PREPARATION).circle
    across = 2 * circle.radius if circle else float(min(picture.shape[:2]))
    rng = np.random.default_rng(zlib.crc32(f"{source}/{name}".encode()))
    for kind, (spoil, mild, severe, _) in SPOILS.items():
        for is_sound, strengths in ((True, mild), (False, severe)):
            spoilt = spoil(picture, float(rng.choice(strengths)), across, rng)
            encoded = encode_png(np.ascontiguousarray(np.clip(np.rint(spoilt), 0, 255).astype(np.uint8)))
            yield Case(source, name, kind, is_sound, measure(prepare(encoded, PREPARATION)))


def fitted(known: list[Case]) -> GradabilityRule:
    """Each limit between the worst sound photographs and the ones spoilt that way; what is typical from the median."""
    limits: dict[str, Limit] = {}
    for kind, (_, _, _, fault) in SPOILS.items():
        value = FAULTS[fault][0]
        sound = np.array([getattr(one.measures, value) for one in known if one.sound and one.measures])
        spoilt = [one for one in known if one.sound is False and one.kind == kind and one.measures]
        unsound = np.array([getattr(one.measures, value) for one in spoilt])
        sign = 1 if np.median(sound) > np.median(unsound) else -1
        worst, poor = np.quantile(sign * sound, [0.004, 0.015])  # of the sound ones: what a limit may cost of them
        best = np.quantile(sign * unsound, 0.95)
        half = (worst + best) / 2 if best < worst else min(best, poor)
        limits[fault] = Limit(_rounded(sign * half), _rounded(float(np.median(sound))))
    return replace(DEFAULT_RULE, **limits)  # type: ignore[arg-type]


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")


def other_pictures(quick: bool) -> Iterator[tuple[str, bytes]]:
    """What people put into a folder of photographs by mistake."""
    rng = np.random.default_rng(4)
    with np.load(SHARED / "cifar10" / "cifar10_subset_6000_1200.npz") as archive:
        chosen = archive["x_test"][: 200 if quick else 1200]
    for picture in chosen:
        yield "CIFAR-10", encode_png(picture)
        large = Image.fromarray(picture).resize((256, 256), Image.Resampling.BICUBIC)
        yield "CIFAR-10, enlarged", encode_png(np.asarray(large))
    digits = np.frombuffer(
        gzip.decompress((SHARED / "mnist" / "t10k-images-idx3-ubyte.gz").read_bytes())[16:], np.uint8
    )
    for digit in digits.reshape(-1, 28, 28)[: 100 if quick else 500]:
        yield "MNIST", encode_png(np.repeat(digit[..., None], 3, axis=2))
    for index in range(20 if quick else 60):
        paper = int(rng.integers(200, 256))
        page = Image.new("RGB", (300, 400), (paper, paper, paper - 5))
        pen = ImageDraw.Draw(page)
        for line in range(20, 380, 14):
            pen.text((20, line), "Retinopathie diabetique, oeil gauche " * 2 if index % 2 else "", fill=(30, 30, 30))
        yield "page", encode_png(np.asarray(page))
        yield "noise", encode_png(rng.integers(0, 256, (200, 260, 3)).astype(np.uint8))


def share(hits: int, n: int) -> dict[str, Any]:
    low, high = wilson(hits, n) if n else (float("nan"), float("nan"))
    return {"share": hits / n if n else float("nan"), "low": low, "high": high, "n": n}


def shown(name: str, row: dict[str, Any]) -> None:
    print(
        f"  {name:34}{100 * row['share']:6.1f} %  ({100 * row['low']:.1f} to {100 * row['high']:.1f}; n = {row['n']})"
    )


def is_gradable(case: Case, rule: GradabilityRule) -> bool:
    return case.measures is not None and judge(case.measures, rule).gradable


def validated(unseen: list[Case], rule: GradabilityRule) -> dict[str, Any]:
    """Sensitivity (unsound ones found) and specificity (sound ones passed) on photographs the fit has not seen."""
    report: dict[str, Any] = {"sensitivity": {}, "specificity": {}}
    for measure_name, sound in (("sensitivity", False), ("specificity", True)):
        print(f"{measure_name}: {'sound ones passed' if sound else 'unsound ones found'}")
        mine = [one for one in unseen if one.sound is sound]
        for group in [*sorted({one.group for one in mine}), "all"]:
            part = [one for one in mine if group in (one.group, "all")]
            right = sum(is_gradable(one, rule) is sound for one in part)
            report[measure_name][group] = share(right, len(part))
            shown(group if not sound or group.startswith("a") else f"{group}, a little", report[measure_name][group])
    return report


def against_people(taken: list[Case], rule: GradabilityRule) -> dict[str, Any]:
    """Against one person's judgement of each EyePACS photograph, which no limit was fitted to find."""
    eyepacs = [one for one in taken if one.source == "eyepacs" and one.kind == "as taken"]
    bad = [one for one in eyepacs if one.sound is None]
    good = [one for one in eyepacs if one.sound]
    scores = [[judge(one.measures, rule).score if one.measures else 0.0 for one in part] for part in (bad, good)]
    below = np.less.outer(*scores).mean() + np.equal.outer(*scores).mean() / 2
    report = {
        "called ungradable, found so": share(sum(not is_gradable(one, rule) for one in bad), len(bad)),
        "called gradable, passed": share(sum(is_gradable(one, rule) for one in good), len(good)),
        "auc": float(below),
    }
    print(f"EyePACS against people (area under the curve of the score {below:.2f})")
    for name in list(report)[:2]:
        shown(name, report[name])  # type: ignore[arg-type]
    return report


def fundus_or_not(seen: list[Case], rule: GradabilityRule, quick: bool) -> dict[str, Any]:
    report = {}
    print("is it a fundus photograph (limits set by eye, not fitted)")
    photos = [judge(one.measures, rule).is_fundus if one.measures else False for one in seen if one.kind == "as taken"]
    spoilt = [judge(one.measures, rule).is_fundus if one.measures else False for one in seen if one.kind != "as taken"]
    report["photographs recognised"] = share(sum(photos), len(photos))
    report["spoilt ones recognised"] = share(sum(spoilt), len(spoilt))
    centres = [one for one in _centres(quick) if one is not None]
    report["cut out of the middle, recognised"] = share(
        sum(judge(one, rule).is_fundus for one in centres), len(centres)
    )
    others: dict[str, list[bool]] = {}
    for kind, picture in other_pictures(quick):
        measures = measure(prepare(picture, PREPARATION))
        others.setdefault(f"{kind}, refused", []).append(measures is None or not judge(measures, rule).is_fundus)
    for kind, refused in others.items():
        report[kind] = share(sum(refused), len(refused))
    for name, row in report.items():
        shown(name, row)
    return report


def _centres(quick: bool) -> Iterator[Measures | None]:
    """Photographs without any surround: the square inside the retina."""
    for index, (_, _, photo) in enumerate(photographs(quick)):
        if index % 4 == 0:
            pixels = prepare(photo, Preparation(size=320)).pixels[60:260, 60:260]
            yield measure(prepare(encode_png(np.ascontiguousarray(pixels)), PREPARATION))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer photographs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    parser.add_argument("--judgements", type=Path, metavar="FILE", help="what people said of the EyePACS photographs")
    arguments = parser.parse_args()
    if not (SHARED / "fundus").is_dir():
        print(f"skipped: no real photographs in {SHARED}")
        return 0
    judged = judgements(arguments.judgements)
    seen = list(cases(arguments.quick, judged))
    rule = fitted([one for one in seen if one.is_for_fitting])
    print("limits fitted here, and the ones shipped (half gradable, typical)")
    for name in FAULTS:
        here, shipped = getattr(rule, name), getattr(DEFAULT_RULE, name)
        print(f"  {name:10} Limit({here.half:g}, {here.sound:g})   shipped Limit({shipped.half:g}, {shipped.sound:g})")
    print("\nthe shipped rule on the half that was not fitted to")
    unseen = [one for one in seen if not one.is_for_fitting]
    report = validated(unseen, DEFAULT_RULE)
    if judged:
        report["people"] = against_people(seen, DEFAULT_RULE)
    report["fundus"] = fundus_or_not(seen, DEFAULT_RULE, arguments.quick)
    report["fitted"] = asdict(rule)
    report["shipped"] = asdict(DEFAULT_RULE)
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
