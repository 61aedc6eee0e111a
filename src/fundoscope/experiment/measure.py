"""One trial on this machine: its worker started, watched from outside, ended; its readings, or why it has none."""

import errno
import json
import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fundoscope.experiment.design import Trial
from fundoscope.experiment.gpu import Gpus, open_gpus
from fundoscope.experiment.machine import Counters, Machine, this_machine
from fundoscope.experiment.outcome import Failed, FailureKind, Measured, Outcome, Ran
from fundoscope.experiment.unavailable import Unavailable
from fundoscope.experiment.watched import Watched, watch
from fundoscope.experiment.workloads import Place, command_for

MOST_READINGS_BYTES = 4 * 2**20
LAST_LINES = 5  # of its words, in which a worker says what it died of
BUSY = 0.1  # of a processor, used by others while a trial ran: more is said beside its outcome
NO_SPACE = os.strerror(errno.ENOSPC)


@dataclass(frozen=True)
class Task:
    """All that a machine needs to know to run one trial: plain values, so that it can be sent to another."""

    study: str  # marks its processes
    trial: Trial
    workload: str
    settings: Mapping[str, Any]
    seed: int
    timeout_s: float
    sample_s: float
    place: Place


@dataclass(frozen=True)
class Observation:
    outcome: Outcome
    machine: Machine
    series: str  # the samples, as CSV; empty where nothing ran


def measure(task: Task) -> Observation:
    started = datetime.now(UTC).isoformat(timespec="seconds")
    machine = this_machine()
    with TemporaryDirectory(prefix="trial-", dir=task.place.scratch or None, ignore_cleanup_errors=True) as scratch:
        try:
            _write_task(task, Path(scratch))
            command = command_for(task.workload, task.trial.cell.levels, task.settings, task.place, Path(scratch))
            before, own_s = Counters.now(), time.process_time()
            watched = watch(
                command,
                f"{task.study}/{task.trial.id}",
                timeout_s=task.timeout_s,
                sample_s=task.sample_s,
                gpus=_gpus() if machine.gpus else None,
            )
        except (Unavailable, OSError) as problem:
            kind, reason = _not_started(problem)
            return Observation(Failed(task.trial, Ran(started, 0.0, machine.digest), kind, reason), machine, "")
        after = Counters.now()
        flags = _flags(before, after, watched, time.process_time() - own_s)
        ran = Ran(started, watched.wall_s, machine.digest, flags)
        outcome = _outcome(task, ran, watched, Path(scratch, "readings.json"), before, after)
        return Observation(outcome, machine, watched.sampler.as_csv())


@cache
def _gpus() -> Gpus | None:
    return open_gpus()


def _write_task(task: Task, scratch: Path) -> None:
    parameters = {**task.settings, **task.trial.cell.levels}
    about = {"workload": task.workload, "parameters": parameters, "seed": task.seed, "data": task.place.data}
    Path(scratch, "task.json").write_text(json.dumps(about), encoding="utf-8")


def _not_started(problem: Exception) -> tuple[FailureKind, str]:
    if isinstance(problem, Unavailable):
        return "unavailable", str(problem)
    full = isinstance(problem, OSError) and problem.errno == errno.ENOSPC
    return "disk full" if full else "crashed", f"it could not be started: {problem}"


def _flags(before: Counters, after: Counters, watched: Watched, own_s: float) -> tuple[str, ...]:
    others_s = after.busy_s - before.busy_s - watched.cpu_s - own_s + after.stolen_s - before.stolen_s
    busy = others_s > BUSY * watched.wall_s
    throttled = after.throttled_s > before.throttled_s
    return (*(["busy"] if busy else []), *(["throttled"] if throttled else []))


def _outcome(task: Task, ran: Ran, watched: Watched, readings: Path, before: Counters, after: Counters) -> Outcome:
    def failed(kind: FailureKind, reason: str) -> Failed:
        return Failed(task.trial, ran, kind, reason, watched.last_words)

    status, words = watched.status, watched.last_words
    if status is None:
        return failed("timed out", f"it had not ended after {task.timeout_s:g} s")
    if status == -signal.SIGKILL and after.killed_for_memory > before.killed_for_memory:
        return failed("out of memory", "the system ended it for want of memory")
    if status < 0:
        return failed("crashed", f"it was ended by {_signal_name(-status)}")
    if status > 0:
        # Not the very last alone: what a worker printed before may come out of its buffer after its complaint.
        if any("MemoryError" in line or "out of memory" in line.lower() for line in words.splitlines()[-LAST_LINES:]):
            return failed("out of memory", f"it ended with status {status} for want of memory")
        if NO_SPACE in words:
            return failed("disk full", f"it ended with status {status}: {NO_SPACE.lower()}")
        return failed("crashed", f"it ended with status {status}")
    found = _read_readings(readings, needed=task.workload != "command")
    if found is None:
        return failed("no readings", "it ended well, and left no readings that can be read")
    if "unavailable" in found:
        return failed("unavailable", str(found["unavailable"]))
    spent = {"cpu_s": watched.cpu_s, "sampler_s": watched.sampler.own_s} | _joules(before, after)
    return Measured(task.trial, ran, found, watched.sampler.usage() | spent)


def _joules(before: Counters, after: Counters) -> dict[str, float]:
    """What the processors took meanwhile; nothing where they do not tell, or their counter began anew."""
    if before.processor_joules is None or after.processor_joules is None:
        return {}
    spent = after.processor_joules - before.processor_joules
    return {"processor_joules": spent} if spent >= 0 else {}


def _read_readings(path: Path, *, needed: bool) -> dict[str, Any] | None:
    """What the worker wrote; None where that is nothing that can be used."""
    with suppress(OSError, ValueError, RecursionError):
        if not path.exists() and not needed:
            return {}
        if path.stat().st_size > MOST_READINGS_BYTES:
            return None
        found = json.loads(path.read_bytes(), parse_constant=_not_a_number)
        return found if isinstance(found, dict) else None
    return None


def _not_a_number(name: str) -> float:
    raise ValueError(name)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
