"""One option's month: simulated once as measured, and how to say what it would be with other latencies.

A percentile counts a refused request as one that is never answered, and is withheld where the measured readings cannot
say it: at least one reading has to lie beyond it. With other latencies, cold and refused shares stay those simulated; a
serverless month then follows in closed form. Instances, as many as before (a scaling target is set once), are simulated
again over a stretch of the month, and the month is changed in proportion.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil, inf, isinf
from typing import Literal

import numpy as np

from fundoscope.analysis.options import Batch, Billed, Latency, Option, RealTime, Serverless
from fundoscope.analysis.prices import GB, PriceList
from fundoscope.analysis.simulate import Fleet, Floats, Simulated, fleet_of, simulate
from fundoscope.analysis.traffic import DAY_S, DAYS, Traffic
from fundoscope.errors import FundoscopeError

STRETCH = 3000  # requests
QUANTILES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}
Statistic = Literal["mean", "p50", "p90", "p95", "p99"]
REQUESTS_AT_MOST = 2_000_000  # more than that in a month: a week is simulated, or a day
A_DAY_AT_MOST = 10_000_000  # which is several times the most populous country's


@dataclass(frozen=True)
class ProvisionedPrice:
    """Of containers kept ready: no list has it, so whoever knows it gives it."""

    usd_per_gb_second_ready: float
    usd_per_gb_second_busy: float


@dataclass(frozen=True)
class Estimate:
    """One option's month."""

    name: str
    option: Option
    usd: float | None  # None: a price is not known
    requests: float
    latency_s: Mapping[str, float | None]  # by statistic; None: withheld; infinite: never answered
    cold_share: float
    refused_share: float
    unfinished: int
    billed: Billed
    why_not: str  # empty: it may be advised

    @property
    def usd_per_thousand(self) -> float | None:
        return None if self.usd is None or not self.requests else 1000 * self.usd / self.requests


@dataclass(frozen=True)
class Tariff:
    prices: PriceList
    provisioned: ProvisionedPrice | None = None

    def usd(self, option: Option, billed: Billed) -> float | None:
        """None: the list lacks what it takes; an instance or a memory size that the list lacks is an error."""
        prices = self.prices
        usd = (prices.serverless.usd_per_gb_moved if prices.serverless else 0.0) * billed.moved_bytes / GB
        if not isinstance(option, Serverless):
            return usd + prices.instance(option.instance).usd(up_s=billed.instance_s)
        if prices.serverless is None:
            return None
        memory_gb = option.memory_mb / 1024
        if memory_gb not in prices.serverless.memory_gb:
            sizes = ", ".join(str(1024 * size) for size in prices.serverless.memory_gb)
            raise FundoscopeError(f"{prices.name} has no price for {option.memory_mb} MB", f"use one of {sizes}")
        usd += prices.serverless.usd_per_gb_second * memory_gb * billed.processing_ms / 1000
        if not option.provisioned_concurrency:
            return usd
        if self.provisioned is None:
            return None
        ready = self.provisioned.usd_per_gb_second_ready * billed.ready_s
        return usd + memory_gb * (ready + self.provisioned.usd_per_gb_second_busy * billed.provisioned_ms / 1000)


