"""Which factors matter, by how much, and how sure that is: effects, interactions, allocation of variation, ANOVA.

Jain, The Art of Computer Systems Performance Analysis (1991), chapters 17 to 22, for any number of factors and levels.
An effect is what a level, or a combination of levels, adds to the mean of all: the effects of a factor sum to zero. The
variation a term explains is its share of the sum of squares about the mean.

Failed trials leave holes. With the same number of readings in every cell all of this is Jain's arithmetic; otherwise
least squares, each term's share being what it explains beyond all terms that do not contain it (type II), so that the
shares need not add up to one. Readings of one cell enter by their number, mean and scatter alone: a hundred thousand
of them cost no more than a hundred.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from fundoscope.errors import FundoscopeError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Term = tuple[str, ...]  # the factors of an interaction; one of them: a main effect
Combination = tuple[str, ...]  # their levels, in the same order


@dataclass(frozen=True)
class Cells:
    """Readings by combination of levels: all that effects need to know of them."""

    factors: Mapping[str, tuple[str, ...]]  # levels that occur, in the order of the design
    codes: Ints  # (cells, factors): which level
    n: Ints
    mean: Floats
    scatter: Floats  # sum of squares about the cell's own mean

    @property
    def readings(self) -> int:
        return int(self.n.sum())

    @property
    def grand_mean(self) -> float:
        return float((self.n * self.mean).sum() / self.n.sum())

    @property
    def balanced(self) -> bool:
        whole = np.prod([len(levels) for levels in self.factors.values()])
        return len(self.n) == whole and bool((self.n == self.n[0]).all())


@dataclass(frozen=True)
class Effect:
    """What one combination of levels adds to the mean, with its 95 % interval; None: too few readings for one."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Part:
    """One term of the model."""

    sum_of_squares: float
    degrees: int
    share: float  # of all variation
    f: float | None  # None: no readings left to tell noise by
    p: float | None
    effects: Mapping[Combination, Effect]


@dataclass(frozen=True)
class Effects:
    mean: Effect
    parts: Mapping[Term, Part]
    unexplained: float  # share of the variation
    residual_degrees: int
    residual_deviation: float | None  # of one reading, s_e
    balanced: bool
    not_estimable: tuple[Term, ...]  # for want of cells


def cells_of(
    values: Sequence[float], levels: Sequence[Mapping[str, object]], factors: Mapping[str, Sequence[object]]
) -> Cells:
    """`levels` of each reading; factors of which only one level occurs are left out: nothing can be said of them."""
    y = np.asarray(values, np.float64)
    if not np.isfinite(y).all():
        raise FundoscopeError("a reading is not a number", "leave failed trials out: they are no readings")
    occurring = {
        name: tuple(str(level) for level in known if any(row[name] == level for row in levels))
        for name, known in factors.items()
    }
    varied = {name: known for name, known in occurring.items() if len(known) > 1}
    if not varied:
        raise FundoscopeError("no factor has two levels with readings", "measure more cells")
    places = {name: {level: i for i, level in enumerate(known)} for name, known in varied.items()}
    codes = np.array([[places[name][str(row[name])] for name in varied] for row in levels], np.int64)
    unique, of = np.unique(codes, axis=0, return_inverse=True)
    of = of.reshape(-1)
    n = np.bincount(of)
    mean = np.bincount(of, weights=y) / n
    scatter = np.bincount(of, weights=(y - mean[of]) ** 2).astype(np.float64)
    return Cells(varied, unique, n, mean, scatter)


def effects(cells: Cells, *, order: int | None = None) -> Effects:
    """All terms of up to `order` factors; None: all there are."""
    names = list(cells.factors)
    order = min(order or len(names), len(names))
    terms = [term for size in range(1, order + 1) for term in combinations(names, size)]
    columns = {term: _columns(cells, term) for term in terms}
    total = float(cells.scatter.sum() + (cells.n * (cells.mean - cells.grand_mean) ** 2).sum())
    kept, lost = _estimable(cells, columns)
    residual, rank = _fit(cells, kept.values())
    degrees = cells.readings - rank
    deviation = (residual / degrees) ** 0.5 if degrees > 0 else None
    parts = {}
    for term in kept:
        below = [block for other, block in kept.items() if not set(term) <= set(other)]
        without, rank_without = _fit(cells, below)
        within, rank_within = _fit(cells, [*below, kept[term]])
        parts[term] = _part(
            cells, term, max(0.0, without - within), rank_within - rank_without, total, deviation, degrees
        )
    half = _half_width(deviation, degrees, 1 / cells.readings)
    return Effects(
        mean=_interval(cells.grand_mean, half),
        parts=parts,
        unexplained=residual / total if total else 0.0,
        residual_degrees=degrees,
        residual_deviation=deviation,
        balanced=cells.balanced,
        not_estimable=tuple(lost),
    )


