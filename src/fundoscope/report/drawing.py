"""matplotlib figures as SVG that belongs to the page: its fonts, its colours in light and dark, always the same bytes.

Charts are drawn in the colours below, which nothing else uses, and these are then replaced by the page's CSS
variables; letters stay letters, so that they can be read aloud, searched and set in the reader's own font.
"""

import html
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK, MUTED, GRID, CARD = "#010101", "#020202", "#030303", "#040404"
BLUE, ORANGE, GREEN, PINK = "#050505", "#060606", "#070707", "#080808"
VARIABLES = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    GRID: "var(--line)",
    CARD: "var(--card)",
    BLUE: "var(--blue)",
    ORANGE: "var(--orange)",
    GREEN: "var(--green)",
    PINK: "var(--pink)",
}
STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "fundoscope",
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.labelsize": 10,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "lines.linewidth": 1.8,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "legend.handlelength": 1.6,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
}


class Drawing:
    """A figure under construction; `svg` is set when the `with` block of `drawing` ends."""

    def __init__(self, figure: Figure, axes: Axes) -> None:
        self.figure, self.axes, self.svg = figure, axes, ""


@contextmanager
def drawing(title: str, *, width_in: float = 4.6, height_in: float = 3.1) -> Iterator[Drawing]:
    """One chart. `title` is read to those who do not see it: say what the chart shows, with its numbers."""
    with mpl.rc_context(STYLE):
        # Not pyplot: no global state, no backend to choose, nothing to close.
        figure = Figure(figsize=(width_in, height_in), layout="constrained")
        made = Drawing(figure, figure.add_subplot())
        yield made
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None})
    made.svg = _into_page(file.getvalue(), title)


def _into_page(svg: str, title: str) -> str:
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
    # Several figures share a page, so only names that something refers to may stay, and those are hashes of content.
    used = set(re.findall(r'(?:xlink:href="|url\()#([\w-]+)', svg))
    svg = re.sub(r' id="([\w.-]+)"', lambda found: found[0] if found[1] in used else "", svg)
    svg = svg.replace("xlink:href", "href")
    view = re.search(r'viewBox="[^"]+"', svg)
    assert view is not None  # matplotlib always writes one
    name = html.escape(title, quote=True)
    opening = f'<svg {view[0]} role="img" aria-label="{name}" preserveAspectRatio="xMidYMid meet">'
    svg = re.sub(r"<svg [^>]*>", lambda _: f"{opening}<title>{name}</title>", svg, count=1)
    svg = re.sub(r"font-family: [^;\"]*;?", "", svg)
    svg = re.sub(r"font: (?:[\w-]+ )*([\d.]+px)[^;\"]*", r"font-size: \1", svg)
    for colour, variable in VARIABLES.items():
        svg = svg.replace(colour, variable)
    return re.sub(r"\s*\n\s*", "\n", svg).strip()
