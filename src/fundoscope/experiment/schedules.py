"""When requests are sent: the thesis's three schedules. Moments are in seconds after the start.

Latency is counted from the scheduled moment, not from when a client got round to sending: a server that stalls must not
be spared the requests that would have come meanwhile.
"""

from dataclasses import dataclass
from math import isfinite

from fundoscope.errors import FundoscopeError


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


def _every(requests: int, every_s: float) -> tuple[float, ...]:
    if requests < 1 or not (isfinite(every_s) and every_s >= 0):
        raise FundoscopeError(
            f"{requests} requests, one every {every_s:g} s, cannot be sent", "use 1 or more, 0 s or more"
        )
    return tuple(i * every_s for i in range(requests))
