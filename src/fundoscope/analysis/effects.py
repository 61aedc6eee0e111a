"""Which factors matter, by how much, and how sure that is: effects, interactions, allocation of variation, ANOVA.

Jain, The Art of Computer Systems Performance Analysis (1991), chapters 17 to 22, for any number of factors and levels.
An effect is what a level, or a combination of levels, adds to the mean of all: the effects of a factor sum to zero. The
variation a term explains is its share of the sum of squares about the mean.

Failed trials leave holes. With the same number of readings in every cell all of this is Jain's arithmetic; otherwise
least squares, each term's share being what it explains beyond all terms that do not contain it (type II), so that the
shares need not add up to one, and its effects those of the fitted model: a level that was measured in the slow cells
alone is not called slow for that. Readings of one cell enter by their number, mean and scatter alone: a hundred
thousand of them cost no more than a hundred.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

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
    mean: Floats  # less the origin
    scatter: Floats  # sum of squares about the cell's own mean
    origin: float = 0.0  # near all of them, so that what they share costs no digits

    @property
    def readings(self) -> int:
        return int(self.n.sum())

    @property
    def grand_mean(self) -> float:
        return self.origin + float((self.n * self.mean).sum() / self.n.sum())

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
    mean: Effect  # every cell counting once, as far as the model can tell it
    parts: Mapping[Term, Part]
    unexplained: float  # share of the variation
    residual_degrees: int
    residual_deviation: float | None  # of one reading, s_e
    balanced: bool
    not_estimable: tuple[Term, ...]  # for want of cells


@dataclass(frozen=True)
class _Basis:
    """An orthonormal basis of the columns of a model, block by block: weighted columns = q @ r."""

    terms: Mapping[Term, slice]  # which columns
    q: Floats  # (cells, columns); the first is the mean's
    r: Floats


def cells_of(
    values: Sequence[float], levels: Sequence[Mapping[str, object]], factors: Mapping[str, Sequence[object]]
) -> Cells:
    """`levels` of each reading; factors of which only one level occurs are left out: nothing can be said of them."""
    places = {name: {level: i for i, level in enumerate(known)} for name, known in factors.items()}
    codes = np.array([[places[name][row[name]] for name in factors] for row in levels], np.int64)
    unique, of = np.unique(codes.reshape(len(levels), len(factors)), axis=0, return_inverse=True)
    return gather(np.asarray(values, np.float64), of.reshape(-1), unique, factors)


def gather(values: Floats, cell: Ints, codes: Ints, factors: Mapping[str, Sequence[object]]) -> Cells:
    """The same from columns: `cell` is each reading's row of `codes`. Cells without readings are left out."""
    if not np.isfinite(values).all():
        raise FundoscopeError("a reading is not a number", "leave failed trials out: they are no readings")
    n = np.bincount(cell, minlength=len(codes))
    filled = np.flatnonzero(n)
    occurring = [np.unique(codes[filled, i]) for i in range(codes.shape[1])]
    varied = [i for i, some in enumerate(occurring) if len(some) > 1]
    if not varied:
        raise FundoscopeError("no factor has two levels with readings", "measure more cells")
    names = list(factors)
    kept = {names[i]: tuple(str(factors[names[i]][level]) for level in occurring[i]) for i in varied}
    recoded = np.stack([np.searchsorted(occurring[i], codes[filled, i]) for i in varied], axis=1)
    origin = float(values.mean())
    with np.errstate(invalid="ignore"):  # 0 / 0, of cells that are left out
        mean = np.bincount(cell, weights=values - origin, minlength=len(codes)) / n
    scatter = np.bincount(cell, weights=(values - origin - mean[cell]) ** 2, minlength=len(codes)).astype(np.float64)
    return Cells(kept, recoded, n[filled], mean[filled], scatter[filled], origin)


def effects(cells: Cells, *, order: int | None = None) -> Effects:
    """All terms of up to `order` factors; None: all there are."""
    return explain(cells, order=order)[0]


