"""A measured figure beside the one to reach, and the intervals both come with."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 4000


@dataclass(frozen=True)
class Figure:
    """`value` with its 95 % interval; `reach` None: shown, not judged. `void`: why it does not count, fast or not."""

    measure: str
    value: float
    interval: tuple[float, float] | None = None
    reach: float | None = None
    better: Literal["more", "less"] = "more"
    unit: str = "×"
    note: str = ""
    void: str = ""

    @property
    def reached(self) -> bool | None:
        if self.reach is None:
            return None
        if self.void:
            return False
        return self.value >= self.reach if self.better == "more" else self.value <= self.reach

    def row(self) -> list[str]:
        between = "" if self.interval is None else f"({_short(self.interval[0])} to {_short(self.interval[1])})"
        sign = "≥" if self.better == "more" else "≤"
        wanted = "" if self.reach is None else f"{sign} {_short(self.reach)} {self.unit}"
        verdict = {None: "", True: "reached", False: "MISSED"}[self.reached]
        return [
            self.measure,
            f"{_short(self.value)} {self.unit}",
            between,
            wanted,
            verdict,
            "; ".join(filter(None, (self.note, self.void))),
        ]

    def to_json(self) -> dict[str, Any]:
        judged = {"reach": self.reach, "better": self.better, "reached": self.reached}
        interval = self.interval and list(self.interval)
        return (
            {"measure": self.measure, "value": self.value, "interval_95": interval, "unit": self.unit}
            | judged
            | {
                "note": self.note,
                "void": self.void,
            }
        )


HEADER = ["measure", "measured", "95 %", "to reach", "", "note"]


def _short(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def ratio_of_medians(above: Sequence[float], below: Sequence[float]) -> tuple[float, tuple[float, float]]:
    """median(above) / median(below), with a bootstrap interval; for runs that are independent of each other."""
    rng = np.random.default_rng(1)
    a, b = np.asarray(above), np.asarray(below)
    ratios = np.median(rng.choice(a, (RESAMPLES, len(a))), axis=1) / np.median(
        rng.choice(b, (RESAMPLES, len(b))), axis=1
    )
    return float(np.median(a) / np.median(b)), _interval(ratios)


Blocks = Sequence[Sequence[float]]


def ratio_over_blocks(above: Blocks, below: Blocks) -> tuple[float, tuple[float, float]]:
    """The same of readings taken in blocks side by side: whole blocks are resampled, in pairs."""
    a, b = _resampled_medians(above, below)
    return _median(above) / _median(below), _interval(a / b)


def difference_over_blocks(above: Blocks, below: Blocks) -> tuple[float, tuple[float, float]]:
    a, b = _resampled_medians(above, below)
    return _median(above) - _median(below), _interval(a - b)


def _median(blocks: Blocks) -> float:
    return float(np.median(np.concatenate([np.asarray(block) for block in blocks])))


def _resampled_medians(above: Blocks, below: Blocks) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    a, b = np.asarray(above, np.float64), np.asarray(below, np.float64)
    chosen = np.random.default_rng(1).integers(0, len(a), (RESAMPLES // 4, len(a)))
    flat = (RESAMPLES // 4, -1)
    return np.median(a[chosen].reshape(flat), axis=1), np.median(b[chosen].reshape(flat), axis=1)


def _interval(values: NDArray[np.float64]) -> tuple[float, float]:
    low, high = np.percentile(values, [2.5, 97.5])
    return float(low), float(high)


def slope(x: Sequence[float], y: Sequence[float]) -> tuple[float, tuple[float, float]]:
    """Least squares; the interval by resampling ten stretches of the run, for neighbouring readings are alike."""
    xs, ys = np.asarray(x), np.asarray(y)
    parts = np.array_split(np.arange(len(xs)), 10)
    rng = np.random.default_rng(1)
    fits = []
    for _ in range(500):
        chosen = np.concatenate([parts[i] for i in rng.integers(0, len(parts), len(parts))])
        if np.ptp(xs[chosen]) > 0:
            fits.append(np.polyfit(xs[chosen], ys[chosen], 1)[0])
    return float(np.polyfit(xs, ys, 1)[0]), _interval(np.asarray(fits))
