"""Charts of what a study's numbers mean: effects, interactions, variation, residuals, ratios, the Pareto front."""

from collections.abc import Callable, Sequence
from math import exp, log10
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from fundoscope.analysis.effects import Effect, Term
from fundoscope.analysis.findings import Comparison, Findings, Residuals, Response
from fundoscope.report.drawing import BLUE, INK, MUTED, ORANGE
from fundoscope.report.study_cells import MOST_GROUPS, varied
from fundoscope.report.study_drawing import (
    COLOURS,
    MARKS,
    SMALL_IN,
    WIDE_IN,
    Picture,
    charted,
    few,
    known_end,
    level_axis,
    log_axis,
    named,
    reach,
    slug,
    spread_over,
    tick,
    value_axis,
)
from fundoscope.report.study_words import Found, measured_cells, number_of, percent, plain, time_of

MOST_LEVELS = 12
MOST_LINES = 6
MOST_PAIRS = 6
MOST_TERMS = 14
MOST_COMPARED = 30


def effect_pictures(findings: Findings, response: Response) -> list[Picture]:
    """One panel per factor, all on the same scale: the steeper, the more it matters."""
    mains = {term: part for term, part in response.effects.parts.items() if len(term) == 1}
    back, label = _back(response), _axis_label(findings, response)
    mean = response.effects.mean.value
    values = [
        back(mean + end) for part in mains.values() for effect in part.effects.values() for end in _ends_of(effect)
    ]
    pictures = []
    for (factor,), part in mains.items():
        effects = few(list(part.effects.items()), MOST_LEVELS, key=lambda item: item[1].value)
        names = [named(levels[0], 18) for levels, _ in effects]
        title = f"Main effect of {factor}: {percent(part.share)} of the variation"
        with charted(title, width_in=SMALL_IN, height_in=2.6) as chart:
            axes = chart.axes
            axes.axhline(back(mean), color=MUTED, linewidth=0.9, linestyle=(0, (4, 4)))
            dots = [(back(mean + e.value), *(back(mean + x) for x in _ends_of(e))) for _, e in effects]
            ends = np.array([reach(*dot) for dot in dots]).T
            joined = "o-" if len(effects) == len(part.effects) else "o"
            axes.errorbar(range(len(dots)), [dot[0] for dot in dots], ends, fmt=joined, color=BLUE, markersize=5)
            level_axis(axes, names)
            value_axis(axes, axes.yaxis, values, None, log=response.scale == "log", fit=True)
            axes.set(ylabel=label)
        hidden = len(part.effects) - len(effects)
        rest = f" {number_of(hidden, 'level')} between them not drawn." if hidden else ""
        caption = f"{factor}: {percent(part.share)} of the variation.{rest}"
        pictures.append(Picture(f"{findings.study}-effect-{slug(factor)}", title, chart.svg, caption))
    return pictures


def strongest_pairs(response: Response) -> list[Term]:
    """Those that can be told from noise; two at least, to show what no interaction looks like."""
    pairs: list[Term] = [term for term in response.effects.parts if len(term) == 2]
    pairs.sort(key=lambda term: -response.effects.parts[term].share)
    told = [term for term in pairs if (p := response.effects.parts[term].p) is None or p < 0.05]
    return (told if len(told) > 1 else pairs[:2])[:MOST_PAIRS]


