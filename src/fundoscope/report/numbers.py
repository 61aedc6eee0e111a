"""Numbers as the page shows them: rounded for people, and exact in a <data> element for machines and tests."""

from typing import Any

from markupsafe import Markup

Estimate = dict[str, Any]
SHORT_DAY = 10  # characters of an ISO date without its time


def area(estimate: Estimate) -> Markup:
    """0.964 (0.951–0.975)"""
    return _shown(estimate, lambda value: f"{value:.3f}", unit="")


def share(estimate: Estimate) -> Markup:
    """93.6 % (91.0–95.5)"""
    return _shown(estimate, lambda value: f"{100 * value:.1f}", unit="\u00a0%")


def area_pt(estimate: Estimate) -> Markup:
    return _shown(estimate, lambda value: f"{value:.3f}".replace(".", ","), unit="")


def share_pt(estimate: Estimate) -> Markup:
    return _shown(estimate, lambda value: f"{100 * value:.1f}".replace(".", ","), unit="\u00a0%")


def _shown(estimate: Estimate, rounded: Any, *, unit: str) -> Markup:
    value, low, high = estimate["value"], estimate["low"], estimate["high"]
    if value is None:
        return Markup('<span class="none">none: {}</span>').format(estimate["reason"] or "not computed")
    number = Markup('<data value="{}">{}{}</data>').format(repr(value), rounded(value), unit)
    if low is None:
        return number + Markup(' <span class="interval">(no interval: {})</span>').format(estimate["reason"])
    ends = Markup(' <span class="interval">({}–{})</span>').format(rounded(low), rounded(high))
    return number + ends


def count(n: int | float) -> str:
    return f"{n:,.0f}"


def count_pt(n: int | float) -> str:
    return f"{n:,.0f}".replace(",", ".")


def decimal(value: float, places: int = 3) -> Markup:
    return Markup('<data value="{}">{}</data>').format(repr(value), f"{value:.{places}f}")


def duration(seconds: float) -> str:
    """42 s, 7 min 5 s, 2 h 14 min"""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def day(moment: str | None) -> str:
    return (moment or "")[:SHORT_DAY]


def words(name: str) -> str:
    """high_sensitivity -> high sensitivity"""
    return name.replace("_", " ")


FILTERS = {
    function.__name__: function
    for function in (area, share, area_pt, share_pt, count, count_pt, decimal, duration, day, words)
}
