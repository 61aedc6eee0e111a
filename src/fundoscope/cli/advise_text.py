"""What `advise` prints: the advice in sentences, then one table, and the command that comes next."""

import shlex
from collections.abc import Iterable

from fundoscope.analysis.advise import Advice
from fundoscope.analysis.amounts import dollars, percent, seconds
from fundoscope.analysis.country import CountryPlan
from fundoscope.analysis.dossier import Dossier
from fundoscope.analysis.month import Estimate
from fundoscope.analysis.options import Batch, Serverless
from fundoscope.cli.command import table
from fundoscope.report.advice_words import headline, how_sure, told_break_evens, what_would_change

HEADER = ["way", "USD/month", "USD/1000", "p50", "p95", "p99", "cold", "refused", "not advised because"]
COUNTRY_HEADER = ["way", "USD/year", "takes", "p95", "cannot"]
WORDS = ("takes", "cannot", "not advised because")  # the other columns are amounts


def advice_lines(dossier: Dossier) -> list[str]:
    asked, advice = dossier.question, dossier.advice
    said = {
        "traffic": f"{asked.traffic.name}; {asked.traffic.expected():,.0f} a month, {advice.peak_per_s:.3g} a second "
        "at the busiest",
        "objective": str(advice.objective),
        "prices": f"{advice.prices}, {asked.prices.region}",
        "measured": "; ".join(f"{each.folder} ({each.measured} trials)" for each in dossier.measured.sources),
    }
    lines = [f"{name + ':':<11}{value}" for name, value in said.items()]
    lines += ["", f"{'advised' if advice.advised else 'not advised'}: {headline(advice)}"]
    lines += [f"how sure: {sure}"] if (sure := how_sure(advice)) else []
    lines += [f"what would change it: {change}"] if (change := what_would_change(advice)) else []
    lines += [f"break-even: {each}" for each in told_break_evens(advice)]
    lines += ["", *(_country(dossier.plan, advice) if dossier.plan else _table(HEADER, map(_row, advice.estimates)))]
    if dossier.ways.cannot:
        rows = [[each.name, each.reason] for each in dossier.ways.cannot]
        lines += ["", *table(rows, header=["cannot be had", "because"])]
    said_too = [f"warning: {each}" for each in dossier.warnings] + [f"note: {each}" for each in dossier.measured.notes]
    return [*lines, "", *said_too] if said_too else lines


def _table(header: list[str], rows: Iterable[list[str]]) -> list[str]:
    """As all tables, with amounts to the right although some of them are words."""
    lines = [header, *rows]
    for i in range(1, len(header)):
        if header[i] not in WORDS:
            width = max(len(line[i]) for line in lines)
            lines = [[*line[:i], line[i].rjust(width), *line[i + 1 :]] for line in lines]
    return table([*lines[1:]], header=lines[0])


def _row(each: Estimate) -> list[str]:
    known = [seconds(each.latency_s[name]) for name in ("p50", "p95", "p99")]
    shares = [percent(each.cold_share), percent(each.refused_share)]
    return [each.name, dollars(each.usd), dollars(each.usd_per_thousand), *known, *shares, each.why_not]


def _country(plan: CountryPlan, advice: Advice) -> list[str]:
    of = plan.screening
    rows = [
        [row.way, dollars(row.usd_per_year), row.takes, seconds(each.latency_s["p95"]), row.cannot]
        for row, each in zip(plan.rows, advice.estimates, strict=True)
    ]
    return [
        f"{of.name}: {of.people:,} people ({of.source}) × {of.eyes} eyes × {of.photographs} photographs × "
        f"{of.per_year:g} a year = {plan.photographs_per_year:,.0f} photographs a year, "
        f"{plan.peak_per_s:.3g} a second from {of.opens:g} to {of.closes:g} h of working days",
        "",
        *_table(COUNTRY_HEADER, rows),
    ]


def next_command(dossier: Dossier) -> str:
    """The command that has the advised way."""
    option = dossier.advised
    if option is None:
        return ""
    told = dossier.measured.told[option.artefact]
    artefact, image = told["artefact"], "lean" if told["stack"] == "lean" else told.get("image") or "one-stage"
    if isinstance(option, Batch):
        words: list[object] = ["screen", "PHOTOGRAPHS", "--artefact", artefact, "--out", "results.parquet"]
        return f"every night on {option.count} × {option.instance}: {shlex.join(['fundoscope', *map(str, words)])}"
    words = ["deploy", "plan", artefact, "--image", f"build/images/{image}", "--name", "NAME"]
    if isinstance(option, Serverless):
        words += ["--memory-mb", option.memory_mb, "--max-concurrency", option.max_concurrency]
        words += ["--provisioned", option.provisioned_concurrency] if option.provisioned_concurrency else []
    else:
        wanted = option.to_deploy(dossier.ways.latencies[option.name])
        words += ["--instance", wanted.instance_type, "--count", wanted.count]
        if scaling := wanted.autoscaling:
            words += ["--autoscale", f"{scaling.min_count}:{scaling.max_count}:{scaling.requests_per_minute}"]
    return shlex.join(["fundoscope", *map(str, words)])