def _columns(cells: Cells, term: Term) -> Floats:
    """Sum-to-zero coding of a term: products of its factors' columns."""
    columns = np.ones((len(cells.n), 1))
    for name in term:
        index = list(cells.factors).index(name)
        levels = len(cells.factors[name])
        coding = np.vstack([np.eye(levels - 1), -np.ones(levels - 1)])[cells.codes[:, index]]
        columns = (columns[:, :, None] * coding[:, None, :]).reshape(len(cells.n), -1)
    return columns


def _estimable(cells: Cells, columns: Mapping[Term, Floats]) -> tuple[dict[Term, Floats], list[Term]]:
    """The terms that the cells at hand can tell apart, lower orders first."""
    kept: dict[Term, Floats] = {}
    lost, rank = [], 1
    for term, block in columns.items():
        matrix = np.hstack([np.ones((len(cells.n), 1)), *kept.values(), block])
        found = int(np.linalg.matrix_rank(matrix))
        if found == rank + block.shape[1]:
            kept[term], rank = block, found
        else:
            lost.append(term)
    return kept, lost


def _fit(cells: Cells, blocks: Iterable[Floats]) -> tuple[float, int]:
    """Least squares on cell means, weighted: residual sum of squares (scatter within cells included), and rank."""
    matrix = np.hstack([np.ones((len(cells.n), 1)), *blocks])
    weight = np.sqrt(cells.n)[:, None]
    solution, _, rank, _ = np.linalg.lstsq(matrix * weight, cells.mean * weight[:, 0], rcond=None)
    return float(cells.scatter.sum() + (cells.n * (cells.mean - matrix @ solution) ** 2).sum()), int(rank)


def _part(
    cells: Cells, term: Term, squares: float, degrees: int, total: float, deviation: float | None, residual_degrees: int
) -> Part:
    f = p = None
    if deviation and degrees:
        f = squares / degrees / deviation**2
        p = float(stats.f.sf(f, degrees, residual_degrees))
    return Part(
        squares, degrees, squares / total if total else 0.0, f, p, _effects_of(cells, term, deviation, residual_degrees)
    )


def _effects_of(cells: Cells, term: Term, deviation: float | None, degrees: int) -> dict[Combination, Effect]:
    """By inclusion and exclusion of marginal means, every cell counting once: Jain's, where the data are balanced."""
    indexes = [list(cells.factors).index(name) for name in term]
    found = {}
    for codes in np.unique(cells.codes[:, indexes], axis=0):
        value = 0.0
        weights = np.zeros(len(cells.n))
        for size in range(len(term) + 1):
            for chosen in combinations(range(len(term)), size):
                rows = np.ones(len(cells.n), bool)
                for place in chosen:
                    rows &= cells.codes[:, indexes[place]] == codes[place]
                sign = (-1) ** (len(term) - size)
                value += sign * float(cells.mean[rows].mean())
                weights[rows] += sign / rows.sum()
        half = _half_width(deviation, degrees, float((weights**2 / cells.n).sum()))
        names = tuple(cells.factors[name][code] for name, code in zip(term, codes, strict=True))
        found[names] = _interval(value, half)
    return found


def _half_width(deviation: float | None, degrees: int, variance: float) -> float | None:
    """Of the 95 % interval of something whose variance is so many times that of a reading."""
    if deviation is None:
        return None
    return float(stats.t.ppf(0.975, degrees) * deviation * np.sqrt(variance))


def _interval(value: float, half: float | None) -> Effect:
    return Effect(value, None, None) if half is None else Effect(value, value - half, value + half)