def interaction_pictures(findings: Findings, response: Response) -> list[Picture]:
    parts, mean = response.effects.parts, response.effects.mean.value
    back, label, pictures = _back(response), _axis_label(findings, response), []
    for term in strongest_pairs(response):
        found = {
            levels: mean + _main(response, term[0], levels[0]) + _main(response, term[1], levels[1]) + effect.value
            for levels, effect in parts[term].effects.items()
        }
        known = [list(dict.fromkeys(levels[place] for levels in found)) for place in (0, 1)]
        along, apart = (0, 1) if len(known[0]) >= len(known[1]) else (1, 0)
        across, lines = known[along][:MOST_LEVELS], known[apart][:MOST_LINES]
        title = f"Interaction of {term[0]} and {term[1]}: {percent(parts[term].share)} of the variation"
        with charted(title, width_in=SMALL_IN, height_in=2.9) as chart:
            axes, drawn = chart.axes, []
            for number, line in enumerate(lines):
                at = [(i, (level, line) if along == 0 else (line, level)) for i, level in enumerate(across)]
                points = [(i, back(found[levels])) for i, levels in at if levels in found]
                drawn += [y for _, y in points]
                style: dict[str, Any] = {"color": COLOURS[number], "marker": MARKS[number], "markersize": 4.5}
                axes.plot(*zip(*points, strict=True), **style, label=named(line, 16))
            level_axis(axes, [named(level, 18) for level in across])
            value_axis(axes, axes.yaxis, drawn, None, log=response.scale == "log", fit=True)
            axes.set(ylabel=label)
            heading: dict[str, Any] = {
                "loc": "outside upper center",
                "ncols": min(3, len(lines)),
                "title_fontsize": 8.5,
            }
            chart.figure.legend(title=named(term[apart], 30), **heading)
        hidden = len(found) - len(across) * len(lines)
        rest = f" {number_of(hidden, 'combination')} not drawn." if hidden > 0 else ""
        caption = f"{term[0]} × {term[1]}: {percent(parts[term].share)} of the variation.{rest}"
        pictures.append(Picture(f"{findings.study}-interaction-{slug('-'.join(term))}", title, chart.svg, caption))
    return pictures


def variation_picture(findings: Findings, response: Response) -> Picture:
    """Where the variation comes from, the largest part first."""
    parts = response.effects.parts
    terms = sorted(parts, key=lambda term: -parts[term].share)
    seen = max(3, min(MOST_TERMS, sum(parts[term].share >= 0.001 for term in terms)))
    bars = [(" × ".join(named(name, 18) for name in term), parts[term].share, len(term)) for term in terms[:seen]]
    rest = [parts[term].share for term in terms[seen:]]
    if rest:
        bars.append((f"the {len(rest)} others", sum(rest), 2))
    bars.append(("not explained", response.effects.unexplained, 0))
    said = "; ".join(f"{name} {percent(share)}" for name, share, _ in bars)
    with charted(f"Allocation of variation: {said}", width_in=6.4, height_in=0.7 + 0.24 * len(bars)) as chart:
        axes, colours = chart.axes, {0: MUTED, 1: BLUE}
        shares = [100 * share for _, share, _ in bars]
        axes.barh(range(len(bars)), shares, color=[colours.get(order, ORANGE) for *_, order in bars], height=0.68)
        axes.set_yticks(range(len(bars)), [name for name, *_ in bars], fontsize=9)
        axes.set_ylim(len(bars) - 0.4, -0.6)
        axes.set_xlim(0, max(1.0, *shares) * 1.15)
        for place, (_, share, _) in enumerate(bars):
            look: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": 8.5}
            axes.annotate(percent(share), (100 * share, place), (3, 0), **look)
        axes.set_xlabel("% of the variation")
        axes.grid(visible=False, axis="y")
    caption = "Blue: a factor alone; orange: factors together; grey: repetitions of one cell differ by this much."
    if not response.effects.balanced:
        caption += " Cells are missing, so the shares need not add up to 100 %."
    return Picture(f"{findings.study}-variation", "Allocation of variation", chart.svg, caption)


