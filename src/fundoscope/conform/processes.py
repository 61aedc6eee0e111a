"""A process and everything below it, as Linux shows them in /proc. Elsewhere there is nothing to see."""

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
LISTEN = "0A"  # the state's code in /proc/net/tcp


def visible(pid: int) -> bool:
    """Whether the process can be looked into from here: not so in a virtual machine's container."""
    return (PROC / str(pid) / "stat").exists()


def alive(pid: int) -> bool:
    """There, and no zombie."""
    state, _ = _stat(pid)
    return state not in ("", "Z", "X")


def descendants(pid: int) -> list[int]:
    """All processes below `pid`, nearest first."""
    below: dict[int, list[int]] = {}
    for child, parent in _parents():
        below.setdefault(parent, []).append(child)
    found, queue = [], [pid]
    while queue:
        children = below.get(queue.pop(0), [])
        found += children
        queue += children
    return found


def workers(pid: int) -> list[int]:
    """The processes below `pid` that have none below themselves, the largest first: where predictions are made."""
    found = descendants(pid)
    parents = {parent for _, parent in _parents()}
    return sorted((child for child in found if child not in parents), key=resident_bytes, reverse=True)


def resident_bytes(pid: int) -> int:
    with suppress(OSError, IndexError):
        return int((PROC / str(pid) / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def command_of(pid: int) -> list[str]:
    with suppress(OSError):
        return (PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    return []


def listening_ports(pids: Iterable[int]) -> set[int]:
    """TCP ports that any of these processes listens on."""
    pids = list(pids)
    sockets = {inode for pid in pids for inode in _sockets(pid)}
    return {port for pid in pids[:1] for port, inode in _listeners(pid) if inode in sockets}


def marked(mark: str) -> list[int]:
    """Processes whose environment holds `mark`: what was started with it, however far it has wandered off."""
    found = []
    for pid in _pids():
        with suppress(OSError):
            if mark.encode() in (PROC / str(pid) / "environ").read_bytes() and pid != os.getpid():
                found.append(pid)
    return found


def kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):  # gone, or a container's and not ours
            os.kill(pid, signal.SIGKILL)


def _pids() -> Iterator[int]:
    if PROC.is_dir():
        yield from (int(path.name) for path in PROC.iterdir() if path.name.isdigit())


def _parents() -> Iterator[tuple[int, int]]:
    for pid in _pids():
        state, parent = _stat(pid)
        if state not in ("", "Z", "X"):
            yield pid, parent


def _stat(pid: int) -> tuple[str, int]:
    with suppress(OSError):
        # The name stands in parentheses and may hold any character, a closing one too.
        state, parent = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[:2]
        return state, int(parent)
    return "", 0


def _sockets(pid: int) -> Iterator[str]:
    with suppress(OSError):
        for descriptor in (PROC / str(pid) / "fd").iterdir():
            with suppress(OSError):
                target = str(descriptor.readlink())
                if target.startswith("socket:["):
                    yield target[8:-1]


def _listeners(pid: int) -> Iterator[tuple[int, str]]:
    """Port and inode of every listening socket in the process's own network."""
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (PROC / str(pid) / "net" / table).read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == LISTEN:
                    yield int(words[1].rpartition(":")[2], 16), words[9]
