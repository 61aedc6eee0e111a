"""The guard: a smaller model must be as good as the float32 one where it matters, or it is refused.

What is compared. The same held-out photographs, none of which either model learnt from or was calibrated on, at the
artefact's frozen operating points: sensitivity and specificity at each, and quadratic kappa where there are grades.
Ungradable photographs have no say: they are referred whatever the model answers. Non-inferior means that the
one-sided 97.5 % lower bound of (candidate - float32) lies above -margin, for every one of these differences. All of
them must pass, so nothing is gained by trying several, and no correction for it is needed.

The bound. A paired bootstrap over patients (model/intervals.py: 2000 resamples, bias-corrected and accelerated); and
for the two rates Tango's score interval for paired proportions (Stat Med 1998, 17:891), the counts divided by the
design effect of patients. The lower of the two decides. A bootstrap of few flips promises too much, and of none
promises certainty: ten photographs without a flip would pass any model. Tango's interval does not: with no flip at all
it takes z²(1 - margin)/margin photographs of each kind, 189 for a margin of 0.02, to show anything.

The margin. 0.02, absolute: of fifty patients who need referral the smaller model may miss, at the very worst, one more.
It is less than half of what the trial that cleared the first such system could see (Abràmoff et al. 2018, npj Digit Med
1:39: sensitivity 87.2 %, interval 81.8 to 91.2; specificity 90.7 %, 88.3 to 92.7), and not too small for the test part
of a public dataset to show. State another with --margin where a programme has reason to.

Attempts. The promise, that a candidate worse by the margin passes at most once in forty times, is for one candidate. Of
k that the same photographs have judged, a worse one passes with a chance of at most k × 2.5 % (Bonferroni's bound: it
asks for no independence). artefact/attempts.py counts them; the guard says the number and the bound.

Flips: photographs that one model refers and the other does not, by direction and by true grade. They are counted, not
judged: as many lost as gained leave sensitivity as it was, and are still different patients.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import ceil, sqrt
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from fundoscope.artefact.artefact import OperatingPoint
from fundoscope.data.grades import grade_of
from fundoscope.errors import FundoscopeError
from fundoscope.model.intervals import Floats, Z, bootstrap
from fundoscope.model.predictions import GRADES, Predictions
from fundoscope.model.scores import Cases, cases_of, quadratic_kappa

MARGIN, RESAMPLES = 0.02, 2000
ALPHA = 0.025  # one-sided: how often one candidate that is worse by the margin may pass
Verdict = Literal["non-inferior", "inferior", "undecided"]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Difference:
    """Candidate minus float32, its one-sided 97.5 % bounds, and what follows from them."""

    measure: Literal["sensitivity", "specificity", "kappa"]
    operating_point: str | None
    float32: float
    candidate: float
    value: float
    low: float
    high: float
    n: int  # photographs it was measured on
    verdict: Verdict
    needed: int | None  # roughly how many of them would decide, at these rates; None where no number would, or it has


@dataclass(frozen=True)
class Flips:
    """Photographs referred by one model and not by the other, in all and for each true grade."""

    lost: int  # float32 refers them, the candidate does not
    gained: int
    lost_by_grade: tuple[int, ...]
    gained_by_grade: tuple[int, ...]


@dataclass(frozen=True)
class Guard:
    passed: bool
    why: str
    margin: float
    photographs: int
    patients: int | None  # None: not known whose they are
    differences: tuple[Difference, ...]
    flips: dict[str, Flips]  # by operating point
    grade_changes: int | None  # None: a model that gives no grades
    grade_changes_by_grade: tuple[int, ...] | None
    seed: int
    resamples: int
    attempts: int = 1  # candidates that the same photographs had judged by then, this one among them

    @property
    def worse_passes_at_most(self) -> float:
        """The chance that one of them, worse by the margin, passes."""
        return min(1.0, round(self.attempts * ALPHA, 6))

    @property
    def caution(self) -> str:
        """What several attempts do to the guard's promise; empty: there was one."""
        if self.attempts == 1:
            return ""
        return (
            f"one of {self.attempts} candidates that the same photographs have judged: the chance that one worse by "
            f"{self.margin:g} passes is at most {100 * self.worse_passes_at_most:g} %, not {100 * ALPHA:g} %"
        )

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "worse_passes_at_most": self.worse_passes_at_most, "caution": self.caution}


