"""float32 Artefact + photographs -> smaller Artefacts, each measured and judged; one that fails is marked as refused.

Calibration takes tuning photographs; the guard (artefact/guard.py) takes test photographs, which neither the training
nor the calibration saw. Each candidate is counted beside the photographs that judged it (artefact/attempts.py). It is
written whether it passes or not, as a whole artefact: its `guard` says which, and `usable` (artefact/artefact.py) keeps
a refused one from being served or deployed.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fundoscope.artefact.artefact import Artefact, Precision, pack, write
from fundoscope.artefact.attempts import Attempt, count_attempts
from fundoscope.artefact.describe import summary
from fundoscope.artefact.files import MODEL_PATHS
from fundoscope.artefact.guard import MARGIN, Guard, judge
from fundoscope.artefact.held_out import CALIBRATION, Photographs, calibrating, check_preparation, held_out
from fundoscope.artefact.measure import Latency, compare_latency, peak_memory
from fundoscope.artefact.precisions import PRECISIONS
from fundoscope.artefact.runtime import OnnxPredictor
from fundoscope.data.records import Records
from fundoscope.errors import FundoscopeError, pick
from fundoscope.model.operating import OperatingPoint
from fundoscope.model.predictions import Predictions
from fundoscope.model.scores import score
from fundoscope.progress import Track, quiet
from fundoscope.provenance import command, install_folder, new_folder, sha256_file, versions
from fundoscope.quota import cores

BATCH = 16
PACKAGES = ("onnx", "onnxruntime", "scipy")


@dataclass(frozen=True)
class Measured:
    size_bytes: int
    peak_bytes: int  # of a fresh process that opens it and predicts
    latency: Latency


@dataclass(frozen=True)
class Candidate:
    artefact: Artefact
    guard: Guard
    measured: Measured
    gain: str  # over float32: "smaller and faster", "smaller", …; "none"


@dataclass(frozen=True)
class Quantised:
    float32: Artefact
    measured: Measured  # float32 itself, beside the others
    candidates: dict[str, Candidate]
    recommended: str | None  # None: keep float32
    left_out: int  # test photographs the model had learnt from


def quantise(
    artefact: Path,
    records: Path,
    out: Path,
    *,
    methods: Sequence[str] = ("int8",),
    run: Path | None = None,
    calibration: int = CALIBRATION,
    margin: float = MARGIN,
    seed: int = 0,
    threads: int | None = None,
    track: Track = quiet,
) -> Quantised:
    """Write `out`, an artefact, or for several methods a folder of them named after each; whole or not at all.

    `run` is needed only where `records` are not the ones the model was trained on: it knows what the model has seen.
    """
    for method in methods:
        pick(PRECISIONS, method, kind="method")
    _check_installed()
    _check_room(out)
    float32, opened = _open_float32(artefact), Records.open(records)
    check_preparation(float32, opened)
    tuning, unseen = calibrating(opened, calibration, seed), held_out(float32, opened, run)
    before = _predictions(float32.model, float32, unseen, "float32", track)
    with new_folder(out) as part:
        folders = {method: part / method if len(methods) > 1 else part for method in methods}
        for method, folder in folders.items():
            folder.mkdir(exist_ok=True)
            _convert(method, float32.model, folder / MODEL_PATHS["onnx"], tuning, track)
        measured = _measure({"float32": float32.folder, **folders}, unseen.pixels, threads or cores(), seed, track)
        after = {
            method: _predictions(folder / MODEL_PATHS["onnx"], float32, unseen, method, track)
            for method, folder in folders.items()
        }
        guards = {method: _judge(before, after[method], float32, margin=margin, seed=seed) for method in methods}
        guards = _counted(guards, folders, float32, opened, unseen)
        for method, folder in folders.items():
            origin = float32.origin | _origin(float32, len(tuning), seed)
            circumstances = _circumstances(measured, method, threads or cores())
            scores = _scores(after[method], float32, opened)
            _write(float32, folder, method, scores=scores, origin=origin, export=circumstances, guard=guards[method])
        install_folder(part, out)
    candidates = {
        method: Candidate(
            Artefact.open(out / folder.relative_to(part)), guards[method], measured[method], _gain(measured, method)
        )
        for method, folder in folders.items()
    }
    return Quantised(float32, measured["float32"], candidates, _recommended(candidates), unseen.left_out)


def _write(float32: Artefact, folder: Path, method: str, *, guard: Guard, **changes: Any) -> None:
    """The candidate's artefact.json and archive: float32's, but for what is no longer true of it."""
    precision = _precision(method)
    pack(write(replace(float32, folder=folder, precision=precision, parity=None, guard=guard.to_json(), **changes)))


def _convert(method: str, model: Path, out: Path, photographs: Sequence[NDArray[np.uint8]], track: Track) -> None:
    try:
        PRECISIONS[method](model, out, track(photographs, total=len(photographs), label=f"calibrating {method}"))
    except (
        Exception
    ) as problem:  # the quantiser's are of every kind, and a network it does not know is no fault of ours
        first_line = (str(problem).strip().splitlines() or [type(problem).__name__])[0][:200]
        raise FundoscopeError(f"{model} cannot be made {method}: {first_line}", "try another --method") from problem


def _judge(before: Predictions, after: Predictions, float32: Artefact, *, margin: float, seed: int) -> Guard:
    points, referral_from = float32.operating_points, float32.referral_from
    return judge(before, after, points, referral_from=referral_from, margin=margin, seed=seed)


def _counted(
    guards: dict[str, Guard], folders: dict[str, Path], float32: Artefact, records: Records, judges: Photographs
) -> dict[str, Guard]:
    """The guards with how many candidates their photographs have judged, this command's among them."""
    model = str(float32.origin["model_sha256"])
    digests = {method: sha256_file(folder / MODEL_PATHS["onnx"]) for method, folder in folders.items()}
    attempts = {
        method: Attempt(judges.digest, model, digests[method], guard.margin, guard.seed)
        for method, guard in guards.items()
    }
    numbers = count_attempts(records.folder, attempts)
    return {method: replace(guard, attempts=numbers[method]) for method, guard in guards.items()}


