"""The response of a study explained by its factors: on which scale, by which terms, and whether the residuals allow it.

The scale follows Box and Cox (1964): the power of the readings whose residuals within cells are most nearly normal of
equal spread. Times usually want the logarithm, since what a factor does to a time is to multiply it; then all effects
are of the logarithm, and their exponentials are ratios.
"""

from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
from scipy import stats
from scipy.optimize import brentq, minimize_scalar

from fundoscope.analysis.effects import Cells, Effect, Term, columns_of, explain, gather, terms_of
from fundoscope.analysis.findings import Assumption, Residuals, Response
from fundoscope.analysis.table import Floats, Ints, Table
from fundoscope.errors import FundoscopeError

LARGE_RATIO = 10.0  # greatest over least reading, from where on effects are taken to multiply (Jain, box 21.1)
POWERS = (-5.0, 5.0)  # that are searched
MOST_COLUMNS = 600  # of a model
MOST_WORK = 3e9  # cells x columns x columns: some seconds, and a third of a gigabyte with a hundred thousand cells
MOST_ORDER = 3  # of interactions where there are more than MANY_FACTORS
MANY_FACTORS = 5
MOST_TESTED = 5000  # residuals in Shapiro and Wilk's test, whose tables end there
MOST_DRAWN = 2000
ALPHA = 0.05


@dataclass(frozen=True)
class Scale:
    name: Literal["linear", "log"]
    box_cox: Effect | None
    why: str


def explain_response(table: Table, metric: str) -> Response:
    """Or an error that says what is missing."""
    values, cell = table.readings(metric)
    if not len(values):
        known = ", ".join(table.metrics) or "nothing"
        raise FundoscopeError(f"no trial measured {metric}", f"measured was {known}")
    counts = np.bincount(cell)
    scale = choose_scale(values, cell)
    y = np.log(values) if scale.name == "log" else values
    cells = gather(y, cell, table.codes, table.design.factors)
    if counts.max() < 2:
        raise FundoscopeError(
            f"every cell has a single reading of {metric}: nothing tells an effect from noise", "run more repetitions"
        )
    terms, limit = choose_terms(cells)
    effects, fitted = explain(cells, terms=terms)
    filled = np.flatnonzero(np.bincount(cell, minlength=len(table.cells)))
    place = np.searchsorted(filled, cell)
    residual = y - fitted[place]
    if np.abs(residual).max() < 1e-12 * max(1.0, float(np.abs(y).max())):
        residual = np.zeros(len(y))  # rounding is no noise
    there = np.isfinite(table.metrics[metric])
    return Response(
        metric=metric,
        scale=scale.name,
        box_cox=scale.box_cox,
        why=scale.why,
        effects=effects,
        assumptions=(
            _normal(residual),
            _equal_spread(y, place),
            _no_drift(residual, table.order[there], table.design.order),
            _repetitions_alike(residual, table.repetition[there], effects.residual_degrees),
        ),
        residuals=_residuals(residual, fitted[place], table.order[there]),
        left_out=tuple(name for name in table.design.factors if name not in cells.factors),
        not_modelled=limit,
    )


def choose_scale(values: Floats, cell: Ints) -> Scale:
    if float(values.min()) <= 0:
        return Scale("linear", None, "Readings of zero or below have no logarithm, so effects are taken to add.")
    ratio = float(values.max() / values.min())
    power = box_cox(values, cell)
    large = f"the greatest reading is {ratio:,.3g} times the least"
    if power is None:
        if ratio >= LARGE_RATIO:
            return Scale("log", None, f"Effects are taken to multiply, since {large}.")
        return Scale("linear", None, f"Effects are taken to add: {large}, and no cell has readings that differ.")
    assert power.low is not None
    assert power.high is not None
    best = f"the best power is {power.value:.2f} ({power.low:.2f} to {power.high:.2f})"
    if power.low <= 0 <= power.high:
        return Scale("log", power, f"Effects are taken to multiply: {best}, an interval that holds 0, the logarithm.")
    if abs(power.value) < abs(power.value - 1):
        return Scale("log", power, f"Effects are taken to multiply: {best}, nearer to 0, the logarithm, than to 1.")
    if ratio >= LARGE_RATIO:
        return Scale("log", power, f"Effects are taken to multiply, though {best}, since {large}.")
    return Scale("linear", power, f"Effects are taken to add: {best}, and {large}.")


