"""Two levels of a factor over all cells that both have, all else equal; and how many repetitions would tell more.

The ratio is of geometric means, every pair of cells counting once. Its error is made of the spread of the cells that
are compared, and of no others: those of a processor and of an accelerator seldom vary alike. With the same number of
readings in each this is the pooled residual of the log model in these cells, with its degrees of freedom; of a single
pair of cells it is Welch's test.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from math import exp, log1p, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import brentq

from fundoscope.analysis.findings import CellFinding, Comparison, Costs, Precision
from fundoscope.analysis.summaries import Ratio, holm, repetitions_for
from fundoscope.analysis.table import Floats, Ints, Table
from fundoscope.errors import FundoscopeError

PERCENTS = (1.0, 2.0, 5.0, 10.0)
MOST_LEVELS = 30  # of a factor whose levels are compared each with each; of more, each with the first


@dataclass(frozen=True)
class Spread:
    """Number, mean and variance of the readings of each cell; single readings borrow the variance of all."""

    n: Ints
    mean: Floats
    variance: Floats
    degrees: Floats
    deviation: float | None  # of one reading, pooled over all cells; None: no cell has two


@dataclass(frozen=True)
class Estimate:
    """A mean with its interval; None: nothing to tell noise by."""

    value: float
    low: float | None
    high: float | None
    p: float | None  # that it is zero


@dataclass(frozen=True)
class Matched:
    ratio: Ratio  # one over other
    difference: Estimate  # of logs
    pairs: int
    least: float  # of the single pairs
    greatest: float


def spread_of(values: Floats, cell: Ints, cells: int) -> Spread:
    n = np.bincount(cell, minlength=cells)
    origin = float(values.mean()) if len(values) else 0.0
    mean = np.bincount(cell, weights=values - origin, minlength=cells) / np.maximum(n, 1)
    scatter = np.bincount(cell, weights=(values - origin - mean[cell]) ** 2, minlength=cells)
    degrees = int(np.maximum(n - 1, 0).sum())
    pooled = float(scatter.sum()) / degrees if degrees else None
    variance = np.where(n > 1, scatter / np.maximum(n - 1, 1), np.nan if pooled is None else pooled)
    own = np.where(n > 1, n - 1.0, float(degrees))
    return Spread(n, origin + mean, variance, own, None if pooled is None else sqrt(pooled))


def estimate(weights: Floats, spread: Spread) -> Estimate:
    """Of a weighted sum of cell means; cells without readings must weigh nothing."""
    used = np.flatnonzero(weights)
    value = float((weights[used] * spread.mean[used]).sum())
    if spread.deviation is None:
        return Estimate(value, None, None, None)
    parts = weights[used] ** 2 * spread.variance[used] / spread.n[used]
    error = sqrt(float(parts.sum()))
    if error == 0:
        return Estimate(value, value, value, 0.0 if value else 1.0)
    if len(used) > 2:
        degrees = float(np.maximum(spread.n[used] - 1, 0).sum() or spread.degrees[used[0]])
    else:
        degrees = float(parts.sum()) ** 2 / float((parts**2 / spread.degrees[used]).sum())
    degrees = min(degrees, float(np.maximum(spread.n - 1, 0).sum()))  # what single readings borrow counts once
    half = float(stats.t.ppf(0.975, degrees)) * error
    return Estimate(value, value - half, value + half, 2 * float(stats.t.sf(abs(value) / error, degrees)))


def logs_of(table: Table, metric: str) -> Spread | None:
    """None where a ratio means nothing: a reading is not above zero."""
    values, cell = table.readings(metric)
    if not len(values) or float(values.min()) <= 0:
        return None
    return spread_of(np.log(values), cell, len(table.cells))


def matched(
    table: Table, spread: Spread, factor: str, one: object, other: object, where: NDArray[np.bool_] | None = None
) -> Matched | None:
    """None: no two cells differ in this alone. `spread` is of logs; `where` narrows the cells."""
    grid = _grid(table, factor, (spread.n > 0) & (True if where is None else where))
    places = _places(table, factor, one, other)
    return places and _compare(grid, spread, *places)


def difference(
    table: Table, spread: Spread, factor: str, one: object, other: object, where: NDArray[np.bool_] | None = None
) -> Estimate | None:
    """One less other, over the same pairs of cells."""
    grid = _grid(table, factor, (spread.n > 0) & (True if where is None else where))
    places = _places(table, factor, one, other)
    weights = places and _weights(grid, len(spread.n), *places)
    return None if weights is None else estimate(weights, spread)


def _places(table: Table, factor: str, one: object, other: object) -> tuple[int, int] | None:
    levels = [str(level) for level in table.design.factors.get(factor, ())]
    if str(one) not in levels or str(other) not in levels:
        return None
    return levels.index(str(one)), levels.index(str(other))


def comparisons(table: Table, metric: str) -> tuple[tuple[Comparison, ...], tuple[str, ...]]:
    """Every pair of levels of every factor, and what was left out."""
    spread = logs_of(table, metric)
    if spread is None:
        return (), ()
    found: list[tuple[str, str, str, Matched]] = []
    said = []
    for factor, levels in table.design.factors.items():
        grid = _grid(table, factor, spread.n > 0)
        if len(levels) > MOST_LEVELS:
            said.append(f"{factor} has {len(levels)} levels: each was compared with the first alone")
        for one, other in _pairs(len(levels)):
            if (pair := _compare(grid, spread, one, other)) is not None:
                found.append((factor, str(levels[one]), str(levels[other]), pair))
    adjusted = holm({str(i): pair.ratio.p for i, (*_, pair) in enumerate(found) if pair.ratio.p is not None})
    return tuple(
        Comparison(
            metric,
            factor,
            one,
            other,
            pair.ratio,
            adjusted.get(str(i)),
            pair.difference.value / spread.deviation if spread.deviation else None,
            pair.pairs,
        )
        for i, (factor, one, other, pair) in enumerate(found)
    ), tuple(said)


def _pairs(levels: int) -> Iterator[tuple[int, int]]:
    if levels <= MOST_LEVELS:
        return combinations(range(levels), 2)
    return ((0, other) for other in range(1, levels))


def _grid(table: Table, factor: str, chosen: NDArray[np.bool_]) -> Ints:
    """Cells by what all other factors are at (rows) and the level of this one (columns); -1: none."""
    names = list(table.design.factors)
    if factor not in names:
        return np.zeros((0, 0), np.int64)
    at = names.index(factor)
    rest = np.zeros(len(table.cells), np.int64)
    for i, levels in enumerate(table.design.factors.values()):
        if i != at:
            rest = rest * len(levels) + table.codes[:, i]
    _, row = np.unique(rest, return_inverse=True)
    grid = np.full((int(row.max()) + 1, len(table.design.factors[factor])), -1, np.int64)
    cells = np.flatnonzero(chosen)
    grid[row[cells], table.codes[cells, at]] = cells
    return grid


def _weights(grid: Ints, cells: int, one: int, other: int) -> Floats | None:
    """Of cell means, in the mean difference over all pairs of cells."""
    both = (grid[:, one] >= 0) & (grid[:, other] >= 0)
    if not both.any():
        return None
    weights = np.zeros(cells)
    weights[grid[both, one]], weights[grid[both, other]] = 1 / both.sum(), -1 / both.sum()
    return weights


def _compare(grid: Ints, spread: Spread, one: int, other: int) -> Matched | None:
    weights = _weights(grid, len(spread.n), one, other)
    if weights is None:
        return None
    found = estimate(weights, spread)
    both = (grid[:, one] >= 0) & (grid[:, other] >= 0)
    single = np.exp(spread.mean[grid[both, one]] - spread.mean[grid[both, other]])
    low, high = (None if end is None else exp(end) for end in (found.low, found.high))
    times = Ratio(exp(found.value), low, high, found.p)
    return Matched(times, found, len(single), float(single.min()), float(single.max()))


def precision(cells: tuple[CellFinding, ...], metric: str, costs: Costs | None) -> tuple[Precision, ...]:
    """What a mean to within so many per cent still takes, by the variation of the median cell.

    Not by the most variable one's: of five readings each, the most variable of 48 cells varies nearly twice as much as
    it would if measured for ever, and would ask for three times the trials.
    """
    known = [cell.readings[metric] for cell in cells if metric in cell.readings]
    variations = [of.variation for of in known if of.variation is not None and of.variation > 0]
    if not variations:
        return ()
    variation = float(np.median(variations))
    usd = {cost.cell.number: cost.usd.mean for cost in costs.cells} if costs else {}
    return tuple(_precision(percent, variation, cells, metric, usd) for percent in PERCENTS)


def _precision(
    percent: float, variation: float, cells: tuple[CellFinding, ...], metric: str, usd: Mapping[int, float]
) -> Precision:
    repetitions = repetitions_for(variation, percent / 100)
    trials, seconds, dollars = 0, 0.0, 0.0
    for cell in cells:
        if metric in cell.readings:  # where it cannot be measured more trials do not help
            more = max(0, repetitions - cell.readings[metric].n)
            trials += more
            seconds += more * cell.readings["wall_s"].mean
            dollars += more * usd.get(cell.cell.number, 0.0)
    return Precision(percent, repetitions, trials, seconds / 3600, dollars if usd else None, variation)


def detectable(
    variation: float, repetitions: int, cells_per_level: int, levels: int, *, power: float = 0.8, alpha: float = 0.05
) -> float:
    """The smallest ratio between two levels of a factor that so many trials show, in so many of such studies.

    `variation` is the coefficient of variation of a cell's readings; `cells_per_level` how many cells each level is
    measured in. Two-sided t on logs, the noise being pooled over all cells.
    """
    degrees = levels * cells_per_level * (repetitions - 1)
    if degrees < 1:
        raise FundoscopeError("a single repetition shows no noise", "plan two or more; three to see it well")
    root = sqrt(repetitions * cells_per_level / 2)
    beyond = float(stats.t.ppf(1 - alpha / 2, degrees))

    def excess(size: float) -> float:
        # The other tail is next to nothing, and where it is too small to be computed SciPy says NaN.
        other = float(np.nan_to_num(stats.nct.cdf(-beyond, degrees, size * root)))
        return float(stats.nct.sf(beyond, degrees, size * root)) + other - power

    most = 1.0
    while excess(most / root) < 0:
        most *= 2
    size = float(brentq(excess, 0, most / root, xtol=1e-12))  # in standard deviations
    return exp(size * sqrt(log1p(variation**2)))
