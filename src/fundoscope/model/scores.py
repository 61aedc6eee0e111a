"""Predictions into Scores: how good a model is, at every level a screening programme asks about.

scores.json of a run (`score_run`), and of RUN/on/NAME (`score_elsewhere`; no "tune")
    operating_points   [{name, threshold, target, measure}], chosen on the tuning part only
    tune, test         Scores

Scores
    n, n_positive, n_patients (null where unknown), n_ungradable, referral_from, seed, resamples
    image, eye, patient    a Level; eye and patient are null where no photograph says whose it is

Level: Measures for each way to treat ungradable photographs
    gradable    they are left out
    all         intention to screen: referred at every threshold, and above all others in the ROC
    ungated     as if nobody checked: the model's answer for each photograph, as in most papers

Measures
    n, n_positive
    auc                 Estimate {value, low, high, method, n, reason}; nulls and a reason where there is none
    operating_points    {name: {threshold, sensitivity, specificity, ppv, npv (Estimates), tp, fp, tn, fn}}
  and at image level
    per_grade_sensitivity    [{grade, n, referred: {name: Estimate}}]: the share of each true grade referred
    kappa, accuracy     Estimates over the median grade; kappa has quadratic weights
    confusion           [[true 0 given 0 … 4] …]; "all" has a sixth column, ungradable; null: a referral head
    calibration         {brier, brier_of_prevalence, ece, mean_predicted, prevalence,
                         bins: [{low, high, n, predicted, observed: Estimate}]}
    In "all" kappa, accuracy and calibration are null: a photograph that was not graded has no grade and no
    probability to compare.

An eye has the highest grade, and the highest referral probability, of its photographs; a patient those of the
worse eye. A single ungradable photograph refers the eye and the patient (in "all"). PPV and NPV hold at the
prevalence of the set they were measured on. Thresholds are chosen per photograph and used unchanged for eyes
and patients.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from fundoscope.data.grades import grade_of
from fundoscope.model.curves import calibration
from fundoscope.model.intervals import Floats, Interval, auc, bootstrap, proportion, unknown
from fundoscope.model.operating import OperatingPoint, choose_operating_points
from fundoscope.model.predictions import GRADES, Predictions

WAYS = ("gradable", "all", "ungated")
REFERRAL_ONLY = "the model answers referral only, not grades"
NOT_GRADED = "an ungradable photograph has no grade and no probability"


@dataclass(frozen=True)
class Cases:
    """What is scored once: photographs, eyes or patients. `cluster` says which ones belong to one patient."""

    grade: NDArray[np.int64]
    positive: NDArray[np.bool_]
    score: Floats
    cluster: NDArray[np.int64]


def score_run(
    predictions: Predictions,
    *,
    referral_from: int = 2,
    sensitivity: float = 0.95,
    specificity: float = 0.95,
    seed: int = 0,
    resamples: int = 2000,
) -> dict[str, Any]:
    """scores.json of a run, from predictions whose `split` says tune and test."""
    tune, test = predictions.of("tune"), predictions.of("test")
    points = choose_operating_points(
        tune, referral_from=referral_from, sensitivity=sensitivity, specificity=specificity
    )
    found = {
        name: score(part, points, referral_from=referral_from, seed=seed, resamples=resamples)
        for name, part in (("tune", tune), ("test", test))
    }
    return {"operating_points": [asdict(point) for point in points], **found}


def score_elsewhere(
    predictions: Predictions,
    points: Sequence[OperatingPoint],
    *,
    referral_from: int = 2,
    seed: int = 0,
    resamples: int = 2000,
) -> dict[str, Any]:
    """scores.json of a run on photographs of another set, all of them unseen, at the run's own thresholds."""
    found = score(predictions, points, referral_from=referral_from, seed=seed, resamples=resamples)
    return {"operating_points": [asdict(point) for point in points], "test": found}