def box_cox(values: Floats, cell: Ints) -> Effect | None:
    """The power of most likelihood with its 95 % interval by profile, about the mean of each cell; ends may be POWERS'.

    None: no cell has readings that differ.
    """
    counts = np.bincount(cell)
    several = counts[cell] > 1
    y, of = values[several], cell[several]
    if not len(y):
        return None
    logs = np.log(y)
    centre = float(logs.mean())
    scaled = logs - centre  # about the geometric mean: powers neither overflow nor vanish
    n = np.maximum(np.bincount(of), 1)

    def scatter(power: float) -> float:
        z = scaled if abs(power) < 1e-12 else np.expm1(power * scaled) / power
        z = z - z.mean()
        mean = np.bincount(of, weights=z) / n
        return float(((z - mean[of]) ** 2).sum())

    def likelihood(power: float) -> float:
        # With the geometric mean as unit the Jacobian is one.
        return -len(y) / 2 * float(np.log(scatter(power)))

    if scatter(0.0) < 1e-24 * len(y):
        return None
    best = float(minimize_scalar(lambda power: -likelihood(power), bounds=POWERS, method="bounded").x)
    least = likelihood(best) - float(stats.chi2.ppf(0.95, 1)) / 2

    def end(bound: float) -> float:
        if likelihood(bound) >= least:
            return bound
        return float(brentq(lambda power: likelihood(power) - least, *sorted((bound, best))))

    return Effect(best, end(POWERS[0]), end(POWERS[1]))


def choose_terms(cells: Cells) -> tuple[list[Term], str]:
    """Which terms are in the model, and a sentence where not all that could be are: the largest are left out first."""
    factors = len(cells.factors)
    order = factors if factors <= MANY_FACTORS else MOST_ORDER
    room = min(MOST_COLUMNS, int((MOST_WORK / len(cells.n)) ** 0.5), cells.readings - 1) - 1
    chosen: list[Term] = []
    left: list[Term] = []
    for term in sorted(terms_of(cells, order), key=lambda term: (len(term), columns_of(cells, term))):
        whole = all(part in chosen for part in combinations(term, len(term) - 1)) or len(term) == 1
        if whole and columns_of(cells, term) <= room:
            chosen.append(term)
            room -= columns_of(cells, term)
        else:
            left.append(term)
    said = []
    if order < factors:
        said.append(f"interactions of more than {order} factors")
    if left:
        said.append(", ".join(" × ".join(term) for term in left[:6]) + (f" and {len(left) - 6} more" * (len(left) > 6)))
    return chosen, f"Left to the residual, to keep the model small: {'; '.join(said)}." if said else ""


def _normal(residual: Floats) -> Assumption:
    name, test = "normal residuals", "Shapiro-Wilk on residuals"
    sample = residual
    if len(sample) > MOST_TESTED:
        sample = np.random.default_rng(0).choice(residual, MOST_TESTED, replace=False)
        test += f", {MOST_TESTED:,} of {len(residual):,} drawn at random"
    if len(sample) < 3 or np.ptp(sample) == 0:
        return Assumption(name, test, None, None, None, "There are too few differing readings to tell.")
    found = stats.shapiro(sample)
    w, p = float(found.statistic), float(found.pvalue)
    holds = p >= ALPHA
    said = (
        f"Residuals look normal (W = {w:.3f}, {_p(p)})."
        if holds
        else f"Residuals are not quite normal (W = {w:.3f}, {_p(p)}): intervals of means hold nearly, the more "
        "readings the better."
    )
    return Assumption(name, test, w, p, holds, said)


