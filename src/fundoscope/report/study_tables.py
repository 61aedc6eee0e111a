"""The tables of a study's report."""

from collections.abc import Mapping, Sequence
from math import exp
from typing import Any

from markupsafe import Markup

from fundoscope.analysis.findings import CellCost, CellFinding, Comparison, Findings, Response
from fundoscope.report.study_words import (
    Found,
    chance,
    percent,
    plain,
    response_of,
    rounded,
    short,
)
from fundoscope.report.tables import (
    END_ROWS,
    MOST_ROWS,
    Column,
    Entry,
    Table,
    amount,
    csv_link,
    interval,
    money,
    of_summary,
    table,
    text,
    whole,
    with_ends,
)

PREFERRED = (
    "train_s",
    "wall_s",
    "steady_epoch_s",
    "images_per_s",
    "accuracy",
    "cpu_percent_mean",
    "memory_mb_max",
    "gpu_percent_mean",
    "gpu_memory_mb_max",
    "gpu_joules",
)
MOST_METRICS = 5  # columns on the page beside the response; the CSV has all
MOST_FULL_CSV = 2000  # cells of which the CSV has every metric
MOST_CSV = 20_000
TRIALS_NAMED = 12


def factor_table(findings: Findings) -> Table | None:
    factors = findings.design.get("factors") or {}
    columns = (Column("Factor", ("factor",), False), Column("Levels", ("levels",), False), Column("How many", ("n",)))
    rows = [
        (text(name), text(", ".join(str(level) for level in levels)), whole(len(levels)))
        for name, levels in factors.items()
    ]
    return table(f"{findings.study}-factors", "Factors and their levels", columns, rows)


def cell_table(findings: Findings) -> Table | None:
    """Every cell; where there are very many those at both ends, and the CSV has what was measured of all."""
    metrics, asked = list(findings.metrics), response_of(findings)
    preferred = [name for name in PREFERRED if name in findings.metrics and name != asked][:MOST_METRICS]
    costs = {found.cell.number: found for found in findings.costs.cells} if findings.costs else {}
    factors = list(findings.cells[0].cell.levels) if findings.cells else []
    columns = [
        Column("Cell", ("cell",), False),
        *(Column(name, (name,), False) for name in factors),
        Column("Measured of planned", ("measured", "planned")),
        *([with_ends(_heading(findings, asked), asked), Column("CV", ("variation",))] if asked else []),
        *([with_ends("US$ a trial", "usd")] if costs else []),
        *(with_ends(_heading(findings, name), name) for name in preferred),
    ]
    chosen = _ends(findings.cells, asked)
    rows = [_cell_row(found, factors, preferred, asked, costs) for found in chosen]
    few = len(findings.cells) <= MOST_FULL_CSV
    link = _cells_csv(findings, factors, metrics if few else [asked] if asked else [], costs)
    hidden = len(findings.cells) - len(chosen)
    note = ""
    if hidden:
        note = f"{len(chosen):,} of {len(findings.cells):,} cells are listed, those with the least and the most. "
        kept = min(MOST_CSV, len(findings.cells))
        note += f"The CSV has {'all' if kept == len(findings.cells) else f'the first {kept:,}'} cells"
        note += "." if few else " and the response; findings.json has the rest."
    caption = "Mean of the measured trials of each cell, with its 95 % interval; CV: coefficient of variation"
    return table(f"{findings.study}-cells", caption, columns, rows, csv=link, note=note, sortable=True)


def _ends(cells: Sequence[CellFinding], metric: str | None) -> Sequence[CellFinding]:
    if len(cells) <= MOST_ROWS:
        return cells
    known = sorted((c for c in cells if metric in c.readings), key=lambda c: c.readings[metric or ""].mean)
    if len(known) <= 2 * END_ROWS:
        return (*known, *(c for c in cells if metric not in c.readings))[: 2 * END_ROWS]
    return (*known[:END_ROWS], *known[-END_ROWS:])


