"""Every way to serve what was measured, in the numbers that the traffic takes; and each one's limits in words.

serverless   as many requests at once as the busiest time needs even if all of them were cold, and at least 5: a limit
             costs nothing, but above it requests are refused
kept ready   so many containers as are busy on average at the busiest time
instances    fixed: so many that the busiest time takes four fifths of them, or half, as AWS advises until measured
             otherwise; with autoscaling from one, up to twice the latter; to zero while nobody asks
at night     so many that a day's photographs take eight hours
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil, isfinite

from fundoscope.analysis.measured_ways import Cannot, MeasuredWays, Place
from fundoscope.analysis.options import (
    IDLE_S,
    SAFETY,
    START_S,
    Autoscaling,
    Batch,
    Latency,
    Option,
    RealTime,
    Serverless,
)
from fundoscope.analysis.prices import PriceList
from fundoscope.analysis.queueing import erlang_b
from fundoscope.analysis.traffic import HOUR_S, Traffic
from fundoscope.deploy.endpoint import CONCURRENCY, COUNT, MEMORY_MB
from fundoscope.errors import FundoscopeError

BUSY = 0.8  # of fixed instances, at most
NIGHT_S = 8 * HOUR_S
LEAST_AT_ONCE = 5
TURNED_AWAY = 1e-3  # at the busiest time, at most
MB = 2**20
PAYLOAD_MB = {"serverless": 4, "real-time": 25}  # SageMaker, "invoke a serverless endpoint" and hosting FAQ


@dataclass(frozen=True)
class Assumed:
    """What no measurement and no provider says; every one of them can be given."""

    idle_s: float = IDLE_S
    start_s: float = START_S
    zero_after_s: float = 900.0
    night_hour: float = 22.0
    workers: int = 1
    max_concurrency: int | None = None  # None: as the traffic needs
    ready: int | None = None
    most: int | None = None

    def __post_init__(self) -> None:
        for name in ("idle_s", "start_s", "zero_after_s"):
            value = getattr(self, name)
            if not (isfinite(value) and value >= 0):
                raise FundoscopeError(f"{name} cannot be {value:g}", "give seconds, 0 or more")
        for name, known in {
            "workers": COUNT,
            "max_concurrency": CONCURRENCY,
            "ready": CONCURRENCY,
            "most": COUNT,
        }.items():
            value = getattr(self, name)
            if value is not None and value not in known:
                raise FundoscopeError(f"{name} cannot be {value}", f"use {known[0]} to {known[-1]}")


@dataclass(frozen=True)
class Ways:
    options: tuple[Option, ...]
    latencies: Mapping[str, Latency]  # by an option's name
    cannot: tuple[Cannot, ...]


def ways_to_serve(measured: MeasuredWays, traffic: Traffic, prices: PriceList, assumed: Assumed) -> Ways:
    found: dict[Option, Latency] = {}
    cannot = list(measured.cannot)
    for place, latency in measured.places.items():
        if why := _why_not(place, latency, prices):
            cannot.append(Cannot(place.name, why))
        else:
            make = _serverless if place.memory_mb else _rented
            found |= dict.fromkeys(make(place, latency, traffic, assumed), latency)
    if not found:
        first = f"{cannot[0].name}: {cannot[0].reason}" + (f"; and {len(cannot) - 1} more" if cannot[1:] else "")
        raise FundoscopeError(f"no way to serve that was measured can be had ({first})", "give --study another too")
    return Ways(tuple(found), {option.name: latency for option, latency in found.items()}, tuple(cannot))


def _why_not(place: Place, latency: Latency, prices: PriceList) -> str:
    most_mb = PAYLOAD_MB["serverless" if place.memory_mb else "real-time"]
    if latency.bytes_in > most_mb * MB:
        return f"a photograph has {latency.bytes_in / MB:.1f} MB, and a request may have {most_mb}"
    if place.memory_mb:
        if place.memory_mb not in MEMORY_MB:
            return f"serverless endpoints have no size of {place.memory_mb} MB"
        if prices.serverless and place.memory_mb / 1024 not in prices.serverless.memory_gb:
            return f"{prices.name} has no price for {place.memory_mb} MB"
    elif place.instance not in prices.instances:
        return f"{prices.name} has no price for {place.instance}"
    return ""


def at_once(rate_per_s: float, service_s: float) -> int:
    """The fewest containers of which hardly any request finds all busy: Erlang B. Not more than can be asked for."""
    for n in CONCURRENCY:
        if erlang_b(n, rate_per_s * service_s) <= TURNED_AWAY:
            return max(n, LEAST_AT_ONCE)
    return CONCURRENCY[-1]


def _serverless(place: Place, latency: Latency, traffic: Traffic, assumed: Assumed) -> Iterator[Option]:
    peak = traffic.peak_per_s
    cold_s = sum(latency.cold_s) / len(latency.cold_s)
    most = assumed.max_concurrency or at_once(peak, max(cold_s, latency.mean_warm_s))
    ready = min(most, assumed.ready or max(1, ceil(peak * latency.mean_warm_s)))
    for kept in (0, ready):
        yield Serverless(place.memory_mb, most, kept, assumed.idle_s, place.artefact)


def _rented(place: Place, latency: Latency, traffic: Traffic, assumed: Assumed) -> Iterator[Option]:
    workers, start_s, artefact = assumed.workers, assumed.start_s, place.artefact
    needed = traffic.peak_per_s * latency.mean_warm_s / workers
    few, half = (min(COUNT[-1], max(1, ceil(needed / share))) for share in (BUSY, SAFETY))
    for count in sorted({few, half}):
        yield RealTime(place.instance, count, workers=workers, start_s=start_s, artefact=artefact)
    scaled = Autoscaling(min(COUNT[-1], assumed.most or max(2, 2 * half)))
    for to_zero in (False, True):
        yield RealTime(place.instance, 1, scaled, to_zero, workers, start_s, assumed.zero_after_s, artefact)
    daily_s = traffic.expected() / max(1, traffic.open_days) * latency.mean_warm_s / workers
    count = min(COUNT[-1], max(1, ceil(daily_s / NIGHT_S)))
    yield Batch(place.instance, assumed.night_hour, count, workers, start_s, artefact)


def kind_of(option: Option) -> str:
    if isinstance(option, Serverless):
        return "kept ready" if option.provisioned_concurrency else "serverless"
    if isinstance(option, Batch):
        return "at night"
    if option.scale_to_zero:
        return "to zero"
    return "autoscaled" if option.autoscaling else "fixed"


def takes(option: Option) -> str:
    """The machines or the concurrency that it takes."""
    if isinstance(option, Serverless):
        kept = f", {option.provisioned_concurrency} kept ready" if option.provisioned_concurrency else ""
        return f"{option.max_concurrency} at once{kept}"
    if isinstance(option, Batch):
        return f"{option.count} × {option.instance} at night"
    least = 0 if option.scale_to_zero else option.count
    return f"{least} to {option.most} × {option.instance}" if least != option.most else f"{least} × {option.instance}"


def limit(option: Option, latency: Latency) -> str:
    """What it cannot do, with its numbers."""
    if isinstance(option, Serverless):
        n = option.max_concurrency
        most = "the most there is" if n == CONCURRENCY[-1] else f"{CONCURRENCY[-1]} is the most there is"
        return f"more than {n} at once ({most}) are refused: about {n / latency.mean_warm_s:,.3g} a second"
    if isinstance(option, Batch):
        return f"no answer before {option.hour:g} h"
    if option.scale_to_zero:
        return f"requests fail while the first machine starts, {option.start_s / 60:g} minutes"
    rate = option.most * option.workers / latency.mean_warm_s
    late = f"; another machine takes {option.start_s / 60:g} minutes" if option.autoscaling else ""
    return f"more than {rate:,.3g} a second wait without end{late}"
