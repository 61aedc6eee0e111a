"""Serverless, emulated: what a thousand inferences cost and what a cold start takes, ours against the published stack.

MobileNet and VGG19 in a server process under the limits of a serverless worker of 1 and 2 GB (`experiment/limits.py`).
Published: nginx, gunicorn, FastAPI and Keras's predict on a SavedModel, loaded at the first request; with a worker per
processor as published, with the one worker that the thesis's memory would have allowed (cold starts), and with one
worker that calls the SavedModel's signature, the change any engineer would make. Ours: the lean server on ONNX Runtime,
in INT8 where its guard found it not inferior, in float32 beside it. In every repetition all of them in a new random
order; before a cold start none of the files it reads is in the page cache.

    python benchmarks/serverless.py [--quick] [--json FILE] [--mobilenet FOLDER] [--vgg19 FOLDER] [--repetitions N]

Cost is reckoned both ways: as AWS bills (processing milliseconds, each request rounded up, and bytes moved) and as the
thesis did (price × what the caller waited). To reach: a quarter of the published stack's cost, an eighth of its start.
Needs control groups that it may make: root. `--quick`: MobileNet in 1 GB alone.
"""

import argparse
import compileall
import json
import os
import random
import statistics
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from serving_figures import HEADER, Figure, ratio_of_medians
from serving_models import Model, find_or_make
from serving_photos import find_photos

from fundoscope.analysis.inference_cost import as_billed, as_thesis
from fundoscope.analysis.prices import SAGEMAKER, ServerlessPrice, open_prices
from fundoscope.cli.command import table
from fundoscope.errors import FundoscopeError
from fundoscope.experiment.invoke import InvokeJob, run
from fundoscope.experiment.limits import Limits, limited
from fundoscope.experiment.machine import this_machine
from fundoscope.provenance import versions, write_json

ROOT = Path(__file__).resolve().parents[1]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fundoscope" / "benchmarks"
COST_REACH, COLD_REACH = 0.25, 8.0
PUBLISHED, ONE_WORKER, SIGNATURE = "published", "published, one worker", "published, signature call"


@dataclass(frozen=True)
class Case:
    model: str
    memory_mb: int
    stack: str  # "published", "published, one worker", "published, signature call", "int8", "float32"
    job: InvokeJob
    call: str = "keras-predict"  # how the published stack calls its model

    @property
    def name(self) -> str:
        return f"{self.model} {self.memory_mb // 1024} GB {self.stack} {self.job.schedule}"


def main() -> int:
    arguments = _arguments()
    try:
        with limited(Limits(64, 1.0)):
            pass
    except FundoscopeError as problem:
        print(f"skipped: {problem.message}")
        return 0
    compileall.compile_dir(ROOT / "src", quiet=2)  # or every start of ours would compile, if it may not write
    photos = find_photos(ROOT.parent / "shared" / "data" / "fundus")
    given = {"MobileNet": arguments.mobilenet, "VGG19": arguments.vgg19}
    models = [find_or_make(name, given[name], CACHE) for name in list(given)[: 1 if arguments.quick else 2]]
    for model in models:
        print(f"{model.name}: {model.weights} weights; INT8: {model.guard}")
    with NamedTemporaryFile(suffix=".jpg") as photo:
        photo.write(photos.small[0])
        photo.flush()
        memories = (1024,) if arguments.quick else (1024, 2048)
        cases = [case for model in models for memory_mb in memories for case in _cases(model, memory_mb, photo.name)]
        readings = _measured(cases, arguments.repetitions)
    price = open_prices(SAGEMAKER).serverless
    assert price is not None
    figures = [figure for model in models for memory_mb in memories
               for figure in _figures(model, memory_mb, readings, price)]  # fmt: skip
    print("\n".join(table([figure.row() for figure in figures], header=HEADER)))
    if arguments.json:
        about = {"benchmark": "serverless", "machine": this_machine().to_json(), "versions": versions()}
        write_json(arguments.json, about | {
            "photographs": photos.source,
            "prices": SAGEMAKER,
            "figures": [figure.to_json() for figure in figures],
            "readings": readings,
        })  # fmt: skip
    missed = [figure.measure for figure in figures if figure.reached is False]
    print("all figures reached" if not missed else "MISSED " + ", ".join(missed))
    return 1 if missed and not arguments.quick else 0


