"""Charts with a row for every cell: figures 4 to 7 of the methodology paper, drawn from any study.

A cell is a row with a dot and its interval as long as a reader can tell rows apart; beyond that the distribution is
drawn, and the cells at its ends. Whatever is left off is counted in the caption.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from fundoscope.analysis.findings import CellFinding, Findings
from fundoscope.report.drawing import BLUE, CARD, MUTED
from fundoscope.report.study_drawing import (
    COLOURS,
    LOG_FROM,
    MARKS,
    SMALL_IN,
    WIDE_IN,
    Picture,
    charted,
    log_axis,
    named,
    reach,
    slug,
    spread_over,
    value_axis,
)
from fundoscope.report.study_words import measured_cells, number_of, response_of, short

MOST_ROWS = 60
EXTREMES = 20  # cells drawn at either end, where there are more
MOST_GROUPS = 4
FEW_CELLS = 12  # that one figure shows together
SERIES_DRAWN = 4


@dataclass(frozen=True)
class Dot:
    mean: float
    low: float | None = None
    high: float | None = None
    other: float | None = None  # a second reading of the same thing, drawn open


@dataclass(frozen=True)
class Panel:
    label: str
    of: Callable[[CellFinding], Dot | None]
    most: float | None = None  # the end of the axis: 100 per cent
    other: str = ""  # what the open mark is


def cell_pictures(findings: Findings) -> list[Picture]:
    """Figures 4 to 7 of the paper for its factors; the response by cell for any other design."""
    if len(findings.cells) > MOST_ROWS:
        return _extreme_pictures(findings)
    found = []
    for name, cells in groups_of(findings):
        for panels, kind, title in _panel_sets(findings, cells):
            whole = f"{title}: {name}" if name else title
            found.append(_cell_picture(findings, cells, panels, f"{kind}-{slug(name)}".strip("-"), whole))
    return found


def groups_of(findings: Findings) -> list[tuple[str, list[CellFinding]]]:
    """Apart by environment, as published; by the first factor where that is none; together where levels are many."""
    factors = list(findings.cells[0].cell.levels) if findings.cells else []
    wanted = [findings.design.get("machine_factor"), "device", *factors]
    factor = next((name for name in wanted if name in factors), None)
    levels = list(dict.fromkeys(found.cell.levels[factor] for found in findings.cells)) if factor else []
    if factor is None or len(levels) > MOST_GROUPS or len(findings.cells) <= FEW_CELLS:
        return [("", list(findings.cells))]
    return [(f"{factor} {level}", [c for c in findings.cells if c.cell.levels[factor] == level]) for level in levels]


def _panel_sets(findings: Findings, cells: Sequence[CellFinding]) -> list[tuple[list[Panel], str, str]]:
    """What is drawn of a group of cells: panels, the file's name, the title."""
    metric, costs = response_of(findings), findings.costs
    if metric is None:
        return []
    about = findings.metrics[metric]
    first = [_metric_panel(metric, f"{about.label}, {about.unit}" if about.unit else about.label)]
    title = about.label
    if costs is not None and costs.cells:
        billed = {found.cell.number: found for found in costs.cells}

        def cost(found: CellFinding) -> Dot | None:
            priced = billed.get(found.cell.number)
            if priced is None:
                return None
            alone = priced.usd_as_published
            return Dot(priced.usd.mean, priced.usd.low, priced.usd.high, alone.mean if alone else None)

        first.append(Panel("US$ a trial", cost, other="training alone, as published"))
        title += " and cost"
    totals = {found.cell.number: _totals(findings, found) for found in cells}

    def shares(metric: str, label: str, unit: str, total: str, times: float, peak: str = "") -> Panel:
        wholes = {number: known.get(total) for number, known in totals.items()}
        if any(wholes[found.cell.number] is None for found in cells if metric in found.readings):
            return _share_panel(metric, f"{label}, {unit}", {}, peak)
        scales = {number: times / whole for number, whole in wholes.items() if whole}
        return _share_panel(metric, f"{label}, % of the machine's", scales, peak)

    use = [
        shares("cpu_percent_mean", "processors", "% of one", "processors", 1),
        shares("gpu_percent_mean", "GPU", "%", "gpus", 1),
    ]
    memory = [
        shares("memory_mb_mean", "memory", "MB", "memory_mb", 100, "memory_mb_max"),
        shares("gpu_memory_mb_mean", "GPU memory", "MB", "gpu_memory_mb", 100, "gpu_memory_mb_max"),
    ]
    first, use, memory = (
        [panel for panel in panels if any(panel.of(found) is not None for found in cells)]
        for panels in (first, use, memory)
    )
    sets = [(first, "response-and-cost", title[:1].upper() + title[1:])]
    if len(use) + len(memory) <= 2:  # no GPU: one figure holds both
        sets.append(([*use, *memory], "utilisation", "Utilisation of processor and memory"))
    else:
        sets.append((use, "utilisation", "Utilisation of processor and GPU"))
        sets.append((memory, "memory", "Memory and GPU memory"))
    return [one for one in sets if one[0]]


