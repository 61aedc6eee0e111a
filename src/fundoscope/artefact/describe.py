"""What a run says of itself, as artefact.json tells it."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fundoscope.artefact.artefact import (
    DRAWN_NOTICE,
    GRADES,
    NOTICE,
    REFERRAL,
    Artefact,
    Format,
    Input,
    OperatingPoint,
    Output,
)
from fundoscope.artefact.convert import INPUT, OUTPUT
from fundoscope.artefact.files import VERSION
from fundoscope.artefact.parity import Parity
from fundoscope.config import build
from fundoscope.errors import FundoscopeError
from fundoscope.model.run import TrainedModel
from fundoscope.provenance import command, versions


def describe(model: TrainedModel, *, format: Format, folder: Path, outputs: int, parity: Parity) -> Artefact:
    """Everything but the list of files and the digest, which writing adds."""
    facts, recipe, size = model.facts, model.recipe, model.preparation.size
    drawn = bool(facts["records"]["drawn"])
    return Artefact(
        folder=folder,
        version=VERSION,
        digest="",
        format=format,
        precision="float32",
        files=(),
        input=Input(INPUT, "uint8", (None, size, size, 3), model.preparation, model.rule),
        output=Output(OUTPUT, recipe.head, (None, outputs), GRADES if outputs > 1 else (REFERRAL,)),
        referral_from=recipe.referral_from,
        operating_points=operating_points_of(model),
        scores=summary(_scores(model)),
        drawn=drawn,
        notice=DRAWN_NOTICE if drawn else NOTICE,
        origin=_origin(model),
        parity=asdict(parity),
        export={"command": command(), "versions": versions()},
    )


def operating_points_of(model: TrainedModel) -> tuple[OperatingPoint, ...]:
    where = f"{model.folder}/scores.json"
    return tuple(build(OperatingPoint, point, where=where) for point in _scores(model)["operating_points"])


def _scores(model: TrainedModel) -> dict[str, Any]:
    path = model.folder / "scores.json"
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError):
        raise FundoscopeError(f"{path} cannot be read", f"fundoscope evaluate {model.folder}") from None


def summary(scores: Mapping[str, Any]) -> dict[str, Any]:
    """For a model card: the test part at image level, without and with (as referred) the ungradable photographs."""
    ways = scores["test"]["image"]
    return {"part": "test", "level": "image", **{way: _brief(ways[way]) for way in ("gradable", "all")}}


def _brief(measures: Mapping[str, Any]) -> dict[str, Any]:
    points = {
        name: {measure: _interval(point[measure]) for measure in ("sensitivity", "specificity")}
        for name, point in measures["operating_points"].items()
    }
    counts = {name: measures[name] for name in ("n", "n_positive")}
    estimates = {name: _interval(measures[name]) for name in ("auc", "kappa")}
    return {**counts, **estimates, "operating_points": points}


def _interval(estimate: Mapping[str, Any]) -> dict[str, Any]:
    return {name: estimate[name] for name in ("value", "low", "high")}


def _origin(model: TrainedModel) -> dict[str, Any]:
    facts, records = model.facts, model.facts["records"]
    names = (
        "model_sha256",
        "parameters",
        "seed",
        "backend",
        "device",
        "precision",
        "best_epoch",
        "versions",
        "command",
    )
    return {
        "run": model.folder.resolve().name,
        "records_digest": records["digest"],
        "manifest_sha256": records["manifest_sha256"],
        "source": records["source"],
        "backbone": model.recipe.backbone,
        "recipe": asdict(model.recipe),
        **{name: facts[name] for name in names},
    }
