"""Screening against the decode limit of the cores, on full-resolution photographs (IDRiD, 4288 × 2848).

Four ways over the same files, in turn, each on all cores, in processes whose start is not counted:

    decode       read, decode, prepare and judge the quality: what every screening has to do
    predict      the network alone, on prepared pixels, in one-thread processes
    screen       `fundoscope screen`: one process per core that does both, with log and tables
    apart        the other way to arrange it: decoding processes, and one predictor with a thread per core

and what a screening would reach if nothing but these two took time: 1 / (1/decode + 1/predict). The network is a
MobileNet at 224 pixels with the published head and random weights, as fast as trained ones; or --artefact.

    python benchmarks/screen.py [--quick] [--json FILE] [--artefact FOLDER] [--rows N]

--rows N instead writes tables and page from the log of a screening of N photographs of N/2 patients: time and memory.
"""

import argparse
import json
import resource
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from serving_models import find_or_make

from fundoscope.artefact.artefact import Artefact
from fundoscope.artefact.runtime import Pixels, Predictor, open_predictor
from fundoscope.cli.command import table
from fundoscope.data.gradability import assess
from fundoscope.data.parallel import spread
from fundoscope.data.photo import prepare
from fundoscope.provenance import sha256_of
from fundoscope.quota import cores
from fundoscope.report.screening import write_screening
from fundoscope.screen.ledger import Ledger
from fundoscope.screen.listing import Listing
from fundoscope.screen.log import ScreenLog
from fundoscope.screen.results import Results, as_counts
from fundoscope.screen.screen import Asked, Effort, Screened, screen
from fundoscope.screen.table import PatientRow, Row, write_table
from fundoscope.screen.worker import peak_bytes

ARCHIVE = Path(__file__).resolve().parents[2] / "shared" / "data" / "fundus" / "idrid_fullres.tar"
CACHE = Path(tempfile.gettempdir()) / "fundoscope-benchmarks"
REACH, REACH_OF_POSSIBLE = 0.8, 0.9  # of decoding alone, where the network leaves it possible; of what is possible
AT_A_TIME = 8
WAYS = ("decode", "predict", "screen", "apart")
_opened: dict[str, Any] = {}  # in each worker


def prepared(artefact: str, path: str) -> Pixels:
    """What every screening has to do with a photograph."""
    if artefact not in _opened:
        _opened[artefact] = Artefact.open(Path(artefact), verify=False).input
    wanted = _opened[artefact]
    found = prepare(Path(path).read_bytes(), wanted.preparation)
    assess(found, wanted.gradability)
    return found.pixels


def decode_some(task: tuple[str, list[str]]) -> int:
    return len([prepared(task[0], path) for path in task[1]])


def read_some(task: tuple[str, list[str]]) -> Pixels:
    return np.stack([prepared(task[0], path) for path in task[1]])


def predict_some(task: tuple[str, str, int]) -> int:
    artefact, file, n = task
    if file not in _opened:
        _opened[file] = (open_predictor(Artefact.open(Path(artefact), verify=False), threads=1), np.load(file))
    predictor, pixels = _opened[file]
    for i in range(n):
        predictor.probabilities(pixels[i % len(pixels)][None])
    return n


class Bench:
    """Each way over some photographs; how many they were."""

    def __init__(self, folder: Path, artefact: Path) -> None:
        self.folder, self.artefact, self.pixels = folder, artefact, folder / "pixels.npy"
        self.worker_mb = 0.0

    def tasks(self, paths: list[str]) -> list[tuple[str, list[str]]]:
        return [(str(self.artefact), paths[start : start + AT_A_TIME]) for start in range(0, len(paths), AT_A_TIME)]

    def decode(self, paths: list[str]) -> int:
        return sum(spread(decode_some, self.tasks(paths)))

    def predict(self, paths: list[str]) -> int:
        return sum(spread(predict_some, [(name, str(self.pixels), len(some)) for name, some in self.tasks(paths)]))

    def screen(self, paths: list[str]) -> int:
        with tempfile.TemporaryDirectory(dir=self.folder) as out:
            done = screen(Path(paths[0]).parent, self.artefact, Path(out, "gradings.csv"), processes=cores())
        self.worker_mb = done.effort.peak_bytes / 1e6
        return int(done.counts["graded"] + done.counts["ungradable"])

    def apart(self, paths: list[str]) -> int:
        predictor: Predictor = open_predictor(Artefact.open(self.artefact, verify=False), threads=cores())
        return sum(len(predictor.probabilities(pixels)) for pixels in spread(read_some, self.tasks(paths)))


