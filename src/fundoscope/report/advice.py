"""The page of an advice: the way in a sentence, what else there is, and everything that it rests on.

One HTML file, without a network; the same question and the same studies give the same bytes.
"""

from collections.abc import Sequence
from math import inf
from pathlib import Path

from markupsafe import Markup

from fundoscope.analysis.amounts import dollars, percent, seconds
from fundoscope.analysis.dossier import Dossier, assumptions
from fundoscope.analysis.month import Estimate
from fundoscope.analysis.ways import kind_of
from fundoscope.provenance import versions, write_whole
from fundoscope.report import tables
from fundoscope.report.advice_charts import cost_picture, pareto_picture
from fundoscope.report.advice_words import headline, how_sure, told_break_evens, what_would_change
from fundoscope.report.study import light_palette
from fundoscope.report.tables import Column, Entry, text
from fundoscope.report.template import fill

SHOWN = ("p50", "p95", "p99")
NO_READING = "–"


def write_advice_page(dossier: Dossier, out: Path, *, command: str = "") -> Path:
    write_whole(out, render(dossier, command=command).encode())
    return out


def render(dossier: Dossier, *, command: str = "") -> str:
    asked, advice = dossier.question, dossier.advice
    return fill(
        "advice.html",
        {
            "advice": advice,
            "asked": asked,
            "headline": headline(advice),
            "sentences": _sentences(dossier),
            "resumo": _resumo(dossier),
            "tiles": _tiles(dossier),
            "requests": asked.traffic.expected(),
            "pareto": pareto_picture(dossier),
            "costs": cost_picture(dossier),
            "ways": _way_table(advice.estimates),
            "cannot": _cannot_table(dossier),
            "break_evens": _break_even_table(dossier),
            "plan": dossier.plan,
            "country": _country_table(dossier),
            "assumptions": _assumption_table(dossier),
            "warnings": dossier.warnings,
            "notes": dossier.measured.notes,
            "studies": _study_table(dossier),
            "prices": [(name, source) for name, source in asked.prices.sources.items()],
            "command": command,
            "versions": versions(),
            "palette": light_palette(),
        },
    )


def _sentences(dossier: Dossier) -> list[str]:
    advice = dossier.advice
    found = [("How sure", how_sure(advice)), ("What would change it", what_would_change(advice))]
    found += [("Break-even", each) for each in told_break_evens(advice)]
    return [f"{what}: {words}." for what, words in found if words]


def _resumo(dossier: Dossier) -> str:
    advice = dossier.advice
    if advice.advised is None:
        return f"Nenhuma das formas medidas pode ser recomendada para {advice.objective}."
    best, sure = advice.estimates[0], advice.certainty
    certain = f" Em {percent(sure.both)} das reamostragens é a mais barata e cumpre o objetivo." if sure else ""
    comma = str.maketrans(",.", ".,")
    month, thousand, p95 = (
        amount.translate(comma)
        for amount in (dollars(best.usd), dollars(best.usd_per_thousand), seconds(best.latency_s["p95"]))
    )
    return (
        f"Recomendada para {advice.objective}: {best.name}, por {month} dólares por mês "
        f"({thousand} por mil fotografias); p95 de {p95}.{certain}"
    )


def _tiles(dossier: Dossier) -> list[tuple[str, str, str]]:
    """What, how much, and a word on it."""
    advice, best = dossier.advice, dossier.advice.estimates[0]
    if advice.advised is None:
        return []
    statistic = advice.objective.statistic
    tiles = [
        ("A month", f"{dollars(best.usd)} USD", f"{dollars(best.usd_per_thousand)} a thousand requests"),
        (statistic, seconds(best.latency_s[statistic]), f"asked: below {seconds(advice.objective.seconds)}"),
        ("Cold", percent(best.cold_share), "of the requests"),
        ("Throttled", percent(best.refused_share), "of the requests"),
    ]
    if advice.certainty:
        tiles.append(("Cheapest and meets it", percent(advice.certainty.both), "of the resamples"))
    return tiles


