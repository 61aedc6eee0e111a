"""Which photographs a quantisation may look at: tuning ones to calibrate on, held-out ones to judge by."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fundoscope.artefact.artefact import Artefact
from fundoscope.data.records import Record, Records
from fundoscope.errors import FundoscopeError
from fundoscope.model.run import TrainedModel
from fundoscope.provenance import sha256_of

CALIBRATION = 128  # photographs; sixteen gave the same ranges for a MobileNet, whose activations end at 6


@dataclass(frozen=True, eq=False)
class Photographs:
    """What the guard looks at: never learnt from, never calibrated on."""

    rows: Sequence[Record]
    pixels: NDArray[np.uint8]
    left_out: int

    @property
    def digest(self) -> str:
        """Names these photographs, in whatever order."""
        return sha256_of("\n".join(sorted(row.id for row in self.rows)).encode())


def check_preparation(artefact: Artefact, records: Records) -> None:
    """The records' pixels are what the model expects, and what it must not be asked about is marked by its own rule."""
    pairs = {
        "preparation": (asdict(artefact.input.preparation), asdict(records.preparation)),
        "gradability rule": (asdict(artefact.input.gradability), asdict(records.rule)),
    }
    for what, (ours, theirs) in pairs.items():
        differ = ", ".join(name for name in ours if ours[name] != theirs[name])
        if not differ:
            continue
        hint = "give the records it was trained on, or photographs prepared as its artefact.json says"
        raise FundoscopeError(f"{records.folder} has another {what} than the artefact: {differ}", hint)


def calibrating(records: Records, n: int, seed: int) -> list[NDArray[np.uint8]]:
    """Gradable tuning photographs, drawn at random; all of them where there are fewer than `n`."""
    if n < 1:
        raise FundoscopeError(f"{n} photographs are too few to calibrate on", f"say --calibration {CALIBRATION}")
    usable = [place for place, row in enumerate(records.of("tune")) if row.gradable]
    if not usable:
        hint = "prepare a manifest that is split into train, tune and test"
        raise FundoscopeError(f"{records.folder} has no gradable tuning photograph to calibrate on", hint)
    chosen = np.random.default_rng(seed).permutation(usable)[:n]
    pixels = records.pixels("tune")
    return [np.array(pixels[place]) for place in chosen]


def held_out(artefact: Artefact, records: Records, run: Path | None) -> Photographs:
    """The test photographs, less any that the model has learnt from or that are in the tuning part as well."""
    seen = {row.id for row in records.of("tune")}
    if records.digest != artefact.origin["records_digest"]:
        seen |= _seen(artefact, records, run)
    rows = records.of("test")
    kept = [place for place, row in enumerate(rows) if row.id not in seen]
    if not kept:
        message = f"{records.folder} has no test photograph" + (" that the model has not seen" if rows else "")
        raise FundoscopeError(message, "prepare a manifest with a test part of other photographs")
    pixels = records.pixels("test")
    if len(kept) < len(rows):
        pixels = np.array(pixels[kept])
    return Photographs([rows[place] for place in kept], pixels, len(rows) - len(kept))


def _seen(artefact: Artefact, records: Records, run: Path | None) -> set[str]:
    """What a run has learnt from, by pseudonym; needed for records other than its own."""
    if run is None:
        message = (
            f"{records.folder} is not what the model was trained on, so nobody knows which of it the model has seen"
        )
        raise FundoscopeError(message, "give the records of its training, or say which run it is from: --run runs/x")
    if TrainedModel.open(run).facts["model_sha256"] != artefact.origin["model_sha256"]:
        raise FundoscopeError(f"{artefact.folder} was not exported from {run}", "give the run it was exported from")
    path = run / "seen.json"
    if not path.is_file():
        raise FundoscopeError(f"{run} does not say what it has learnt from", f"fundoscope evaluate {run}")
    return set(json.loads(path.read_text(encoding="utf-8")))