@dataclass(frozen=True)
class Speed:
    per_second: float
    cpu_ms: float  # of all processes, per photograph: the machine may be busy with other things


def measure(bench: Bench, few: list[str], many: list[str], repetitions: int) -> dict[str, list[Speed]]:
    """Each way in turn, in a new order every time, so that none has the quiet machine.

    By the difference between many photographs and a few: starting processes takes as long for a million.
    """
    found: dict[str, list[Speed]] = {name: [] for name in WAYS}
    rng = np.random.default_rng(1)
    for _ in range(repetitions):
        for name in rng.permutation(WAYS).tolist():
            way: Callable[[list[str]], int] = getattr(bench, name)
            start, whole = _cost(way, few), _cost(way, many)
            wall_s, cpu_s = (whole - start) / (len(many) - len(few))
            found[name].append(Speed(1 / float(wall_s), 1000 * float(cpu_s)))
    return found


def _cost(way: Callable[[list[str]], int], paths: list[str]) -> NDArray[np.float64]:
    """Seconds by the clock, and of CPU time in this process and those it has waited for."""
    began = _spent()
    assert way(paths) == len(paths)
    return _spent() - began


def _spent() -> NDArray[np.float64]:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return np.array([time.perf_counter(), sum(one.ru_utime + one.ru_stime for one in used)])