def explain(cells: Cells, *, order: int | None = None, terms: Sequence[Term] | None = None) -> tuple[Effects, Floats]:
    """The same, or of these terms alone, lower orders first; and what the model expects of each cell."""
    basis, lost = _basis(cells, terms_of(cells, order) if terms is None else terms)
    weighted = np.sqrt(cells.n) * cells.mean
    along = basis.q.T @ weighted  # the fit, in the basis
    fitted = basis.q @ along / np.sqrt(cells.n)
    grand = cells.grand_mean - cells.origin
    total = float(cells.scatter.sum() + (cells.n * (cells.mean - grand) ** 2).sum())
    unfitted = float(cells.scatter.sum() + (cells.n * (cells.mean - fitted) ** 2).sum())
    degrees = cells.readings - basis.r.shape[1]
    deviation = (unfitted / degrees) ** 0.5 if degrees > 0 else None
    inverse = np.linalg.inv(basis.r)
    solution = inverse @ along
    half = float(_half_widths(deviation, degrees, (inverse[:1] ** 2).sum(axis=1))[0])
    parts = {}
    for term, columns in basis.terms.items():
        squares = _squares(basis, term, along)
        f, p = _f(squares, columns.stop - columns.start, deviation, degrees)
        coding = _coding(cells, term)
        values = coding @ solution[columns]
        halves = _half_widths(deviation, degrees, ((coding @ inverse[columns]) ** 2).sum(axis=1))
        levels = product(*(cells.factors[name] for name in term))
        found = {key: _interval(float(v), float(h)) for key, v, h in zip(levels, values, halves, strict=True)}
        share = squares / total if total else 0.0
        parts[term] = Part(squares, columns.stop - columns.start, share, f, p, found)
    return Effects(
        mean=_interval(cells.origin + float(solution[0]), half),
        parts=parts,
        unexplained=unfitted / total if total else 0.0,
        residual_degrees=degrees,
        residual_deviation=deviation,
        balanced=cells.balanced,
        not_estimable=tuple(lost),
    ), cells.origin + fitted


def terms_of(cells: Cells, order: int | None = None) -> list[Term]:
    """All terms of up to `order` factors, lower orders first."""
    names = list(cells.factors)
    return [term for size in range(1, (order or len(names)) + 1) for term in combinations(names, size)]


def columns_of(cells: Cells, term: Term) -> int:
    """How many numbers a term adds to a model."""
    return int(np.prod([len(cells.factors[name]) - 1 for name in term]))


def _basis(cells: Cells, wanted: Sequence[Term]) -> tuple[_Basis, list[Term]]:
    """Of the terms that the cells at hand can tell apart, and those that they cannot."""
    weight = np.sqrt(cells.n)[:, None]
    most = min(1 + sum(columns_of(cells, term) for term in wanted), len(cells.n))
    q, r = np.zeros((len(cells.n), most)), np.zeros((most, most))
    r[0, 0] = np.linalg.norm(weight)
    q[:, 0] = weight[:, 0] / r[0, 0]
    terms: dict[Term, slice] = {}
    lost: list[Term] = []
    used = 1
    for term in wanted:
        columns = slice(used, used + columns_of(cells, term))
        if columns.stop > most or any(set(some) <= set(term) for some in lost):
            lost.append(term)
            continue
        block = _coding(cells, term)[_places(cells, term)] * weight
        scale = np.linalg.norm(block, axis=0).max()
        inside = np.zeros((used, block.shape[1]))
        for _ in range(2):  # the second time removes what rounding left of the first
            along = q[:, :used].T @ block
            block -= q[:, :used] @ along
            inside += along
        outside, r[columns, columns] = np.linalg.qr(block)
        if np.linalg.svd(r[columns, columns], compute_uv=False).min() < 1e-9 * scale:
            r[columns, columns] = 0
            lost.append(term)
            continue
        q[:, columns], r[:used, columns] = outside, inside
        terms[term], used = columns, columns.stop
    return _Basis(terms, q[:, :used], r[:used, :used]), lost


def _coding(cells: Cells, term: Term) -> Floats:
    """Sum-to-zero columns of a term, one row for each combination of its levels."""
    coding: Floats = np.ones((1, 1))
    for name in term:
        levels = len(cells.factors[name])
        own = np.vstack([np.eye(levels - 1), -np.ones(levels - 1)])
        coding = np.asarray(np.kron(coding, own), np.float64)
    return coding


def _places(cells: Cells, term: Term) -> Ints:
    """Which combination of a term's levels each cell has."""
    names = list(cells.factors)
    place = np.zeros(len(cells.n), np.int64)
    for name in term:
        place = place * len(cells.factors[name]) + cells.codes[:, names.index(name)]
    return place


def _squares(basis: _Basis, term: Term, along: Floats) -> float:
    """What a term explains beyond all that do not contain it: the fit's length in the directions it alone adds."""
    below = [0]
    for other, columns in basis.terms.items():
        if not set(term) <= set(other):
            below.extend(range(columns.start, columns.stop))
    own = basis.terms[term]
    directions, _ = np.linalg.qr(basis.r[:, [*below, *range(own.start, own.stop)]])
    return float(((directions[:, len(below) :].T @ along) ** 2).sum())


def _f(
    squares: float, degrees: int, deviation: float | None, residual_degrees: int
) -> tuple[float | None, float | None]:
    if not deviation:
        return None, None
    f = squares / degrees / deviation**2
    return f, float(stats.f.sf(f, degrees, residual_degrees))


def _half_widths(deviation: float | None, degrees: int, variances: Floats) -> Floats:
    """Of the 95 % intervals of what varies so many times as much as a reading; NaN: no interval."""
    if deviation is None:
        return np.full(len(variances), np.nan)
    return np.asarray(stats.t.ppf(0.975, degrees) * deviation * np.sqrt(variances))


def _interval(value: float, half: float) -> Effect:
    return Effect(value, None, None) if half != half else Effect(value, value - half, value + half)
