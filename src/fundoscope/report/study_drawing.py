"""How the charts of a study are drawn: a figure with its caption, axes that hide nothing, names that are only names."""

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import isfinite, log10
from typing import Any, TypeVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from fundoscope.provenance import sha256_of
from fundoscope.report.drawing import BLUE, GREEN, INK, MUTED, ORANGE, PINK, Drawing, drawing

COLOURS = (BLUE, ORANGE, GREEN, PINK, INK, MUTED)
MARKS = ("o", "s", "^", "D", "v", "P")
MOST_POINTS = 1200
LOG_FROM = 30  # times: from here on a linear axis hides the small ones
WIDE_IN = 8.8
SMALL_IN = 3.4
T = TypeVar("T")


@dataclass(frozen=True)
class Picture:
    name: str  # of the file it is saved as
    title: str
    svg: str
    caption: str
    wide: bool = False  # scrolls where the page is narrow


@contextmanager
def charted(title: str, *, width_in: float = 4.6, height_in: float = 3.1) -> Iterator[Drawing]:
    with warnings.catch_warnings():
        # Letters are set in the reader's font: that matplotlib's has no glyph for one of them does not matter.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        with drawing(_printable(title), width_in=width_in, height_in=height_in) as chart:
            yield chart
    # Figures share marks, and so their names; on one page a name may be used once.
    own = sha256_of(chart.svg.encode())[:8]
    chart.svg = re.sub(r'( id="|href="#|url\(#)([\w-]+)', rf"\1\2-{own}", chart.svg)


def named(text: str, most: int = 40) -> str:
    """Somebody's name on a chart: not too long, on one line, and never taken for a formula."""
    text = " ".join(_printable(text).split())
    text = text if len(text) <= most else f"{text[: most - 1]}…"
    return text.replace("$", r"\$")


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


def slug(text: str) -> str:
    return re.sub(r"[^\w.-]+", "-", text).strip("-").lower()[:60]


def reach(value: float, low: float | None, high: float | None) -> tuple[float, float]:
    """Lengths of the whiskers."""
    return max(0.0, value - known_end(low, value)), max(0.0, known_end(high, value) - value)


def known_end(end: float | None, value: float) -> float:
    return end if end is not None and isfinite(end) else value


def few(items: Sequence[T], most: int, *, key: Callable[[T], float]) -> list[T]:
    """All of them in their order, or both ends by `key` where they are too many."""
    if len(items) <= most:
        return list(items)
    ordered = sorted(range(len(items)), key=lambda i: key(items[i]))
    kept = sorted({*ordered[: most // 2], *ordered[-(most - most // 2) :]})
    return [items[i] for i in kept]


def spread_over(n: int, order: Any) -> list[int]:
    """At most MOST_POINTS indexes, evenly over `order` and with both of its ends."""
    if n <= MOST_POINTS:
        return list(range(n))
    return sorted({int(order[i]) for i in np.linspace(0, n - 1, MOST_POINTS).round().astype(int)})


def level_axis(axes: Axes, names: Sequence[str]) -> None:
    long = sum(len(name) + 1 for name in names) > 34
    axes.set_xticks(
        range(len(names)), names, fontsize=8.5, rotation=30 if long else 0, ha="right" if long else "center"
    )
    axes.set_xlim(-0.35, len(names) - 0.65)
    axes.grid(visible=False, axis="x")


def value_axis(
    axes: Axes, axis: Axis, values: Sequence[float], most: float | None, *, log: bool | None = None, fit: bool = False
) -> None:
    """From zero, or logarithmic where that would hide the small ones; `fit`: lines, that need no zero."""
    known = [x for x in values if isfinite(x)]
    if not known:
        return
    low, high = min(known), max(known)
    if low > 0 and (log or (log is None and high > LOG_FROM * low and most is None)):
        log_axis(axes, axis, low, high)
        return
    axis.set_major_locator(MaxNLocator(5))
    axis.set_major_formatter(FuncFormatter(tick))
    start = low - 0.06 * (high - low) if fit else min(0.0, low)
    end = max(most or 0.0, high + 0.05 * (high - start))
    if end > start:
        (axes.set_xlim if axis is axes.xaxis else axes.set_ylim)(start, end)


def log_axis(axes: Axes, axis: Axis, low: float, high: float) -> None:
    (axes.set_xscale if axis is axes.xaxis else axes.set_yscale)("log")
    decades = log10(high / low) if low > 0 else 1
    if decades < 0.7:
        axis.set_major_locator(MaxNLocator(5))
    else:
        subs = (1.0,) if decades > 3 else (1.0, 3.0) if decades > 1.6 else (1.0, 2.0, 5.0)
        axis.set_major_locator(LogLocator(subs=subs, numticks=12))
    axis.set_major_formatter(FuncFormatter(tick))
    axis.set_minor_formatter(NullFormatter())
    pad = max(1.02, (high / low) ** 0.07) if low > 0 and high > low else 1.2
    (axes.set_xlim if axis is axes.xaxis else axes.set_ylim)(low / pad, high * pad)


def tick(value: float, _: int) -> str:
    if value and not 1e-5 <= abs(value) < 1e6:
        return f"{value:.0e}"
    text = f"{value:,.6f}".rstrip("0").rstrip(".")
    return text.replace("-", "−")
