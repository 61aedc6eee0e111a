"""Dollars, seconds and shares in words, for people."""

from math import isinf


def dollars(value: float | None) -> str:
    """Two places, or as many as it takes to show two digits."""
    if value is None:
        return "not known"
    return f"{value:,.2f}" if value >= 1 or value == 0 else f"{value:.2g}"


def seconds(value: float | None) -> str:
    """Of a latency: 0.21 s, 14.2 h, never; a dash where the readings cannot say it."""
    if value is None:
        return "–"
    if isinf(value):
        return "never"
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if value >= 2 * size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g} s"


def percent(share: float) -> str:
    return "< 0.01 %" if 0 < share < 0.0001 else f"{100 * share:.3g} %"