def _metric_panel(metric: str, label: str) -> Panel:
    def dot(found: CellFinding) -> Dot | None:
        reading = found.readings.get(metric)
        return None if reading is None else Dot(reading.mean, reading.low, reading.high)

    return Panel(label, dot)


def _share_panel(metric: str, label: str, scales: Mapping[int, float], peak: str) -> Panel:
    """In per cent of the machine's where `scales` say what that is for each cell; as read otherwise."""

    def dot(found: CellFinding) -> Dot | None:
        reading, scale = found.readings.get(metric), scales.get(found.cell.number, 1.0)
        if reading is None:
            return None
        low, high = (None if end is None else end * scale for end in (reading.low, reading.high))
        top = found.readings.get(peak)
        return Dot(reading.mean * scale, low, high, None if top is None else top.mean * scale)

    return Panel(label, dot, 100 if scales else None, "at its peak" if peak else "")


def _totals(findings: Findings, found: CellFinding) -> dict[str, float]:
    """What the cell's machine has. Cells do not say theirs: one with GPU readings ran where there is a GPU."""
    machines = list(findings.machines.values())
    has_gpu = any(name.startswith("gpu_") for name in found.readings)
    machines = [facts for facts in machines if bool(facts.get("gpus")) == has_gpu] or machines
    known: dict[str, set[Any]] = {
        "processors": {facts.get("quota") or facts.get("processors") for facts in machines},
        "memory_mb": {1000 * (facts.get("memory_gb") or 0) for facts in machines},
        "gpus": {1},  # what is read is per cent of all of them already
        "gpu_memory_mb": {sum(gpu.get("memory_mb") or 0 for gpu in facts.get("gpus") or ()) for facts in machines},
    }
    sure = {name: values.pop() for name, values in known.items() if len(values) == 1}
    return {name: float(value) for name, value in sure.items() if value}


def _cell_picture(
    findings: Findings, cells: Sequence[CellFinding], panels: Sequence[Panel], name: str, title: str, note: str = ""
) -> Picture:
    coloured, colours = _colours(cells)
    drawn = [panel for panel in panels if panel.other]
    said = [f"{title}, {number_of(len(cells), 'cell')}"]
    with charted(". ".join(said), width_in=WIDE_IN, height_in=1.05 + 0.205 * max(4, len(cells))) as chart:
        chart.axes.remove()
        row = chart.figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for place, (axes, panel) in enumerate(zip(row, panels, strict=True)):
            _draw_panel(axes, panel, cells, coloured, colours, first=place == 0)
        row[0].set_yticks(range(len(cells)), [_row_label(found, cells) for found in cells], fontsize=8.5)
        row[0].set_ylim(len(cells) - 0.4, -0.6)
        if coloured and len(colours) > 1:
            handles, labels = row[0].get_legend_handles_labels()
            chart.figure.legend(handles, labels, loc="outside upper center", ncols=min(4, len(labels)))
    what = "Mean and its 95 % interval of each cell, failed trials left out."
    what += "".join(f" Open mark, {panel.label}: {panel.other}." for panel in drawn)
    missing = sum(panels[0].of(found) is None for found in cells)
    if missing:
        what += f" {number_of(missing, 'cell')} without a reading."
    return Picture(f"{findings.study}-{name}", title, chart.svg, f"{what}{note}", wide=True)


def _draw_panel(
    axes: Axes,
    panel: Panel,
    cells: Sequence[CellFinding],
    coloured: str | None,
    colours: Mapping[str, str],
    *,
    first: bool,
) -> None:
    dots = [panel.of(found) for found in cells]
    for number, (level, colour) in enumerate(colours.items()):
        here = [
            (place, dot)
            for place, (found, dot) in enumerate(zip(cells, dots, strict=True))
            if dot is not None and (coloured is None or str(found.cell.levels[coloured]) == level)
        ]
        if not here and not first:
            continue
        rows, means = [place for place, _ in here], [dot.mean for _, dot in here]
        ends = np.array([reach(dot.mean, dot.low, dot.high) for _, dot in here]).reshape(-1, 2).T
        mark = MARKS[number % len(MARKS)]
        axes.errorbar(
            means, rows, xerr=ends, fmt=mark, color=colour, markersize=4.5, elinewidth=1.4, label=named(level)
        )
        others = [(dot.other, place) for place, dot in here if dot.other is not None]
        if others:
            axes.plot(*zip(*others, strict=True), mark, color=colour, markersize=4.5, markerfacecolor=CARD)
    for place, (found, dot) in enumerate(zip(cells, dots, strict=True)):
        if dot is None and first:
            _say_missing(axes, place, found)
    values = [x for dot in dots if dot for x in (dot.mean, dot.other, dot.high) if x is not None]
    value_axis(axes, axes.xaxis, values, panel.most)
    axes.set_xlabel(named(panel.label))
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=True, axis="y", linewidth=0.4)


