"""Operating points: the thresholds from which a photograph is referred, chosen on the tuning part.

Referred means `referral >= threshold`. A threshold that sat on a score would flip that photograph with the
last bit of a float, in another runtime or after rounding. So it is put half-way between two neighbouring
tuning scores: every tuning photograph is decided as it would be at the best threshold itself, and as far as
possible from the edge.
"""

from dataclasses import dataclass
from math import ceil, nextafter
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fundoscope.errors import FundoscopeError
from fundoscope.model.predictions import Predictions


@dataclass(frozen=True)
class OperatingPoint:
    name: str  # high_sensitivity | high_specificity
    threshold: float
    target: float
    measure: Literal["sensitivity", "specificity"]


def choose_operating_points(
    tune: Predictions, *, referral_from: int = 2, sensitivity: float = 0.95, specificity: float = 0.95
) -> tuple[OperatingPoint, ...]:
    """The highest threshold that keeps the sensitivity, and the lowest that keeps the specificity, on `tune`.

    A network good enough to keep both promises at once has them the wrong way round: every threshold between the two
    keeps both. The lower is then the high-sensitivity point and the higher the other, so that each deserves its name.
    Ungradable photographs have no say: they are referred whatever the threshold.
    """
    tune = tune.select(tune.gradable)
    scores, positive = tune.referral, tune.grade >= referral_from
    if not positive.any() or positive.all():
        what = "no gradable photograph that needs" if not positive.any() else "only gradable photographs that need"
        hint = "a tuning part needs both: prepare more photographs, or split them with another seed"
        raise FundoscopeError(f"the tuning part has {what} referral", hint)
    low, high = sorted((_highest(scores, positive, sensitivity), _lowest(scores, positive, specificity)))
    return (
        OperatingPoint("high_sensitivity", low, sensitivity, "sensitivity"),
        OperatingPoint("high_specificity", high, specificity, "specificity"),
    )


def _highest(scores: NDArray[np.float64], positive: NDArray[np.bool_], sensitivity: float) -> float:
    needed = max(1, _at_least(sensitivity, int(positive.sum())))
    kept = float(np.sort(scores[positive])[-needed])  # the last positive that must still be referred
    below = scores[scores < kept]
    return _between(float(below.max()) if len(below) else min(0.0, kept), kept)


def _lowest(scores: NDArray[np.float64], positive: NDArray[np.bool_], specificity: float) -> float:
    needed = max(1, _at_least(specificity, int((~positive).sum())))
    spared = float(np.sort(scores[~positive])[needed - 1])  # the last negative that must not be referred
    above = scores[scores > spared]
    return _between(spared, float(above.min()) if len(above) else max(1.0, nextafter(spared, 2.0)))


def _at_least(share: float, n: int) -> int:
    return ceil(share * n - 1e-9)  # 0.07 * 100 is 7.000000000000001


def _between(low: float, high: float) -> float:
    """Above `low` and not above `high`, half-way where floats leave room."""
    middle = (low + high) / 2
    return middle if middle > low else high
