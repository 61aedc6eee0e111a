"""Traffic, measurements and prices to advice: the cheapest way to serve that meets the objective, and how sure that is.

Every option is simulated on the same arrivals (month.py). An option that refuses more than one request in a hundred,
whose artefact failed its guard, or whose price is not known is listed with that reason and never advised.

How sure: the measured latencies are resampled (bootstrap), the arrivals stay. The same way says by how much latencies
would have to change for other advice.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import exp, inf, log
from typing import Any, Literal

import numpy as np

from fundoscope.analysis.amounts import seconds
from fundoscope.analysis.break_even import BreakEven, break_evens_with
from fundoscope.analysis.month import Case, Estimate, Month, ProvisionedPrice, Statistic, Tariff
from fundoscope.analysis.options import Latency, Option, Serverless
from fundoscope.analysis.prices import PriceList
from fundoscope.analysis.summaries import pareto
from fundoscope.analysis.traffic import Traffic
from fundoscope.errors import FundoscopeError

REFUSED_AT_MOST = 0.01
RESAMPLES = 200
LAST_STEPS = ("how sure", "what would change it")
CHANGE_AT_MOST = 16.0  # beyond which a change of latency is no news


@dataclass(frozen=True)
class Objective:
    statistic: Statistic
    seconds: float

    def __str__(self) -> str:
        return f"{self.statistic}<{self.seconds:g}s"


UNITS_S = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0}


def parse_objective(text: str) -> Objective:
    found = re.fullmatch(r"\s*(mean|p50|p90|p95|p99)\s*<\s*(\d+(?:\.\d+)?)\s*(ms|s|min|h)\s*", text)
    seconds = float(found[2]) * UNITS_S[found[3]] if found else 0.0
    if not found or seconds <= 0:
        hint = "write it as p95<2s, mean<300ms or p95<24h; p50, p90, p95, p99 and mean are known"
        raise FundoscopeError(f"'{text}' is no objective", hint)
    return Objective(found[1], seconds)  # type: ignore[arg-type]


@dataclass(frozen=True)
class ArtefactGuard:
    """Whether an artefact is as good as what it was made from; see artefact/guard.py."""

    passed: bool
    reason: str = ""


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
        for row, each in zip(found["estimates"], self.estimates, strict=True):
            row["kind"] = type(each.option).__name__
            row["usd_per_thousand"] = each.usd_per_thousand
            row["latency_s"] = {name: "never" if value == inf else value for name, value in each.latency_s.items()}
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
    """`latencies` by name of the option, `guard` by name of the artefact.

    `progress` hears each option's name, and then that of each of the `LAST_STEPS`.
    """
    terms = _Terms(objective, guard or {}, refused_at_most)
    _check(options, latencies, terms.guard)
    month = Month.of(traffic, Tariff(prices, provisioned), seed)
    cases = {}
    for option in options:
        progress(option.name)
        cases[option.name] = Case.of(option, latencies[option.name], month)
    estimates = [case.estimate(terms.why_not(case)) for case in cases.values()]
    # Of two that cost the same, the one that was listed first.
    ranked = sorted(estimates, key=lambda e: (bool(e.why_not), inf if e.usd is None else e.usd))
    best = cases[ranked[0].name] if not ranked[0].why_not else None
    open_cases = [cases[e.name] for e in ranked if not terms.closed(cases[e.name])]
    progress(LAST_STEPS[0])
    certainty = _certainty(best, open_cases, objective, resamples, seed) if best else None
    progress(LAST_STEPS[1])
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
        break_evens_with(best, open_cases, traffic) if best else (),
        certainty,
        _flip(best, ranked, open_cases, objective) if best else None,
    )


def _points(cases: Sequence["Case"], objective: Objective) -> dict[str, tuple[float, float]]:
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
class _Terms:
    """What an option has to keep to be advised."""

    objective: Objective
    guard: Mapping[str, ArtefactGuard]
    refused_at_most: float

    def closed(self, case: Case) -> str:
        """Why no latency would make it advisable; empty: latency alone decides."""
        verdict = self.guard.get(case.option.artefact, ArtefactGuard(True))
        if not verdict.passed:
            return f"its artefact failed its guard: {verdict.reason}"
        if case.usd is None:
            return f"the price of {case.option.price_of} is not known"
        if case.refused_share > self.refused_at_most:
            return f"it refuses {100 * case.refused_share:.3g} % of the requests"
        return ""

    def why_not(self, case: Case) -> str:
        if closed := self.closed(case):
            return closed
        statistic, value = self.objective.statistic, case.known[self.objective.statistic]
        if value is None:
            cold = f" and {len(case.latency.cold_s)} cold ones" if isinstance(case.option, Serverless) else ""
            return f"{len(case.latency.warm_s)} warm readings{cold} cannot say its {statistic}"
        if value >= self.objective.seconds:
            return f"its {statistic} is {seconds(value)}"
        return ""


def _best(found: Mapping[str, tuple[float, float | None]], objective: Objective) -> str | None:
    meeting = {name: usd for name, (usd, value) in found.items() if value is not None and value < objective.seconds}
    return min(meeting, key=meeting.__getitem__, default=None)


def _certainty(best: Case, cases: Sequence[Case], objective: Objective, resamples: int, seed: int) -> Certainty:
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


def _flip(best: Case, ranked: Sequence[Estimate], cases: Sequence[Case], objective: Objective) -> Flip | None:
    """Of all changes of one price or of one option's latencies the nearest to none, by ratio."""
    changes = [_by_price(best, ranked)]
    now = {case.option.name: case.with_latency(case.latency, objective.statistic) for case in cases}
    for case in cases:
        changes.append(_by_latency(case, case is best, now, objective))
    found = [change for change in changes if change is not None]
    return min(found, key=lambda change: abs(log(change.factor)), default=None)


def _by_price(best: Case, ranked: Sequence[Estimate]) -> Flip | None:
    """The advised option's price rises; options under the same price rise with it."""
    others = [e for e in ranked if not e.why_not and e.option.price_of != best.option.price_of and e.usd]
    if not others or not best.usd:
        return None
    second = others[0]
    assert second.usd is not None
    return Flip("price", best.option.price_of, second.usd / best.usd, second.name)


def _by_latency(
    case: Case, advised: bool, now: Mapping[str, tuple[float, float | None]], objective: Objective
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