def photographs(folder: Path, n: int) -> list[str]:
    """The archive's under other names until there are `n`, each padded by another number of bytes: none is a copy."""
    with tarfile.open(ARCHIVE) as tar:
        files = [tar.extractfile(member) for member in tar if member.name.startswith("images/")]
        originals = [file.read() for file in files if file is not None]
    folder.mkdir()
    paths = [folder / f"{i:05}.jpg" for i in range(n)]
    for i, path in enumerate(paths):
        path.write_bytes(originals[i % len(originals)] + b"\0" * (i // len(originals)))
    return [str(path) for path in paths]


def report(speeds: dict[str, list[Speed]], bench: Bench) -> dict[str, Any]:
    """Ratios within a repetition, then their median: by the clock, and by the CPU time the ways took."""
    clock = {name: np.array([one.per_second for one in found]) for name, found in speeds.items()}
    clock["possible"] = 1 / (1 / clock["decode"] + 1 / clock["predict"])
    cpu = {name: np.array([one.cpu_ms for one in found]) for name, found in speeds.items()}
    cpu["possible"] = cpu["decode"] + cpu["predict"]
    rows = []
    for name in clock:
        of_decode = (_middle(clock[name] / clock["decode"]), _middle(cpu["decode"] / cpu[name]))
        cells = (_middle(clock[name]), of_decode[0], _middle(cpu[name]), of_decode[1])
        rows.append([name, *(f"{value:.{places}f}" for value, places in zip(cells, (1, 2, 1, 2), strict=True))])
    header = ["way", "photographs/s", "of decode", "CPU ms each", "of decode by CPU time"]
    print("\n".join(table(rows, header=header)))
    found: dict[str, Any] = {
        "speeds": {name: [asdict(one) for one in each] for name, each in speeds.items()},
        "screen_of_decode": _middle(cpu["decode"] / cpu["screen"]),
        "possible_of_decode": _middle(cpu["decode"] / cpu["possible"]),
        "screen_of_possible": _middle(cpu["possible"] / cpu["screen"]),
        "screen_of_possible_by_clock": _middle(clock["screen"] / clock["possible"]),
        "screen_of_apart": _middle(cpu["apart"] / cpu["screen"]),
        "screen_of_apart_by_clock": _middle(clock["screen"] / clock["apart"]),
        "worker_mb": bench.worker_mb,
        "cores": cores(),
    }
    found["reached"] = found["screen_of_decode"] >= min(REACH, REACH_OF_POSSIBLE * found["possible_of_decode"])
    size = Artefact.open(bench.artefact, verify=False).size_bytes / 1e6
    print(f"\na worker takes up to {bench.worker_mb:.0f} MB, for a network of {size:.1f} MB; {cores()} workers")
    print(f"screening does {found['screen_of_possible']:.2f} of what decoding and predicting leave possible (CPU time)")
    reached = "reached" if found["reached"] else "NOT reached"
    print(f"{reached}: {REACH:g} of decoding alone, or, where the network is too slow for that, {REACH_OF_POSSIBLE:g}")
    return found


def _middle(values: NDArray[np.float64]) -> float:
    return float(np.median(values))


def finish_many(n: int, folder: Path, artefact: Path) -> dict[str, Any]:
    """From the log of `n` photographs to tables and page, as the last part of a screening does."""
    listing, path = Listing(folder), folder / "many.screening.jsonl"
    rng = np.random.default_rng(0)
    answers = rng.dirichlet(np.ones(5), 1000).round(7).tolist()
    with ScreenLog(path, {}) as log:
        for start in range(0, n, 1000):
            lines = []
            for i in range(start, min(n, start + 1000)):
                name = f"clinic-{i // 5000:04}/{i // 2:08}_{'left' if i % 2 == 0 else 'right'}.jpeg"
                listing.add(name, i, 0, patient=f"{i // 2:08}", eye="left" if i % 2 == 0 else "right")
                lines.append(_line(name, i, answers[i % 1000]))
            log.append(lines)
    opened = Artefact.open(artefact, verify=False)
    began = time.perf_counter()
    with ScreenLog(path, {}) as log:
        ledger = Ledger(listing, log)
        recalled = time.perf_counter()
        assert ledger.todo() == []
        with log.reader() as reader:
            results, out = Results(ledger, reader, opened.digest), folder / "many.parquet"
            write_table(out, Row, results.rows(), dict)
            write_table(out.with_name("many.patients.parquet"), PatientRow, results.patients(), dict)
            asked = Asked(opened, opened.operating_points[0], folder, out, path, "", {}, "")
            top = (tuple(results.most_severe()), tuple(results.not_graded()), tuple(results.most_severe_patients()))
            page = write_screening(Screened(asked, Effort(), as_counts(results, True), {}, {}, *top, ()))
    found = {
        "rows": n,
        "recall_s": recalled - began,
        "write_s": time.perf_counter() - recalled,
        "log_mb": path.stat().st_size / 1e6,
        "parquet_mb": out.stat().st_size / 1e6,
        "page_kb": page.stat().st_size / 1e3,
        "peak_mb": peak_bytes() / 1e6,
    }
    print("\n".join(table([[name, f"{value:.1f}"] for name, value in found.items()], header=["of the end", "value"])))
    return found


def _line(name: str, i: int, answer: list[float]) -> dict[str, Any]:
    return {
        "path": name,
        "size": i,
        "stamp": 0,
        "sha256": sha256_of(name.encode()),
        "status": "graded",
        "reason": "",
        "grade": int(np.argmax(answer)),
        "probabilities": answer,
        "referral_probability": sum(answer[2:]),
        "referral": sum(answer[2:]) > 0.5,
        "gradability": 0.8,
        "decode_ms": 12.3,
        "predict_ms": 6.7,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer photographs, once")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--artefact", type=Path, metavar="FOLDER")
    parser.add_argument("--rows", type=int, metavar="N")
    arguments = parser.parse_args()
    if not ARCHIVE.is_file():
        print(f"skipped: no real photographs here, {ARCHIVE} is absent")
        return 0
    artefact = arguments.artefact or find_or_make("MobileNet", None, CACHE).onnx
    with tempfile.TemporaryDirectory() as scratch:
        if arguments.rows:
            found = finish_many(arguments.rows, Path(scratch), artefact)
        else:
            few = photographs(Path(scratch, "few"), AT_A_TIME * cores())
            many = photographs(Path(scratch, "many"), len(few) + (120 if arguments.quick else 600))
            bench = Bench(Path(scratch), artefact)
            np.save(bench.pixels, read_some((str(artefact), few[:AT_A_TIME])))
            found = report(measure(bench, few, many, 1 if arguments.quick else 3), bench)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return 0 if arguments.quick or found.get("reached", True) else 1


if __name__ == "__main__":
    sys.exit(main())
