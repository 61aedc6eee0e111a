"""The rates at which two options cost the same, the shape of the day staying as it is."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log
from typing import Literal

import numpy as np

from fundoscope.analysis.month import Case
from fundoscope.analysis.options import Batch, Billed, Option, RealTime, Serverless
from fundoscope.analysis.queueing import cold_share, expected
from fundoscope.analysis.traffic import MONTH_S, Traffic

RATES_PER_S = (1e-6, 100.0)  # within which break-even is looked for: 3 to 260 million requests a month


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


def break_evens_with(best: Case, cases: Sequence[Case], traffic: Traffic) -> tuple[BreakEven, ...]:
    found: list[BreakEven] = []
    for other in cases:
        if other is not best:
            found += break_evens(best, other, traffic)
    return tuple(sorted(found, key=lambda each: each.rate_per_s))


def break_evens(one: Case, other: Case, traffic: Traffic) -> list[BreakEven]:
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
        if rate and (offered > pool.option.max_concurrency / 2 or
                     cold_share(rate, pool.latency.mean_warm_s, pool.option.idle_s) > 1e-4):  # fmt: skip
            return None
    return _break_even(pool, fixed, factor, traffic, "closed form")


def _break_even(
    below: Case, above: Case, factor: float, traffic: Traffic, how: Literal["closed form", "bisection"]
) -> BreakEven:
    peak = factor * traffic.peak_per_s
    keeps_up = all(peak * case.latency.mean_warm_s < _servers(case.option) for case in (below, above)
                   if not isinstance(case.option, Batch))  # fmt: skip
    return BreakEven(below.option.name, above.option.name, factor * traffic.mean_per_s, how, keeps_up)


def _servers(option: Option) -> int:
    if isinstance(option, Serverless):
        return option.max_concurrency
    return option.workers * (option.most if isinstance(option, RealTime) else option.count)
