"""The thesis beside what is measured here: its tables and figures from its raw numbers, its statements with verdicts.

One HTML file, without a network; the same numbers give the same bytes.
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup
from matplotlib.axes import Axes

from fundoscope.analysis import thesis
from fundoscope.analysis.inference_cost import as_billed, as_thesis, break_even_requests_per_hour, rented
from fundoscope.analysis.prices import SAGEMAKER, PriceList, open_prices
from fundoscope.analysis.summaries import Summary
from fundoscope.analysis.thesis import RESULTS, Cell, Value, beside, regenerate, thesis_results
from fundoscope.analysis.thesis_exhibits import EXHIBITS
from fundoscope.analysis.thesis_statements import statements
from fundoscope.analysis.thesis_verdicts import TOLERANCE, Judged, Verdict
from fundoscope.provenance import sha256_file, write_whole
from fundoscope.report import tables
from fundoscope.report.drawing import BLUE, MUTED, ORANGE
from fundoscope.report.study import light_palette
from fundoscope.report.study_drawing import SMALL_IN, Picture, charted, level_axis, slug, value_axis
from fundoscope.report.study_words import places_of, rounded
from fundoscope.report.tables import Column, Entry, text
from fundoscope.report.template import fill

Ours = Mapping[Cell, Summary]
VERDICTS: Mapping[Verdict, tuple[str, str]] = {  # colour, in Portuguese
    "reproduced": ("good", "reproduzida"),
    "mislabelled": ("bad", "com rótulo errado"),
    "not reproducible": ("", "não reproduzível"),
}
BASES = {
    "printed": "as printed",
    "inferred": "inferred",
    "unsupported": "as printed, no readings",
}
PHOTOGRAPH_BYTES = 113_000  # the 224×224 PNG of the author's load test
RATE = 100  # requests an hour
RIVAL = "ml.c7g.xlarge"  # the cheapest machine of the thesis
BAR = 0.36


def write_thesis_page(out: Path, ours: Ours | None = None, *, measured: str = "") -> Path:
    """`ours` by the thesis's own labels; `measured` says in a sentence where and how."""
    write_whole(out, render(ours, measured=measured).encode())
    return out


def render(ours: Ours | None = None, *, measured: str = "") -> str:
    results = thesis_results()
    made = [beside(regenerate(exhibit, results), ours or {}) for exhibit in EXHIBITS]
    judged = statements(results)
    counts = Counter(one.verdict for one in judged)
    return fill(
        "thesis.html",
        {
            "exhibits": [_shown(table) for table in made],
            "statements": _statement_table(judged),
            "counts": {verdict: counts[verdict] for verdict in VERDICTS},
            "verdicts_pt": {verdict: words for verdict, (_, words) in VERDICTS.items()},
            "plural_pt": {"reproduced": "reproduzidas", "not reproducible": "não reproduzíveis"},
            "total": len(judged),
            "costs": _cost_table(open_prices(SAGEMAKER)),
            "prices": SAGEMAKER,
            "rate": RATE,
            "photograph_kb": PHOTOGRAPH_BYTES // 1000,
            "measured": measured if any(table.measured for table in made) else "",
            "has_ours": any(table.measured for table in made),
            "unplaced": _unplaced(ours or {}),
            "rows": len(results),
            "digest": sha256_file(RESULTS),
            "tolerance": f"{100 * TOLERANCE:g} %",
            "palette": light_palette(),
        },
    )


def _unplaced(ours: Ours) -> list[str]:
    """Measurements of what no table or figure speaks of, so that a misspelt label is not lost in silence."""
    cells = {cell for exhibit in EXHIBITS for row in exhibit.asks for quantity in row for cell in quantity.cells}
    asked = {cell[:4] for cell in cells}  # of what it prints, one reading or another
    return sorted(thesis.said(thesis.Quantity("mean", (Cell(*cell),))) for cell in ours if cell[:4] not in asked)


def _shown(table: thesis.Table) -> dict[str, Any]:
    exhibit = table.exhibit
    return {
        "name": exhibit.name,
        "id": slug(exhibit.name),
        "title": exhibit.title,
        "original": exhibit.original,
        "original_name": exhibit.name.replace("Table", "Tabela").replace("Figure", "Figura"),
        "is_figure": exhibit.is_figure,
        "note": exhibit.note,
        "lacking": table.lacking,
        "table": _table(table),
        "picture": _picture(table) if exhibit.is_figure else None,
    }


