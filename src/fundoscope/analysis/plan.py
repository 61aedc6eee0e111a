"""The first two activities, understand and plan: what a study will take and what it can show, before it is run."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from statistics import median
from typing import Any

import numpy as np

from fundoscope.analysis.compare import detectable
from fundoscope.analysis.prices import PriceList, prices_of
from fundoscope.experiment.design import Cell, Design
from fundoscope.experiment.expect import Expected, expect
from fundoscope.experiment.machine import Machine, this_machine
from fundoscope.experiment.outcome import Measured, read_outcomes
from fundoscope.experiment.study import Study

ASSUMED_VARIATION = 0.05  # between repetitions of a cell, where none are measured: shared machines are seldom better


@dataclass(frozen=True)
class Plan:
    design: Design
    machine: Machine
    expected: Expected
    usd: Mapping[int, float]  # of one trial, by cell
    prices: PriceList | None
    variation: float
    variation_measured: bool
    detectable: Mapping[str, float]  # factor -> the smallest ratio between two levels that will show

    def hours(self) -> float | None:
        """Of all trials that can run here; None: unknown."""
        each = list(self.expected.seconds.values())
        if not each or None in each:
            return None
        return self.design.repetitions * sum(s for s in each if s is not None) / 3600

    def total_usd(self) -> float | None:
        return self.design.repetitions * sum(self.usd.values()) if self.usd else None


def plan(study: Study, *, assumed_variation: float | None = None) -> Plan:
    design, machine = study.design, this_machine()
    walls = _walls(study)
    expected = expect(design, machine, walls)
    prices = prices_of(design)
    usd = {
        cell.number: prices.instance(machine_of(design, cell)).usd(up_s=seconds)
        for cell in design.cells
        if prices is not None and (seconds := expected.seconds.get(cell.number)) is not None
    }
    measured = _variation(walls)
    variation = assumed_variation or measured or ASSUMED_VARIATION
    return Plan(
        design,
        machine,
        expected,
        usd,
        prices,
        variation,
        variation_measured=assumed_variation is None and measured is not None,
        detectable=_detectable(design, variation),
    )


def machine_of(design: Design, cell: Cell) -> str:
    """The machine of the price list that a cell is billed as."""
    assert design.prices is not None
    return design.prices.machine or design.prices.machines[str(cell.levels[design.prices.factor])]


def _walls(study: Study) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    for outcome in read_outcomes(study.log) if study.log.is_file() else ():
        if isinstance(outcome, Measured):
            found.setdefault(outcome.trial.cell.number, []).append(outcome.ran.wall_s)
    return found


def _variation(walls: Mapping[int, list[float]]) -> float | None:
    """The median cell's coefficient of variation."""
    found = [float(np.std(some, ddof=1) / np.mean(some)) for some in walls.values() if len(some) > 1]
    return median(found) or None if found else None


def _detectable(design: Design, variation: float) -> dict[str, float]:
    found = {}
    for name, levels in design.factors.items():
        per_level = [sum(cell.levels[name] == level for cell in design.cells) for level in levels]
        if len(levels) > 1 and min(per_level) > 0 and design.repetitions * len(design.cells) > len(design.cells):
            found[name] = detectable(variation, design.repetitions, min(per_level), len(levels))
    return found


def stale(plan: Plan) -> str:
    return plan.prices.stale(date.today()) if plan.prices else ""


def values_of(found: Plan) -> dict[str, Any]:
    """For machines."""
    return {
        "cells": len(found.design.cells),
        "trials": len(found.design.trials),
        "order": [trial.id for trial in found.design.trials],
        "machine": found.machine.to_json(),
        "expected_s": {f"C{number}": seconds for number, seconds in found.expected.seconds.items()},
        "expected_from_trials": found.expected.measured,
        "cannot_run": {f"C{number}": why for number, why in found.expected.lacking.items()},
        "hours": found.hours(),
        "usd": found.total_usd(),
        "prices": found.prices.name if found.prices else None,
        "variation": found.variation,
        "variation_measured": found.variation_measured,
        "detectable_ratio": dict(found.detectable),
    }
