"""Serving: the lean server against the published stack and against LitServe, BentoML and MLServer, in one run.

Same machine, same weights, same photographs, same preparation on every side; MobileNet and VGG19 at 224 pixels with the
published head. The published stack is `fundoscope serve --stack published`: nginx, gunicorn, FastAPI, TensorFlow
SavedModel, Keras's predict. Ratios are on photographs of 224 × 224, as the thesis sent; full resolution is beside them.
Bytecode is compiled for everybody and the page cache is warm.

    python benchmarks/serving.py [--quick] [--json FILE] [--parts cold,warm,…] [--mobilenet FOLDER] [--vgg19 FOLDER]
                                 [--photos FOLDER] [--soak-seconds S] [--cache FOLDER]

--quick: MobileNet alone, few repetitions, and only those peers that are installed already: does it run at all.
"""

import argparse
import compileall
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from serving_figures import HEADER, Figure
from serving_latency import cold, memory, overhead, warm
from serving_models import Model, find_or_make
from serving_photos import Photos, find_photos
from serving_runtimes import runtimes
from serving_sustained import soak, throughput

from fundoscope.cli.command import table
from fundoscope.quota import cores

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("cold", "warm", "overhead", "memory", "throughput", "soak", "runtimes")
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fundoscope" / "benchmarks"


def main() -> int:
    arguments = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers are ended too
    compileall.compile_dir(ROOT / "src", quiet=2)  # or every start of ours would compile, if it may not write
    photos = find_photos(arguments.photos)
    given = {"MobileNet": arguments.mobilenet, "VGG19": arguments.vgg19}
    names = [name for name in given if not arguments.quick or name == "MobileNet" or given[name]]
    models = [find_or_make(name, given[name], arguments.cache) for name in names]
    print(f"photographs: {photos.source}; processors: {cores()}; load at the start: {os.getloadavg()[0]:.1f}")
    for model in models:
        print(f"{model.name}: {model.weights} weights; INT8: {model.guard}")
    report: dict[str, Any] = {"quick": arguments.quick, "photographs": photos.source, "cores": cores(), "parts": {}}
    figures: list[Figure] = []
    for part, found, details in _measure(arguments, models, photos):
        print(f"\n{part}\n" + "\n".join(table([figure.row() for figure in found], header=HEADER)), flush=True)
        figures += found
        report["parts"].setdefault(part, []).append(details)
        report["figures"] = [figure.to_json() for figure in figures]
        report["load"] = os.getloadavg()[0]
        if arguments.json:
            arguments.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    missed = [figure for figure in figures if figure.reached is False]
    judged = sum(figure.reached is not None for figure in figures)
    print(f"\n{judged - len(missed)} of {judged} figures reached" + "".join(f"\n  MISSED {f.measure}" for f in missed))
    return 1 if missed and not arguments.quick else 0


def _measure(
    arguments: argparse.Namespace, models: list[Model], photos: Photos
) -> Iterator[tuple[str, list[Figure], dict[str, Any]]]:
    quick, parts, cache = arguments.quick, arguments.parts, arguments.cache
    small = models[0]
    sustained_per_s = None
    for model in models:
        slow = model.name == "VGG19"
        if "cold" in parts:
            yield "cold", *cold(model, photos, 3 if quick else 9)
        if "warm" in parts:
            yield "warm", *warm(model, photos, 4 if quick else 12 if slow else 20, 8 if quick else 6 if slow else 20)
        if "runtimes" in parts:
            n = 8 if slow else 60
            yield "runtimes", *runtimes(model, photos, cache, repetitions=1 if quick else 5, n=n, quick=quick)
    if "overhead" in parts:
        yield "overhead", *overhead(small, photos, 6 if quick else 30, 10 if quick else 20)
    if "memory" in parts:
        yield "memory", *memory(small, photos, 1 if quick else 3)
    if "throughput" in parts:
        figures, details = throughput(small, photos, cache, quick=quick)
        sustained_per_s = details["lean_per_s"]
        yield "throughput", figures, details
    if "soak" in parts:
        yield "soak", *soak(small, photos, arguments.soak_seconds or (20 if quick else 600), sustained_per_s)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="does it run at all")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything measured there, part by part")
    parser.add_argument("--parts", type=lambda text: text.split(","), default=list(PARTS), metavar="A,B")
    for name in ("mobilenet", "vgg19"):
        parser.add_argument(f"--{name}", type=Path, metavar="FOLDER", help="holds onnx/, savedmodel/ and int8/")
    photos = ROOT.parent / "shared" / "data" / "fundus"
    parser.add_argument("--photos", type=Path, default=photos, metavar="FOLDER", help="holds the photographs' archives")
    parser.add_argument("--soak-seconds", type=float, metavar="S", help="default: 600, quick 20")
    parser.add_argument("--cache", type=Path, default=CACHE, metavar="FOLDER", help=f"default: {CACHE}")
    arguments = parser.parse_args()
    if unknown := set(arguments.parts) - set(PARTS):
        parser.error(f"there are no parts {', '.join(sorted(unknown))}: use {', '.join(PARTS)}")
    if arguments.json:
        arguments.json.touch()  # rather fail now than after an hour
    return arguments


if __name__ == "__main__":
    began = time.monotonic()
    status = main()
    print(f"{time.monotonic() - began:.0f} s")
    sys.exit(status)
