"""How sure a number is: every rate, area and agreement with its 95 % interval, by patient.

What is used, and why:

* **A proportion** (sensitivity, a bin of the reliability curve …): Wilson's interval, which is right near 0
  and 1 too. Several photographs of one patient are not independent, so their number is first divided by the
  design effect (Rao and Scott 1992, Biometrics 48:577), never by less than one; where all of them agree the
  design effect cannot be estimated, and each patient counts once.
* **An AUC**: DeLong's variance (Biometrics 1988, 44:837) by the midranks of Sun and Xu (IEEE SPL 2014,
  21:1389), O(n log n); summed over patients as in Obuchowski (Biometrics 1997, 53:567), which is DeLong's
  exactly where every patient has one photograph. The interval is symmetric on the logit scale: the plain one
  runs past 1 for good models and covers less often than it says. A variance of zero (perfect separation) or
  of one case is no certainty: there the score interval of Newcombe (Stat Med 2006, 25:559, method 5) is used,
  with patients as the sample size.
* **The difference of two AUCs** on the same photographs: DeLong's covariance, plain scale, as is usual.
* **Kappa and accuracy**: bias-corrected accelerated bootstrap (Efron 1987) over patients.

What cannot be computed is an `Interval` of None with a reason, so that no NaN reaches a file.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit, logit, ndtr, ndtri
from scipy.stats import rankdata

Floats = NDArray[np.float64]
Z = float(ndtri(0.975))  # everything here is a 95 % interval


@dataclass(frozen=True)
class Interval:
    """A value and its 95 % interval; None where there is none, and then `reason` says why."""

    value: float | None
    low: float | None
    high: float | None
    method: str
    n: int
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Comparison:
    """Two AUCs on the same photographs: each, first minus second, and the p value of no difference."""

    first: Interval
    second: Interval
    difference: Interval
    p: float | None


def unknown(reason: str, *, n: int = 0, value: float | None = None) -> Interval:
    return Interval(value, None, None, "", n, reason)


def wilson(hits: float, n: float) -> tuple[float, float]:
    """Wilson's interval of hits / n; both may be fractions (effective numbers)."""
    share, spread = hits / n, Z * Z / n
    centre = share + spread / 2
    half = Z * np.sqrt(share * (1 - share) / n + spread / (4 * n))
    # Without the exact ends, rounding leaves 1e-17 below 0 and 1 - 1e-16 for all hits.
    low = 0.0 if hits <= 0 else float((centre - half) / (1 + spread))
    high = 1.0 if hits >= n else float((centre + half) / (1 + spread))
    return max(0.0, low), min(1.0, high)


def proportion(hits: NDArray[np.bool_], clusters: NDArray[np.int64], *, of: str) -> Interval:
    """The share of True with Wilson's interval; `of` names what is counted, should there be none."""
    n = len(hits)
    if n == 0:
        return unknown(f"no {of}")
    effect = _design_effect(hits, clusters)
    low, high = wilson(hits.sum() / effect, n / effect)
    method = "Wilson" if effect == 1 else f"Wilson, by patient (design effect {effect:.2f})"
    return Interval(float(hits.mean()), low, high, method, n)


def _design_effect(hits: NDArray[np.bool_], clusters: NDArray[np.int64]) -> float:
    """How many times more photographs than independent ones there are: Rao and Scott's ratio, at least 1."""
    n = len(hits)
    _, of = np.unique(clusters, return_inverse=True)
    per_cluster = np.bincount(of)
    if len(per_cluster) == n:
        return 1.0
    share = hits.mean()
    if share in (0, 1) or len(per_cluster) == 1:
        return n / len(per_cluster)
    residuals = np.bincount(of, weights=hits) - share * per_cluster
    variance = len(per_cluster) / (len(per_cluster) - 1) * (residuals @ residuals) / n**2
    return float(max(1.0, variance / (share * (1 - share) / n)))


def auc(
    positive: NDArray[np.bool_],
    scores: Floats,
    clusters: NDArray[np.int64],
    *,
    scale: Literal["logit", "plain"] = "logit",
) -> Interval:
    """The area under the ROC curve: ties count half, +inf ranks highest."""
    if (missing := _missing_class(positive)) is not None:
        return missing
    areas, covariance, patients = _areas(positive, scores[np.newaxis], clusters)
    area, variance, n = float(areas[0]), float(covariance[0, 0]), len(scores)
    by_patient = len(np.unique(clusters)) < n
    if not variance > 0 or min(patients) < 2 or area in (0, 1):  # `not >` catches the NaN of a single case
        low, high = _newcombe(area, *patients)
        return Interval(area, low, high, "Newcombe score", n)
    error = np.sqrt(variance)
    method = ("DeLong, by patient (Obuchowski)" if by_patient else "DeLong") + (", logit" if scale == "logit" else "")
    if scale == "plain":
        return Interval(area, float(area - Z * error), float(area + Z * error), method, n)
    half = Z * error / (area * (1 - area))
    return Interval(area, float(expit(logit(area) - half)), float(expit(logit(area) + half)), method, n)