def _table(made: thesis.Table) -> tables.Table | None:
    columns, parts = [Column("", ("row",), False)], []
    for place, label in enumerate(made.exhibit.columns):
        key, entries = slug(label).replace("-", "_"), [row[place] for row in made.entries]
        columns.append(Column(label, tuple(f"{key}_{end}" for end in ("mean", "deviation", "n", "unit", "basis"))))
        parts.append([_published(entry.published) for entry in entries])
        if any(entry.ours is not None for entry in entries):
            columns.append(Column("measured here", tuple(f"{key}_ours_{end}" for end in ("mean", "deviation", "n"))))
            columns.append(Column("here over published", (f"{key}_ours_over_published",)))
            parts += [[_ours(entry.ours) for entry in entries], [tables.amount(entry.times) for entry in entries]]
    rows = [(text(label), *row) for label, *row in zip(made.exhibit.rows, *parts, strict=True)]
    return tables.table(slug(made.exhibit.name), made.exhibit.name, columns, rows)


def _published(value: Value | None) -> Entry:
    if value is None:
        return Entry(Markup('<span class="none">not known</span>'), (None,) * 5)
    exact = (value.mean, value.deviation, value.n, value.unit, value.basis)
    return Entry(_number(value, BASES.get(value.basis, "")), exact, value.mean)


def _ours(value: Value | None) -> Entry:
    if value is None:
        return Entry("–", (None,) * 3)
    return Entry(_number(value), (value.mean, value.deviation, value.n), value.mean)


def _number(value: Value, basis: str = "") -> Markup:
    """The mean, and under it what is known of its spread, or that it is only printed."""
    spread = f"σ {_digits(value.deviation, value)}, n = {value.n}" if value.deviation is not None else basis
    shown = Markup('<data value="{}">{}</data>').format(repr(value.mean), _with_unit(value))
    return shown + (Markup(' <span class="interval">{}</span>').format(spread) if spread else "")


def _with_unit(value: Value) -> str:
    unit = {"count": "", "×": "", "USD": "USD"}.get(value.unit, value.unit)
    return f"{_digits(value.mean, value)}\u00a0{unit}".rstrip("\u00a0")


def _digits(number: float, value: Value) -> str:
    if value.unit == "count":
        return f"{number:,.0f}"
    if value.unit == "USD" and number < 1e-3:
        return f"{number:.8f}".rstrip("0") if value.basis in BASES else f"{number:.8f}"
    if value.basis in BASES:
        return f"{number:g}"
    if value.unit == "×":
        return f"{number:.4f}"
    return rounded(number, places_of(value.mean, value.low, value.high))


def _picture(made: thesis.Table) -> Picture:
    exhibit = made.exhibit
    entries = [row[0] for row in made.entries]
    heard = "; ".join(f"{label} {_heard(e)}" for label, e in zip(exhibit.rows, entries, strict=True))
    with charted(f"{exhibit.name}. {exhibit.title}: {heard}", width_in=SMALL_IN, height_in=2.6) as chart:
        axes = chart.axes
        shift = 0.55 * BAR if made.measured else 0.0
        for place, entry in enumerate(entries):
            _bar(axes, place - shift, entry.published, BLUE)
            if entry.ours is not None:
                _bar(axes, place + shift, entry.ours, ORANGE)
        level_axis(axes, exhibit.rows)
        axes.set_xlim(-0.6, len(entries) - 0.4)
        values = [v for e in entries for v in (e.published, e.ours) if v is not None]
        value_axis(axes, axes.yaxis, [0.0, *(v.mean + (v.deviation or 0) for v in values)], None, log=False)
        axes.set_ylim(0, 1.14 * max(v.mean + (v.deviation or 0) for v in values))
        axes.set_ylabel(f"{exhibit.columns[0]}, s")
    caption = "Bars are means, whiskers one standard deviation."
    if made.measured:
        caption += " Blue: the thesis; orange: measured here."
    if any(e.lacking for e in entries):
        caption += " Hollow: no readings exist."
    return Picture(slug(exhibit.name), exhibit.title, chart.svg, caption)


