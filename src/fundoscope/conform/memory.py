"""Resident memory of a server's processes, watched from outside while something is done to it."""

import threading
from contextlib import suppress
from pathlib import Path

from fundoscope.conform import processes
from fundoscope.conform.contract import MIB
from fundoscope.quota import memory_limit_bytes

SAMPLE_S = 0.02
SHARE = 0.5  # of this machine's free memory that a server may take before it is ended: others need the rest
MEMINFO = Path("/proc/meminfo")


def resident(pid: int) -> int:
    """Bytes of the process and all below it. Pages that two of them share count twice, as in `ps`."""
    return sum(processes.resident_bytes(member) for member in (pid, *processes.descendants(pid)))


def free_bytes() -> int | None:
    """What this machine has left, or the control group that we are in."""
    available = None
    with suppress(OSError):
        lines = [line.split() for line in MEMINFO.read_text().splitlines()]
        available = next((int(words[1]) * 1024 for words in lines if words[0] == "MemAvailable:"), None)
    return min((size for size in (available, memory_limit_bytes()) if size is not None), default=None)


class Watch:
    """The most that a process tree held while the block ran. Without a process to look into there is nothing to say.

    Whatever takes more than its share of this machine is ended there and then: an attack on it is none on its host.
    """

    def __init__(self, pid: int | None, *, ceiling_bytes: int | None = None) -> None:
        self._pid = pid
        self.before_bytes = self.peak_bytes = 0
        self.ended = False
        free = free_bytes()
        self._ceiling_bytes = ceiling_bytes or (None if free is None else int(SHARE * free))

    def __enter__(self) -> "Watch":
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        if self._pid is not None:
            self.before_bytes = self.peak_bytes = resident(self._pid)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._pid is not None:
            self._over.set()
            self._thread.join()

    def __str__(self) -> str:
        grown = self.grown_bytes
        if grown is None:
            return "memory not seen"
        ended = ", where it was ended for the sake of this machine" if self.ended else ""
        return f"memory +{megabytes(grown)}{ended}"

    @property
    def grown_bytes(self) -> int | None:
        return None if self._pid is None else self.peak_bytes - self.before_bytes

    def _sample(self) -> None:
        assert self._pid is not None
        while not self._over.wait(SAMPLE_S):
            self.peak_bytes = max(self.peak_bytes, resident(self._pid))
            if self._ceiling_bytes is not None and self.peak_bytes - self.before_bytes > self._ceiling_bytes:
                self.ended = True
                processes.kill([self._pid, *processes.descendants(self._pid)])
                return


def megabytes(size_bytes: int) -> str:
    return f"{size_bytes / MIB:,.0f} MB" if abs(size_bytes) >= 10 * MIB else f"{size_bytes / MIB:.1f} MB"