def _way_table(estimates: Sequence[Estimate]) -> tables.Table | None:
    columns = [
        Column("Way to serve", ("way", "kind"), False),
        Column("USD a month", ("usd_per_month",)),
        Column("USD a thousand", ("usd_per_thousand",)),
        *(Column(name, (f"{name}_s",)) for name in SHOWN),
        Column("Cold", ("cold_share",)),
        Column("Refused", ("refused_share",)),
        Column("Not advised because", ("why_not",), False),
    ]
    rows = [
        (
            Entry(each.name, (each.name, kind_of(each.option)), each.name),
            _money(each.usd),
            _money(each.usd_per_thousand),
            *(_latency(each.latency_s[name]) for name in SHOWN),
            Entry(percent(each.cold_share), (each.cold_share,), each.cold_share),
            Entry(percent(each.refused_share), (each.refused_share,), each.refused_share),
            Entry(each.why_not, (each.why_not,), each.why_not),
        )
        for each in estimates
    ]
    return tables.table("advice-ways", "Every way to serve that was measured", columns, rows, sortable=True)


def _money(value: float | None) -> Entry:
    if value is None:
        return Entry("not known", (None,))
    return Entry(Markup('<data value="{}">{}</data>').format(repr(value), dollars(value)), (value,), value)


def _latency(value: float | None) -> Entry:
    if value is None:
        return Entry(NO_READING, (None,))
    order = 1e300 if value == inf else value
    return Entry(seconds(value), ("never" if value == inf else value,), order)


def _cannot_table(dossier: Dossier) -> tables.Table | None:
    columns = (Column("Way to serve", ("way",), False), Column("Because", ("because",), False))
    rows = [(text(each.name), text(each.reason)) for each in dossier.ways.cannot]
    return tables.table("advice-cannot", "What cannot be had", columns, rows)


def _break_even_table(dossier: Dossier) -> tables.Table | None:
    columns = (
        Column("Requests a month", ("requests_per_month", "rate_per_s")),
        Column("Cheaper below", ("cheaper_below",), False),
        Column("Cheaper above", ("cheaper_above",), False),
        Column("Both keep up", ("both_keep_up",), False),
        Column("Found by", ("found_by",), False),
    )
    rows = [
        (
            Entry(f"{e.requests_per_month:,.0f}", (e.requests_per_month, e.rate_per_s), e.requests_per_month),
            text(e.below),
            text(e.above),
            text("yes" if e.keeps_up else "no"),
            text(e.how),
        )
        for e in dossier.advice.break_evens
    ]
    caption = "Rates at which the advised way and another cost the same"
    return tables.table("advice-break-evens", caption, columns, rows, sortable=True)


def _country_table(dossier: Dossier) -> tables.Table | None:
    if dossier.plan is None:
        return None
    columns = (
        Column("Way to serve", ("way",), False),
        Column("USD a year", ("usd_per_year",)),
        Column("Takes", ("takes",), False),
        Column("Cannot", ("cannot",), False),
    )
    rows = [(text(row.way), _money(row.usd_per_year), text(row.takes), text(row.cannot)) for row in dossier.plan.rows]
    caption = f"{dossier.plan.screening.name}, a year of {dossier.plan.photographs_per_year:,.0f} photographs"
    return tables.table("advice-country", caption, columns, rows, sortable=True)


def _assumption_table(dossier: Dossier) -> tables.Table | None:
    columns = (
        Column("Assumed", ("assumed",), False),
        Column("Value", ("value",), False),
        Column("Source", ("source",), False),
        Column("Changed by", ("option",), False),
    )
    code = Markup("<code>{}</code>")
    rows = [
        (text(each.what), text(each.value), text(each.why), Entry(code.format(each.option), (each.option,)))
        for each in assumptions(dossier.question)
    ]
    return tables.table("advice-assumptions", "Neither measured nor in a price list", columns, rows)


def _study_table(dossier: Dossier) -> tables.Table | None:
    columns = (
        Column("Study", ("study", "folder"), False),
        Column("Measured", ("measured",)),
        Column("Failed", ("failed",)),
        Column("Machines", ("machines",)),
        Column("Outcomes, sha256", ("outcomes_sha256", "design_digest"), False),
    )
    digest = Markup('<span class="digest">{}…</span>')
    rows = [
        (
            Entry(each.name, (each.name, each.folder)),
            tables.whole(each.measured),
            tables.whole(each.failed),
            tables.whole(each.machines),
            Entry(digest.format(each.outcomes_sha256[:16]), (each.outcomes_sha256, each.design_digest)),
        )
        for each in dossier.measured.sources
    ]
    return tables.table("advice-studies", "What was measured", columns, rows)