def _precision(method: str) -> Precision:
    assert method in PRECISIONS
    return method  # type: ignore[return-value]  # the methods are called as the precisions they make


def _check_installed() -> None:
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise FundoscopeError(f"quantising needs {', '.join(missing)}", "pip install 'fundoscope[train]'")


def _check_room(out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FundoscopeError(f"{out} is already there", "give --out a new folder")


def _open_float32(folder: Path) -> Artefact:
    artefact = Artefact.open(folder)
    if artefact.format != "onnx":
        hint = "export the same run with --format onnx, and quantise that"
        raise FundoscopeError(f"{folder} is a {artefact.format} artefact, and only ONNX ones can be quantised", hint)
    if artefact.precision != "float32":
        source = str(artefact.origin.get("float32_digest", ""))[:12]
        hint = f"give the float32 artefact it was made from, {source}…" if source else "give a float32 artefact"
        raise FundoscopeError(f"{folder} is already {artefact.precision}", hint)
    return artefact


def _predictions(model: Path, artefact: Artefact, photographs: Photographs, name: str, track: Track) -> Predictions:
    predictor, pixels, rows = OnnxPredictor(model, cores()), photographs.pixels, photographs.rows
    starts = range(0, len(rows), BATCH)
    steps = track(starts, total=len(starts), label=f"{name} on held-out photographs")
    answers = np.concatenate([predictor.probabilities(np.array(pixels[i : i + BATCH])) for i in steps])
    return Predictions.of_records(rows, answers, referral_from=artefact.referral_from)


def _scores(predictions: Predictions, artefact: Artefact, records: Records) -> dict[str, Any]:
    """The model card's figures for this very model, from its own answers: float32's are float32's."""
    points = [OperatingPoint(**asdict(point)) for point in artefact.operating_points]
    found = score(predictions, points, referral_from=artefact.referral_from)
    return {
        **summary({"test": found}),
        "records_digest": records.digest,
        "measured": "after quantising, on its answers",
    }


def _measure(
    folders: dict[str, Path], photographs: NDArray[np.uint8], threads: int, seed: int, track: Track
) -> dict[str, Measured]:
    models = {name: folder / MODEL_PATHS["onnx"] for name, folder in folders.items()}
    latency = compare_latency(models, photographs, threads=threads, seed=seed, track=track)
    return {
        name: Measured(path.stat().st_size, peak_memory(path, threads=threads), latency[name])
        for name, path in models.items()
    }


def _origin(float32: Artefact, photographs: int, seed: int) -> dict[str, Any]:
    return {"float32_digest": float32.digest, "calibration": {"photographs": photographs, "seed": seed}}


def _circumstances(measured: dict[str, Measured], method: str, threads: int) -> dict[str, Any]:
    """What is not digested: it differs from machine to machine, and the model does not."""
    figures = {name: asdict(measured[name]) for name in ("float32", method)}
    return {"command": command(), "versions": versions(), "measured": {"threads": threads, **figures}}


def _gain(measured: dict[str, Measured], method: str) -> str:
    this, float32 = measured[method], measured["float32"]
    smaller = "smaller" if this.size_bytes < 0.95 * float32.size_bytes else ""
    if this.latency.faster_high < 1:
        return f"{smaller or 'no smaller'}, but slower"
    faster = "faster" if this.latency.faster_low > 1 else ""
    return " and ".join(filter(None, (smaller, faster))) or "none"


def _recommended(candidates: dict[str, Candidate]) -> str | None:
    """The fastest that passed and is faster than float32; else the smallest that passed and is no slower."""
    passed = {method: found for method, found in candidates.items() if found.guard.passed}
    faster = {method: found for method, found in passed.items() if "faster" in found.gain}
    if faster:
        return max(faster, key=lambda method: faster[method].measured.latency.faster)
    smaller = {method: found for method, found in passed.items() if found.gain == "smaller"}
    return min(smaller, key=lambda method: smaller[method].measured.size_bytes, default=None)
