"""What an answer says of the container that gave it: which one, since when, and what its start took.

With it a caller tells a cold start from a warm one, and one container from the next, by what the container itself says
and not by how long it took. Nothing here says where it runs or for whom.
"""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

START_PHASES = ("boot", "import", "load", "warm_up")  # "first_prediction" is a caller's


@dataclass(frozen=True)
class Origin:
    """What the supervisor knows and all its workers say."""

    id: str  # random
    image: str | None
    started: float  # Unix time at which the supervisor's process started
    began: float  # the same moment on the monotonic clock

    @classmethod
    def of_this_process(cls, image: str | None) -> "Origin":
        age_s = process_age_s()
        return cls(os.urandom(8).hex(), image, round(time.time() - age_s, 2), time.monotonic() - age_s)


def process_age_s() -> float:
    """Since this process was started, before it knew anything of Python: the kernel's word, to 10 ms."""
    try:
        with open("/proc/self/stat", "rb") as file:  # noqa: PTH123  # a millisecond less of imports is not at stake
            ticks = int(file.read().rpartition(b")")[2].split()[19])  # field 22, proc(5): since the machine's start
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, AttributeError):  # not Linux: then from here on
        return 0.0


class Container:
    """One worker's account of its start: phases that follow one another, each in seconds of its own."""

    def __init__(self, origin: Origin, since: float) -> None:
        """`since`: the container's beginning, or for a worker that replaces another, its own."""
        self._origin, self._last = origin, since
        self._phases_s: dict[str, float] = {}
        self._answers = 0
        self.ended("boot")

    def ended(self, phase: str) -> None:
        """What went by since the phase before belongs to `phase`, which may have several parts."""
        now = time.monotonic()
        self._phases_s[phase] = self._phases_s.get(phase, 0.0) + now - self._last
        self._last = now

    def resume(self) -> None:
        """What went by was waiting, and belongs to no phase."""
        self._last = time.monotonic()

    def predicted(self, timings_ms: Mapping[str, float]) -> None:
        """A caller's photograph; the first is part of the start."""
        self._phases_s.setdefault("first_prediction", (timings_ms["decode"] + timings_ms["predict"]) / 1000)

    @property
    def start_s(self) -> dict[str, float]:
        """The phases that were no caller's, as far as they have happened."""
        return {phase: self._phases_s[phase] for phase in START_PHASES if phase in self._phases_s}

    def answered(self) -> dict[str, Any]:
        """For one more answer: what goes into it."""
        self._answers += 1
        return {
            "id": self._origin.id,
            "image": self._origin.image,
            "started": self._origin.started,
            "answered": self._answers,
            "phases_s": {phase: round(seconds, 4) for phase, seconds in self._phases_s.items()},
        }