def _cell_row(
    found: CellFinding,
    factors: Sequence[str],
    metrics: Sequence[str],
    asked: str | None,
    costs: Mapping[int, CellCost],
) -> list[Entry]:
    cell, flags = found.cell, ", ".join(f"{n} {flag}" for flag, n in found.flags.items())
    whys = [short(why) if n == found.planned else f"{n} × {short(why)}" for why, n in found.failures.items()]
    why = "; ".join(f"{reason[:70]}…" if len(reason) > 71 else reason for reason in whys)
    told = Markup('<span class="unit">{}</span>')
    counted = f"{found.measured:,} of {found.planned:,}"
    beside = [told.format(part) for part in (f"failed: {why}" if why else "", flags) if part]
    row = [
        Entry(cell.name, (cell.name,), cell.number),
        *(text(cell.levels[name]) for name in factors),
        Entry(Markup(" ").join([counted, *beside]), (found.measured, found.planned), found.measured),
    ]
    if asked:
        summary = found.readings.get(asked)
        varies = summary.variation if summary else None
        row += [of_summary(summary), Entry("–" if varies is None else percent(varies), (varies,), varies)]
    if costs:
        priced = costs.get(cell.number)
        row.append(of_summary(priced.usd if priced else None))
    return [*row, *(of_summary(found.readings.get(name)) for name in metrics)]


def _cells_csv(
    findings: Findings, factors: Sequence[str], metrics: Sequence[str], costs: Mapping[int, CellCost]
) -> str:
    header = ["cell", *factors, "planned", "measured"]
    header += [f"{name}{end}" for name in metrics for end in ("", "_low", "_high")]
    header += ["usd"] if costs else []

    def line(found: CellFinding) -> list[Any]:
        values: list[Any] = [
            found.cell.name,
            *(found.cell.levels[name] for name in factors),
            found.planned,
            found.measured,
        ]
        for name in metrics:
            reading = found.readings.get(name)
            values += [None] * 3 if reading is None else map(_exact, (reading.mean, reading.low, reading.high))
        if costs:
            priced = costs.get(found.cell.number)
            values.append(_exact(priced.usd.mean if priced else None))
        return values

    return csv_link(header, (line(found) for found in findings.cells[:MOST_CSV]))


def _exact(value: float | None) -> str | None:
    """Seven digits: more than any clock has, and half the size of all seventeen."""
    return None if value is None else f"{value:.7g}"


def _heading(findings: Findings, metric: str) -> str:
    about = findings.metrics[metric]
    return f"{about.label}, {about.unit}" if about.unit else about.label


def variation_table(findings: Findings, response: Response) -> Table | None:
    """The analysis of variance, the largest share first."""
    parts = response.effects.parts
    columns = (
        Column("Term", ("term",), False),
        Column("Share", ("share",)),
        Column("Sum of squares", ("sum_of_squares",)),
        Column("Degrees", ("degrees",)),
        Column("F", ("f",)),
        Column("p", ("p",)),
    )
    rows = [
        (
            text(" × ".join(term)),
            _share(parts[term].share),
            amount(parts[term].sum_of_squares),
            whole(parts[term].degrees),
            amount(parts[term].f),
            Entry(chance(parts[term].p), (parts[term].p,), parts[term].p),
        )
        for term in sorted(parts, key=lambda term: -parts[term].share)
    ]
    degrees, deviation = response.effects.residual_degrees, response.effects.residual_deviation
    left = None if deviation is None else deviation**2 * degrees
    rows.append(
        (
            text("not explained"),
            _share(response.effects.unexplained),
            amount(left),
            whole(degrees),
            amount(None),
            amount(None),
        )
    )
    scale = "the logarithm of " if response.scale == "log" else ""
    label = findings.metrics[response.metric].label if response.metric in findings.metrics else response.metric
    return table(f"{findings.study}-variation", f"Analysis of variance of {scale}{label}", columns, rows, sortable=True)