def _cases(model: Model, memory_mb: int, photo: str) -> list[Case]:
    warm = InvokeJob(str(model.onnx), memory_mb=memory_mb, requests=12, every_s=0.1, photograph=photo)
    theirs = replace(warm, artefact=str(model.savedmodel), stack="published")
    jobs = {PUBLISHED: theirs, ONE_WORKER: replace(theirs, workers=1), SIGNATURE: replace(theirs, workers=1)}
    jobs["float32"] = warm
    if model.int8 and not model.refused:
        # Of random weights a guard can say nothing: they are timed, and the report says that they are random.
        jobs["int8"] = replace(warm, artefact=str(model.int8), unsafe=model.weights == "random")
    found = []
    for name, job in jobs.items():
        case = Case(model.name, memory_mb, name, job, "signature" if name == SIGNATURE else "keras-predict")
        # Requests come one at a time: a second worker that is up changes nothing of a warm one.
        found += [] if name == ONE_WORKER else [case]
        found.append(replace(case, job=replace(job, schedule="cold", requests=2)))
    return found


def _measured(cases: list[Case], repetitions: int) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {case.name: [] for case in cases}
    for repetition in range(repetitions):
        for case in random.Random(repetition).sample(cases, len(cases)):
            print(f"{repetition + 1}/{repetitions} {case.name} …", end=" ", file=sys.stderr, flush=True)
            os.environ["FUNDOSCOPE_PUBLISHED_CALL"] = case.call  # its server inherits it
            readings = run(case.job, seed=repetition, data_folder=None)
            if readings["errors"] or readings["throttled"] or readings["not_cold"]:
                raise SystemExit(f"{case.name}: {json.dumps(readings)}")
            print(f"{readings['latency_s']:.3f} s", file=sys.stderr, flush=True)
            found[case.name].append(readings)
    return found


def _figures(
    model: Model, memory_mb: int, readings: dict[str, list[dict[str, Any]]], price: ServerlessPrice
) -> list[Figure]:
    size = f"{model.name} {memory_mb // 1024} GB"
    ours = "int8" if f"{size} int8 warm" in readings else "float32"
    mine = list(dict.fromkeys((ours, "float32")))
    found = []
    for way in ("as billed", "as the thesis reckons"):
        costs = {
            stack: [_usd_per_thousand(one, memory_mb // 1024, price, way) for one in readings[f"{size} {stack} warm"]]
            for stack in (PUBLISHED, SIGNATURE, *mine)
        }
        for stack in mine:
            for theirs in (PUBLISHED, SIGNATURE):
                value, interval = ratio_of_medians(costs[stack], costs[theirs])
                note = f"{statistics.median(costs[stack]):.5f} and {statistics.median(costs[theirs]):.5f} USD"
                reach = COST_REACH if (stack, theirs) == (ours, PUBLISHED) else None
                measure = f"{size}, cost {way}: {stack} / {theirs}"
                found.append(Figure(measure, value, interval, reach, "less", note=note))
    return found + _cold_figures(size, ours, mine, readings)


def _cold_figures(size: str, ours: str, mine: list[str], readings: dict[str, list[dict[str, Any]]]) -> list[Figure]:
    """Judged is the smaller ratio of two settings of the published stack; another call is shown."""
    seconds = {
        stack: [latency for one in readings[f"{size} {stack} cold"] for latency in one["latencies_s"]]
        for stack in (PUBLISHED, ONE_WORKER, SIGNATURE, *mine)
    }
    least = min((PUBLISHED, ONE_WORKER), key=lambda stack: statistics.median(seconds[stack]))
    found = []
    for stack in mine:
        for theirs in (PUBLISHED, ONE_WORKER, SIGNATURE):
            value, interval = ratio_of_medians(seconds[theirs], seconds[stack])
            note = f"{statistics.median(seconds[stack]):.2f} and {statistics.median(seconds[theirs]):.2f} s"
            reach = COLD_REACH if (stack, theirs) == (ours, least) else None
            found.append(Figure(f"{size}, cold start: {theirs} / {stack}", value, interval, reach, note=note))
    return found


def _usd_per_thousand(readings: dict[str, Any], memory_gb: int, price: ServerlessPrice, way: str) -> float:
    if way == "as the thesis reckons":
        return as_thesis(price, memory_gb=memory_gb, total_latency_s=readings["latency_mean_s"]).per_thousand
    processing_ms = [1000 * seconds for seconds in readings["processings_s"]]
    moved = readings["photograph_bytes"] + readings["answer_bytes"]
    return as_billed(price, memory_gb=memory_gb, processing_ms=processing_ms, moved_bytes=moved).per_thousand


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="does it run at all")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything measured there")
    for name in ("mobilenet", "vgg19"):
        parser.add_argument(f"--{name}", type=Path, metavar="FOLDER", help="holds onnx/, savedmodel/ and int8/")
    parser.add_argument("--repetitions", type=int, metavar="N", help="default: 5, quick 1")
    arguments = parser.parse_args()
    arguments.repetitions = arguments.repetitions or (1 if arguments.quick else 5)
    return arguments


if __name__ == "__main__":
    sys.exit(main())