def score(
    predictions: Predictions,
    points: Sequence[OperatingPoint],
    *,
    referral_from: int = 2,
    seed: int = 0,
    resamples: int = 2000,
) -> dict[str, Any]:
    """Scores, ready for JSON: no NaN, no infinity."""
    known = predictions.patient != ""
    levels = {
        "image": np.ones(len(predictions), dtype=bool),
        "eye": known & (predictions.eye != ""),
        "patient": known,
    }
    found: dict[str, Any] = {
        "n": len(predictions),
        "n_positive": int((predictions.grade >= referral_from).sum()),
        "n_patients": len(np.unique(predictions.patient[known])) if known.any() else None,
        "n_ungradable": int((~predictions.gradable).sum()),
        "referral_from": referral_from,
        "seed": seed,
        "resamples": resamples,
    }
    for level, mask in levels.items():
        if level != "image" and not mask.any():
            found[level] = None
            continue
        found[level] = {}
        for way in WAYS:
            part = predictions.select(mask & predictions.gradable if way == "gradable" else mask)
            cases = cases_of(part, level=level, way=way, referral_from=referral_from)
            found[level][way] = _binary(cases, points)
            if level == "image":
                found[level][way] |= _graded(part, cases, points, way=way, seed=seed, resamples=resamples)
    return found


def cases_of(predictions: Predictions, *, level: str, way: str, referral_from: int = 2) -> Cases:
    """The photographs, eyes or patients of `predictions`, each with its worst grade and highest score."""
    highest = predictions.referral
    if way == "all":
        highest = np.where(predictions.gradable, highest, np.inf)
    patients, patient = np.unique(predictions.patient, return_inverse=True)
    unknown_patient = predictions.patient == ""
    # Whose patient is unknown is a patient of its own: nothing better is known.
    patient = np.where(unknown_patient, len(patients) + np.arange(len(predictions)), patient).astype(np.int64)
    if level == "image":
        return Cases(predictions.grade, predictions.grade >= referral_from, highest, patient)
    whose = patient * 2 + (predictions.eye == "right") if level == "eye" else patient
    _, first, of = np.unique(whose, return_index=True, return_inverse=True)
    grade, score = np.zeros(len(first), dtype=np.int64), np.full(len(first), -np.inf)
    np.maximum.at(grade, of, predictions.grade)
    np.maximum.at(score, of, highest)
    return Cases(grade, grade >= referral_from, score, patient[first])


def confusion(true: NDArray[np.int64], given: NDArray[np.int64]) -> NDArray[np.int64]:
    """counts[true grade, given grade]"""
    return np.bincount(true * GRADES + given, minlength=GRADES * GRADES).reshape(GRADES, GRADES)


def quadratic_kappa(counts: Floats) -> Floats:
    """Cohen's kappa with quadratic weights of each table in (…, 25); NaN where only one grade occurs."""
    tables = counts.reshape(*counts.shape[:-1], GRADES, GRADES)
    apart = np.subtract.outer(np.arange(GRADES), np.arange(GRADES)) ** 2.0
    seen = (tables * apart).sum(axis=(-2, -1))
    rows, columns = tables.sum(axis=-1), tables.sum(axis=-2)
    with np.errstate(divide="ignore", invalid="ignore"):
        by_chance = np.einsum("...i,ij,...j->...", rows, apart, columns) / tables.sum(axis=(-2, -1))
        return np.asarray(1 - seen / by_chance, dtype=np.float64)


def quick_auc(positive: NDArray[np.bool_], scores: NDArray[np.floating]) -> float:
    """The area without its interval: for every epoch of a training."""
    m, k = int(positive.sum()), int((~positive).sum())
    if m == 0 or k == 0:
        raise ValueError("an AUC needs both photographs that need referral and ones that do not")
    return float((rankdata(scores)[positive].sum() - m * (m + 1) / 2) / (m * k))


def quick_kappa(true: NDArray[np.int64], given: NDArray[np.int64]) -> float:
    """Quadratic kappa without its interval. NaN where all photographs have one grade and were given it."""
    return float(quadratic_kappa(confusion(true, given).reshape(-1).astype(float)))


def _binary(cases: Cases, points: Sequence[OperatingPoint]) -> dict[str, Any]:
    """What is asked at every level: the area, and the four rates at each operating point."""
    return {
        "n": len(cases.positive),
        "n_positive": int(cases.positive.sum()),
        "auc": auc(cases.positive, cases.score, cases.cluster).to_json(),
        "operating_points": {point.name: _at(point.threshold, cases) for point in points},
    }