def residual_pictures(findings: Findings, residuals: Residuals) -> list[Picture]:
    n = len(residuals.residual)
    if not n:
        return []
    kept = spread_over(n, np.argsort(residuals.residual, kind="stable"))
    rest = f" {number_of(n - len(kept), 'residual')} of {n:,} not drawn." if n > len(kept) else ""
    residual = np.array(residuals.residual)
    views = (
        ("quantiles", "normal quantile", np.array(residuals.quantile), "On a line where residuals are normal."),
        ("fitted", "fitted value", np.array(residuals.fitted), "A band of one width where they scatter alike."),
        ("order", "order of trials", np.array(residuals.order), "No trend where nothing drifted meanwhile."),
    )
    pictures = []
    for name, label, x, caption in views:
        with charted(f"Residuals against {label}, {n:,} readings", width_in=SMALL_IN, height_in=2.7) as chart:
            axes = chart.axes
            axes.plot(x[kept], residual[kept], "o", color=BLUE, markersize=3 if len(kept) < 400 else 1.8, alpha=0.75)
            if name == "quantiles" and n > 1 and np.ptp(x) > 0:
                slope = float(residual.std(ddof=1))
                ends = np.array([x.min(), x.max()])
                axes.plot(ends, float(residual.mean()) + slope * ends, color=MUTED, linewidth=0.9)
            else:
                axes.axhline(0, color=MUTED, linewidth=0.9)
            axes.set(xlabel=label, ylabel="residual")
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_major_locator(MaxNLocator(5))
                axis.set_major_formatter(FuncFormatter(tick))
        title = f"Residuals against {label}"
        pictures.append(Picture(f"{findings.study}-residuals-{name}", title, chart.svg, f"{caption}{rest}"))
    return pictures


def pareto_picture(findings: Findings) -> Picture | None:
    """Time against cost, each cell a point; the line joins those that no other beats in both."""
    metric, costs = time_of(findings), findings.costs
    if metric is None or costs is None:
        return None
    times = {found.cell.number: found for found in measured_cells(findings, metric)}
    points = [
        (found.cell, times[found.cell.number].readings[metric].mean, found.usd.mean)
        for found in costs.cells
        if found.cell.number in times
    ]
    points = [point for point in points if point[1] > 0 and point[2] > 0]
    if not points:
        return None
    front = sorted((point for point in points if point[0].name in costs.pareto), key=lambda point: point[1:])
    others = [point for point in points if point[0].name not in costs.pareto]
    kept = [others[i] for i in spread_over(len(others), np.argsort([p[1] for p in others], kind="stable"))]
    about = findings.metrics[metric]
    title = f"{about.label} and cost of {number_of(len(points), 'cell')}"
    with charted(title, width_in=6.4, height_in=4.0) as chart:
        axes = chart.axes
        groups: dict[str, list[tuple[float, float]]] = {}
        factor = _front_factor(findings)
        for cell, time, usd in kept:
            groups.setdefault(str(cell.levels[factor]) if factor else "cells", []).append((time, usd))
        for number, (level, here) in enumerate(groups.items()):
            look: dict[str, Any] = {
                "color": COLOURS[(number + 2) % 4],
                "markersize": 4.5 if len(kept) < 400 else 2,
                "alpha": 0.8,
            }
            axes.plot(*zip(*here, strict=True), MARKS[number % len(MARKS)], **look, label=named(level))
        if front:
            axes.plot([p[1] for p in front], [p[2] for p in front], "o-", color=BLUE, markersize=6, label="front")
            _name_points(axes, front)
        log_axis(axes, axes.xaxis, min(p[1] for p in points), max(p[1] for p in points))
        log_axis(axes, axes.yaxis, min(p[2] for p in points), max(p[2] for p in points))
        axes.set(xlabel=named(f"{about.label}, {about.unit}"), ylabel="US$ a trial")
        chart.figure.legend(loc="outside upper center", ncols=min(4, len(groups) + 1))
    hidden = len(others) - len(kept)
    rest = f" {number_of(hidden, 'cell')} off the front not drawn." if hidden else ""
    caption = f"Less is better in both; both axes are logarithmic. On the front: {_names(front)}.{rest}"
    return Picture(f"{findings.study}-pareto", "Pareto front of time and cost", chart.svg, caption)


def _front_factor(findings: Findings) -> str | None:
    levels = varied(findings.cells)
    wanted = [findings.design.get("machine_factor"), "device", *levels]
    return next((name for name in wanted if name in levels and len(levels[name]) <= MOST_GROUPS), None)