def compare_aucs(positive: NDArray[np.bool_], first: Floats, second: Floats, clusters: NDArray[np.int64]) -> Comparison:
    """Is one scorer better than another on the same photographs? Paired: far sharper than two intervals."""
    if (missing := _missing_class(positive)) is not None:
        return Comparison(missing, missing, missing, None)
    areas, covariance, patients = _areas(positive, np.stack([first, second]), clusters)
    both = auc(positive, first, clusters), auc(positive, second, clusters)
    difference, n = float(areas[0] - areas[1]), len(first)
    variance = float(covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1])
    if min(patients) < 2:
        return Comparison(*both, unknown("one class has a single case", n=n, value=difference), None)
    if variance <= 1e-18:  # rounding of identical or equivalent scores
        if difference == 0:
            return Comparison(*both, Interval(0.0, 0.0, 0.0, "the same ranking", n), 1.0)
        return Comparison(*both, unknown("both separate the classes without error", n=n, value=difference), None)
    error = float(np.sqrt(variance))
    p = float(2 * ndtr(-abs(difference) / error))
    low, high = difference - Z * error, difference + Z * error
    return Comparison(*both, Interval(difference, low, high, "DeLong, paired", n), p)


def _missing_class(positive: NDArray[np.bool_]) -> Interval | None:
    if len(positive) == 0:
        return unknown("no photographs")
    if positive.all() or not positive.any():
        which = "every" if positive.all() else "no"
        return unknown(f"{which} photograph here needs referral", n=len(positive))
    return None


def _areas(
    positive: NDArray[np.bool_], scores: Floats, clusters: NDArray[np.int64]
) -> tuple[Floats, Floats, tuple[int, int]]:
    """AUC of each row of `scores`, their covariance, and how many patients have positives and negatives."""
    _, of = np.unique(clusters, return_inverse=True)
    n, m, k = len(positive), int(positive.sum()), int((~positive).sum())
    residuals = np.zeros((2, len(scores), of.max() + 1))  # of positives and negatives, summed over each patient
    areas = np.empty(len(scores))
    for i, row in enumerate(scores):
        among_all = rankdata(row)
        beaten = (among_all[positive] - rankdata(row[positive])) / k  # V10: share of negatives below each positive
        beating = 1 - (among_all[~positive] - rankdata(row[~positive])) / m  # V01: share of positives above
        areas[i] = beaten.mean()
        for j, (values, where) in enumerate(((beaten, positive), (beating, ~positive))):
            residuals[j, i] = np.bincount(of[where], weights=values - areas[i], minlength=residuals.shape[2])
    groups = [len(np.unique(of[where])) for where in (positive, ~positive)]
    with np.errstate(divide="ignore", invalid="ignore"):  # one patient in a class: the caller looks at `groups`
        ratios = [np.float64(g) / (g - 1) for g in groups]
        covariance = ratios[0] * residuals[0] @ residuals[0].T / m**2
        covariance = covariance + ratios[1] * residuals[1] @ residuals[1].T / k**2
    if residuals.shape[2] < n:  # patients with photographs of both classes
        both = residuals[0] @ residuals[1].T / (m * k) * len(residuals[0, 0]) / max(1, len(residuals[0, 0]) - 1)
        covariance = covariance + both + both.T
    return areas, covariance, (groups[0], groups[1])


def _newcombe(area: float, m: int, k: int) -> tuple[float, float]:
    """Newcombe's method 5: the areas that would find `area` within 1.96 of their own standard errors."""

    def error(theta: float) -> float:
        pairs = (m + k) / 2 - 1
        inflation = 1 + pairs * ((1 - theta) / (2 - theta) + theta / (1 + theta))
        return Z * float(np.sqrt(theta * (1 - theta) / (m * k) * inflation))

    edge = 1e-12  # 0 and 1 are roots of their own, and not the ones we want
    low = 0.0 if area <= 0 else brentq(lambda t: area - t - error(t), 0.0, min(area, 1 - edge))
    high = 1.0 if area >= 1 else brentq(lambda t: t - area - error(t), max(area, edge), 1.0)
    return float(low), float(high)


def bootstrap(
    counts: NDArray[np.int64],
    statistic: Callable[[Floats], Floats],
    *,
    n: int,
    seed: int,
    resamples: int,
) -> Interval:
    """The BCa interval of a statistic of counts: one row per patient, one column per cell of a table.

    Patients with the same row are interchangeable, so a resample is one multinomial draw over the distinct
    rows: at most 25 of them where each patient has one photograph, whatever the number of patients.
    """
    rows, times = np.unique(counts, axis=0, return_counts=True)
    patients = int(times.sum())
    value = float(statistic(counts.sum(axis=0, dtype=float)[np.newaxis])[0])
    method = f"bootstrap BCa, {resamples} resamples" + (f" of {patients} patients" if patients < n else "")
    draws = np.random.default_rng(seed).multinomial(patients, times / patients, size=resamples)
    values = statistic((draws @ rows).astype(float))
    values = values[np.isfinite(values)]
    if len(values) < 0.95 * resamples:
        return unknown("undefined in many resamples: too few photographs", n=n, value=value)
    if np.ptp(values) == 0:
        return unknown("no resample differs from the whole: nothing to judge its spread by", n=n, value=value)
    without = statistic((counts.sum(axis=0) - rows).astype(float))  # each patient left out in turn
    low, high = np.quantile(values, _bca_levels(value, values, without, times))
    return Interval(value, float(low), float(high), method, n)


def _bca_levels(value: float, values: Floats, without: Floats, times: NDArray[np.int64]) -> Floats:
    """Which quantiles of the resamples to take, given their bias and the skewness of the jackknife."""
    below = (values < value).mean() + (values == value).mean() / 2
    bias = ndtri(np.clip(below, 1 / len(values), 1 - 1 / len(values)))
    times, without = times[np.isfinite(without)], without[np.isfinite(without)]
    pull = (times @ without) / times.sum() - without if len(without) else without
    spread = times @ pull**2
    skew = (times @ pull**3) / (6 * spread**1.5) if spread > 0 else 0.0
    shifted = bias + np.array([-Z, Z])
    return np.asarray(ndtr(bias + shifted / (1 - skew * shifted)), dtype=np.float64)
