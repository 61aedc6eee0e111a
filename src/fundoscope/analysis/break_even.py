"""What options cost at other rates, and the rates at which two cost the same, the shape of the day staying as it is.

The number of instances stays what it is. A pool's limit, which costs nothing, is raised with the traffic as far as it
goes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log
from typing import Literal

import numpy as np

from fundoscope.analysis.month import Case, Tariff
from fundoscope.analysis.options import Batch, Billed, Latency, Option, RealTime, Serverless
from fundoscope.analysis.queueing import cold_share, expected
from fundoscope.analysis.traffic import DAY_S, MONTH_S, Traffic
from fundoscope.deploy.endpoint import CONCURRENCY

RATES_PER_S = (1e-6, 100.0)  # within which break-even is looked for: 3 to 260 million requests a month


@dataclass(frozen=True)
class BreakEven:
    """Below this rate the one is cheaper, above it the other, the shape of the day staying the same."""

    below: str
    above: str
    rate_per_s: float  # mean of the month
    how: Literal["closed form", "search"]
    keeps_up: bool  # whether both could serve the busiest hour of that

    @property
    def requests_per_month(self) -> float:
        return self.rate_per_s * MONTH_S


@dataclass(frozen=True)
class Curve:
    """What a month of one option costs at each of some rates, as far as it keeps up."""

    name: str
    requests_per_month: tuple[float, ...]
    usd: tuple[float, ...]


def curves(
    options: Sequence[Option], latencies: Mapping[str, Latency], tariff: Tariff, traffic: Traffic, *, points: int = 61
) -> tuple[Curve, ...]:
    """From a thousandth of the traffic to a thousand times as much."""
    now = traffic.expected()
    found = []
    for option in options:
        latency, here = latencies[option.name], []
        for factor in np.geomspace(1e-3, 1e3, points).tolist():
            scaled = traffic.scaled(factor)
            usd = tariff.usd(option, expected(_roomy(option), latency, scaled))
            if usd is not None and _keeps_up(option, latency, scaled):
                here.append((factor * now, usd))
        if here:
            found.append(Curve(option.name, *(tuple(part) for part in zip(*here, strict=True))))
    return tuple(found)


def _roomy(option: Option) -> Option:
    return replace(option, max_concurrency=CONCURRENCY[-1]) if isinstance(option, Serverless) else option


def _keeps_up(option: Option, latency: Latency, traffic: Traffic) -> bool:
    """With the busiest time of a day, or at night with the whole day."""
    if isinstance(option, Batch):
        work_s = traffic.expected() / max(1, traffic.open_days) * latency.mean_warm_s
        return work_s < DAY_S * option.count * option.workers
    return traffic.peak_per_s * latency.mean_warm_s < _servers(option)


def break_evens_with(best: Case, cases: Sequence[Case], traffic: Traffic) -> tuple[BreakEven, ...]:
    grid = [log(rate / traffic.mean_per_s) for rate in np.geomspace(*RATES_PER_S, 33).tolist()]
    before = [_cost(best, traffic, x) for x in grid]
    found: list[BreakEven] = []
    for other in cases:
        if other is not best:
            found += _break_evens(best, other, traffic, grid, before)
    return tuple(sorted(found, key=lambda each: each.rate_per_s))


def _cost(case: Case, traffic: Traffic, log_factor: float) -> float:
    """Of a month, on average."""
    scaled = traffic.scaled(exp(log_factor))
    return case.price(expected(_roomy(case.option), case.latency, scaled)) or 0.0


def _break_evens(
    one: Case, other: Case, traffic: Traffic, grid: Sequence[float], costs: Sequence[float]
) -> list[BreakEven]:
    """Rates at which a month of both costs the same; `costs` of the one on the grid."""
    direct = _closed_form(one, other, traffic) or _closed_form(other, one, traffic)
    if direct is not None:
        return [direct]

    def difference(log_factor: float) -> float:
        return _ratio(_cost(one, traffic, log_factor), _cost(other, traffic, log_factor))

    values = [_ratio(cost, _cost(other, traffic, x)) for cost, x in zip(costs, grid, strict=True)]
    found: list[BreakEven] = []
    for low, high, at_low, at_high in zip(grid, grid[1:], values, values[1:], strict=False):
        if (at_low < 0) == (at_high < 0) or at_low == at_high:
            continue
        below, above = (one, other) if at_low < 0 else (other, one)
        each = _break_even(below, above, exp(_zero(difference, low, high, at_low, at_high)), traffic, "search")
        if each.keeps_up or not found:  # a pool that turns requests away grows cheaper again, which helps nobody
            found.append(each)
    return found


def _ratio(one: float, other: float) -> float:
    return log(max(one, 1e-300) / max(other, 1e-300))


def _zero(f: Callable[[float], float], low: float, high: float, at_low: float, at_high: float) -> float:
    """Between two places where `f` differs in sign: false position, as of Illinois; a part in ten thousand will do."""
    middle = low
    for _ in range(12):
        before, middle = middle, (low * at_high - high * at_low) / (at_high - at_low)
        if abs(middle - before) < 1e-4:
            break
        at_middle = f(middle)
        if (at_middle < 0) == (at_high < 0):
            at_low /= 2  # or that end would stay for ever
        else:
            low, at_low = high, at_high
        high, at_high = middle, at_middle
        if not at_middle:
            break
    return middle


def _closed_form(pool: Case, fixed: Case, traffic: Traffic) -> BreakEven | None:
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
        if rate and (offered > CONCURRENCY[-1] / 2 or
                     cold_share(rate, pool.latency.mean_warm_s, pool.option.idle_s) > 1e-4):  # fmt: skip
            return None
    return _break_even(pool, fixed, factor, traffic, "closed form")


def _break_even(
    below: Case, above: Case, factor: float, traffic: Traffic, how: Literal["closed form", "search"]
) -> BreakEven:
    keeps_up = all(_keeps_up(case.option, case.latency, traffic.scaled(factor)) for case in (below, above))
    return BreakEven(below.option.name, above.option.name, factor * traffic.mean_per_s, how, keeps_up)


def _servers(option: Option) -> int:
    if isinstance(option, Serverless):
        return CONCURRENCY[-1]
    return option.workers * (option.most if isinstance(option, RealTime) else option.count)
