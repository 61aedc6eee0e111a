"""What came of a trial, and the log that keeps it: one line of JSON for each, on disk before the next trial starts.

    {"format": 1, "study": …, "design_digest": …, "measured_by": …}      the first line
    {"trial": "C17-3", "measured": {…}, …}  or  {"trial": …, "failed": {"kind": …, "reason": …}, …}

A line is whole or it is not there: one cut off by a crash, the last, is dropped when the log is opened again, and its
trial is run again. A log is locked while a study runs.

Format 1: 2026-11-15.
"""

import errno
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from fundoscope.errors import FundoscopeError
from fundoscope.experiment.design import Cell, Design, Trial
from fundoscope.provenance import command, sync_folder, versions

FORMAT = 1
# What a failure was: the cell cannot run here, or this run of it went wrong.
FailureKind = Literal["unavailable", "crashed", "out of memory", "timed out", "no readings", "disk full"]


@dataclass(frozen=True)
class Ran:
    """The circumstances of a trial, whatever came of it."""

    started: str  # ISO 8601, UTC
    wall_s: float
    machine: str  # digest of the machine's facts, which are in the study's folder
    flags: tuple[str, ...] = ()  # "busy": others used the processors; "throttled": …


@dataclass(frozen=True)
class Measured:
    trial: Trial
    ran: Ran
    readings: Mapping[str, Any]  # what the worker said: names with units, numbers or lists of them
    usage: Mapping[str, float] = field(default_factory=dict)  # what was seen from outside


@dataclass(frozen=True)
class Failed:
    trial: Trial
    ran: Ran
    kind: FailureKind
    reason: str  # one sentence
    last_words: str = ""  # the last lines it said


Outcome = Measured | Failed


class OutcomeLog:
    """Open for one study at a time: `with OutcomeLog(path, design) as log`."""

    def __init__(self, path: Path, design: Design) -> None:
        self.path, self._design = path, design
        self._descriptor = -1

    def __enter__(self) -> "OutcomeLog":
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._descriptor)
            hint = "wait for the other run, or stop it: the same command then goes on where it stopped"
            raise FundoscopeError(f"{self.path.parent} is being measured by another process", hint) from None
        try:
            self._repair()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        os.close(self._descriptor)  # and with it the lock

    def append(self, outcome: Outcome) -> None:
        self._write(to_json(outcome))

    def _repair(self) -> None:
        """Drop a last line that was cut off, or begin."""
        size = os.fstat(self._descriptor).st_size
        if size and os.pread(self._descriptor, 1, size - 1) != b"\n":
            size = self.path.read_bytes().rfind(b"\n") + 1
            os.ftruncate(self._descriptor, size)
        if not size:
            about = {"format": FORMAT, "study": self._design.name, "design_digest": self._design.digest}
            self._write(about | {"measured_by": command(), "measured_with": versions()})
            sync_folder(self.path.parent)  # the log is new: its name has to outlive a power cut too
            return
        with self.path.open("rb") as file:
            head = _head(file.readline(), self.path)
        if head.get("design_digest") != self._design.digest:
            hint = "give the changed design another name: its trials are not the same any more"
            raise FundoscopeError(f"{self.path} holds outcomes of another design called '{self._design.name}'", hint)

    def _write(self, value: Mapping[str, Any]) -> None:
        line = json.dumps(value, ensure_ascii=False, allow_nan=False).encode() + b"\n"
        size = os.fstat(self._descriptor).st_size
        try:
            if os.write(self._descriptor, line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._descriptor)
        except OSError as problem:
            os.ftruncate(self._descriptor, size)
            hint = "make room, and run the same command again: the trial that was not kept is repeated"
            raise FundoscopeError(f"{self.path} cannot be written: {problem.strerror}", hint) from None


def read_outcomes(path: Path) -> Iterator[Outcome]:
    """All whole lines of a log."""
    with path.open("rb") as file:
        _head(file.readline(), path)
        for number, line in enumerate(file, 2):
            if not line.endswith(b"\n"):
                return  # cut off
            try:
                yield _of_json(json.loads(line))
            except (ValueError, TypeError, KeyError):
                hint = "restore the log, or take that line out: its trial is then run again"
                raise FundoscopeError(f"line {number} of {path} is no outcome", hint) from None


def _head(line: bytes, path: Path) -> dict[str, Any]:
    try:
        head = json.loads(line)
        if head["format"] > FORMAT:
            raise FundoscopeError(f"{path} was written by a newer fundoscope", "update it")
        return dict(head)
    except (ValueError, TypeError, KeyError):
        raise FundoscopeError(f"{path} is not a log of outcomes", "give the folder that `study run` made") from None


def to_json(outcome: Outcome) -> dict[str, Any]:
    table, trial = asdict(outcome), outcome.trial
    del table["trial"]
    about = {"trial": trial.id, "cell": trial.cell.number, "repetition": trial.repetition, "levels": trial.cell.levels}
    return about | {"ran": table.pop("ran"), "measured" if isinstance(outcome, Measured) else "failed": table}


def _of_json(table: dict[str, Any]) -> Outcome:
    trial = Trial(Cell(table["cell"], table["levels"]), table["repetition"])
    ran = Ran(**{**table["ran"], "flags": tuple(table["ran"]["flags"])})
    return Measured(trial, ran, **table["measured"]) if "measured" in table else Failed(trial, ran, **table["failed"])
