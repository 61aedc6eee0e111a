"""Many backbones on the same photographs: features computed once for each, then a head in seconds.

The thesis's notebook trained 27 networks this way, for one epoch each, at several minutes an epoch; with a frozen
backbone and no augmentation the features are constants, so that all its epochs cost one pass.
"""

import dataclasses
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np

from fundoscope.data.records import Records
from fundoscope.errors import FundoscopeError
from fundoscope.model.backbones import resolve_weights
from fundoscope.model.evaluate import evaluate_run
from fundoscope.model.recipe import Recipe
from fundoscope.model.run import read_history
from fundoscope.model.train import train
from fundoscope.provenance import write_json


@dataclass(frozen=True)
class Entry:
    """One backbone's line in the table; `failed` says why it has no numbers."""

    backbone: str
    accuracy: float | None = None
    kappa: float | None = None
    auc: float | None = None
    parameters: int | None = None
    size_mb: float | None = None  # of model.keras
    features_seconds: float | None = None  # the one pass over the photographs
    head_seconds: float | None = None  # all epochs of the head
    failed: str = ""


def sweep(recipe: Recipe, records: Records, out: Path, *, backbones: Sequence[str], seed: int = 0) -> Iterator[Entry]:
    """Try each backbone, yielding its entry once it is on disk. The same command again goes on with those missing."""
    for name in backbones:
        kept = out / name / "entry.json"
        if kept.is_file():
            yield Entry(**json.loads(kept.read_text()))
            continue
        one = dataclasses.replace(recipe, backbone=name, size=records.preparation.size, epochs=0)
        try:
            entry = _measure(one, records, out / name, seed)
        except FundoscopeError as problem:  # no weights for it here, say: a line in the table, not the end of it
            entry = Entry(name, failed=problem.message)
        write_json(kept, asdict(entry))
        keras.backend.clear_session()
        yield entry


def _measure(recipe: Recipe, records: Records, out: Path, seed: int) -> Entry:
    resolve_weights(recipe.backbone, recipe.weights)  # before a folder is made for it
    began = time.perf_counter()
    list(train(recipe, records, out, seed=seed))
    whole_s = time.perf_counter() - began
    head_s = float(np.sum([row.seconds + row.tune_seconds for row in read_history(out)]))
    scores = evaluate_run(out, records)["test"]["image"]["ungated"]
    run: dict[str, Any] = json.loads((out / "run.json").read_text())
    return Entry(
        backbone=recipe.backbone,
        accuracy=scores["accuracy"]["value"],
        kappa=scores["kappa"]["value"],
        auc=scores["auc"]["value"],
        parameters=run["parameters"],
        size_mb=(out / "model.keras").stat().st_size / 1e6,
        features_seconds=whole_s - head_s,
        head_seconds=head_s,
    )
