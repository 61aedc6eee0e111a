"""When requests are sent. Moments are in seconds after the start.

    warm, cold, real-time   the thesis's three: one caller, who waits for an answer before the next request
    poisson, trace          as many callers as there are: nobody waits for anybody (an open loop)

In an open loop latency is counted from the scheduled moment, not from when a client got round to sending: a server that
stalls must not be spared the requests that would have come meanwhile.
"""

import csv
from dataclasses import dataclass
from datetime import datetime
from math import isfinite
from pathlib import Path
from random import Random

from fundoscope.errors import FundoscopeError

REQUESTS_AT_MOST = 100_000  # of one trial


@dataclass(frozen=True)
class Schedule:
    name: str
    at_s: tuple[float, ...]  # of the requests that count, in order
    uncounted: int = 0  # sent before them, one after the other, to warm the endpoint
    cold: bool = False  # each must find a container that was not there before
    open: bool = False  # sent at their moments, whether or not those before have been answered


def warm(requests: int = 25, every_s: float = 5.0) -> Schedule:
    """The thesis's: one uncounted, then 25, five seconds apart."""
    return Schedule("warm", _every(requests, every_s), uncounted=1)


def cold(requests: int = 10, every_s: float = 900.0) -> Schedule:
    """The thesis's: ten, a quarter of an hour apart, which is when containers have been given back."""
    return Schedule("cold", _every(requests, every_s), cold=True)


def real_time(requests: int = 25, every_s: float = 5.0) -> Schedule:
    """The thesis's for instances, which are always up: this one has been asked before, too."""
    return Schedule("real-time", _every(requests, every_s), uncounted=1)


def poisson(requests: int, rate_per_s: float, seed: int) -> Schedule:
    """Independent callers: exponential gaps."""
    if not 1 <= requests <= REQUESTS_AT_MOST or not (isfinite(rate_per_s) and rate_per_s > 0):
        hint = f"use 1 to {REQUESTS_AT_MOST:,} requests, and a rate above 0"
        raise FundoscopeError(f"{requests} requests at {rate_per_s:g} a second cannot be sent", hint)
    draw, at_s, moments = Random(seed), 0.0, []
    for _ in range(requests):
        at_s += draw.expovariate(rate_per_s)
        moments.append(at_s)
    return Schedule("poisson", tuple(moments), uncounted=1, open=True)


def trace(path: Path, *, faster: float = 1.0) -> Schedule:
    """Recorded moments: a CSV file whose column `time` has one row for each request, as days and times or in seconds.

    `faster`: so many times as fast as it was recorded.
    """
    if not (isfinite(faster) and faster > 0):
        raise FundoscopeError(f"a trace cannot be sent {faster:g} times as fast", "use a number above 0")
    moments = sorted(_moments(path))
    first = moments[0]
    return Schedule("trace", tuple((at_s - first) / faster for at_s in moments), uncounted=1, open=True)


def _moments(path: Path) -> list[float]:
    hint = "give a CSV file with a column `time`: 2026-03-02T08:00:13, or seconds"
    try:
        with path.open(newline="", encoding="utf-8") as file:
            found = []
            for row in csv.DictReader(file):
                found.append(_moment(row["time"]))
                if len(found) > REQUESTS_AT_MOST:
                    raise FundoscopeError(f"{path} has more than {REQUESTS_AT_MOST:,} requests", "cut it")
    except OSError as problem:
        raise FundoscopeError(f"{path} cannot be read: {problem.strerror}", hint) from None
    except (KeyError, ValueError, TypeError, csv.Error):
        raise FundoscopeError(f"{path} is no trace of requests", hint) from None
    if not found:
        raise FundoscopeError(f"{path} has no requests", hint)
    return found


def _moment(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = datetime.fromisoformat(text).timestamp()
    if not isfinite(seconds):
        raise ValueError(text)
    return seconds


def _every(requests: int, every_s: float) -> tuple[float, ...]:
    if not 1 <= requests <= REQUESTS_AT_MOST or not (isfinite(every_s) and every_s >= 0):
        hint = f"use 1 to {REQUESTS_AT_MOST:,}, 0 s or more"
        raise FundoscopeError(f"{requests} requests, one every {every_s:g} s, cannot be sent", hint)
    return tuple(i * every_s for i in range(requests))