def _at(threshold: float, cases: Cases) -> dict[str, Any]:
    referred, positive = cases.score >= threshold, cases.positive

    def share(hits: NDArray[np.bool_], among: NDArray[np.bool_], of: str) -> dict[str, Any]:
        return proportion(hits[among], cases.cluster[among], of=of).to_json()

    return {
        "threshold": threshold,
        "sensitivity": share(referred, positive, "case that needs referral"),
        "specificity": share(~referred, ~positive, "case that needs none"),
        "ppv": share(positive, referred, "case that was referred"),
        "npv": share(~positive, ~referred, "case that was not referred"),
        "tp": int((referred & positive).sum()),
        "fp": int((referred & ~positive).sum()),
        "tn": int((~referred & ~positive).sum()),
        "fn": int((~referred & positive).sum()),
    }


def _graded(
    part: Predictions, cases: Cases, points: Sequence[OperatingPoint], *, way: str, seed: int, resamples: int
) -> dict[str, Any]:
    """What is asked of photographs only: referral by true grade, agreement of grades, calibration."""
    found: dict[str, Any] = {"per_grade_sensitivity": [_of_grade(k, cases, points) for k in range(GRADES)]}
    if part.probabilities is None:
        no = unknown(REFERRAL_ONLY, n=len(part)).to_json()
        found |= {"kappa": no, "accuracy": no, "confusion": None}
    else:
        table, kappa, accuracy = _agreement(part, cases.cluster, way=way, seed=seed, resamples=resamples)
        found |= {"kappa": kappa.to_json(), "accuracy": accuracy.to_json(), "confusion": table}
    found["calibration"] = None if way == "all" else calibration(cases.positive, cases.score, cases.cluster)
    return found


def _of_grade(grade: int, cases: Cases, points: Sequence[OperatingPoint]) -> dict[str, Any]:
    mask = cases.grade == grade
    referred = {
        point.name: proportion(
            cases.score[mask] >= point.threshold, cases.cluster[mask], of=f"photographs of grade {grade}"
        ).to_json()
        for point in points
    }
    return {"grade": grade, "n": int(mask.sum()), "referred": referred}


def _agreement(
    part: Predictions, cluster: NDArray[np.int64], *, way: str, seed: int, resamples: int
) -> tuple[list[list[int]], Interval, Interval]:
    assert part.probabilities is not None
    given = grade_of(part.probabilities)
    if way == "all":
        graded = part.gradable
        table = confusion(part.grade[graded], given[graded])
        ungradable = np.bincount(part.grade[~graded], minlength=GRADES)
        no = unknown(NOT_GRADED, n=len(part))
        return np.column_stack([table, ungradable]).tolist(), no, no
    table = confusion(part.grade, given)
    if len(part) == 0:
        return table.tolist(), unknown("no photographs"), unknown("no photographs")
    _, of = np.unique(cluster, return_inverse=True)
    counts = np.zeros((of.max() + 1, GRADES * GRADES), dtype=np.int64)  # a table of each patient's own
    np.add.at(counts, (of, part.grade * GRADES + given), 1)
    accuracy = bootstrap(counts, _accuracy, n=len(part), seed=seed, resamples=resamples)
    if accuracy.low is None:  # all right or all wrong
        accuracy = proportion(part.grade == given, cluster, of="photographs")
    if np.isnan(quadratic_kappa(table.reshape(-1).astype(float))):
        return (
            table.tolist(),
            unknown("every photograph has the same grade and was given it", n=len(part)),
            accuracy,
        )
    kappa = bootstrap(counts, quadratic_kappa, n=len(part), seed=seed, resamples=resamples)
    return table.tolist(), kappa, accuracy


def _accuracy(counts: Floats) -> Floats:
    with np.errstate(invalid="ignore"):  # a single patient left out leaves nothing
        return np.asarray(counts[..., :: GRADES + 1].sum(axis=-1) / counts.sum(axis=-1), dtype=np.float64)
