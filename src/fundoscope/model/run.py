"""The folder a training leaves: TrainedModel, and what every later stage reads from it.

run.json         recipe, records, machine, versions, command; `status` says whether it is whole
history.jsonl    one line per epoch
model.keras      the best epoch's network
predictions.csv  every tuning and test photograph, by pseudonym
scores.json      what they amount to
gallery.json     right and wrong gradings with the places that decided them
work/            what an interrupted training goes on from; emptied at the end
"""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fundoscope.config import build
from fundoscope.data.gradability import GradabilityRule
from fundoscope.data.photo import Preparation
from fundoscope.errors import FundoscopeError
from fundoscope.model.recipe import Recipe
from fundoscope.model.schedule import Epoch
from fundoscope.provenance import write_whole


@dataclass(frozen=True)
class TrainedModel:
    folder: Path
    facts: dict[str, Any]  # run.json

    @classmethod
    def open(cls, folder: Path) -> "TrainedModel":
        """A finished run, or an error that says how to get one."""
        facts = read_run(folder)
        if facts is None:
            hint = "fundoscope train records/ --recipe finetune --out " + str(folder)
            raise FundoscopeError(f"{folder} is not a training run: it has no run.json", hint)
        if facts["status"] != "done":
            raise FundoscopeError(f"the training in {folder} is not finished", f"resume it: {facts['command']}")
        return cls(folder, facts)

    @property
    def recipe(self) -> Recipe:
        return build(Recipe, self.facts["recipe"], where=f"{self.folder}/run.json")

    @property
    def preparation(self) -> Preparation:
        return build(Preparation, self.facts["records"]["preparation"], where=f"{self.folder}/run.json")

    @property
    def rule(self) -> GradabilityRule:
        return build(GradabilityRule, self.facts["records"]["rule"], where=f"{self.folder}/run.json")


def read_run(folder: Path) -> dict[str, Any] | None:
    path = folder / "run.json"
    if not path.is_file():
        return None
    try:
        facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise FundoscopeError(f"{path} is damaged: it is not JSON", "train anew into another folder") from None
    return facts


def claim_run(folder: Path, identity: dict[str, Any], about: dict[str, Any]) -> dict[str, Any]:
    """What run.json says of the training to go on with, or will say of a new one; writes nothing.

    `identity` is what must be the same for two trainings to be one; `about` is everything else worth keeping.
    """
    facts = read_run(folder)
    if facts is None:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise FundoscopeError(f"{folder} holds other things", "give --out an empty or a new folder")
        return {"status": "running", **identity, **about}
    if facts["status"] == "done":
        raise FundoscopeError(f"{folder} already holds a finished training", "give --out another folder")
    for name, value in identity.items():
        if facts.get(name) != json.loads(json.dumps(value)):
            message = f"{folder} holds an unfinished training with another {name.replace('_', ' ')}"
            raise FundoscopeError(message, "give --out another folder")
    return facts


def read_history(folder: Path) -> list[Epoch]:
    """The epochs that are safely on disk. A line cut short by a kill is not one of them."""
    path = folder / "history.jsonl"
    rows: list[Epoch] = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else []:
        try:
            rows.append(build(Epoch, json.loads(line), where=str(path)))
        except ValueError:
            break
    return rows


def write_history(folder: Path, rows: list[Epoch]) -> None:
    lines = "".join(json.dumps(asdict(row)) + "\n" for row in rows)
    write_whole(folder / "history.jsonl", lines.encode())


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