def _say_missing(axes: Axes, place: int, found: CellFinding) -> None:
    why = max(found.failures, key=lambda reason: found.failures[reason], default="")
    text = f"failed: {short(why)}" if why else "not run"
    axes.text(
        0.01,
        place,
        named(text, 46),
        transform=axes.get_yaxis_transform(),
        fontsize=7.5,
        color=MUTED,
        va="center_baseline",
    )


def _colours(cells: Sequence[CellFinding]) -> tuple[str | None, dict[str, str]]:
    """A factor with few levels to tell rows apart by, and its colours."""
    levels = varied(cells)
    wanted = [name for name in ("framework", *levels) if name in levels and len(levels[name]) <= len(COLOURS)]
    if not wanted:
        return None, {"": BLUE}
    return wanted[0], dict(zip(levels[wanted[0]], COLOURS, strict=False))


def varied(cells: Sequence[CellFinding]) -> dict[str, list[str]]:
    names = list(cells[0].cell.levels) if cells else []
    levels = {name: list(dict.fromkeys(str(found.cell.levels[name]) for found in cells)) for name in names}
    return {name: known for name, known in levels.items() if len(known) > 1}


def _row_label(found: CellFinding, cells: Sequence[CellFinding]) -> str:
    levels = [named(str(found.cell.levels[name]), 16) for name in varied(cells)]
    return f"{' · '.join(levels[:5])}  {found.cell.name}"


def _extreme_pictures(findings: Findings) -> list[Picture]:
    metric = response_of(findings)
    cells = measured_cells(findings, metric) if metric else []
    if metric is None or not cells:
        return []
    about = findings.metrics[metric]
    label = f"{about.label}, {about.unit}" if about.unit else about.label
    means = np.array([found.readings[metric].mean for found in cells])
    with charted(f"Distribution of {label} over {number_of(len(cells), 'cell')}", width_in=6.4) as chart:
        positive = bool((means > 0).all())
        spread = positive and means.max() > LOG_FROM * means.min()
        least, most = float(means.min()), float(means.max())
        bins = (
            (np.geomspace if spread else np.linspace)(least, most, 41) if least < most else [least - 0.5, least + 0.5]
        )
        chart.axes.hist(means, bins=list(bins), color=BLUE)
        if spread:
            log_axis(chart.axes, chart.axes.xaxis, float(means.min()), float(means.max()))
        chart.axes.set(xlabel=named(label), ylabel="cells")
        chart.axes.grid(visible=False, axis="x")
    everything = f"Mean of each of {number_of(len(cells), 'measured cell')}."
    found = [Picture(f"{findings.study}-distribution", "Distribution", chart.svg, everything)]
    order = np.argsort(means, kind="stable")
    ends = [cells[i] for i in (*order[:EXTREMES], *order[max(EXTREMES, len(order) - EXTREMES) :])]
    hidden = len(findings.cells) - len(ends)
    note = (
        f" The {EXTREMES} cells with the least and the {EXTREMES} with the most; {number_of(hidden, 'cell')} not drawn."
    )
    for panels, kind, title in _panel_sets(findings, ends):
        found.append(_cell_picture(findings, ends, panels, f"{kind}-extremes", f"{title}, both ends", note))
    return found


def series_pictures(findings: Findings, series: Mapping[str, Sequence[Mapping[str, float]]]) -> list[Picture]:
    """How some trials used their machine over time: the first few given."""
    lines = (("cpu_percent", "processor, % of one"), ("memory_mb", "memory, MB"), ("gpu_percent", "GPU, %"))
    pictures = []
    chosen = list(series.items())[:SERIES_DRAWN]
    for metric, label in lines:
        known = {trial: [r for r in rows if r.get(metric) is not None] for trial, rows in chosen}
        known = {trial: rows for trial, rows in known.items() if rows}
        if not known:
            continue
        with charted(f"{label} over time, trials {', '.join(known)}", width_in=SMALL_IN, height_in=2.6) as chart:
            for number, (trial, rows) in enumerate(known.items()):
                thin = [rows[i] for i in spread_over(len(rows), np.arange(len(rows)))]
                x, y = [row["at_s"] for row in thin], [row[metric] for row in thin]
                chart.axes.plot(x, y, color=COLOURS[number], linewidth=1.2, label=trial)
            chart.axes.set(xlabel="s since the trial began", ylabel=label)
            chart.axes.set_ylim(bottom=0)
            chart.figure.legend(loc="outside upper center", ncols=len(known))
        rest = f" {number_of(len(series) - len(chosen), 'trial')} not drawn." if len(series) > len(chosen) else ""
        caption = f"{label[:1].upper()}{label[1:]}, seen from outside.{rest}"
        pictures.append(Picture(f"{findings.study}-series-{slug(metric)}", f"{label} over time", chart.svg, caption))
    return pictures
