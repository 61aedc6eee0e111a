"""A study's folder: all that was planned, measured and found, in files that can be read without us.

design.toml          the study file as it is run
outcomes.jsonl       what came of every trial
machines/DIGEST.json what it was measured on
series/TRIAL.csv     processor, memory and GPU of each trial over time
findings.json        from `study analyse`
report.html          from `study report`
"""

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fundoscope.errors import FundoscopeError
from fundoscope.experiment.design import Design, open_design
from fundoscope.experiment.machine import Machine
from fundoscope.experiment.workloads import check_workload
from fundoscope.provenance import sha256_of, write_json, write_whole


@dataclass(frozen=True)
class Study:
    folder: Path
    design: Design

    @property
    def log(self) -> Path:
        return self.folder / "outcomes.jsonl"

    @property
    def scratch(self) -> Path:
        return self.folder / "work"

    @property
    def mark(self) -> str:
        """On every process of its trials."""
        return sha256_of(str(self.folder.resolve()).encode())[:16]

    def machines(self) -> dict[str, dict[str, Any]]:
        """The facts of every machine that it was measured on, by digest."""
        found = {}
        for path in sorted((self.folder / "machines").glob("*.json")):
            try:
                found[path.stem] = dict(json.loads(path.read_bytes()))
            except (ValueError, TypeError):
                hint = "restore it from where the study was measured, or take it out"
                raise FundoscopeError(f"{path} does not describe a machine", hint) from None
        return found

    def series(self, trial: str) -> list[dict[str, float]]:
        """What was seen of a trial over time; empty where nothing was."""
        path = self.folder / "series" / f"{trial}.csv"
        if not path.is_file():
            return []
        try:
            with path.open(newline="", encoding="utf-8") as file:
                rows = csv.DictReader(file)
                return [{name: float(cell) for name, cell in row.items() if cell} for row in rows]
        except (ValueError, TypeError):
            raise FundoscopeError(
                f"{path} is damaged: it is no table of numbers", "restore it, or take it out"
            ) from None

    def keep_machine(self, machine: Machine) -> None:
        path = self.folder / "machines" / f"{machine.digest}.json"
        if not path.exists():
            write_json(path, machine.to_json())

    def keep_series(self, trial: str, text: str) -> None:
        if text:
            write_whole(self.folder / "series" / f"{trial}.csv", text.encode())


def plan_study(path: Path, out: Path | None = None) -> Study:
    """A study file read and checked; its folder need not be there yet."""
    if path.is_dir():
        path = path / "design.toml"
    design = open_design(path)
    check_workload(design, str(path))
    return Study(out or default_folder(path, design), design)


def default_folder(path: Path, design: Design) -> Path:
    return path.parent if path.name == "design.toml" else Path("studies") / design.name


def begin(study: Study, source: Path) -> None:
    """Make the folder, or find that it is this study's."""
    source = source / "design.toml" if source.is_dir() else source
    kept = study.folder / "design.toml"
    try:
        study.folder.mkdir(parents=True, exist_ok=True)
        if not kept.exists() and any(study.folder.iterdir()):
            raise FundoscopeError(f"{study.folder} holds other things", "give --out an empty or a new folder")
        if not kept.exists() or kept.read_bytes() != source.read_bytes():
            if kept.exists():
                _check_same(open_design(kept), study)
            write_whole(kept, source.read_bytes())
    except OSError as problem:
        raise FundoscopeError(f"{study.folder} cannot be written: {problem.strerror}", "give --out another") from None


def _check_same(kept: Design, study: Study) -> None:
    if kept.digest != study.design.digest:
        hint = "give the changed design another name, or --out another folder: its trials are not the same any more"
        raise FundoscopeError(f"{study.folder} holds another design called '{kept.name}'", hint)


def open_study(folder: Path) -> Study:
    """One that was run, for analysis."""
    if not (folder / "design.toml").is_file() or not (folder / "outcomes.jsonl").is_file():
        hint = "give the folder that `fundoscope study run` made, such as studies/training-cost"
        raise FundoscopeError(f"{folder} is not a study that was run", hint)
    return Study(folder, open_design(folder / "design.toml"))