def _share(share: float) -> Entry:
    return Entry(Markup('<data value="{}">{}</data>').format(repr(share), percent(share)), (share,), share)


def effect_table(findings: Findings, response: Response) -> Table | None:
    """What each level adds to the mean of all, or multiplies it by."""
    times = response.scale == "log"
    columns = (
        Column("Factor", ("factor",), False),
        Column("Level", ("level",), False),
        with_ends("Times the mean" if times else "Added to the mean", "times" if times else "added"),
    )
    rows = []
    for term, part in response.effects.parts.items():
        for levels, effect in part.effects.items() if len(term) == 1 else ():
            ends = (effect.value, effect.low, effect.high)
            value, low, high = (exp(end) if times and end is not None else end for end in ends)
            assert value is not None
            rows.append((text(term[0]), text(levels[0]), interval(Found(value, low, high))))
    mean = response.effects.mean
    ends = (mean.value, mean.low, mean.high)
    value, low, high = (exp(end) if times and end is not None else end for end in ends)
    assert value is not None
    unit = findings.metrics[response.metric].unit if response.metric in findings.metrics else ""
    caption = f"Main effects. The {'geometric ' if times else ''}mean of all is {plain(Found(value, low, high), unit)}"
    return table(f"{findings.study}-effects", caption, columns, rows, sortable=True)


def assumption_table(findings: Findings, response: Response) -> Table | None:
    columns = (
        Column("Assumption", ("assumption",), False),
        Column("Test", ("test",), False),
        Column("Statistic", ("statistic",)),
        Column("p", ("p",)),
        Column("Holds", ("holds",), False),
        Column("In words", ("said",), False),
    )
    words = {True: "yes", False: "no", None: "cannot be told"}
    kinds = {True: "good", False: "bad", None: ""}
    rows = [
        (
            text(one.name),
            text(one.test),
            amount(one.statistic),
            Entry(chance(one.p), (one.p,), one.p),
            Entry(_badge(words[one.holds], kinds[one.holds]), (words[one.holds],)),
            text(one.said),
        )
        for one in response.assumptions
    ]
    return table(f"{findings.study}-assumptions", "What the analysis takes for granted", columns, rows)


def _badge(words: str, kind: str) -> Markup:
    return Markup('<span class="verdict {}">{}</span>').format(kind, words)


def comparison_table(findings: Findings) -> Table | None:
    columns = (
        Column("Of", ("metric",), False),
        Column("Factor", ("factor",), False),
        Column("One / other", ("one", "other"), False),
        with_ends("Ratio", "ratio"),
        Column("In words", ("percent_less",), False),
        Column("p (Holm)", ("p_holm",)),
        Column("Effect size", ("effect_size",)),
        Column("Pairs of cells", ("cells",)),
    )
    rows = [
        (
            Entry(_name(findings, one.metric), (one.metric,), one.metric),
            text(one.factor),
            Entry(f"{one.one} / {one.other}", (one.one, one.other), one.one),
            interval(Found(one.ratio.value, one.ratio.low, one.ratio.high)),
            _in_words(one),
            Entry(chance(one.p_holm), (one.p_holm,), one.p_holm),
            amount(one.effect_size),
            whole(one.cells),
        )
        for one in findings.comparisons
    ]
    caption = "Two levels of a factor over the cells that both have, all else equal; geometric means"
    return table(f"{findings.study}-comparisons", caption, columns, rows, sortable=True)


def _name(findings: Findings, metric: str) -> str:
    return findings.metrics[metric].label if metric in findings.metrics else metric


