"""When requests are sent: the thesis's three schedules, and open loops. Moments are in seconds after the start.

Latency is counted from the scheduled moment, not from when a client got round to sending: a server that stalls must not
be spared the requests that would have come meanwhile.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from pathlib import Path

import numpy as np

from fundoscope.errors import FundoscopeError

MOST_REQUESTS = 1_000_000


@dataclass(frozen=True)
class Schedule:
    name: str
    at_s: tuple[float, ...]  # of the requests that count, in order
    uncounted: int = 0  # sent before them, one after the other, to warm the endpoint
    cold: bool = False  # each must find a container that was not there before

    @property
    def duration_s(self) -> float:
        return self.at_s[-1] if self.at_s else 0.0


def warm(requests: int = 25, every_s: float = 5.0) -> Schedule:
    """The thesis's: one uncounted, then 25, five seconds apart."""
    return Schedule("warm", _every(requests, every_s), uncounted=1)


def cold(requests: int = 10, every_s: float = 900.0) -> Schedule:
    """The thesis's: ten, a quarter of an hour apart, which is when containers have been given back."""
    return Schedule("cold", _every(requests, every_s), cold=True)


def real_time(requests: int = 25, every_s: float = 5.0) -> Schedule:
    """The thesis's for instances, which are always up."""
    return Schedule("real-time", _every(requests, every_s))


def poisson(per_s: float, duration_s: float, seed: int) -> Schedule:
    """Callers that know nothing of each other."""
    for name, value in (("per_s", per_s), ("duration_s", duration_s)):
        if not (isfinite(value) and value > 0):
            raise FundoscopeError(f"{name} is {value:g}", "use a number above 0")
    if per_s * duration_s > MOST_REQUESTS:
        raise FundoscopeError(f"{per_s * duration_s:,.0f} requests are too many to send", "use a shorter duration")
    draw = np.random.default_rng(seed)
    moments = np.sort(draw.uniform(0, duration_s, draw.poisson(per_s * duration_s)))
    return Schedule("poisson", tuple(moments.tolist()), uncounted=1)


def trace(path: Path) -> Schedule:
    """One moment a line, in seconds, as somebody recorded them; they need not begin at zero."""
    try:
        moments = [float(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except FileNotFoundError:
        raise FundoscopeError(f"there is no file {path}", "check the path") from None
    except (ValueError, UnicodeDecodeError):
        raise FundoscopeError(f"{path} is no list of moments", "write one number of seconds a line") from None
    _check_order(moments, path)
    return Schedule("trace", tuple(moment - moments[0] for moment in moments), uncounted=1)


def _check_order(moments: Sequence[float], path: Path) -> None:
    if not 1 <= len(moments) <= MOST_REQUESTS:
        raise FundoscopeError(f"{path} has {len(moments):,} moments", f"from 1 to {MOST_REQUESTS:,} can be sent")
    if not all(map(isfinite, moments)) or any(b < a for a, b in pairwise(moments)):
        raise FundoscopeError(f"the moments in {path} are not in order", "sort them")


def _every(requests: int, every_s: float) -> tuple[float, ...]:
    if requests < 1 or not (isfinite(every_s) and every_s >= 0):
        raise FundoscopeError(
            f"{requests} requests, one every {every_s:g} s, cannot be sent", "use 1 or more, 0 s or more"
        )
    return tuple(i * every_s for i in range(requests))
