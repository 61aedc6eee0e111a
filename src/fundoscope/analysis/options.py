"""The ways to serve that advice chooses among, and what has to be known of each.

Serverless containers, instances behind an endpoint (fixed, scaled with the load, or given up while idle), and instances
that work off a day's photographs at night. What is measured comes in a `Latency`; what no provider documents is a
field with a default here, and is said to be an assumption:

    idle_s         a serverless container is given back after so long without a request. SageMaker documents nothing
                   (sagemaker-python-sdk#3446); requests 15 minutes apart were cold in the thesis, 5 s apart warm
    start_s        from ordering an instance until it answers: "several minutes" (SageMaker, scaling to zero)
    Autoscaling    target tracking (Application Auto Scaling) of invocations per instance and minute, seen every 60 s;
                   out when above the target three times running, in when below 0.9 of it fifteen times running;
                   300 s between two changes

How many of each a traffic takes is reckoned in ways.py.
"""

from dataclasses import dataclass
from math import isfinite
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fundoscope.deploy import endpoint
from fundoscope.errors import FundoscopeError

Floats = NDArray[np.float64]

IDLE_S = 600.0
START_S = 300.0
SAFETY = 0.5  # of what an instance can do: half of it is its target, as AWS advises until measured otherwise


@dataclass(frozen=True)
class Latency:
    """What was measured of one option: seconds, one reading per request, as the caller saw them.

    `cold_s` is of requests that had to wait for a container: start, load and prediction together. A provider bills the
    processing alone; where that was measured too, it goes into `*_billed_s`, reading by reading.
    """

    warm_s: tuple[float, ...]
    cold_s: tuple[float, ...] = ()
    bytes_in: int = 0
    bytes_out: int = 0
    warm_billed_s: tuple[float, ...] = ()  # empty: as long as the caller waited
    cold_billed_s: tuple[float, ...] = ()
    warm_trials: tuple[int, ...] = ()  # how many of the readings each trial gave, in order; empty: all one trial
    cold_trials: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.warm_s:
            raise FundoscopeError("there are no warm latencies", "measure some, with a schedule 'warm' or 'real-time'")
        for name in ("warm_s", "cold_s", "warm_billed_s", "cold_billed_s"):
            if not all(isfinite(value) and value > 0 for value in getattr(self, name)):
                raise FundoscopeError(f"a reading of {name} is not above 0", "leave failed requests out")
        for name in ("warm", "cold"):
            billed = getattr(self, f"{name}_billed_s")
            if billed and len(billed) != len(getattr(self, f"{name}_s")):
                raise FundoscopeError(f"{name}_billed_s and {name}_s differ in length", "give both of each request")
            trials = getattr(self, f"{name}_trials")
            if trials and sum(trials) != len(getattr(self, f"{name}_s")):
                raise FundoscopeError(f"{name}_trials and {name}_s differ in length", "count each reading once")

    @property
    def mean_warm_s(self) -> float:
        return float(np.mean(self.warm_s))

    @property
    def billed_ms(self) -> tuple[Floats, Floats]:
        """Warm and cold, each request rounded up to a whole millisecond."""
        warm, cold = self.warm_billed_s or self.warm_s, self.cold_billed_s or self.cold_s
        return whole_ms(np.asarray(warm)), whole_ms(np.asarray(cold, np.float64))

    def resampled(self, draw: np.random.Generator) -> "Latency":
        """Trials drawn from the trials, then readings from each one's, with replacement: Efron's bootstrap, twice.

        Readings of one trial share a container and an hour, and say less than as many that do not.
        """
        warm = _drawn(len(self.warm_s), self.warm_trials, draw)
        cold = _drawn(len(self.cold_s), self.cold_trials, draw)
        return Latency(
            _taken(self.warm_s, warm),
            _taken(self.cold_s, cold),
            self.bytes_in,
            self.bytes_out,
            _taken(self.warm_billed_s, warm),
            _taken(self.cold_billed_s, cold),
        )

    def times(self, factor: float) -> "Latency":
        parts = (self.warm_s, self.cold_s, self.warm_billed_s, self.cold_billed_s)
        warm, cold, warm_billed, cold_billed = (tuple(factor * value for value in part) for part in parts)
        return Latency(warm, cold, self.bytes_in, self.bytes_out, warm_billed, cold_billed)


def _drawn(n: int, trials: tuple[int, ...], draw: np.random.Generator) -> list[int]:
    """Places of readings."""
    if n == 0:
        return []
    sizes = np.asarray(trials or (n,))
    first = np.cumsum(sizes) - sizes
    found: list[int] = []
    for trial in draw.integers(0, len(sizes), len(sizes)).tolist() if len(sizes) > 1 else [0]:
        found += (first[trial] + draw.integers(0, sizes[trial], sizes[trial])).tolist()
    return found


