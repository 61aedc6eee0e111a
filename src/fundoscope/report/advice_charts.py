"""The charts of an advice: dollars against latency, and dollars against traffic."""

from collections.abc import Sequence
from math import isfinite
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from fundoscope.analysis.break_even import Curve
from fundoscope.analysis.dossier import Dossier
from fundoscope.analysis.month import Estimate
from fundoscope.analysis.ways import kind_of
from fundoscope.report.drawing import CARD, INK, MUTED
from fundoscope.report.study_drawing import COLOURS, MARKS, Picture, charted, log_axis

KINDS = ("serverless", "kept ready", "fixed", "autoscaled", "to zero", "at night")
FAR = 30  # times the objective, beyond which a point is told and not drawn


def pareto_picture(dossier: Dossier) -> Picture | None:
    """Dollars a month by the objective's statistic, each way a point; the line joins those that none beats in both."""
    advice, objective = dossier.advice, dossier.advice.objective
    points = [(each, each.latency_s[objective.statistic], each.usd) for each in advice.estimates]
    known = [(each, value, usd) for each, value, usd in points if value is not None and isfinite(value) and usd]
    drawn = [point for point in known if point[1] <= FAR * objective.seconds]
    if not drawn:
        return None
    front = sorted(((e, v, u) for e, v, u in drawn if e.name in advice.pareto), key=lambda point: point[1])
    title = f"Dollars a month and {objective.statistic} of {len(drawn)} ways to serve"
    with charted(title, width_in=6.4, height_in=4.2) as chart:
        axes = chart.axes
        axes.plot([v for _, v, _ in front], [u for _, _, u in front], color=MUTED, linewidth=1.0)
        for kind in KINDS:
            _kind_points(axes, kind, drawn)
        for number, (_, value, usd) in enumerate(front, 1):
            axes.annotate(
                f"{number}", (value, usd), (5, 5), textcoords="offset points", fontsize=9, color=INK, weight="bold"
            )
        values = [*(value for _, value, _ in drawn), objective.seconds]
        axes.axvline(objective.seconds, color=MUTED, linewidth=1.0, linestyle=(0, (4, 4)))
        log_axis(axes, axes.xaxis, min(values), max(values))
        log_axis(axes, axes.yaxis, min(usd for *_, usd in drawn), max(usd for *_, usd in drawn))
        axes.set(xlabel=f"{objective.statistic}, s", ylabel="USD a month")
        chart.figure.legend(loc="outside upper center", ncols=3)
    names = "; ".join(f"{number} {each.name}" for number, (each, *_) in enumerate(front, 1))
    hidden, far = len(points) - len(known), len(known) - len(drawn)
    left = f" Not drawn: {hidden} without a price or a known {objective.statistic}." if hidden else ""
    left += f" Not drawn: {far} that take more than {FAR} times as long as asked." if far else ""
    caption = (
        f"Less is better in both; both axes are logarithmic. Dashed: the objective; hollow: not advisable. "
        f"On the front: {names}.{left}"
    )
    return Picture("advice-pareto", title, chart.svg, caption)


def _kind_points(axes: Axes, kind: str, drawn: Sequence[tuple[Estimate, float, float]]) -> None:
    number = KINDS.index(kind)
    here = [point for point in drawn if kind_of(point[0].option) == kind]
    for filled in (True, False):
        some = [(value, usd) for each, value, usd in here if (not each.why_not) is filled]
        if some:
            look: dict[str, Any] = {"color": COLOURS[number], "markersize": 6.5, "linestyle": "none"}
            look |= {} if filled else {"markerfacecolor": CARD}
            label = kind if filled or all(each.why_not for each, *_ in here) else None
            axes.plot(*zip(*some, strict=True), marker=MARKS[number], label=label, **look)


def cost_picture(dossier: Dossier) -> Picture | None:
    """What a month costs by its requests, of the cheapest way of each kind, as far as it keeps up."""
    found, options = dossier.curves, {each.name: each.option for each in dossier.advice.estimates}
    if not found:
        return None
    now = dossier.question.traffic.expected()
    title = "What a month costs by its number of requests"
    with charted(title, width_in=6.4, height_in=4.2) as chart:
        axes = chart.axes
        for curve in found:
            kind = kind_of(options[curve.name])
            axes.plot(curve.requests_per_month, curve.usd, color=COLOURS[KINDS.index(kind)], label=kind)
        axes.axvline(now, color=MUTED, linewidth=1.0, linestyle=(0, (4, 4)))
        marked = _marks(axes, found, dossier)
        requests = [x for curve in found for x in curve.requests_per_month]
        usd = [y for curve in found for y in curve.usd if y > 0]
        log_axis(axes, axes.xaxis, min(requests), max(requests))
        log_axis(axes, axes.yaxis, min(usd), max(usd))
        axes.xaxis.set_major_formatter(FuncFormatter(_requests))
        axes.set(xlabel="requests a month", ylabel="USD a month")
        chart.figure.legend(loc="outside upper center", ncols=3)
    told = "; ".join(f"{kind_of(options[curve.name])}: {curve.name}" for curve in found)
    rings = f" Rings: break-even with the advised way, {marked}." if marked else ""
    caption = (
        f"The shape of the day stays; a line ends where its way no longer keeps up. Dashed: the traffic asked about. "
        f"{told}.{rings}"
    )
    return Picture("advice-cost-by-rate", title, chart.svg, caption)


def _requests(value: float, _: int) -> str:
    return f"{value:,.4g}" if value < 1e4 else f"{value:,.0f}" if value < 1e6 else f"{value / 1e6:,.4g} M"


def _marks(axes: Axes, found: Sequence[Curve], dossier: Dossier) -> str:
    """A ring at each break-even between the advised way and another that is drawn."""
    drawn = {curve.name: curve for curve in found}
    told = []
    for each in dossier.advice.break_evens:
        if each.keeps_up and {each.below, each.above} <= drawn.keys():
            curve = drawn[each.below]
            at = np.log(each.requests_per_month)
            usd = np.exp(np.interp(at, np.log(curve.requests_per_month), np.log(curve.usd)))
            axes.plot(each.requests_per_month, usd, "o", color=INK, markersize=8, markerfacecolor="none")
            told.append(f"{each.requests_per_month:,.0f} a month")
    return ", ".join(told)
