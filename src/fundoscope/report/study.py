"""The page of a study: the answer first, then everything it rests on. One HTML file, without a network.

Made from the findings alone, so that the same findings give the same bytes.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fundoscope.analysis.findings import Findings
from fundoscope.provenance import write_whole
from fundoscope.report import study_cells as cells
from fundoscope.report import study_charts as charts
from fundoscope.report import study_costs as money
from fundoscope.report import study_tables as tables
from fundoscope.report.study_words import answer, answer_pt, dollars, number_of, percent, strongest, unexplained
from fundoscope.report.template import fill

Series = Mapping[str, Sequence[Mapping[str, float]]]  # trial -> its samples, as in series/TRIAL.csv
TEMPLATES = Path(__file__).with_name("templates")
PLAN_NAMES = {"full": "full factorial", "one-at-a-time": "one factor at a time", "fractional": "fractional factorial"}
ORDER_NAMES = {"random": "a new random order in every repetition", "listed": "as listed, the same in every repetition"}
LAST_WORDS_SHOWN = 25  # reasons
LAST_WORDS_LENGTH = 4000  # characters


def write_study_report(findings: Findings, out: Path, *, series: Series | None = None) -> Path:
    write_whole(out, render(findings, series).encode(errors="replace"))
    return out


def render(findings: Findings, series: Series | None = None) -> str:
    return fill("study.html", _context(findings, series or {}))


def _context(findings: Findings, series: Series) -> dict[str, Any]:
    costs = findings.costs
    return {
        "f": findings,
        "answer": answer(findings),
        "resumo": answer_pt(findings),
        "tiles": _tiles(findings),
        "plan": _plan(findings),
        "factors": tables.factor_table(findings),
        "machines": tables.machine_table(findings),
        "versions": _versions(findings.made_by),
        "made": _made(findings.made_by),
        "cell_pictures": cells.cell_pictures(findings),
        "no_cells": _groups_without(findings),
        "series_pictures": cells.series_pictures(findings, series) if series else [],
        "cells": tables.cell_table(findings),
        **_effects(findings),
        "comparisons": tables.comparison_table(findings),
        "comparison_pictures": charts.comparison_pictures(findings),
        "precision": tables.precision_table(findings),
        "costs": costs,
        "pareto": charts.pareto_picture(findings),
        "machine_costs": money.machine_cost_table(findings, costs) if costs else None,
        "cell_costs": money.cost_table(findings, costs) if costs else None,
        "per_inference": money.inference_table(findings),
        "elsewhere": money.elsewhere_table(findings, costs) if costs else None,
        "failures": tables.failure_table(findings),
        "last_words": _last_words(findings),
        "statements": tables.statement_table(findings),
        "verdicts": _verdicts(findings),
        "palette": light_palette(),
    }


def _effects(findings: Findings) -> dict[str, Any]:
    response = findings.response
    if response is None:
        return {"response": None, "unexplained": unexplained(findings)}
    return {
        "response": response,
        "metric": findings.metrics.get(response.metric),
        "effect_pictures": charts.effect_pictures(findings, response),
        "interaction_pictures": charts.interaction_pictures(findings, response),
        "most_pairs": charts.MOST_PAIRS,
        "pairs": sum(len(term) == 2 for term in response.effects.parts),
        "variation_picture": charts.variation_picture(findings, response),
        "variation": tables.variation_table(findings, response),
        "effects": tables.effect_table(findings, response),
        "assumptions": tables.assumption_table(findings, response),
        "residual_pictures": charts.residual_pictures(findings, response.residuals),
        "not_estimable": [" × ".join(term) for term in response.effects.not_estimable],
    }


def _tiles(findings: Findings) -> list[tuple[str, str, str]]:
    """What, how much, and a word on it."""
    done = findings.measured + findings.failed
    rest = f"{findings.not_run:,} not run" if findings.not_run else "all run"
    tiles = [
        ("Trials measured", f"{findings.measured:,}", f"of {findings.planned:,} planned, {rest}"),
        (
            "Trials failed",
            f"{findings.failed:,}",
            f"of {done:,}" + (f", {number_of(len(findings.failures), 'reason')}" if findings.failures else ""),
        ),
        ("Cells", f"{len(findings.cells):,}", f"{sum(c.measured > 0 for c in findings.cells):,} with a reading"),
    ]
    response = findings.response
    term = strongest(response.effects.parts) if response else None
    if response is not None and term is not None:
        share = percent(response.effects.parts[term].share)
        tiles.append((" × ".join(term), share, "of the variation, the largest share"))
    if findings.costs is not None:
        costs = findings.costs
        tiles.append(("Cost of all trials", dollars(costs.total_usd), f"{dollars(costs.failed_usd)} for failed ones"))
    return tiles


def _plan(findings: Findings) -> list[tuple[str, str]]:
    design = findings.design
    facts = {
        "Workload": findings.workload,
        "Plan": PLAN_NAMES.get(design.get("plan", "full"), design.get("plan", "full")),
        "Cells": f"{len(findings.cells):,}",
        "Repetitions": design.get("repetitions"),
        "Trials planned": f"{findings.planned:,}",
        "Order": ORDER_NAMES.get(design.get("order", "random"), design.get("order", "random")),
        "Seed": design.get("seed", 0),
        "Response": design.get("response"),
        "Blocks": _told(design.get("blocks")),
        "Baseline": _told(design.get("baseline")),
        "Generators": _told(design.get("generators")),
        "Left out": "; ".join(_told(some) for some in design.get("exclude") or ()),
        "Settings": _told(design.get("settings")),
        "Time limit of a trial": f"{design['timeout_s']:g} s" if design.get("timeout_s") else None,
        "Sampled every": f"{design['sample_s']:g} s" if design.get("sample_s") else None,
    }
    return [(name, str(value)) for name, value in facts.items() if value not in (None, "")]


def _told(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_told(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_told(item) for item in value)
    return "" if value is None else str(value)


def _versions(made_by: Mapping[str, Any]) -> dict[str, str]:
    versions = made_by.get("versions")
    return {name: _told(value) for name, value in versions.items()} if isinstance(versions, Mapping) else {}


def _made(made_by: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name.replace("_", " "), _told(value)) for name, value in made_by.items() if name != "versions"]


def _groups_without(findings: Findings) -> list[str]:
    """Groups of cells that cannot be drawn, and why: "device gpu: no GPU here"."""
    said = []
    for name, group in cells.groups_of(findings):
        if group and not any(found.readings for found in group):
            reasons = dict.fromkeys(reason for found in group for reason in found.failures)
            why = "; ".join(list(reasons)[:3]) or "not run"
            what = number_of(len(group), "cell")
            said.append(f"{name or 'all'}: none of {what} has a reading ({why})")
    return said


def _last_words(findings: Findings) -> list[dict[str, Any]]:
    found = sorted(findings.failures, key=lambda one: (-len(one.trials), one.reason))
    return [
        {
            "reason": one.reason,
            "trial": one.trials[0] if one.trials else "",
            "text": one.last_words[-LAST_WORDS_LENGTH:],
        }
        for one in found[:LAST_WORDS_SHOWN]
        if one.last_words.strip()
    ]


def _verdicts(findings: Findings) -> str:
    """3 hold, 1 does not hold"""
    words = {"holds": "hold", "does not hold": "do not hold", "undecided": "undecided", "not measured": "not measured"}
    counts = {verdict: sum(one.verdict == verdict for one in findings.statements) for verdict in words}
    return ", ".join(f"{n} {verdict if n == 1 else words[verdict]}" for verdict, n in counts.items() if n)


def light_palette() -> dict[str, str]:
    """The page's colours by day, for figures that leave it."""
    style = (TEMPLATES / "style.css").read_text(encoding="utf-8")
    return dict(re.findall(r"(--[\w-]+): ([^;]+);", style[: style.index("}")]))
