"""Traffic, measurements and prices to advice: the cheapest way to serve that meets the objective, and how sure that is.

Every option is simulated on the same arrivals. A percentile counts a refused request as one that is never answered, and
is withheld where the measured readings cannot say it: at least one reading has to lie beyond it. An option that
refuses more than one request in a hundred, whose artefact failed its guard, or whose price is not known is listed with
that reason and never advised.

How sure: the measured latencies are resampled (bootstrap), the arrivals stay. Cold and refused shares are those
simulated; a serverless month then follows in closed form. Instances, as many as before (a scaling target is set once),
are simulated again over a stretch of the month, and the month is changed in proportion. The same way says by how much
latencies would have to change for other advice.

This module is longer than most because its parts are only of use to each other.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil, exp, inf, isinf, log
from typing import Any, Literal

import numpy as np

from fundoscope.analysis.options import Batch, Billed, Latency, Option, RealTime, Serverless
from fundoscope.analysis.prices import GB, PriceList
from fundoscope.analysis.queueing import cold_share, expected
from fundoscope.analysis.simulate import Fleet, Floats, Simulated, fleet_of, simulate
from fundoscope.analysis.summaries import pareto
from fundoscope.analysis.traffic import DAY_S, DAYS, MONTH_S, Traffic
from fundoscope.errors import FundoscopeError

QUANTILES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}
Statistic = Literal["mean", "p50", "p90", "p95", "p99"]
REFUSED_AT_MOST = 0.01
REQUESTS_AT_MOST = 2_000_000  # more than that in a month: a week is simulated, or a day
RESAMPLES, STRETCH = 200, 3000
RATES_PER_S = (1e-6, 100.0)  # within which break-even is looked for: 3 to 260 million requests a month
CHANGE_AT_MOST = 16.0  # beyond which a change of latency is no news


@dataclass(frozen=True)
class Objective:
    statistic: Statistic
    seconds: float

    def __str__(self) -> str:
        return f"{self.statistic}<{self.seconds:g}s"


def parse_objective(text: str) -> Objective:
    found = re.fullmatch(r"\s*(mean|p50|p90|p95|p99)\s*<\s*(\d+(?:\.\d+)?)\s*(ms|s)\s*", text)
    seconds = float(found[2]) / (1000 if found[3] == "ms" else 1) if found else 0.0
    if not found or seconds <= 0:
        raise FundoscopeError(
            f"'{text}' is no objective", "write it as p95<2s or mean<300ms; p50, p90, p95, p99 and mean are known"
        )
    return Objective(found[1], seconds)  # type: ignore[arg-type]


@dataclass(frozen=True)
class ArtefactGuard:
    """Whether an artefact is as good as what it was made from; see artefact/guard.py."""

    passed: bool
    reason: str = ""


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
class BreakEven:
    """Below this rate the one is cheaper, above it the other, the shape of the day staying the same."""

    below: str
    above: str
    rate_per_s: float  # mean of the month
    how: Literal["closed form", "bisection"]
    keeps_up: bool  # whether both could serve the busiest hour of that

    @property
    def requests_per_month(self) -> float:
        return self.rate_per_s * MONTH_S


@dataclass(frozen=True)
class Certainty:
    """Shares of the resamples in which the advised option is so."""

    cheapest: float  # among those that meet the objective there
    meets: float
    both: float
    resamples: int


@dataclass(frozen=True)
class Flip:
    """The smallest change after which the advice would be `to`; None: nothing would be advised."""

    what: Literal["price", "latency"]
    of: str
    factor: float
    to: str | None


@dataclass(frozen=True)
class Advice:
    traffic: str
    mean_per_s: float
    peak_per_s: float
    objective: Objective
    prices: str
    simulated_days: int
    estimates: tuple[Estimate, ...]  # those that may be advised first, each part by dollars
    advised: str | None
    pareto: tuple[str, ...]  # of dollars and the objective's statistic
    break_evens: tuple[BreakEven, ...]  # between the advised and each other option
    certainty: Certainty | None
    flip: Flip | None

    def to_json(self) -> dict[str, Any]:
        """Infinite latencies, which JSON has not, as the text 'never'."""
        found = asdict(self)
        for row in found["estimates"]:
            row["kind"] = type(next(e.option for e in self.estimates if e.name == row["name"])).__name__
            known = {name: "never" if value == inf else value for name, value in row["latency_s"].items()}
            row["latency_s"] = known
        return found


def advise(
    traffic: Traffic,
    options: Sequence[Option],
    latencies: Mapping[str, Latency],
    prices: PriceList,
    objective: Objective,
    guard: Mapping[str, ArtefactGuard] | None = None,
    *,
    provisioned: ProvisionedPrice | None = None,
    seed: int = 0,
    resamples: int = RESAMPLES,
    refused_at_most: float = REFUSED_AT_MOST,
    progress: Callable[[str], None] = lambda _: None,
) -> Advice:
    """`latencies` by name of the option, `guard` by name of the artefact; `progress` hears each option's name."""
    terms = _Terms(objective, guard or {}, refused_at_most)
    _check(options, latencies, terms.guard)
    month = _Month.of(traffic, Tariff(prices, provisioned), seed)
    cases = {}
    for option in options:
        progress(option.name)
        cases[option.name] = _Case.of(option, latencies[option.name], month)
    estimates = [case.estimate(terms.why_not(case)) for case in cases.values()]
    # Of two that cost the same, the one that was listed first.
    ranked = sorted(estimates, key=lambda e: (bool(e.why_not), inf if e.usd is None else e.usd))
    best = cases[ranked[0].name] if not ranked[0].why_not else None
    open_cases = [cases[e.name] for e in ranked if not terms.closed(cases[e.name])]
    return Advice(
        traffic.name,
        traffic.mean_per_s,
        traffic.peak_per_s,
        objective,
        prices.name,
        month.days,
        tuple(ranked),
        best.option.name if best else None,
        tuple(pareto(_points(open_cases, objective))),
        _break_evens(best, open_cases, traffic) if best else (),
        _certainty(best, open_cases, objective, resamples, seed) if best else None,
        _flip(best, ranked, open_cases, objective) if best else None,
    )


