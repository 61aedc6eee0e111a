"""What this process may really use: processors and memory as its control groups limit them, not as the host has them.

Both versions of control groups, since serverless workers and older hosts have the first and most others the second.
"""

from collections.abc import Iterator
from math import ceil
from os import cpu_count
from pathlib import Path

ROOT, MEMBERSHIP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
UNLIMITED_BYTES = 2**60  # version 1 says "no limit" with a number near 2**63


def cpu_quota(root: Path = ROOT, membership: Path = MEMBERSHIP) -> float | None:
    """Processors' worth of time, such as 0.5; None: no limit."""
    found = []
    for folder in groups("cpu", root, membership):
        limit, period = _fields(folder / "cpu.max") or (
            _fields(folder / "cpu.cfs_quota_us") + _fields(folder / "cpu.cfs_period_us") or ("max", "1")
        )
        if limit != "max" and int(limit) > 0:  # version 1 says "no limit" with -1
            found.append(int(limit) / int(period))
    return min(found, default=None)


def memory_limit_bytes(root: Path = ROOT, membership: Path = MEMBERSHIP) -> int | None:
    """None: no limit but the host's memory."""
    found = []
    for folder in groups("memory", root, membership):
        for name in ("memory.max", "memory.limit_in_bytes"):
            (limit,) = _fields(folder / name) or ("max",)
            if limit != "max" and int(limit) < UNLIMITED_BYTES:
                found.append(int(limit))
    return min(found, default=None)


def throttled_s(root: Path = ROOT, membership: Path = MEMBERSHIP) -> float:
    """For how long our group's quota has held processes back, in all."""
    return max((throttled_in(folder) for folder in groups("cpu", root, membership)), default=0.0)


def throttled_in(folder: Path) -> float:
    """The same of one group: microseconds in version 2, nanoseconds in version 1."""
    try:
        lines = [line.split() for line in (folder / "cpu.stat").read_text().splitlines()]
    except OSError:
        return 0.0
    scales = {"throttled_usec": 1e-6, "throttled_time": 1e-9}
    return next((int(value) * scales[name] for name, value in lines if name in scales), 0.0)


def cores() -> int:
    """Whole processors to plan for: those we may run on, or as many as the quota pays for, rounded up."""
    import os

    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cpu_count() or 1
    quota = cpu_quota()
    # Rounded up: a short prediction ends before the quota of its period is used up.
    return allowed if quota is None else max(1, min(allowed, ceil(quota)))


def groups(controller: str, root: Path, membership: Path) -> Iterator[Path]:
    """Our group's folders and those above it, for this controller, as far as they can be seen from here."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            mount = root
        elif controller in controllers.split(","):
            mount = next((m for m in (root / controllers, root / controller) if m.is_dir()), root / controller)
        else:
            continue
        # In a container without a namespace of its own the path is the host's, and the mount is already our group.
        group = mount / path.lstrip("/")
        yield from (folder for folder in (group, *group.parents) if folder.is_relative_to(mount) and folder.is_dir())


def _fields(path: Path) -> tuple[str, ...]:
    try:
        return tuple(path.read_text().split())
    except OSError:
        return ()
