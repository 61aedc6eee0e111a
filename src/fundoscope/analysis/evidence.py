"""What a study has to say to a printed statement: ratios, shares and what is missing; and how a verdict is reached.

The rule is the same for every number of ours with its 95 % interval:

    "about a", "a to b"   holds where the interval meets the band that the statement names; does not hold where it lies
                          beside it; undecided where it reaches out of the band on both sides
    "at least a", "more"  holds where all of the interval is above a; does not hold where all of it is below; else
                          undecided

Of a statement in several parts all must hold, and one that does not is enough for it not to. Without the factor, the
levels or the readings it speaks of, a statement is not measured, and says which are missing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import floor, isfinite, log10
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fundoscope.analysis.compare import Estimate, Matched, difference, estimate, logs_of, matched, spread_of
from fundoscope.analysis.cost import Billing
from fundoscope.analysis.table import Floats, Table

Verdict = Literal["holds", "does not hold", "undecided", "not measured"]


@dataclass(frozen=True)
class Evidence:
    table: Table
    machines: Mapping[str, Mapping[str, Any]]
    billing: Billing | None
    total_usd: float | None
    time: str = "train_s"  # which metric stands for the papers' training time

    def lacking(self, metric: str, **needed: tuple[str, ...]) -> str:
        """A sentence on what is missing, or empty."""
        _, cell = self.table.readings(metric)
        filled = np.bincount(cell, minlength=len(self.table.cells)) > 0
        if not filled.any():
            return f"No trial has a reading of {metric}."
        for factor, levels in needed.items():
            if factor not in self.table.design.factors:
                return f"This study has no factor called {factor}."
            gone = [level for level in levels if not (filled & self.table.where(**{factor: level})).any()]
            if gone:
                return f"No trial with {factor} {' or '.join(gone)} has a reading of {metric}."
        return ""

    def times(self, factor: str, one: str, other: str, **where: str) -> Matched | None:
        """Training time at one level over that at the other."""
        spread = logs_of(self.table, self.time)
        if spread is None:
            return None
        return matched(self.table, spread, factor, one, other, self.table.where(**where))

    def share(self, metric: str, **where: str) -> Estimate | None:
        """Mean use in per cent of all that the machine has, every cell counting once."""
        column = share_of_machine(self.table, metric, self.machines)
        return self.mean(column, self.table.where(**where))

    def mean(self, column: Floats, where: NDArray[np.bool_]) -> Estimate | None:
        known = np.isfinite(column)
        spread = spread_of(column[known], self.table.cell[known], len(self.table.cells))
        chosen = where & (spread.n > 0)
        return estimate(chosen / chosen.sum(), spread) if chosen.any() else None

    def more(self, metric: str, one: str, other: str, **where: str) -> Estimate | None:
        """By how many per cent of the machine one framework uses more than another."""
        column = share_of_machine(self.table, metric, self.machines)
        known = np.isfinite(column)
        spread = spread_of(column[known], self.table.cell[known], len(self.table.cells))
        return difference(self.table, spread, "framework", one, other, self.table.where(**where))


def within(low: float | None, high: float | None, least: float, most: float) -> Verdict:
    if low is None or high is None or (low < least and high > most):
        return "undecided"
    return "holds" if high >= least and low <= most else "does not hold"


def above(low: float | None, high: float | None, bound: float) -> Verdict:
    if low is None or high is None:
        return "undecided"
    if low >= bound:
        return "holds"
    return "does not hold" if high < bound else "undecided"


def all_of(*verdicts: Verdict) -> Verdict:
    for worst in ("does not hold", "undecided", "not measured"):
        if worst in verdicts:
            return worst
    return "holds"


def said_times(found: Matched) -> str:
    text = f"{with_range(found.ratio.value, found.ratio.low, found.ratio.high, ' times')}"
    if found.pairs > 1:
        return f"{text} over {found.pairs:,} pairs of cells ({found.least:.3g} to {found.greatest:.3g} in single ones)"
    return f"{text} in one pair of cells"


def with_range(value: float, low: float | None, high: float | None, unit: str, sign: str = "") -> str:
    """With as many decimals as the interval bears: its width has two figures, and so has a small lower end."""
    if low is None or high is None or high <= low:
        return f"{value:{sign}.3g}{unit} (no interval)"
    decimals = min(6, max(0, 1 - floor(log10(min(high - low, low if low > 0 else high - low)))))
    low_text, high_text = f"{low:{sign}.{decimals}f}", f"{high:{sign}.{decimals}f}"
    return f"{value:{sign}.{decimals}f}{unit} ({low_text} to {high_text})"


def said_percent(found: Estimate) -> str:
    return with_range(found.value, found.low, found.high, " %")


def share_of_machine(table: Table, metric: str, machines: Mapping[str, Mapping[str, Any]]) -> Floats:
    """A column of use as the papers give it: per cent of all the machine has. NaN where its facts are not known.

    Of processors, all that a trial was given: the papers' four are all their machines have.
    """
    whole = np.array([_whole(metric, machines.get(digest, {})) for digest in table.machines] or [np.nan])[table.machine]
    if metric.startswith("cpu_percent") and "threads" in table.metrics:
        whole = np.fmin(whole, 100 * table.metrics["threads"] + 0 * whole)  # unknown stays unknown
    column = table.metrics.get(metric, np.full(len(table.cell), np.nan))
    return np.asarray(100 * column / whole, np.float64)


def _whole(metric: str, facts: Mapping[str, Any]) -> float:
    """How much of it there is, in the metric's unit."""
    if metric.startswith("cpu_percent"):
        processors = facts.get("quota") or facts.get("processors")
        return 100 * _positive(processors)
    if metric.startswith("memory_mb"):
        return 1000 * _positive(facts.get("memory_gb"))
    if metric.startswith("gpu_memory_mb"):
        gpus = facts.get("gpus") or [{}]
        return sum(_positive(gpu.get("memory_mb")) for gpu in gpus)
    return 100.0  # is per cent of the whole already


def _positive(value: Any) -> float:
    known = isinstance(value, int | float) and isfinite(value) and value > 0
    return float(value) if known else float("nan")
