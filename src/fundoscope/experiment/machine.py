"""What this machine is, and whether somebody else is using it. Part of every outcome: machines are not mixed unseen."""

import json
import os
import platform
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fundoscope.experiment.gpu import Gpu, open_gpus
from fundoscope.provenance import sha256_of
from fundoscope.quota import cpu_quota, throttled_s

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Machine:
    processor: str
    processors: int  # this process may use
    quota: float | None  # processors' worth of time that a container is given; None: all of them
    memory_gb: float
    gpus: tuple[Gpu, ...]
    kernel: str
    system: str

    @property
    def digest(self) -> str:
        return sha256_of(json.dumps(self.to_json(), sort_keys=True).encode())[:16]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@cache
def this_machine() -> Machine:
    gpus = open_gpus()
    return Machine(
        processor=_processor(),
        processors=len(os.sched_getaffinity(0)),
        quota=cpu_quota(),
        memory_gb=round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9, 1),
        gpus=gpus.cards() if gpus else (),
        kernel=platform.release(),
        system=_system(),
    )


def _processor() -> str:
    for line in _text("/proc/cpuinfo").splitlines():
        if line.startswith(("model name", "Hardware")):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _system() -> str:
    for line in _text("/etc/os-release").splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.partition("=")[2].strip('"')
    return platform.system()


@dataclass(frozen=True)
class Counters:
    """What the kernel has counted since it started; a trial is between two of them."""

    busy_s: float  # processors' seconds of everybody
    stolen_s: float  # taken by other guests of the same host
    throttled_s: float  # held back by a container's quota
    killed_for_memory: int
    processor_joules: float | None  # of all processors, whoever used them; None: the hardware does not tell

    @classmethod
    def now(cls) -> "Counters":
        user, nice, system, _idle, _waiting, interrupts, soft, stolen, *_ = map(int, _text("/proc/stat").split()[1:11])
        busy_s = (user + nice + system + interrupts + soft) / TICKS
        killed = next((line.split()[1] for line in _text("/proc/vmstat").splitlines() if line[:9] == "oom_kill "), "0")
        return cls(busy_s, stolen / TICKS, throttled_s(), int(killed), processor_joules())


def processor_joules(root: Path = Path("/sys/class/powercap")) -> float | None:
    """Of whole processors (RAPL); readable by root, and hardly ever in a virtual machine."""
    texts = [_text(f"{folder}/energy_uj") for folder in root.glob("intel-rapl:*") if folder.name.count(":") == 1]
    return sum(int(text) for text in texts) / 1e6 if texts and all(texts) else None


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
