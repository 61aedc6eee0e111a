"""A cell's readings in a few numbers, and two cells compared as the papers compare them. Every number has its interval.

Ratios of times are compared on the log scale (Welch's t): "3 times as fast" and "a third of the time" are then the same
statement, and an interval never reaches below zero.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, exp, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)  # there may be hundreds of thousands
class Summary:
    n: int
    mean: float
    low: float | None  # of the mean, 95 %; None: a single reading
    high: float | None
    deviation: float | None
    variation: float | None  # the coefficient of variation, deviation / mean
    median: float
    least: float
    greatest: float


@dataclass(frozen=True)
class Ratio:
    """How many times one is the other: `value` 3 is "3 times", a reduction by 67 % read the other way."""

    value: float
    low: float | None
    high: float | None
    p: float | None  # that they are the same

    @property
    def inverse(self) -> "Ratio":
        low, high = (None if end is None else 1 / end for end in (self.high, self.low))
        return Ratio(1 / self.value, low, high, self.p)

    def percent_less(self) -> tuple[float, float | None, float | None]:
        """The other is so many per cent less than the one, with its interval."""
        value, low, high = (None if x is None else 100 * (1 - 1 / x) for x in (self.value, self.low, self.high))
        assert value is not None
        return value, low, high


def summarise(values: Sequence[float]) -> Summary:
    (found,) = summarise_cells(np.asarray(values, np.float64), np.zeros(len(values), np.int64), 1)
    assert found is not None
    return found


def summarise_cells(values: Floats, cell: Ints, cells: int) -> list[Summary | None]:
    """The same of every cell at once; None: no reading in it."""
    order = np.lexsort((values, cell))
    y, of = values[order], cell[order]
    n = np.bincount(of, minlength=cells)
    start = np.concatenate([[0], np.cumsum(n)[:-1]]).astype(np.int64)
    filled = np.flatnonzero(n)
    first, count = start[filled], n[filled]
    least, greatest = y[first], y[first + count - 1]
    median = (y[first + (count - 1) // 2] + y[first + count // 2]) / 2
    # About the median, so that readings far from zero lose no digits.
    about = y - np.repeat(median, count)
    shift = np.add.reduceat(about, first) / count if len(first) else np.zeros(0)
    scatter = np.add.reduceat((about - np.repeat(shift, count)) ** 2, first) if len(first) else np.zeros(0)
    mean = median + shift
    several = count > 1
    deviation = np.sqrt(scatter / np.maximum(count - 1, 1))
    half = _quantiles(count) * deviation / np.sqrt(count)
    found: list[Summary | None] = [None] * cells
    columns = (a.tolist() for a in (filled, count, several, mean, half, deviation, median, least, greatest))
    for place, size, many, centre, width, spread, middle, low, high in zip(*columns, strict=True):
        if many:
            variation = spread / centre if centre else None
            found[place] = Summary(size, centre, centre - width, centre + width, spread, variation, middle, low, high)
        else:
            found[place] = Summary(size, centre, None, None, None, None, middle, low, high)
    return found


def _quantiles(count: Ints) -> Floats:
    """Student's 97.5 % for so many readings, each number of them looked up once."""
    sizes, which = np.unique(count, return_inverse=True)
    return np.asarray(stats.t.ppf(0.975, np.maximum(sizes - 1, 1))[which], np.float64)


def ratio(one: Sequence[float], other: Sequence[float]) -> Ratio:
    """Of geometric means, `one` over `other`; positive readings."""
    a, b = (np.log(np.asarray(values, np.float64)) for values in (one, other))
    difference = float(a.mean() - b.mean())
    if len(a) < 2 or len(b) < 2:
        return Ratio(exp(difference), None, None, None)
    variances = a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)
    error = sqrt(sum(variances))
    if error == 0:
        return Ratio(exp(difference), exp(difference), exp(difference), 0.0 if difference else 1.0)
    degrees = sum(variances) ** 2 / sum(v**2 / (len(x) - 1) for v, x in zip(variances, (a, b), strict=True))
    half = float(stats.t.ppf(0.975, degrees)) * error
    p = 2 * float(stats.t.sf(abs(difference) / error, degrees))
    return Ratio(exp(difference), exp(difference - half), exp(difference + half), p)


def holm(p: Mapping[str, float]) -> dict[str, float]:
    """Holm's adjusted p-values: of many comparisons, which can be believed together."""
    ordered = sorted(p, key=lambda name: p[name])
    adjusted, highest = {}, 0.0
    for place, name in enumerate(ordered):
        highest = max(highest, min(1.0, p[name] * (len(p) - place)))
        adjusted[name] = highest
    return {name: adjusted[name] for name in p}


def repetitions_for(variation: float, precision: float) -> int:
    """How many, for a mean known to within `precision` of itself (0.05: 5 %) with 95 % confidence: Jain, section 13.9.

    With t in place of the normal quantile, since they are few; at least two.
    """
    n = 2
    while float(stats.t.ppf(0.975, n - 1)) * variation / sqrt(n) > precision:
        n = max(n + 1, min(2 * n, ceil((1.96 * variation / precision) ** 2)))
    while n > 2 and float(stats.t.ppf(0.975, n - 2)) * variation / sqrt(n - 1) <= precision:
        n -= 1
    return n


def pareto(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """Those that no other is at least as good as in both and better in one; less is better; by the first of the two."""
    best, front = float("inf"), []
    for name in sorted(points, key=lambda name: points[name]):
        if points[name][1] < best:
            best = points[name][1]
            front.append(name)
    return front