def _equal_spread(y: Floats, place: Ints) -> Assumption:
    """Brown and Forsythe's: an analysis of variance of the distances from each cell's median."""
    name, test = "equal spread", "Brown-Forsythe over cells with three readings or more"
    counts = np.bincount(place)
    kept = counts[place] >= 3
    cells, of = np.unique(place[kept], return_inverse=True)
    if len(cells) < 2:
        return Assumption(name, test, None, None, None, "There are too few cells with three readings to tell.")
    values = y[kept]
    order = np.lexsort((values, of))
    n = np.bincount(of)
    start = np.concatenate([[0], np.cumsum(n)[:-1]]).astype(np.int64)
    ordered = values[order]
    median = (ordered[start + (n - 1) // 2] + ordered[start + n // 2]) / 2
    distance = np.abs(values - median[of])
    f, p = _one_way(distance, of)
    if f is None or p is None:
        return Assumption(name, test, None, None, None, "Readings of a cell do not differ: there is no spread.")
    holds = p >= ALPHA
    said = (
        f"Cells vary alike (F = {f:.2f}, {_p(p)})."
        if holds
        else f"Some cells vary more than others (F = {f:.2f}, {_p(p)}): comparisons allow for it, effects do not."
    )
    return Assumption(name, test, f, p, holds, said)


def _one_way(values: Floats, group: Ints) -> tuple[float | None, float | None]:
    n = np.bincount(group)
    centred = values - values.mean()
    mean = np.bincount(group, weights=centred) / n
    between = float((n * mean**2).sum())
    within = float(((centred - mean[group]) ** 2).sum())
    degrees = len(values) - len(n)
    if degrees < 1 or within <= 0:
        return None, None
    f = between / (len(n) - 1) / (within / degrees)
    return f, float(stats.f.sf(f, len(n) - 1, degrees))


def _no_drift(residual: Floats, order: Ints, planned: str) -> Assumption:
    name, test = "no drift", "Spearman's correlation of residuals with the order of run"
    if len(residual) < 4 or np.ptp(residual) == 0:
        return Assumption(name, test, None, None, None, "There are too few differing readings to tell.")
    found = stats.spearmanr(order, residual)
    rho, p = float(found.statistic), float(found.pvalue)
    holds = p >= ALPHA
    way = "greater" if rho > 0 else "smaller"
    falls = "in a random order this falls on all cells alike" if planned == "random" else "this falls on the last cells"
    said = (
        f"Readings did not drift while the study ran (ρ = {rho:.2f}, {_p(p)})."
        if holds
        else f"Readings grew {way} while the study ran (ρ = {rho:.2f}, {_p(p)}): {falls}."
    )
    return Assumption(name, test, rho, p, holds, said)


def _repetitions_alike(residual: Floats, repetition: Ints, residual_degrees: int) -> Assumption:
    """As blocks: what repetitions explain of the residual, against the rest of it."""
    name, test = "repetitions alike", "analysis of variance of residuals by repetition"
    _, block = np.unique(repetition, return_inverse=True)
    n = np.bincount(block)
    degrees = residual_degrees - (len(n) - 1)
    total = float((residual**2).sum())
    if len(n) < 2 or degrees < 1 or total == 0:
        return Assumption(name, test, None, None, None, "There are too few repetitions to tell.")
    between = float((n * (np.bincount(block, weights=residual) / n) ** 2).sum())
    f = between / (len(n) - 1) / max((total - between) / degrees, 1e-300)
    p = float(stats.f.sf(f, len(n) - 1, degrees))
    holds = p >= ALPHA
    said = (
        f"Repetitions do not differ as wholes (F = {f:.2f}, {_p(p)})."
        if holds
        else f"Some repetitions were slower or faster as wholes (F = {f:.2f}, {_p(p)}): readings of one repetition are "
        "not independent, and intervals are somewhat too wide or narrow."
    )
    return Assumption(name, test, f, p, holds, said)


def _residuals(residual: Floats, fitted: Floats, order: Ints) -> Residuals:
    """With the normal quantile of each: its rank among all of them, by Blom's rule."""
    n = len(residual)
    quantile = stats.norm.ppf((stats.rankdata(residual) - 0.375) / (n + 0.25))
    drawn = np.arange(n)
    if n > MOST_DRAWN:
        drawn = np.sort(np.random.default_rng(0).choice(n, MOST_DRAWN, replace=False))
    columns = (order[drawn].tolist(), fitted[drawn].tolist(), residual[drawn].tolist(), quantile[drawn].tolist())
    return Residuals(*(tuple(column) for column in columns))


def _p(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
