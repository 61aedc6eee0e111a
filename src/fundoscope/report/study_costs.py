"""Tables of what a study's trials cost, here and elsewhere, and of what its inferences do."""

from fundoscope.analysis.findings import Costs, Findings
from fundoscope.report.study_words import levels_of
from fundoscope.report.tables import (
    END_ROWS,
    MOST_ROWS,
    Column,
    Entry,
    Table,
    amount,
    money,
    of_summary,
    table,
    text,
    whole,
    with_ends,
)


def cost_table(findings: Findings, costs: Costs) -> Table | None:
    columns = (
        Column("Cell", ("cell",), False),
        Column("Levels", ("levels",), False),
        Column("Machine", ("machine",), False),
        with_ends("US$ a trial, as billed", "usd"),
        with_ends("US$ for training alone, as published", "usd_as_published"),
        Column("On the front", ("pareto",), False),
    )
    kept = costs.cells
    if len(kept) > MOST_ROWS:
        ordered = sorted(kept, key=lambda found: found.usd.mean)
        kept = (*ordered[:END_ROWS], *ordered[-END_ROWS:])
    front = set(costs.pareto)
    rows = [
        (
            Entry(found.cell.name, (found.cell.name,), found.cell.number),
            text(levels_of(found.cell)),
            text(found.machine),
            of_summary(found.usd),
            of_summary(found.usd_as_published),
            text("yes" if found.cell.name in front else ""),
        )
        for found in kept
    ]
    note = (
        f"The {len(kept):,} cheapest and dearest of {len(costs.cells):,} cells." if len(kept) < len(costs.cells) else ""
    )
    return table(f"{findings.study}-costs", "What a trial of each cell costs", columns, rows, note=note, sortable=True)


def inference_table(findings: Findings) -> Table | None:
    found = findings.per_inference
    if found is None:
        return None
    columns = (
        Column("Cell", ("cell",), False),
        Column("Levels", ("levels",), False),
        Column("Billed as", ("billed_as",), False),
        Column("Requests measured", ("requests",)),
        Column("US$ a thousand, as the thesis reckons", ("thesis_usd_per_thousand",)),
        Column("US$ a thousand, as billed", ("billed_usd_per_thousand",)),
        Column(f"US$ a month of {found.monthly:,} requests", ("billed_usd_per_month",)),
    )
    rows = [
        (
            Entry(one.cell.name, (one.cell.name,), one.cell.number),
            text(levels_of(one.cell)),
            text(one.billed_as),
            whole(one.requests),
            money(one.thesis_per_thousand),
            money(one.billed_per_thousand),
            money(one.billed_per_month),
        )
        for one in found.cells
    ]
    note = (
        "As the thesis reckons: price × what the caller waited. As billed: the milliseconds of processing, each "
        "request rounded up, and the bytes moved; an instance is rented, and costs the same at any traffic. A cold "
        "request is counted whole, its container's start too, for it is not documented that a start is free."
    )
    caption = f"What an inference costs ({found.prices})"
    return table(f"{findings.study}-per-inference", caption, columns, rows, note=note, sortable=True)


def elsewhere_table(findings: Findings, costs: Costs) -> Table | None:
    columns = (
        Column("Machine", ("machine",), False),
        Column("Accelerator", ("accelerator",), False),
        Column("US$ an hour", ("usd_per_hour",)),
        Column("Hours", ("hours",)),
        Column("Cost", ("usd",)),
        Column("How we know", ("measured",), False),
    )
    rows = [
        (
            text(one.machine),
            text(one.accelerator),
            amount(one.usd_per_hour),
            amount(one.hours),
            money(one.usd),
            Entry("measured" if one.measured else "estimate: as if it took as long there", (one.measured,)),
        )
        for one in sorted(costs.elsewhere, key=lambda one: (not one.measured, one.usd, one.machine))
    ]
    caption = "What these trials would have cost elsewhere"
    return table(f"{findings.study}-elsewhere", caption, columns, rows, sortable=True)


def machine_cost_table(findings: Findings, costs: Costs) -> Table | None:
    columns = (Column("Billed as", ("machine",), False), Column("Cost of its trials", ("usd",)))
    rows = [(text(machine), money(usd)) for machine, usd in costs.by_machine.items()]
    return table(f"{findings.study}-by-machine", "All trials, failed ones too", columns, rows)
