"""What a trained network says of photographs it has not learnt from, and how good that is."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from fundoscope.config import build
from fundoscope.data.grades import grade_of
from fundoscope.data.manifest import Manifest
from fundoscope.data.prepare import prepare_records
from fundoscope.data.records import Records
from fundoscope.errors import FundoscopeError
from fundoscope.model.backend import full_precision
from fundoscope.model.gallery import choose, write_gallery
from fundoscope.model.network import Network, open_network
from fundoscope.model.operating import OperatingPoint
from fundoscope.model.predict import predict
from fundoscope.model.predictions import Predictions
from fundoscope.model.recipe import Recipe
from fundoscope.model.run import TrainedModel, read_run
from fundoscope.model.scores import score_elsewhere, score_run
from fundoscope.progress import Track, quiet
from fundoscope.provenance import command, versions, write_json

SEEN = "the network was trained or tuned on it"


def evaluate_run(folder: Path, records: Records) -> dict[str, Any]:
    """Score the tuning and test parts of the records a run was trained on; its last stage, and repeatable."""
    facts = read_run(folder)
    if facts is None or not (folder / "model.keras").is_file():
        raise FundoscopeError(f"{folder} holds no trained network", "fundoscope train records/ --out " + str(folder))
    if facts["records"]["digest"] != records.digest:
        raise FundoscopeError(
            f"{folder} was trained on other records than {records.folder}", "give it those, or train anew"
        )
    recipe = build(Recipe, facts["recipe"], where=f"{folder}/run.json")
    network = open_network(folder / "model.keras")
    rows = [*records.of("tune"), *records.of("test")]
    with full_precision():
        probabilities = np.concatenate([predict(network.whole, records.pixels(split)) for split in ("tune", "test")])
    predictions = Predictions.of_records(rows, probabilities, referral_from=recipe.referral_from)
    predictions.write_csv(folder / "predictions.csv")
    scores = score_run(
        predictions,
        referral_from=recipe.referral_from,
        sensitivity=recipe.sensitivity,
        specificity=recipe.specificity,
    )
    write_json(folder / "scores.json", scores)
    _gallery(folder, network, records, predictions.of("test"), recipe, scores)
    # By pseudonym, so that photographs of another manifest that were learnt from can be left out of its scores.
    write_json(folder / "seen.json", sorted(row.id for row in records.rows if row.split != "test"))
    write_json(folder / "run.json", facts | {"status": "done"})
    return scores


def _gallery(
    folder: Path,
    network: Network,
    records: Records,
    test: Predictions,
    recipe: Recipe,
    scores: dict[str, Any],
) -> None:
    threshold = next(p["threshold"] for p in scores["operating_points"] if p["name"] == "high_sensitivity")
    predicted = None if test.probabilities is None else grade_of(test.probabilities)
    facts = [
        {
            "id": str(test.id[i]),
            "grade": int(test.grade[i]),
            "predicted": None if predicted is None else int(predicted[i]),
            "referral": float(test.referral[i]),
        }
        for i in range(len(test))
    ]
    gradable = np.flatnonzero(test.gradable)  # of an ungradable one the network is not asked
    shown = choose(test.grade[gradable] >= recipe.referral_from, test.referral[gradable], threshold)
    chosen = [(int(gradable[row]), kind, story) for row, kind, story in shown]
    write_gallery(folder, network, records.pixels("test"), chosen, facts, referral_from=recipe.referral_from)


def evaluate_on(
    model: TrainedModel, manifest: Manifest, name: str, *, processes: int | None = None, track: Track = quiet
) -> dict[str, Any]:
    """Score a run on the photographs of another manifest, all of its parts, at the run's own thresholds.

    They are prepared exactly as the run's own were, and those it has learnt from are left out.
    """
    folder = model.folder / "on" / name
    unseen, seen = _unseen(model, manifest)
    # The same preparation as everywhere, into a folder of its own that is gone afterwards.
    records, failures = prepare_records(
        unseen, folder / "records", model.preparation, rule=model.rule, processes=processes, track=track
    )
    network = open_network(model.folder / "model.keras")
    recipe, rows = model.recipe, records.of("test")
    with full_precision():
        probabilities = predict(network.whole, records.pixels("test"))
    predictions = Predictions.of_records(rows, probabilities, referral_from=recipe.referral_from)
    predictions.write_csv(folder / "predictions.csv")
    chosen = json.loads((model.folder / "scores.json").read_text())["operating_points"]
    points = [build(OperatingPoint, point, where="scores.json") for point in chosen]
    left_out = [p.left_out for p in manifest.photographs if p.left_out] + [f.reason for f in failures] + [SEEN] * seen
    about = {
        "name": name,
        "source": records.index["source"],
        "drawn": records.drawn,
        "manifest_sha256": manifest.digest,
        "left_out": {reason: left_out.count(reason) for reason in sorted(set(left_out))},
        "versions": versions(),
        "command": command(),
    }
    scores = score_elsewhere(predictions, points, referral_from=recipe.referral_from) | {"about": about}
    write_json(folder / "scores.json", scores)
    shutil.rmtree(folder / "records")
    return scores


def _unseen(model: TrainedModel, manifest: Manifest) -> tuple[Manifest, int]:
    """The manifest with all it uses put into the test part, less what the network has seen; and how many that were."""
    ids = set(json.loads((model.folder / "seen.json").read_text()))
    marked = tuple(
        dataclasses.replace(p, split="test", left_out=p.left_out or (SEEN if p.sha256[:16] in ids else ""))
        for p in manifest.photographs
    )
    seen = sum(p.left_out == SEEN for p in marked)
    if all(p.left_out for p in marked):
        hint = "give photographs it has not seen; fundoscope evaluate RUN scores its own test part"
        raise FundoscopeError("no photograph of this manifest is left to evaluate on", hint)
    return Manifest(marked, manifest.folder), seen
