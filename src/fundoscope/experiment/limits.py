"""Run a process as a serverless worker runs: under a limit of memory and of processor time, its files not read yet.

Control groups of both versions: ordinary hosts have the second, serverless hosts and some virtual machines the first.
A limit is real: a process that needs more memory is ended by the kernel, and one that needs more processor time waits.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from fundoscope.errors import FundoscopeError
from fundoscope.quota import MEMBERSHIP, ROOT, groups, throttled_in

PERIOD_US = 100_000
MIB = 2**20


@dataclass(frozen=True)
class Limits:
    memory_mb: int
    cpus: float  # processors' worth of time, such as 0.5

    def __post_init__(self) -> None:
        if self.memory_mb < 16:
            raise ValueError(f"memory_mb is {self.memory_mb}: no process starts in so little")
        if not 0.01 <= self.cpus <= 1024:
            raise ValueError(f"cpus is {self.cpus:g}, not 0.01 or more")


@dataclass(frozen=True)
class Group:
    """Folders of control groups that hold what is started in them to their limits."""

    memory: Path
    cpu: Path  # of version 2 the same folder

    def words(self, command: Sequence[str]) -> list[str]:
        """The command line that enters the group first, and becomes the command then: no moment is outside."""
        enter = "".join(f'echo $$ > "{folder}/cgroup.procs" && ' for folder in dict.fromkeys((self.memory, self.cpu)))
        return ["/bin/sh", "-c", f'{enter}exec "$@"', "sh", *command]

    def killed_for_memory(self) -> int:
        """How many processes the kernel has ended in it for want of memory."""
        for name in ("memory.events", "memory.oom_control"):
            for line in _text(self.memory / name).splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
        return 0

    def peak_bytes(self) -> int | None:
        """The most that was held at once, files read included; None: this kernel does not count it."""
        for name in ("memory.peak", "memory.max_usage_in_bytes"):
            if text := _text(self.memory / name).strip():
                return int(text)
        return None

    def throttled_s(self) -> float:
        """For how long processes had to wait for their next share of processor time."""
        return throttled_in(self.cpu)


@contextmanager
def limited(limits: Limits, root: Path = ROOT, membership: Path = MEMBERSHIP) -> Iterator[Group]:
    """A group with these limits, gone afterwards; whatever still runs in it is ended first."""
    group = _make(limits, root, membership)
    try:
        yield group
    finally:
        for folder in dict.fromkeys((group.memory, group.cpu)):
            _remove(folder)


def _make(limits: Limits, root: Path, membership: Path) -> Group:
    name = f"fundoscope-{os.getpid()}-{os.urandom(4).hex()}"
    memory, cpu = (_parent(controller, root, membership) / name for controller in ("memory", "cpu"))
    made: list[Path] = []
    try:
        for folder in dict.fromkeys((memory, cpu)):
            _remove_left(folder.parent)
            folder.mkdir()
            made.append(folder)
        if memory == cpu:
            _write(memory / "memory.max", limits.memory_mb * MIB)
            with suppress(OSError):  # not every kernel has swap
                _write(memory / "memory.swap.max", 0)
            _write(cpu / "cpu.max", f"{round(limits.cpus * PERIOD_US)} {PERIOD_US}")
        else:
            _write(memory / "memory.limit_in_bytes", limits.memory_mb * MIB)
            _write(cpu / "cpu.cfs_period_us", PERIOD_US)
            _write(cpu / "cpu.cfs_quota_us", round(limits.cpus * PERIOD_US))
    except OSError as problem:
        for folder in made:
            _remove(folder)
        hint = "run it as root, or inside `systemd-run --user --scope -p Delegate=yes`, whose group you may divide"
        raise FundoscopeError(f"control groups cannot be made here: {problem.strerror or problem}", hint) from None
    return Group(memory, cpu)


def _parent(controller: str, root: Path, membership: Path) -> Path:
    """Below our own group where that may have children: what holds us then holds what we start."""
    if any(controller in line.split(":")[1].split(",") for line in _text(membership).splitlines()):
        return next(groups(controller, root, membership), root / controller)
    # Version 2: a group that has processes may not have limited children, except the root.
    if controller not in _text(root / "cgroup.subtree_control").split():
        with suppress(OSError):
            _write(root / "cgroup.subtree_control", f"+{controller}")
    return root


def _remove_left(parent: Path) -> None:
    """Groups of processes of ours that were killed before they could."""
    for folder in parent.glob("fundoscope-*-*"):
        pid = folder.name.split("-")[1]
        if pid.isdigit() and not Path("/proc", pid).exists():
            _remove(folder)


def _remove(folder: Path) -> None:
    for pid in _text(folder / "cgroup.procs").split():
        with suppress(ProcessLookupError):
            os.kill(int(pid), 9)
    for _ in range(1000):
        try:
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError:  # its processes take a moment to go
            os.sched_yield()
        else:
            return


def forget_files(*folders: Path) -> int:
    """Out of the page cache, as on a host that has never run this: how many files."""
    os.sync()  # what is not on disk yet would stay
    count = 0
    for folder in folders:
        for path in [folder] if folder.is_file() else folder.rglob("*"):
            if path.is_file() and not path.is_symlink():
                descriptor = os.open(path, os.O_RDONLY)
                try:
                    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                    count += 1
                finally:
                    os.close(descriptor)
    return count


def _write(path: Path, value: object) -> None:
    path.write_text(str(value))


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