def _heard(entry: thesis.Entry) -> str:
    published = "not known" if entry.published is None else _with_unit(entry.published)
    return published if entry.ours is None else f"{published}, measured here {_with_unit(entry.ours)}"


def _bar(axes: Axes, x: float, value: Value | None, colour: str) -> None:
    if value is None:
        axes.text(x, 0, "not\nknown", ha="center", va="bottom", fontsize=8, color=MUTED)
        return
    hollow = value.basis in ("unsupported", "inferred")
    face = "none" if hollow else colour
    axes.bar(x, value.mean, BAR, color=face, edgecolor=colour, linewidth=1.2, linestyle="--" if hollow else "-")
    top = value.mean
    if value.deviation is not None:
        axes.errorbar(x, value.mean, yerr=value.deviation, color=MUTED, capsize=3, linewidth=1)
        top += value.deviation
    axes.annotate(
        _digits(value.mean, value), (x, top), (0, 2), textcoords="offset points", ha="center", va="bottom", fontsize=8
    )


def _statement_table(judged: tuple[Judged, ...]) -> tables.Table | None:
    columns = (
        Column("The thesis says", ("where", "said", "original", "printed"), False),
        Column("The raw numbers say", ("found", "value", "other_labels_tried"), False),
        Column("Verdict", ("verdict",), False),
        Column("Right label", ("right_label",), False),
    )
    said = Markup('{}<br><q lang="pt-BR" class="unit">{}</q><br><span class="unit">{}</span>')
    badge = Markup('<span class="verdict {}">{}</span><br><span lang="pt-BR" class="unit">{}</span>')
    rows = []
    for one in judged:
        printed = getattr(one.statement, "printed", "")
        told = said.format(one.statement.english, one.statement.original, one.statement.where)
        exact = (one.statement.where, one.statement.english, one.statement.original, printed)
        colour, words = VERDICTS[one.verdict]
        rows.append(
            (
                Entry(told, exact, one.statement.where),
                Entry(one.found, (one.found, one.value, one.tried)),
                Entry(badge.format(colour, one.verdict, words), (one.verdict,), one.verdict),
                text(one.right),
            )
        )
    return tables.table("thesis-statements", "What the thesis says, and what its raw numbers say", columns, rows)


def _cost_table(prices: PriceList) -> tables.Table | None:
    """The thesis's own warm readings priced both ways."""
    assert prices.serverless is not None  # a shipped list
    results, machine = thesis_results(), rented(prices.instance(RIVAL))
    columns = (
        Column("Network and memory", ("model", "memory_gb"), False),
        Column("1,000 inferences, price × total latency", ("usd_per_thousand_as_thesis",)),
        Column("1,000 inferences, as AWS bills", ("usd_per_thousand_as_billed",)),
        Column(f"A month at {RATE} an hour, as billed", ("usd_per_month_as_billed",)),
        Column(f"{thesis.name_of(RIVAL)} is cheaper from, an hour", ("break_even_requests_per_hour",)),
    )
    rows = []
    for model in (thesis.MOBILENET, thesis.VGG19):
        for size_gb, level in enumerate(thesis.MEMORY, start=1):
            total, busy = (
                results[Cell(thesis.WARM, model, "memory", level, metric)].mean or 0.0
                for metric in ("total_latency", "server_request_time")
            )
            published = as_thesis(prices.serverless, memory_gb=size_gb, total_latency_s=total)
            billed = as_billed(
                prices.serverless, memory_gb=size_gb, processing_ms=[1000 * busy], moved_bytes=PHOTOGRAPH_BYTES
            )
            rows.append(
                (
                    Entry(f"{model}, {size_gb} GB", (model, size_gb), f"{model}{size_gb}"),
                    tables.money(published.per_thousand),
                    tables.money(billed.per_thousand),
                    tables.money(billed.per_month(RATE)),
                    tables.whole(round(break_even_requests_per_hour(billed, machine))),
                )
            )
    return tables.table("thesis-cost-both-ways", "What its warm requests cost, reckoned both ways", columns, rows)
