"""A process that is watched from its start to its end, and after which nothing is left running.

It runs in a session of its own, with a mark in its environment that all it starts inherits; it is ended when we are,
however we end. What it started is found by the tree, by the mark, and, within `adopting_orphans`, by having become
our child.
"""

import ctypes
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from fundoscope.experiment.gpu import Gpus
from fundoscope.experiment.sampler import Sampler, descendants

MARK = "FUNDOSCOPE_TRIAL"
LAST_WORDS = 2000  # characters
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Command:
    words: Sequence[str]
    environment: Mapping[str, str]  # besides our own
    folder: Path  # where it runs


@dataclass(frozen=True)
class Watched:
    """How a process ended, and what was seen of it."""

    status: int | None  # its exit status, less the signal that ended it; None: its time was up
    wall_s: float
    cpu_s: float  # of it and of all it started and waited for
    sampler: Sampler
    last_words: str


def watch(command: Command, mark: str, *, timeout_s: float, sample_s: float, gpus: Gpus | None = None) -> Watched:
    ours_before = set(_children(os.getpid()))
    began = time.monotonic()
    process = _start(command, mark)
    assert process.stdout is not None
    words = _Tail(process.stdout)
    try:
        with Sampler(process.pid, sample_s, gpus) as sampler:
            ended = _wait(process.pid, timeout_s)
        wall_s = time.monotonic() - began
    finally:
        _end_all(process.pid, mark, ours_before)
        cpu_s, status = _reap(process)
        last_words = words.close()
    return Watched(status if ended else None, wall_s, cpu_s, sampler, last_words)


@contextmanager
def adopting_orphans() -> Iterator[None]:
    """Meanwhile, whatever our children abandon becomes our child."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        _libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def end_marked(prefix: str) -> int:
    """End every process whose mark begins so: left by a run of ours that was killed. How many there were."""
    found = _marked(prefix)
    for pid in found:
        _kill(pid)
    return len(found)


def _start(command: Command, mark: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(  # its preexec_fn calls prctl alone, which takes no lock that a thread could hold
        list(command.words),
        env=os.environ | dict(command.environment) | {MARK: mark},
        cwd=command.folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=_end_with_parent,
    )


def _end_with_parent() -> None:
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _wait(pid: int, timeout_s: float) -> bool:
    """Whether it ended in time. Sleeps until it does: to look again and again would be a load on what is measured."""
    descriptor = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(min(int(1000 * timeout_s), 2**31 - 1)))
    finally:
        os.close(descriptor)


def _reap(process: "subprocess.Popen[bytes]") -> tuple[float, int]:
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return used.ru_utime + used.ru_stime, process.returncode


def _end_all(root: int, mark: str, ours_before: set[int]) -> None:
    """The process may have ended, what it started may not."""
    while True:
        tree = set(descendants(root)) - {root}
        adopted = {pid for pid in _children(os.getpid()) if pid not in ours_before and pid != root}
        left = {pid for pid in tree | _marked(mark) | {p for a in adopted for p in descendants(a)} if pid != root}
        _kill(root)  # harmless where it has ended: it is not reaped yet, so that its number is nobody else's
        for pid in left:
            _kill(pid)
        for pid in adopted:
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)
        if not left:
            return
        time.sleep(0.001)  # a killed process of somebody else takes a moment to go


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        threads = Path(f"/proc/{pid}/task").iterdir()
        return [int(child) for thread in threads for child in (thread / "children").read_text().split()]
    return []


def _marked(prefix: str) -> set[int]:
    """Processes, but not zombies, whose environment has a mark that begins so."""
    wanted, found = f"{MARK}={prefix}".encode(), set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            with suppress(OSError):  # it has ended, or is somebody else's
                if any(entry.startswith(wanted) for entry in (folder / "environ").read_bytes().split(b"\0")):
                    found.add(int(folder.name))
    return found


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


class _Tail:
    """Reads all that a process says and keeps the end of it: however much it prints, it fills no disk and no memory."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._kept = stream, b""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with suppress(OSError, ValueError):  # closed under us: see close()
            while said := os.read(self._stream.fileno(), 2**16):
                self._kept = (self._kept + said)[-4 * LAST_WORDS :]

    def close(self) -> str:
        self._thread.join(5)  # ends with the last process that holds the pipe, and none should be left
        self._stream.close()
        text = self._kept.decode(errors="replace").replace("\0", "")
        return text[-LAST_WORDS:].strip()
