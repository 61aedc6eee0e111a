"""TrainedModel -> Artefact: convert in a process of its own, put the result through the parity gate, pack it."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fundoscope.artefact.artefact import Artefact, Format, pack, write
from fundoscope.artefact.convert import ENVIRONMENT, EXPORTERS, Job, steps
from fundoscope.artefact.describe import describe, operating_points_of
from fundoscope.artefact.files import MODEL_PATHS
from fundoscope.artefact.parity import Parity, ParityFailed, compare
from fundoscope.data.records import Records
from fundoscope.errors import FundoscopeError, pick
from fundoscope.model.predictions import Predictions
from fundoscope.model.run import TrainedModel
from fundoscope.progress import Track, quiet
from fundoscope.provenance import install_folder, new_folder, sha256_file, write_json

PACKAGES: dict[str, tuple[str, ...]] = {
    "onnx": ("tensorflow", "keras", "tf2onnx", "onnx", "onnxruntime"),
    "savedmodel": ("tensorflow", "keras"),
}


@dataclass(frozen=True, eq=False)
class Photographs:
    """Prepared photographs and whose answers to compare: ids as in predictions.csv."""

    ids: Sequence[str]
    pixels: NDArray[np.uint8]


@dataclass(frozen=True)
class Exported:
    artefact: Artefact
    parity: Parity
    from_training: Parity  # the same against predictions.csv, whatever computed it; informs, and does not decide
    already_there: bool  # the folder held this very artefact
    seconds: float


def export(
    run: Path,
    out: Path,
    *,
    format: Format = "onnx",
    records: Path | None = None,
    photographs: Photographs | None = None,
    track: Track = quiet,
) -> Exported:
    """Export a finished run; `out` is then a whole artefact that passed the gate, or as it was before.

    The gate takes the tuning photographs from `photographs`, or the folder `records`, or the records that the run
    says it was trained on. Without them there is no export: a model nobody compared is not handed on.
    """
    began = time.monotonic()
    _check_installed(format)
    model = TrainedModel.open(run)
    _check_network(model)
    _check_room(out, format, model)
    photographs = photographs or tuning_photographs(model, records)
    trained = _trained_answers(model, photographs.ids)
    with new_folder(out) as folder:
        answers = _convert(model, format, folder, photographs, track)
        parity, from_training = _parities(model, trained, answers)
        if not parity.passed:
            raise ParityFailed(parity)
        made = write(describe(model, format=format, folder=folder, outputs=answers["deployed"].shape[1], parity=parity))
        pack(made)
        already_there = _install(made, out)
    exported = Exported(Artefact.open(out), parity, from_training, already_there, time.monotonic() - began)
    with suppress(OSError, ValueError):  # a run on a read-only disk is exported all the same
        _note(run, exported)
    return exported


def tuning_photographs(model: TrainedModel, records: Path | None = None) -> Photographs:
    """Those of the records the run was trained on; found elsewhere, they must be the same."""
    facts = model.facts["records"]
    folder = records or Path(facts["folder"])
    if not folder.is_dir():
        hint = "if the records were moved, say where with --records FOLDER; if they are gone, prepare them again"
        raise FundoscopeError(f"the tuning photographs to compare with are not in {folder}", hint)
    opened = Records.open(folder)
    if opened.digest != facts["digest"]:
        hint = f"give those it was trained on, with digest {facts['digest'][:12]}…"
        raise FundoscopeError(f"{folder} holds other records than {model.folder} was trained on", hint)
    return Photographs([row.id for row in opened.of("tune")], opened.pixels("tune"))


def _check_installed(format: Format) -> None:
    pick(EXPORTERS, format, kind="format")
    missing = [name for name in PACKAGES[format] if find_spec(name) is None]
    if missing:
        raise FundoscopeError(f"exporting needs {', '.join(missing)}", "pip install 'fundoscope[train]'")


def _check_network(model: TrainedModel) -> None:
    """What is exported must be what was trained and scored."""
    path = model.folder / "model.keras"
    if not path.is_file():
        raise FundoscopeError(f"{path} is missing", "train anew into another folder")
    found = sha256_file(path)
    if found != model.facts["model_sha256"]:
        message = f"{path} is not the network that was trained: its sha256 is {found[:12]}…"
        raise FundoscopeError(message, f"run.json says {model.facts['model_sha256'][:12]}…: restore it, or train anew")


def _check_room(out: Path, format: Format, model: TrainedModel) -> None:
    """Refuse early what would be refused late: only the same artefact may be there already."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not (out / "artefact.json").is_file():
        raise FundoscopeError(f"{out} holds other things", "give --out a new folder")
    there = Artefact.open(out)
    if (there.format, there.origin["model_sha256"]) != (format, model.facts["model_sha256"]):
        raise FundoscopeError(f"{out} holds another artefact, {there.digest[:12]}…", "give --out a new folder")


def _install(made: Artefact, out: Path) -> bool:
    """Put the new artefact at `out`; True if it was there already."""
    if not (out / "artefact.json").is_file():
        install_folder(made.folder, out)
        return False
    there = Artefact.open(out)
    if there.digest != made.digest:
        message = f"{out} holds another artefact, {there.digest[:12]}…, than this export made, {made.digest[:12]}…"
        raise FundoscopeError(message, "give --out a new folder")
    return True