def _points(cases: Sequence["_Case"], objective: Objective) -> dict[str, tuple[float, float]]:
    found = {case.option.name: (case.usd, case.known[objective.statistic]) for case in cases}
    return {name: (usd, value) for name, (usd, value) in found.items() if usd is not None and value is not None}


def _check(options: Sequence[Option], latencies: Mapping[str, Latency], guard: Mapping[str, ArtefactGuard]) -> None:
    if not options:
        raise FundoscopeError("there is no way to serve to choose among", "give at least one option")
    names = [option.name for option in options]
    for option in options:
        if names.count(option.name) > 1:
            raise FundoscopeError(f"'{option.name}' is listed more than once", "list each option once")
        if option.name not in latencies:
            raise FundoscopeError(f"nothing was measured of '{option.name}'", "measure it, or leave it out")
        if option.artefact and option.artefact not in guard:
            problem = f"nothing says whether the artefact '{option.artefact}' passed its guard"
            raise FundoscopeError(problem, "judge it with `fundoscope quantise` or `fundoscope export`")


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
class _Month:
    """What is the same for all options."""

    days: int  # that are simulated
    arrivals: Floats
    stretch: Floats  # some of them, for what has to be simulated often
    per_request: float  # a month's requests for each that is simulated
    tariff: Tariff
    seed: int

    @staticmethod
    def of(traffic: Traffic, tariff: Tariff, seed: int) -> "_Month":
        days = next((days for days in (DAYS, 7) if traffic.expected(days=days) <= REQUESTS_AT_MOST), 1)
        arrivals = traffic.arrivals(seed, days=days)
        if not len(arrivals):
            raise FundoscopeError(f"nothing arrives in a month of {traffic.name}", "give more traffic")
        middle = max(0, (len(arrivals) - STRETCH) // 2)
        stretch = arrivals[middle : middle + STRETCH]
        stretch = stretch - DAY_S * np.floor(stretch[0] / DAY_S)  # whole days: the night stays where it was
        return _Month(days, arrivals, stretch, traffic.expected() / traffic.expected(days=days), tariff, seed)

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
class _Case:
    """An option with its simulated month, and how to say what it would be with other latencies."""

    option: Option
    latency: Latency
    month: _Month
    run: Simulated  # without its latencies, of which `known` says enough
    known: Mapping[str, float | None]
    billed: Billed  # of the whole month
    usd: float | None
    fleet: Fleet | None  # of the stretch
    stretched: tuple[Billed, Mapping[str, float | None]] | None  # the stretch as measured; None: not needed

    @staticmethod
    def of(option: Option, latency: Latency, month: _Month) -> "_Case":
        run = simulate(option, latency, month.arrivals, seed=month.seed, horizon_s=month.days * DAY_S)
        billed, known = month.whole(option, run.billed), statistics_of(option, latency, run)
        fleet = stretched = None
        if isinstance(option, RealTime):
            fleet = fleet_of(option, latency, month.stretch, float(month.stretch[-1]))
        if not isinstance(option, Serverless):
            short = simulate(option, latency, month.stretch, seed=month.seed, fleet=fleet)
            stretched = short.billed, statistics_of(option, latency, short)
        usd, bare = month.tariff.usd(option, billed), replace(run, latency_s=np.empty(0))
        return _Case(option, latency, month, bare, known, billed, usd, fleet, stretched)

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


@dataclass(frozen=True)
class _Terms:
    """What an option has to keep to be advised."""

    objective: Objective
    guard: Mapping[str, ArtefactGuard]
    refused_at_most: float

    def closed(self, case: _Case) -> str:
        """Why no latency would make it advisable; empty: latency alone decides."""
        verdict = self.guard.get(case.option.artefact, ArtefactGuard(True))
        if not verdict.passed:
            return f"its artefact failed its guard: {verdict.reason}"
        if case.usd is None:
            return f"the price of {case.option.price_of} is not known"
        if case.refused_share > self.refused_at_most:
            return f"it refuses {100 * case.refused_share:.3g} % of the requests"
        return ""

    def why_not(self, case: _Case) -> str:
        if closed := self.closed(case):
            return closed
        statistic, value = self.objective.statistic, case.known[self.objective.statistic]
        if value is None:
            cold = f" and {len(case.latency.cold_s)} cold ones" if isinstance(case.option, Serverless) else ""
            return f"{len(case.latency.warm_s)} warm readings{cold} cannot say its {statistic}"
        if value >= self.objective.seconds:
            return f"its {statistic} is {'never' if isinf(value) else f'{value:.3g} s'}"
        return ""


def _best(found: Mapping[str, tuple[float, float | None]], objective: Objective) -> str | None:
    meeting = {name: usd for name, (usd, value) in found.items() if value is not None and value < objective.seconds}
    return min(meeting, key=meeting.__getitem__, default=None)


def _certainty(best: _Case, cases: Sequence[_Case], objective: Objective, resamples: int, seed: int) -> Certainty:
    draw = np.random.default_rng([seed, 11])
    meets = cheapest = both = 0
    for _ in range(resamples):
        drawn: dict[int, Latency] = {}  # options that share their measurements share what is drawn of them
        found = {}
        for case in cases:
            if id(case.latency) not in drawn:
                drawn[id(case.latency)] = case.latency.resampled(draw)
            found[case.option.name] = case.with_latency(drawn[id(case.latency)], objective.statistic)
        usd, value = found[best.option.name]
        others = [cost for name, (cost, other) in found.items()
                  if name != best.option.name and other is not None and other < objective.seconds]  # fmt: skip
        is_cheapest, does_meet = usd <= min(others, default=inf), value is not None and value < objective.seconds
        meets += does_meet
        cheapest += is_cheapest
        both += is_cheapest and does_meet
    total = max(resamples, 1)
    return Certainty(cheapest / total, meets / total, both / total, resamples)


def _flip(best: _Case, ranked: Sequence[Estimate], cases: Sequence[_Case], objective: Objective) -> Flip | None:
    """Of all changes of one price or of one option's latencies the nearest to none, by ratio."""
    changes = [_by_price(best, ranked)]
    now = {case.option.name: case.with_latency(case.latency, objective.statistic) for case in cases}
    for case in cases:
        changes.append(_by_latency(case, case is best, now, objective))
    found = [change for change in changes if change is not None]
    return min(found, key=lambda change: abs(log(change.factor)), default=None)


def _by_price(best: _Case, ranked: Sequence[Estimate]) -> Flip | None:
    """The advised option's price rises; options under the same price rise with it."""
    others = [e for e in ranked if not e.why_not and e.option.price_of != best.option.price_of and e.usd]
    if not others or not best.usd:
        return None
    second = others[0]
    assert second.usd is not None
    return Flip("price", best.option.price_of, second.usd / best.usd, second.name)


def _by_latency(
    case: _Case, advised: bool, now: Mapping[str, tuple[float, float | None]], objective: Objective
) -> Flip | None:
    """The advised option grows slower until another is, or another grows faster until it is."""
    name = case.option.name
    before = _best(now, objective)

    def after(factor: float) -> str | None:
        return _best({**now, name: case.with_latency(case.latency.times(factor), objective.statistic)}, objective)

    low, high = 0.0, log(CHANGE_AT_MOST) * (1 if advised else -1)
    if after(exp(high)) == before:
        return None
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (middle, high) if after(exp(middle)) == before else (low, middle)
    return Flip("latency", name, exp(high), after(exp(high)))


def _break_evens(best: _Case, cases: Sequence[_Case], traffic: Traffic) -> tuple[BreakEven, ...]:
    found: list[BreakEven] = []
    for other in cases:
        if other is not best:
            found += break_evens(best, other, traffic)
    return tuple(sorted(found, key=lambda each: each.rate_per_s))


def break_evens(one: _Case, other: _Case, traffic: Traffic) -> list[BreakEven]:
    """Rates at which a month of both costs the same, on average (`queueing.expected`)."""
    direct = _closed_form(one, other, traffic) or _closed_form(other, one, traffic)
    if direct is not None:
        return [direct]

    def difference(log_factor: float) -> float:
        scaled = traffic.scaled(exp(log_factor))
        a, b = (case.price(expected(case.option, case.latency, scaled)) for case in (one, other))
        return (a or 0.0) - (b or 0.0)

    grid = [log(rate / traffic.mean_per_s) for rate in np.geomspace(*RATES_PER_S, 33).tolist()]
    values = [difference(x) for x in grid]
    found: list[BreakEven] = []
    for low, high, at_low, at_high in zip(grid, grid[1:], values, values[1:], strict=False):
        if (at_low < 0) == (at_high < 0) or at_low == at_high:
            continue
        for _ in range(20):
            middle = (low + high) / 2
            low, high = (middle, high) if (difference(middle) < 0) == (at_low < 0) else (low, middle)
        below, above = (one, other) if at_low < 0 else (other, one)
        each = _break_even(below, above, exp(high), traffic, "bisection")
        if each.keeps_up or not found:  # a pool that turns requests away grows cheaper again, which helps nobody
            found.append(each)
    return found


def _closed_form(pool: _Case, fixed: _Case, traffic: Traffic) -> BreakEven | None:
    """Dollars per request against dollars per month, where hardly any request is cold or refused; else None."""
    if not (isinstance(pool.option, Serverless) and isinstance(fixed.option, RealTime)):
        return None
    if fixed.option.autoscaling or fixed.option.scale_to_zero or pool.option.provisioned_concurrency:
        return None
    warm_ms = float(pool.latency.billed_ms[0].mean())
    bytes_each = pool.latency.bytes_in + pool.latency.bytes_out
    each = pool.price(Billed(processing_ms=warm_ms, moved_bytes=bytes_each))
    moved = fixed.price(Billed(moved_bytes=fixed.latency.bytes_in + fixed.latency.bytes_out))
    rent = fixed.price(Billed(instance_s=fixed.option.count * MONTH_S))
    if each is None or moved is None or rent is None or each <= moved:
        return None
    factor = rent / (each - moved) / traffic.expected()
    for _, rate in traffic.scaled(factor).pieces():
        offered = rate * pool.latency.mean_warm_s
        if rate and (offered > pool.option.max_concurrency / 2 or
                     cold_share(rate, pool.latency.mean_warm_s, pool.option.idle_s) > 1e-4):  # fmt: skip
            return None
    return _break_even(pool, fixed, factor, traffic, "closed form")


def _break_even(
    below: _Case, above: _Case, factor: float, traffic: Traffic, how: Literal["closed form", "bisection"]
) -> BreakEven:
    peak = factor * traffic.peak_per_s
    keeps_up = all(peak * case.latency.mean_warm_s < _servers(case.option) for case in (below, above)
                   if not isinstance(case.option, Batch))  # fmt: skip
    return BreakEven(below.option.name, above.option.name, factor * traffic.mean_per_s, how, keeps_up)


def _servers(option: Option) -> int:
    if isinstance(option, Serverless):
        return option.max_concurrency
    return option.workers * (option.most if isinstance(option, RealTime) else option.count)
