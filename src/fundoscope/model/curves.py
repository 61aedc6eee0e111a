"""The two curves behind the scores: the ROC, and how far a stated probability can be believed."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fundoscope.model.intervals import Floats, proportion


def roc_curve(positive: NDArray[np.bool_], scores: Floats) -> tuple[Floats, Floats]:
    """1 − specificity and sensitivity at every threshold, from (0, 0) to (1, 1)."""
    order = np.argsort(-scores, kind="stable")
    last_of_tie = np.append(scores[order][1:] != scores[order][:-1], True)
    hits = np.cumsum(positive[order])[last_of_tie]
    alarms = np.cumsum(~positive[order])[last_of_tie]
    return np.append(0.0, alarms / max(1, (~positive).sum())), np.append(0.0, hits / max(1, positive.sum()))


def calibration(positive: NDArray[np.bool_], scores: Floats, clusters: NDArray[np.int64], *, bins: int = 10) -> Any:
    """Do 30 of 100 photographs given 0.3 need referral? In bins of equal size; equal scores share one."""
    if len(scores) == 0:
        return None
    order = np.argsort(scores, kind="stable")
    position = np.empty(len(scores), dtype=np.int64)
    position[order] = np.arange(len(scores))
    _, tie = np.unique(scores, return_inverse=True)
    first_of_tie = np.full(tie.max() + 1, len(scores))
    np.minimum.at(first_of_tie, tie, position)
    # Twenty a bin, or a bin says nothing; at least two bins, so that there is a curve.
    bins = int(np.clip(len(scores) // 20, 2, bins))
    bin_of = first_of_tie[tie] * bins // len(scores)
    found, error = [], 0.0
    for number in np.unique(bin_of):
        inside = bin_of == number
        observed = proportion(positive[inside], clusters[inside], of="photographs")
        predicted = float(scores[inside].mean())
        error += inside.sum() * abs((observed.value or 0.0) - predicted) / len(scores)
        edges = {"low": float(scores[inside].min()), "high": float(scores[inside].max())}
        found.append({**edges, "n": int(inside.sum()), "predicted": predicted, "observed": observed.to_json()})
    prevalence = float(positive.mean())
    return {
        "brier": float(((scores - positive) ** 2).mean()),
        "brier_of_prevalence": prevalence * (1 - prevalence),
        "ece": float(error),
        "mean_predicted": float(scores.mean()),
        "prevalence": prevalence,
        "bins": found,
    }