@dataclass(frozen=True)
class Month:
    """What is the same for all options."""

    days: int  # that are simulated
    arrivals: Floats
    stretch: Floats  # some of them, for what has to be simulated often
    per_request: float  # a month's requests for each that is simulated
    tariff: Tariff
    seed: int

    @staticmethod
    def of(traffic: Traffic, tariff: Tariff, seed: int) -> "Month":
        days = next((days for days in (DAYS, 7) if traffic.expected(days=days) <= REQUESTS_AT_MOST), 1)
        if traffic.expected(days=1) > A_DAY_AT_MOST:
            problem = f"{traffic.expected(days=1):,.0f} requests a day are more than are simulated"
            raise FundoscopeError(problem, f"ask for a part of them, at most {A_DAY_AT_MOST:,} a day")
        arrivals = traffic.arrivals(seed, days=days)
        if not len(arrivals):
            raise FundoscopeError(f"nothing arrives in a month of {traffic.name}", "give more traffic")
        middle = max(0, (len(arrivals) - STRETCH) // 2)
        stretch = arrivals[middle : middle + STRETCH]
        stretch = stretch - DAY_S * np.floor(stretch[0] / DAY_S)  # whole days: the night stays where it was
        return Month(days, arrivals, stretch, traffic.expected() / traffic.expected(days=days), tariff, seed)

    def whole(self, option: Option, billed: Billed) -> Billed:
        """Instances stand on all days, requests come on working days: a week is not the same part of both."""
        per_day = DAYS / self.days
        return Billed(
            billed.processing_ms * self.per_request,
            billed.moved_bytes * self.per_request,
            billed.instance_s * (self.per_request if isinstance(option, Batch) else per_day),
            billed.ready_s * per_day,
            billed.provisioned_ms * self.per_request,
        )


@dataclass(frozen=True)
class Case:
    """An option with its simulated month, and how to say what it would be with other latencies."""

    option: Option
    latency: Latency
    month: Month
    run: Simulated  # without its latencies, of which `known` says enough
    known: Mapping[str, float | None]
    billed: Billed  # of the whole month
    usd: float | None
    fleet: Fleet | None  # of the stretch
    stretched: tuple[Billed, Mapping[str, float | None]] | None  # the stretch as measured; None: not needed

    @staticmethod
    def of(option: Option, latency: Latency, month: Month) -> "Case":
        run = simulate(option, latency, month.arrivals, seed=month.seed, horizon_s=month.days * DAY_S)
        billed, known = month.whole(option, run.billed), statistics_of(option, latency, run)
        fleet = stretched = None
        if isinstance(option, RealTime):
            fleet = fleet_of(option, latency, month.stretch, float(month.stretch[-1]))
        if not isinstance(option, Serverless):
            short = simulate(option, latency, month.stretch, seed=month.seed, fleet=fleet)
            stretched = short.billed, statistics_of(option, latency, short)
        usd, bare = month.tariff.usd(option, billed), replace(run, latency_s=np.empty(0))
        return Case(option, latency, month, bare, known, billed, usd, fleet, stretched)

    def price(self, billed: Billed) -> float | None:
        return self.month.tariff.usd(self.option, billed)

    @property
    def refused_share(self) -> float:
        return self.run.refused / self.run.requests

    def estimate(self, why_not: str) -> Estimate:
        return Estimate(
            self.option.name,
            self.option,
            self.usd,
            self.run.requests * self.month.per_request,
            self.known,
            self.run.cold / self.run.requests,
            self.refused_share,
            self.run.unfinished,
            self.billed,
            why_not,
        )

    def with_latency(self, latency: Latency, statistic: Statistic) -> tuple[float, float | None]:
        """Dollars and the statistic, had these been the latencies."""
        if isinstance(self.option, Serverless):
            usd = self.price(self._reckoned(latency))
            value = statistics_of(self.option, latency, self.run)[statistic]
        else:
            assert self.stretched is not None
            billed, now = self.stretched
            then = simulate(self.option, latency, self.month.stretch, seed=self.month.seed, fleet=self.fleet)
            usd = self.price(_in_proportion(self.billed, billed, then.billed))
            value = _in_ratio(
                self.known[statistic],
                now[statistic],
                statistics_of(self.option, latency, then)[statistic],
            )
        return (inf if usd is None else usd), value

    def _reckoned(self, latency: Latency) -> Billed:
        """The month's counts by other milliseconds."""
        by_ready, cold = self.run.by_ready, self.run.cold
        warm = self.run.requests - self.run.refused - cold - by_ready
        (warm_ms, cold_ms), (before_warm_ms, before_cold_ms) = _mean_ms(latency), _mean_ms(self.latency)
        before = warm * before_warm_ms + cold * before_cold_ms
        return replace(
            self.billed,
            processing_ms=self.billed.processing_ms * (warm * warm_ms + cold * cold_ms) / before if before else 0.0,
            provisioned_ms=self.billed.provisioned_ms * warm_ms / before_warm_ms,
        )


def _mean_ms(latency: Latency) -> tuple[float, float]:
    warm, cold = latency.billed_ms
    return float(warm.mean()), float(cold.mean()) if len(cold) else 0.0


def _in_proportion(month: Billed, now: Billed, then: Billed) -> Billed:
    more = then.instance_s / now.instance_s if now.instance_s else 1.0
    return Billed(moved_bytes=month.moved_bytes, instance_s=month.instance_s * more)


def _in_ratio(month: float | None, now: float | None, then: float | None) -> float | None:
    if month is None or now is None or then is None:
        return None
    return month if isinf(now) or isinf(month) or isinf(then) else month * then / now


def statistics_of(option: Option, latency: Latency, run: Simulated) -> dict[str, float | None]:
    """Mean of the answered, and percentiles of all; None: the readings cannot say it."""
    return _of_mixture(latency, run) if isinstance(option, Serverless) else _of_queue(latency, run)


def _of_mixture(latency: Latency, run: Simulated) -> dict[str, float | None]:
    """Without queues a latency is a reading: warm and cold ones in the simulated shares, no need to draw any."""
    requests, cold = run.requests, run.cold
    warm = requests - run.refused - cold
    values = np.concatenate([np.sort(latency.warm_s), np.sort(latency.cold_s)])
    n_warm, n_cold = len(latency.warm_s), len(latency.cold_s)
    weights = np.repeat([warm / n_warm, cold / max(n_cold, 1)], [n_warm, n_cold]) / requests
    largest = np.zeros(len(values), np.bool_)
    largest[[n_warm - 1, -1]] = True  # nothing of its kind lies beyond
    order = np.argsort(values, kind="stable")
    up_to = np.cumsum(weights[order])
    answered = warm + cold
    found: dict[str, float | None] = {"mean": float(values @ weights) * requests / answered if answered else inf}
    for name, p in QUANTILES.items():
        place = int(np.searchsorted(up_to, p - 1e-9))
        if place >= len(values):
            found[name] = inf
        else:
            found[name] = None if largest[order[place]] else float(values[order[place]])
    return found


def _of_queue(latency: Latency, run: Simulated) -> dict[str, float | None]:
    n = run.requests
    answered = run.latency_s[np.isfinite(run.latency_s)] if run.refused else run.latency_s
    found: dict[str, float | None] = {"mean": float(answered.mean()) if len(answered) else inf}
    places = [max(0, ceil(p * n - 1e-9) - 1) for p in QUANTILES.values()]
    parted = np.partition(run.latency_s, places)
    for (name, p), place in zip(QUANTILES.items(), places, strict=True):
        enough = len(latency.warm_s) * (1 - p) >= 1 - 1e-9
        found[name] = float(parted[place]) if enough or isinf(parted[place]) else None
    return found