def _name_points(axes: Axes, front: Sequence[tuple[Any, float, float]]) -> None:
    """As many names as do not run into each other."""
    named: list[tuple[float, float]] = []
    width, height = (max(1e-9, float(np.ptp(np.log10([p[i] for p in front])))) for i in (1, 2))
    for cell, time, usd in front:
        at = log10(time) / width, log10(usd) / height
        if all(abs(at[0] - x) > 0.09 or abs(at[1] - y) > 0.09 for x, y in named) or len(front) == 1:
            look: dict[str, Any] = {"textcoords": "offset points", "fontsize": 8.5, "ha": "right", "va": "top"}
            axes.annotate(cell.name, (time, usd), (-4, -3), **look)  # below and left of the front nothing is drawn
            named.append(at)


def _names(front: Sequence[tuple[Any, float, float]]) -> str:
    names = [point[0].name for point in front]
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "") if names else "none"


def comparison_pictures(findings: Findings) -> list[Picture]:
    """A forest for each metric: ratios of levels, all else equal."""
    pictures = []
    for metric in dict.fromkeys(one.metric for one in findings.comparisons):
        ours = [one for one in findings.comparisons if one.metric == metric and one.ratio.value > 0]
        rows = few(ours, MOST_COMPARED, key=lambda one: one.ratio.value)
        if not rows:
            continue
        label = findings.metrics[metric].label if metric in findings.metrics else metric
        said = "; ".join(f"{one.one} over {one.other} {one.ratio.value:.2f}" for one in rows[:12])
        with charted(f"Ratios of {label}: {said}", width_in=WIDE_IN, height_in=0.85 + 0.23 * len(rows)) as chart:
            _draw_forest(chart.axes, rows, label)
        hidden = len(ours) - len(rows)
        rest = f" {number_of(hidden, 'comparison')} between them not drawn." if hidden else ""
        caption = (
            "Right of 1: the first has more. Grey: the two cannot be told apart (Holm, 5 %), or no interval is known."
        )
        name = f"{findings.study}-ratios-{slug(metric)}"
        pictures.append(Picture(name, f"Ratios of {label}", chart.svg, caption + rest, wide=True))
    return pictures


def _draw_forest(axes: Axes, rows: Sequence[Comparison], label: str) -> None:
    values = []
    for place, one in enumerate(rows):
        told = one.p_holm is not None and one.p_holm < 0.05
        low, high = known_end(one.ratio.low, one.ratio.value), known_end(one.ratio.high, one.ratio.value)
        values += [max(low, one.ratio.value * 1e-6), one.ratio.value, high]
        axes.plot([low, high], [place, place], color=BLUE if told else MUTED, linewidth=1.6)
        axes.plot(one.ratio.value, place, "o", color=BLUE if told else MUTED, markersize=4)
        text = plain(Found(one.ratio.value, one.ratio.low, one.ratio.high))
        place_at: dict[str, Any] = {"xytext": (4, 0), "textcoords": "offset points", "va": "center", "fontsize": 8.5}
        axes.annotate(text, (1.0, place), xycoords=axes.get_yaxis_transform(), annotation_clip=False, **place_at)
    axes.axvline(1, color=INK, linewidth=0.8)
    names = [f"{named(one.factor, 18)}: {named(one.one, 18)} / {named(one.other, 18)}" for one in rows]
    axes.set_yticks(range(len(rows)), names, fontsize=9)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    log_axis(axes, axes.xaxis, min(0.9, *values), max(1.1, *values))
    axes.set_xlim(min(0.9, *values) / 1.08, max(1.1, *values) * 1.08)
    axes.set_xlabel(named(f"ratio of {label}"))
    axes.grid(visible=False, axis="y")


def _ends_of(effect: Effect) -> tuple[float, float]:
    return known_end(effect.low, effect.value), known_end(effect.high, effect.value)


def _main(response: Response, factor: str, level: str) -> float:
    part = response.effects.parts.get((factor,))
    effect = part.effects.get((level,)) if part else None
    return effect.value if effect else 0.0


def _back(response: Response) -> Callable[[float], float]:
    """From the scale of the model to that of the metric."""
    return exp if response.scale == "log" else float


def _axis_label(findings: Findings, response: Response) -> str:
    about = findings.metrics.get(response.metric)
    label = response.metric if about is None else f"{about.label}, {about.unit}" if about.unit else about.label
    return named(label, 34)