def _in_words(one: Comparison) -> Entry:
    """As papers put it: so many per cent less, so many per cent more."""
    more, less = (one.one, one.other) if one.ratio.value >= 1 else (one.other, one.one)
    ratio = one.ratio if one.ratio.value >= 1 else one.ratio.inverse
    value, low, high = ratio.percent_less()
    ends = "" if low is None or high is None else f" ({low:.1f}–{high:.1f})"
    added = rounded(100 * (ratio.value - 1), 0 if ratio.value >= 1.1 else 1)
    return Entry(f"{less} has {value:.1f} % less{ends}, {more} {added} % more", (value,), value)


def precision_table(findings: Findings) -> Table | None:
    columns = (
        Column("Mean to within", ("percent",), False),
        Column("Repetitions of each cell", ("repetitions",)),
        Column("Trials still to run", ("more_trials",)),
        Column("Hours", ("hours",)),
        Column("Cost", ("usd",)),
    )
    rows = [
        (
            Entry(f"± {one.percent:g} %", (one.percent,), one.percent),
            whole(one.repetitions),
            whole(one.more_trials),
            amount(one.hours),
            money(one.usd),
        )
        for one in findings.precision
    ]
    caption = "How many repetitions a mean to within so many per cent needs (95 %), and what those still to run cost"
    return table(f"{findings.study}-precision", caption, columns, rows)


def failure_table(findings: Findings) -> Table | None:
    columns = (
        Column("Kind", ("kind",), False),
        Column("Reason", ("reason",), False),
        Column("Trials", ("n",)),
        Column("Which", ("trials",), False),
    )
    rows = []
    for found in sorted(findings.failures, key=lambda found: (-len(found.trials), found.reason)):
        more = len(found.trials) - TRIALS_NAMED
        named = ", ".join(found.trials[:TRIALS_NAMED]) + (f" and {more:,} more" if more > 0 else "")
        which = Entry(named, (" ".join(found.trials),))
        rows.append((text(found.kind), text(found.reason), whole(len(found.trials)), which))
    return table(f"{findings.study}-failures", "Failed trials by reason", columns, rows)


def machine_table(findings: Findings) -> Table | None:
    labels = {
        "processor": "Processor",
        "processors": "Processors",
        "quota": "Quota",
        "memory_gb": "Memory, GB",
        "gpus": "GPUs",
        "system": "System",
        "kernel": "Kernel",
    }
    columns = [
        Column("Machine", ("machine",), False),
        *(Column(label, (key,), False) for key, label in labels.items()),
    ]
    rows = []
    for digest, facts in findings.machines.items():
        told = {**facts, "gpus": ", ".join(_gpu(gpu) for gpu in facts.get("gpus") or ())}
        name = Entry(Markup('<span class="digest">{}</span>').format(digest[:12]), (digest,), digest)
        rows.append([name, *(text(told.get(key)) for key in labels)])
    return table(f"{findings.study}-machines", "Machines that trials ran on", columns, rows)


def _gpu(gpu: Mapping[str, Any]) -> str:
    memory = gpu.get("memory_mb")
    size = f" {memory:,.0f} MB" if memory else ""
    driver = f", driver {gpu['driver']}" if gpu.get("driver") else ""
    return f"{gpu.get('name', 'GPU')}{size}{driver}"


def statement_table(findings: Findings) -> Table | None:
    columns = (
        Column("Published", ("paper", "said", "original"), False),
        Column("Found here", ("found",), False),
        Column("Verdict", ("verdict",), False),
        Column("Note", ("note",), False),
    )
    kinds = {"holds": "good", "does not hold": "bad"}
    said = Markup('{}<br><q lang="pt-BR" class="unit">{}</q><br><span class="unit">{}</span>')
    rows = [
        (
            Entry(said.format(one.said, one.original, one.paper), (one.paper, one.said, one.original)),
            text(one.found),
            Entry(_badge(one.verdict, kinds.get(one.verdict, "")), (one.verdict,), one.verdict),
            text(one.note),
        )
        for one in findings.statements
    ]
    return table(f"{findings.study}-statements", "What papers printed, and what was found here", columns, rows)
