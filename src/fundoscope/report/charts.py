"""The charts of a training report: numbers in, SVG for the page out."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from fundoscope.report.drawing import BLUE, CARD, GREEN, INK, MUTED, ORANGE, PINK, drawing
from fundoscope.report.published import Result

POINT_COLOURS = {"high_sensitivity": ORANGE, "high_specificity": GREEN}
GRADE_NAMES = ("none", "mild", "moderate", "severe", "proliferative")
MARKS = ("s", "D", "^", "v", "P", "X", "<", ">", "p", "h")
Floats = NDArray[np.float64]
Curve = tuple[Floats, Floats]


def roc(test: Curve, tune: Curve | None, points: dict[str, Any], area: str) -> str:
    """The whole curve with the operating points; the cross-hairs are their intervals."""
    with drawing(f"ROC curve of the test photographs, {area}", height_in=4.2) as chart:
        axes = chart.axes
        axes.plot([0, 1], [0, 1], color=MUTED, linewidth=0.8, linestyle=(0, (4, 4)))
        if tune is not None:
            axes.plot(*tune, color=MUTED, linewidth=1, label="tuning part")
        axes.plot(*test, color=BLUE, label=f"test, {area}")
        _points(axes, points)
        _roc_axes(axes, (-0.02, 1.0), (0.0, 1.02))
        axes.legend(loc="lower right")
    return chart.svg


def roc_corner(test: Curve, points: dict[str, Any], published: Sequence[Result]) -> str:
    """The corner that matters, with what others published on other photographs."""
    shown = [(result, point) for result in published for point in result.points]
    with drawing("The upper left corner of the ROC curve, with published results", height_in=5.4) as chart:
        axes = chart.axes
        axes.plot(*test, color=BLUE, label="this model, test")
        _points(axes, points)
        names: list[str] = []
        for result, point in shown:
            label = None if result.short in names else result.short
            names += [result.short] if label else []
            mark = MARKS[names.index(result.short) % len(MARKS)]
            where = (1 - point.specificity, point.sensitivity)
            axes.plot(*where, mark, color=PINK, markersize=6.5, markerfacecolor=CARD, label=label)
        rates = [at for at in points.values() if None not in (at["sensitivity"]["low"], at["specificity"]["low"])]
        right = max([0.32, *(1.02 - at["specificity"]["low"] for at in rates)])
        bottom = min([0.68, *(at["sensitivity"]["low"] - 0.02 for at in rates)])
        _roc_axes(axes, (-0.005, right), (bottom, 1.005))
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2, borderaxespad=0)
    return chart.svg


def _points(axes: Axes, points: dict[str, Any]) -> None:
    for name, at in points.items():
        sensitivity, specificity = at["sensitivity"], at["specificity"]
        if sensitivity["value"] is None or specificity["value"] is None:
            continue
        x, y, colour = 1 - specificity["value"], sensitivity["value"], POINT_COLOURS.get(name, INK)
        axes.plot([1 - specificity["low"], 1 - specificity["high"]], [y, y], color=colour, linewidth=1.4)
        axes.plot([x, x], [sensitivity["low"], sensitivity["high"]], color=colour, linewidth=1.4)
        label = name.replace("_", " ")
        axes.plot(x, y, "o", color=colour, markersize=7, markeredgecolor=CARD, label=label, zorder=5)


def _roc_axes(axes: Axes, x: tuple[float, float], y: tuple[float, float]) -> None:
    axes.set(xlim=x, ylim=y, xlabel="1 − specificity", ylabel="sensitivity")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(_percent))
        axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))


def _percent(value: float, _: int) -> str:
    return f"{100 * value:.0f}\u00a0%"


def reliability(calibration: dict[str, Any]) -> str:
    bins = calibration["bins"]
    predicted = [part["predicted"] for part in bins]
    observed = [part["observed"]["value"] for part in bins]
    low = [max(0.0, part["observed"]["value"] - part["observed"]["low"]) for part in bins]
    high = [max(0.0, part["observed"]["high"] - part["observed"]["value"]) for part in bins]
    title = f"Reliability curve in {len(bins)} bins; expected calibration error {calibration['ece']:.3f}"
    with drawing(title, height_in=4.2) as chart:
        axes = chart.axes
        axes.plot([0, 1], [0, 1], color=MUTED, linewidth=0.8, linestyle=(0, (4, 4)), label="perfect")
        axes.errorbar(predicted, observed, [low, high], color=BLUE, fmt="o-", markersize=5, elinewidth=1.2)
        axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
        axes.set(xlabel="probability of referral, as given", ylabel="share that needs referral")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(FuncFormatter(_percent))
        axes.legend(loc="upper left")
    return chart.svg


def referred_by_grade(rows: list[dict[str, Any]], referral_from: int) -> str:
    """How many of each true grade are referred at each point: what is missed should be the mildest."""
    names = list(rows[0]["referred"])
    said = "; ".join(
        f"grade {row['grade']}: "
        + ", ".join(f"{100 * row['referred'][name]['value']:.0f} % at {name.replace('_', ' ')}" for name in names)
        for row in rows
        if row["n"]
    )
    with drawing(f"Share of each true grade that is referred. {said}", height_in=3.4) as chart:
        axes = chart.axes
        for offset, name in zip(np.linspace(-0.14, 0.14, len(names)), names, strict=True):
            found = [(row["grade"], row["referred"][name]) for row in rows if row["n"]]
            for grade, share in found:
                ends = [share["low"], share["high"]]
                axes.plot([grade + offset] * 2, ends, color=POINT_COLOURS.get(name, INK), linewidth=1.6)
            where = [grade + offset for grade, _ in found]
            values = [share["value"] for _, share in found]
            colour = POINT_COLOURS.get(name, INK)
            axes.plot(where, values, "o", color=colour, markersize=6, label=name.replace("_", " "))
        axes.axvline(referral_from - 0.5, color=MUTED, linewidth=0.9, linestyle=(0, (4, 4)))
        axes.set(xlim=(-0.5, 4.5), ylim=(-0.03, 1.03), ylabel="referred")
        axes.set_xticks(range(5), [f"{grade}\n{name}" for grade, name in enumerate(GRADE_NAMES)])
        axes.yaxis.set_major_formatter(FuncFormatter(_percent))
        axes.grid(visible=False, axis="x")
        axes.legend(loc="upper left")
    return chart.svg


def losses(history: list[dict[str, Any]], best: int | None) -> str:
    lines = (("loss", "training", MUTED), ("tune_loss", "tuning", BLUE))
    return _over_epochs(history, lines, best, "Loss of the training and the tuning part", ylabel="loss")


def tuning_scores(history: list[dict[str, Any]], best: int | None) -> str:
    lines = (("tune_auc", "AUC, referral", BLUE), ("tune_kappa", "quadratic kappa", ORANGE))
    return _over_epochs(history, lines, best, "AUC and kappa of the tuning part", ylabel="tuning part")


def learning_rates(history: list[dict[str, Any]], best: int | None) -> str:
    line = (("learning_rate", "learning rate", BLUE),)
    return _over_epochs(history, line, best, "Learning rate", ylabel="learning rate", log=True, step=True)


def seconds(history: list[dict[str, Any]], best: int | None) -> str:
    line = (("seconds", "seconds", BLUE),)
    return _over_epochs(history, line, best, "Wall time of each epoch", ylabel="seconds of training", floor=0)


def _over_epochs(
    history: list[dict[str, Any]],
    lines: Sequence[tuple[str, str, str]],
    best: int | None,
    title: str,
    *,
    ylabel: str,
    log: bool = False,
    step: bool = False,
    floor: float | None = None,
) -> str:
    with drawing(f"{title}, over {len(history)} epochs", height_in=2.7) as chart:
        axes, shown = chart.axes, 0
        for name, label, colour in lines:
            rows = [(row["epoch"], row[name]) for row in history if row.get(name) is not None]
            if not rows:
                continue
            epochs, values = zip(*rows, strict=True)
            mark = "o" if len(rows) < 40 and not step else ""
            style = "steps-mid" if step else "default"
            axes.plot(epochs, values, color=colour, label=label, marker=mark, markersize=3, drawstyle=style)
            shown += 1
        if log:
            axes.set_yscale("log")
        if floor is not None:
            axes.set_ylim(bottom=floor)
        axes.set(xlabel="epoch", ylabel=ylabel)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes.grid(visible=False, axis="x")
        _mark_phases(axes, history, best)
        if shown > 1:
            axes.legend(loc="best")
    return chart.svg


def _mark_phases(axes: Axes, history: list[dict[str, Any]], best: int | None) -> None:
    """Where the head's epochs end, and the epoch whose network was kept."""
    for before, after in pairwise(history):
        if before.get("phase") != after.get("phase"):
            where = (before["epoch"] + after["epoch"]) / 2
            axes.axvline(where, color=MUTED, linewidth=0.9, linestyle=(0, (4, 4)))
            for text, aside_pt, side in (("head only", -4, "right"), ("whole network", 4, "left")):
                axes.annotate(
                    text,
                    (where, 1.0),
                    (aside_pt, 3),
                    xycoords=axes.get_xaxis_transform(),
                    textcoords="offset points",
                    fontsize=8,
                    color=MUTED,
                    ha=side,
                )
    if best is not None and any(row["epoch"] == best for row in history):
        axes.axvline(best, color=GREEN, linewidth=1.2)
