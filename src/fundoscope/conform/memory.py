"""Resident memory of a server's processes, watched from outside while something is done to it."""

import threading

from fundoscope.conform import processes
from fundoscope.conform.contract import MIB

SAMPLE_S = 0.02


def resident(pid: int) -> int:
    """Bytes of the process and all below it. Pages that two of them share count twice, as in `ps`."""
    return sum(processes.resident_bytes(member) for member in (pid, *processes.descendants(pid)))


class Watch:
    """The most that a process tree held while the block ran. Without a process to look into there is nothing to say."""

    def __init__(self, pid: int | None) -> None:
        self._pid = pid
        self.before_bytes = self.peak_bytes = 0

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

    @property
    def grown_bytes(self) -> int | None:
        return None if self._pid is None else self.peak_bytes - self.before_bytes

    def _sample(self) -> None:
        assert self._pid is not None
        while not self._over.wait(SAMPLE_S):
            self.peak_bytes = max(self.peak_bytes, resident(self._pid))


def megabytes(size_bytes: int) -> str:
    return f"{size_bytes / MIB:,.0f} MB" if abs(size_bytes) >= 10 * MIB else f"{size_bytes / MIB:.1f} MB"