def judge(
    before: Predictions,
    after: Predictions,
    points: Sequence[OperatingPoint],
    *,
    referral_from: int,
    margin: float = MARGIN,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Guard:
    """Is `after`, the candidate, as good as `before`, float32, on the same held-out photographs?"""
    if not np.array_equal(before.id, after.id):
        raise ValueError("the two models answered other photographs")
    before, after = before.select(before.gradable), after.select(after.gradable)
    cases = cases_of(before, level="image", way="gradable", referral_from=referral_from)
    _check_both_kinds(cases.positive, referral_from)
    options: dict[str, Any] = {"seed": seed, "resamples": resamples}
    differences, flips = [], {}
    for point in points:
        referred = before.referral >= point.threshold, after.referral >= point.threshold
        flips[point.name] = _flips(*referred, before.grade)
        differences += _rates(cases, *referred, point.name, margin, options)
    changes = None
    if before.probabilities is not None and after.probabilities is not None:
        given = grade_of(before.probabilities), grade_of(after.probabilities)
        changes = _by_grade(given[0] != given[1], before.grade)
        found = _kappa_difference(before.grade, *given, cases.cluster, **options)
        differences.append(_difference("kappa", None, found, margin, _needed_for_kappa(found, margin)))
    known = before.patient != ""
    failed = [difference for difference in differences if difference.verdict != "non-inferior"]
    return Guard(
        passed=not failed,
        why=_why(failed, margin, len(before)),
        margin=margin,
        photographs=len(before),
        patients=len(np.unique(before.patient[known])) if known.any() else None,
        differences=tuple(differences),
        flips=flips,
        grade_changes=None if changes is None else sum(changes),
        grade_changes_by_grade=changes,
        seed=seed,
        resamples=resamples,
    )


def _rates(
    cases: Cases, before: Bools, after: Bools, point: str, margin: float, options: dict[str, Any]
) -> list[Difference]:
    """Sensitivity and specificity at one operating point, where `before` and `after` say who is referred."""
    differences = []
    for measure, among, right in (
        ("sensitivity", cases.positive, (before, after)),
        ("specificity", ~cases.positive, (~before, ~after)),
    ):
        hits, cluster = (right[0][among], right[1][among]), cases.cluster[among]
        found = rate_difference(*hits, cluster, **options)
        differences.append(_difference(measure, point, found, margin, _needed(*hits, cluster, margin)))
    return differences


@dataclass(frozen=True)
class _Found:
    float32: float
    candidate: float
    low: float
    high: float
    n: int

    @property
    def value(self) -> float:
        return self.candidate - self.float32


def rate_difference(before: Bools, after: Bools, cluster: Ints, *, seed: int, resamples: int) -> _Found:
    """The share of True in `after` less that in `before`; the wider of the bootstrap's and Tango's interval."""
    n = len(before)
    gained, lost, effective = _effective_counts(before, after, cluster)
    low, high = tango(gained, lost, effective)
    counts = _per_patient(np.column_stack([np.ones(n, np.int64), before, after]), cluster)
    resampled = bootstrap(counts, _rate_change, n=n, seed=seed, resamples=resamples)
    if resampled.low is not None and resampled.high is not None:  # None: no flip, so nothing that differs
        low, high = min(low, resampled.low), max(high, resampled.high)
    return _Found(float(before.mean()), float(after.mean()), low, high, n)


def tango(gained: float, lost: float, n: float) -> tuple[float, float]:
    """Tango's 95 % score interval of (gained - lost) / n, of n pairs; effective numbers may be fractions."""

    def distance(difference: float) -> float:
        """Standard errors from what was seen to `difference`, were that the truth."""
        linear = (2 * n - gained + lost) * difference - gained - lost
        constant = -lost * difference * (1 - difference)
        share_lost = (sqrt(max(0.0, linear**2 - 8 * n * constant)) - linear) / (4 * n)
        variance = n * (2 * share_lost + difference * (1 - difference))
        return (gained - lost - n * difference) / sqrt(max(variance, 1e-300))

    seen, edge = (gained - lost) / n, 1 - 1e-12
    low = -1.0 if lost >= n else brentq(lambda d: distance(d) - Z, -edge, min(seen, edge), xtol=1e-12)
    high = 1.0 if gained >= n else brentq(lambda d: distance(d) + Z, max(seen, -edge), edge, xtol=1e-12)
    return float(low), float(high)


def _effective_counts(before: Bools, after: Bools, cluster: Ints) -> tuple[float, float, float]:
    """Gained, lost and all photographs, divided by how many times more there are than independent ones."""
    change = after.astype(np.int64) - before
    n = len(change)
    per_patient = _per_patient(np.column_stack([np.ones(n, np.int64), change]), cluster)
    patients, independent = len(per_patient), change.var() / n
    if patients == n:
        effect = 1.0
    elif independent == 0 or patients == 1:  # nothing to estimate it from: each patient counts once
        effect = n / patients
    else:  # Rao and Scott's ratio, as for a single rate in model/intervals.py
        residuals = per_patient[:, 1] - change.mean() * per_patient[:, 0]
        effect = max(1.0, patients / (patients - 1) * float(residuals @ residuals) / n**2 / independent)
    return int((change > 0).sum()) / effect, int((change < 0).sum()) / effect, n / effect


def _per_patient(columns: Ints, cluster: Ints) -> Ints:
    """Sums of each column over each patient's photographs."""
    _, of = np.unique(cluster, return_inverse=True)
    sums = np.zeros((of.max() + 1, columns.shape[1]), dtype=np.int64)
    np.add.at(sums, of, columns)
    return sums


def _rate_change(counts: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):  # a single patient left out leaves nothing
        return np.asarray((counts[:, 2] - counts[:, 1]) / counts[:, 0], dtype=np.float64)


def _kappa_difference(true: Ints, before: Ints, after: Ints, cluster: Ints, *, seed: int, resamples: int) -> _Found:
    tables = GRADES * GRADES
    cells = np.zeros((len(true), 2 * tables), dtype=np.int64)
    for column, given in ((0, before), (tables, after)):
        cells[np.arange(len(true)), column + true * GRADES + given] = 1
    counts = _per_patient(cells, cluster)
    whole = counts.sum(axis=0).astype(float)
    kappas = float(quadratic_kappa(whole[:tables])), float(quadratic_kappa(whole[tables:]))
    if np.array_equal(before, after):
        return _Found(*kappas, 0.0, 0.0, len(true))
    found = bootstrap(
        counts,
        lambda c: quadratic_kappa(c[:, tables:]) - quadratic_kappa(c[:, :tables]),
        n=len(true),
        seed=seed,
        resamples=resamples,
    )
    low, high = (-2.0, 2.0) if found.low is None or found.high is None else (found.low, found.high)
    return _Found(*kappas, low, high, len(true))


def _difference(measure: Any, point: str | None, found: _Found, margin: float, needed: int | None) -> Difference:
    verdict: Verdict = "undecided"
    if found.low > -margin:
        verdict, needed = "non-inferior", None
    elif found.high < -margin:
        verdict, needed = "inferior", None
    values = found.float32, found.candidate, found.value, found.low, found.high, found.n
    return Difference(measure, point, *values, verdict, needed)


def _needed(before: Bools, after: Bools, cluster: Ints, margin: float) -> int | None:
    """How many photographs would show it, should flips go on at this rate: the least n with Tango's bound inside."""
    gained, lost, n = _effective_counts(before, after, cluster)
    if (gained - lost) / n <= -margin:
        return None
    times = 1.0
    while tango(gained * times, lost * times, n * times)[0] <= -margin:
        times *= 1.02
    return ceil(len(before) * times)


def _needed_for_kappa(found: _Found, margin: float) -> int | None:
    if not found.value > -margin:
        return None
    return ceil(found.n * max(1.0, (found.value - found.low) / (found.value + margin)) ** 2)


def _flips(before: Bools, after: Bools, grade: Ints) -> Flips:
    lost, gained = before & ~after, after & ~before
    return Flips(int(lost.sum()), int(gained.sum()), _by_grade(lost, grade), _by_grade(gained, grade))


def _by_grade(which: Bools, grade: Ints) -> tuple[int, ...]:
    return tuple(int(n) for n in np.bincount(grade[which], minlength=GRADES))


def _check_both_kinds(positive: Bools, referral_from: int) -> None:
    if len(positive) and positive.any() and not positive.all():
        return
    what = "no gradable photograph" if not len(positive) else f"none of grade {referral_from} or above"
    what = f"none below grade {referral_from}" if len(positive) and positive.all() else what
    hint = "a guard needs photographs that are to be referred and ones that are not: give other records"
    raise FundoscopeError(f"the test part has {what}", hint)


def _why(failed: Sequence[Difference], margin: float, photographs: int) -> str:
    """One sentence: the worst of what failed."""
    if not failed:
        return f"not inferior to float32 by {margin:g} or more, on {photographs} photographs"
    worst = min(failed, key=lambda difference: difference.low)
    what = worst.measure + (f" at {worst.operating_point}" if worst.operating_point else "")
    more = f"; {len(failed) - 1} more failed" if len(failed) > 1 else ""
    seen = f"{worst.value:+.4f} on {worst.n} photographs, bound {worst.low:+.4f}, margin {margin:g}"
    if worst.verdict == "inferior":
        return f"its {what} is worse than float32's: {seen}{more}"
    enough = f"; it would take about {worst.needed} to tell" if worst.needed is not None else ""
    return f"its {what} may be worse than float32's: {seen}{enough}{more}"
