"""What a trial can run. Each workload says what may be varied and set, and how its worker is started.

cnn       train a small network with one of four frameworks: the methodology paper's forty-eight scenarios
referral  train the referral network by a recipe of ours: the first paper's ten runs
invoke    ask a server that runs under the limits of a serverless worker: the thesis's first experiment
command   any command of yours: what is in braces is replaced by levels and settings, which are in its environment too
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from string import Formatter
from typing import Any

from fundoscope.config import build
from fundoscope.errors import FundoscopeError, nearest, pick
from fundoscope.experiment.design import Design, Level
from fundoscope.experiment.environments import find, why_not
from fundoscope.experiment.jobs import JOBS, job_class
from fundoscope.experiment.machine import this_machine
from fundoscope.experiment.unavailable import Unavailable
from fundoscope.experiment.watched import Command

Parameters = Mapping[str, Any]


@dataclass(frozen=True)
class Place:
    """Where a machine keeps what trials need; paths as texts, for they may be sent to another machine."""

    environments: str
    scratch: str = ""  # empty: where this system keeps temporary files
    data: str = ""  # a folder of pictures or records; empty: none given
    folder: str = "."  # where commands run


def environment_of(workload: str, parameters: Parameters) -> tuple[str, str] | None:
    """Framework and device of the environment it runs in; None: ours."""
    return (str(parameters["framework"]), str(parameters.get("device", "cpu"))) if workload == "cnn" else None


def check_workload(design: Design, where: str) -> None:
    """Every cell must be something the workload can run: asked before anything does."""
    if design.workload == "command":
        _check_command(design, where)
        return
    pick({**JOBS, "command": ""}, design.workload, kind="workload")
    cls = job_class(design.workload)
    names = {field.name: field for field in fields(cls)}
    for name in design.factors:
        if name not in names:
            hint = f"use {nearest(name, names)}"
            raise FundoscopeError(f"the workload '{design.workload}' has nothing called '{name}' to vary", hint)
    for cell in design.cells:
        build(cls, {**design.settings, **cell.levels}, where=where)


def environments_of(design: Design) -> list[tuple[str, str]]:
    """Framework and device of every environment that the cells need."""
    found = (environment_of(design.workload, {**design.settings, **cell.levels}) for cell in design.cells)
    return list(dict.fromkeys(pair for pair in found if pair is not None))


def command_for(
    workload: str, levels: Mapping[str, Level], settings: Parameters, place: Place, scratch: Path
) -> Command:
    """How to start a trial's worker on this machine, or Unavailable."""
    parameters = {**settings, **levels}
    task, readings = str(scratch / "task.json"), str(scratch / "readings.json")
    if workload == "command":
        words = [str(word).format_map(parameters) for word in settings["command"]]
        named = {f"FUNDOSCOPE_{name.upper()}": str(value) for name, value in levels.items()}
        return Command(words, named | {"FUNDOSCOPE_READINGS": readings, "FUNDOSCOPE_TASK": task}, Path(place.folder))
    worker = ["-m", "fundoscope.experiment.worker", task, readings]
    wanted = environment_of(workload, parameters)
    if wanted is None:
        return Command([sys.executable, *worker], {}, scratch)
    framework, device = wanted
    if device == "gpu" and not this_machine().gpus:
        raise Unavailable("no GPU: the NVIDIA driver lists none on this machine")
    environment = find(framework, device, Path(place.environments))
    if environment is None:
        why = why_not(framework, device, Path(place.environments)) or f"{framework} for {device} is not set up"
        raise Unavailable(f"{why} on this machine")
    # Of our own packages the worker sees fundoscope alone: its framework needs another NumPy than we do.
    path = {"PYTHONPATH": str(environment.folder / "code"), "PYTHONNOUSERSITE": "1"}
    return Command([str(environment.python), *worker], path, scratch)


def _check_command(design: Design, where: str) -> None:
    words = design.settings.get("command")
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        hint = 'under [settings] write it word by word: command = ["python3", "train.py", "--batch", "{batch}"]'
        raise FundoscopeError(f"{where} does not say which command to run", hint)
    known = {**design.settings, **design.factors}
    for word in words:
        try:
            names = [name for _, name, _, _ in Formatter().parse(word) if name is not None]
        except ValueError:
            raise FundoscopeError(f"'{word}' in {where} has a brace without its partner", "write {{ for {") from None
        for name in names:
            if name not in known:
                raise FundoscopeError(
                    f"{{{name}}} in the command of {where} is neither a factor nor a setting",
                    f"use {nearest(name, known)}",
                )