def _note(run: Path, exported: Exported) -> None:
    """Add a line to RUN/artefacts.json, for the run's report: what became of it."""
    artefact, path = exported.artefact, run / "artefacts.json"
    line = {
        "folder": str(artefact.folder),
        "format": artefact.format,
        "precision": artefact.precision,
        "megabytes": round(artefact.size_bytes / 1e6, 1),
        "digest": artefact.digest,
        "largest_difference": float(f"{exported.parity.largest_difference:.1e}"),
        "referral_flips": sum(exported.parity.referral_flips.values()),
    }
    before = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    write_json(path, [*(other for other in before if other["folder"] != line["folder"]), line])


def _convert(
    model: TrainedModel, format: Format, folder: Path, photographs: Photographs, track: Track
) -> dict[str, NDArray[np.float32]]:
    """Write the model into `folder`; the answers of what was written, and where asked for those of Keras."""
    work = folder / "work"
    work.mkdir()
    job = Job(
        keras_model=str(model.folder / "model.keras"),
        format=format,
        model=str(folder / MODEL_PATHS[format]),
        pixels=_pixel_file(photographs.pixels, work),
        also_keras=not _scored_in_float32(model),
        answers=str(work / "answers.npz"),
    )
    (work / "job.json").write_text(json.dumps(asdict(job)), encoding="utf-8")
    total = steps(len(photographs.pixels), also_keras=job.also_keras)
    for _ in track(
        _run_worker(work, format, log=model.folder / "export.log"), total=total, label=f"export to {format}"
    ):
        pass
    with np.load(work / "answers.npz") as answers:
        found = {who: answers[who] for who in answers.files}
    shutil.rmtree(work)
    return found


def _pixel_file(pixels: NDArray[np.uint8], work: Path) -> str:
    """Where another process finds the pixels: the file they are mapped from, or a copy."""
    mapped = pixels.filename if isinstance(pixels, np.memmap) else None
    if mapped and str(mapped).endswith(".npy") and np.load(mapped, mmap_mode="r").shape == pixels.shape:
        return str(mapped)
    np.save(work / "pixels.npy", pixels)
    return str(work / "pixels.npy")


def _run_worker(work: Path, format: Format, *, log: Path) -> Iterator[None]:
    """Run artefact/convert.py, yielding once for every line of progress."""
    with (work / "stderr").open("wb") as errors:
        worker = subprocess.Popen(
            [sys.executable, "-m", "fundoscope.artefact.convert", str(work / "job.json")],
            env=os.environ | ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
        assert worker.stdout is not None
        try:
            with worker.stdout:
                for _ in worker.stdout:
                    yield
            worker.wait()
        finally:
            worker.kill()
            worker.wait()
    if worker.returncode != 0:
        shutil.copyfile(work / "stderr", log)
        raise FundoscopeError(
            f"the export to {format} failed: {_last_words(log, worker.returncode)}", f"all it said is in {log}"
        )


def _last_words(log: Path, status: int) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    if status < 0 or not lines:
        return f"its process ended with status {status}" + (", out of memory perhaps" if status == -9 else "")
    return lines[-1][:300]


def _scored_in_float32(model: TrainedModel) -> bool:
    """Whether predictions.csv can be compared with: on a GPU, "float32" convolutions keep ten bits (TF32)."""
    return bool(model.facts["device"] == "cpu")


@dataclass(frozen=True, eq=False)
class _Trained:
    """The tuning part of predictions.csv, and which of the photographs each row is about."""

    rows: list[int]
    probabilities: NDArray[np.float32]


def _trained_answers(model: TrainedModel, ids: Sequence[str]) -> _Trained:
    tune = Predictions.read_csv(model.folder / "predictions.csv").of("tune")
    place = {id_: i for i, id_ in enumerate(ids)}
    missing = [id_ for id_ in tune.id if id_ not in place]
    if missing or not len(tune):
        what = f"the photograph {missing[0]}" if missing else "any tuning photograph"
        hint = f"score the run again: fundoscope evaluate {model.folder}"
        raise FundoscopeError(f"predictions.csv and the records do not share {what}", hint)
    probabilities = tune.referral[:, None] if tune.probabilities is None else tune.probabilities
    return _Trained([place[id_] for id_ in tune.id], probabilities.astype(np.float32))


def _parities(
    model: TrainedModel, trained: _Trained, answers: Mapping[str, NDArray[np.float32]]
) -> tuple[Parity, Parity]:
    """Against the Keras model in float32, which decides; and against what the training left in predictions.csv."""
    options: dict[str, Any] = {"points": operating_points_of(model), "referral_from": model.recipe.referral_from}
    deployed = answers["deployed"]
    from_training = compare(trained.probabilities, deployed[trained.rows], against="predictions.csv", **options)
    if "keras" not in answers:
        return from_training, from_training
    return compare(answers["keras"], deployed, against="model.keras in float32", **options), from_training