def _taken(values: tuple[float, ...], places: list[int]) -> tuple[float, ...]:
    return tuple(values[place] for place in places) if values else ()


def whole_ms(seconds: Floats) -> Floats:
    """Rounded up; a nanosecond over, which is what binary fractions leave of 0.3 s, is not a millisecond more."""
    return np.ceil(seconds * 1000 - 1e-6)


@dataclass(frozen=True)
class Serverless(endpoint.Serverless):
    """What is deployed, with what has to be assumed of it."""

    max_concurrency: int = 20
    idle_s: float = IDLE_S
    artefact: str = ""

    @property
    def name(self) -> str:
        ready = f", {self.provisioned_concurrency} kept ready" if self.provisioned_concurrency else ""
        return _of(self.artefact, f"serverless {self.memory_mb} MB, {self.max_concurrency} at once{ready}")

    @property
    def price_of(self) -> str:
        return "provisioned concurrency" if self.provisioned_concurrency else "serverless"


@dataclass(frozen=True)
class Autoscaling:
    """Target tracking; `per_minute` None: half of what an instance can do, by its mean latency."""

    most: int
    per_minute: float | None = None
    period_s: float = 60.0
    out_after: int = 3
    in_after: int = 15
    in_below: float = 0.9
    cooldown_s: float = 300.0


@dataclass(frozen=True)
class RealTime:
    """`count` instances, each answering `workers` requests at once; with autoscaling, `count` is the least."""

    instance: str
    count: int = 1
    autoscaling: Autoscaling | None = None
    scale_to_zero: bool = False
    workers: int = 1
    start_s: float = START_S
    zero_after_s: float = 900.0  # without a request
    artefact: str = ""

    def __post_init__(self) -> None:
        if min(self.count, self.workers) < 1:
            raise FundoscopeError(f"{self.count} × {self.instance} with {self.workers} workers serves nobody", "use 1")
        if self.autoscaling is not None and self.autoscaling.most < self.count:
            problem = f"{self.instance} cannot scale from {self.count} to {self.autoscaling.most}"
            raise FundoscopeError(problem, "let the most be at least the count")

    @property
    def most(self) -> int:
        return self.autoscaling.most if self.autoscaling else self.count

    @property
    def name(self) -> str:
        least = 0 if self.scale_to_zero else self.count
        number = f"{least} to {self.most}" if least != self.most else f"{least}"
        return _of(self.artefact, f"{number} × {self.instance}")

    @property
    def price_of(self) -> str:
        return self.instance

    def target_per_minute(self, latency: Latency) -> float:
        said = self.autoscaling.per_minute if self.autoscaling else None
        return said or SAFETY * 60 * self.workers / latency.mean_warm_s

    def to_deploy(self, latency: Latency) -> endpoint.RealTime:
        """What `fundoscope deploy` is asked for; it cannot scale to zero."""
        scaling = None
        if self.autoscaling:
            per_minute = max(1, int(self.target_per_minute(latency)))
            scaling = endpoint.Autoscaling(self.count, self.autoscaling.most, per_minute)
        return endpoint.RealTime(self.instance, self.count, scaling)


@dataclass(frozen=True)
class Batch:
    """Every night at `hour`, if photographs have come since the night before."""

    instance: str
    hour: float = 22.0
    count: int = 1
    workers: int = 1
    start_s: float = START_S
    artefact: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.hour < 24:
            raise FundoscopeError(f"{self.hour:g} is no hour of the day", "use 0 to 23")
        if min(self.count, self.workers) < 1:
            raise FundoscopeError(f"{self.count} × {self.instance} with {self.workers} workers serves nobody", "use 1")

    @property
    def name(self) -> str:
        number = f"{self.count} × " if self.count > 1 else ""
        return _of(self.artefact, f"nightly at {self.hour:g} h on {number}{self.instance}")

    @property
    def price_of(self) -> str:
        return self.instance


Option: TypeAlias = Serverless | RealTime | Batch


def _of(artefact: str, name: str) -> str:
    return f"{artefact}: {name}" if artefact else name


@dataclass(frozen=True)
class Billed:
    """What a bill is made of, of whatever option; what an option is not billed for stays 0."""

    processing_ms: float = 0.0  # serverless, each request rounded up
    moved_bytes: float = 0.0
    instance_s: float = 0.0
    ready_s: float = 0.0  # of provisioned containers, busy or not
    provisioned_ms: float = 0.0  # processing by provisioned containers, which has a price of its own

    def __add__(self, other: "Billed") -> "Billed":
        return Billed(*(a + b for a, b in zip(_values(self), _values(other), strict=True)))

    def times(self, factor: float) -> "Billed":
        return Billed(*(factor * value for value in _values(self)))


def _values(billed: Billed) -> tuple[float, ...]:
    return (billed.processing_ms, billed.moved_bytes, billed.instance_s, billed.ready_s, billed.provisioned_ms)
