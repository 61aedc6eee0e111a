"""Processor, memory and GPU of a process and all it started, read from outside at a fixed period.

A thread of the parent that sleeps and reads /proc. CPU is in per cent of one processor, as `top` shows it: two busy
processors are 200. Memory is what is resident, shared pages counted once per process.
"""

import csv
import io
import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, fields
from types import TracebackType

from fundoscope.experiment.gpu import Gpus

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
MIB = 2**20


@dataclass(frozen=True)
class Sample:
    """One row of the time series, as published: comma-separated, a row per period."""

    at_s: float  # since the start of the trial
    cpu_percent: float  # since the row before
    memory_mb: float
    processes: int
    gpu_percent: float | None = None
    gpu_memory_mb: float | None = None
    gpu_watts: float | None = None


class Sampler:
    """`with Sampler(pid, period_s) as sampler: …`, then `sampler.samples`."""

    def __init__(self, pid: int, period_s: float, gpus: Gpus | None = None) -> None:
        self._root, self._period_s, self._gpus = pid, period_s, gpus
        self._spent_s: dict[int, float] = {}  # by each process of the tree when last seen
        self._began = self._last = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.samples: list[Sample] = []
        self.own_s = 0.0  # processor seconds of this thread: what being measured costs

    @property
    def seen(self) -> set[int]:
        """Every process that was ever in the tree."""
        return set(self._spent_s)

    def __enter__(self) -> "Sampler":
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        due = self._began
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            self._sample()
            due = max(due + self._period_s, time.monotonic())  # one that was late is not made up for
            self.own_s = time.thread_time()

    def _sample(self) -> None:
        now, spent_s, memory, alive, tree = time.monotonic(), 0.0, 0, 0, descendants(self._root)
        for pid in tree:
            with suppress(OSError, ValueError, IndexError):  # it may have ended meanwhile
                used_s, resident = _usage(pid)
                alive += resident > 0
                spent_s += used_s - self._spent_s.get(pid, 0.0)
                self._spent_s[pid] = used_s
                memory += resident
        if not alive:  # ended, and not yet waited for
            return
        cpu = 100 * spent_s / (now - self._last) if self.samples else 0.0
        self._last = now
        gpu = self._gpus.read(tree) if self._gpus else None
        about_gpu = (gpu.percent, gpu.memory_mb, gpu.watts) if gpu else (None, None, None)
        self.samples.append(Sample(now - self._began, cpu, memory / MIB, alive, *about_gpu))

    def usage(self) -> dict[str, float]:
        """Means over the trial (the first row has no period before it), peaks, and energy where the card tells."""
        rows = self.samples[1:] or self.samples
        found = {"samples": float(len(self.samples))}
        for field in fields(Sample)[1:]:
            values = [value for row in rows if (value := getattr(row, field.name)) is not None]
            if values:
                found[f"{field.name}_mean"] = sum(values) / len(values)
                found[f"{field.name}_max"] = max(values)
        if "gpu_watts_mean" in found:
            found["gpu_joules"] = found["gpu_watts_mean"] * (rows[-1].at_s - self.samples[0].at_s)
        return found

    def as_csv(self) -> str:
        names = [field.name for field in fields(Sample)]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(names)
        for row in self.samples:
            values = (getattr(row, name) for name in names)
            writer.writerow(["" if value is None else f"{value:.6g}" for value in values])
        return text.getvalue()


def descendants(root: int) -> list[int]:
    """The process and all below it that are there; none if it has ended."""
    found, waiting = [], [root]
    while waiting:
        pid = waiting.pop()
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208  # many times a second
                waiting += map(int, _read(f"/proc/{pid}/task/{thread}/children").split())
        except OSError:
            continue
        found.append(pid)
    return found


def _usage(pid: int) -> tuple[float, int]:
    """Seconds of processor it has used, bytes it holds."""
    after_name = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / TICKS, int(after_name[21]) * PAGE


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123  # many times a second
        return file.read()
