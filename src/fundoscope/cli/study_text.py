"""A plan and its findings as lines of a terminal: tables that can be copied, sentences that can be quoted."""

from typing import TYPE_CHECKING

from fundoscope.cli.command import table

if TYPE_CHECKING:
    from fundoscope.analysis.findings import Findings
    from fundoscope.analysis.plan import Plan
    from fundoscope.experiment.machine import Machine

MOST_ROWS = 60


def plan_lines(found: "Plan") -> list[str]:
    return [*_plan_table(found), "", *_plan_sentences(found)]


def _plan_table(found: "Plan") -> list[str]:
    design, expected = found.design, found.expected
    rows = []
    for cell in design.cells[:MOST_ROWS]:
        seconds = expected.seconds.get(cell.number)
        said = expected.lacking.get(cell.number) or ("?" if seconds is None else _time(seconds))
        usd = found.usd.get(cell.number)
        rows.append([cell.name, *map(str, cell.levels.values()), said, None if usd is None else f"{usd:.4f}"])
    order = {"random": "a new random order for each repetition", "listed": "the listed order, as published"}[
        design.order
    ]
    return [
        f"{design.name}: {len(design.cells)} cells × {design.repetitions} = {len(design.trials)} trials of "
        f"'{design.workload}'; {design.plan} plan, {order} (seed {design.seed})",
        f"this machine: {_machine(found.machine)}",
        "",
        *table(rows, header=["cell", *design.factors, "a trial", "USD"]),
        *([f"… and {len(design.cells) - MOST_ROWS} more cells"] if len(design.cells) > MOST_ROWS else []),
    ]


def _plan_sentences(found: "Plan") -> list[str]:
    from fundoscope.analysis.plan import stale

    expected, hours, usd = found.expected, found.hours(), found.total_usd()
    basis = f"from {expected.measured} trials measured" if expected.measured else "a guess within some three times"
    lines = []
    if expected.lacking:
        reasons = ", ".join(sorted(set(expected.lacking.values())))
        lines.append(f"{len(expected.lacking)} cells cannot run here ({reasons}): they will fail, and be counted")
    lines.append("how long it will take is not known before something is measured" if hours is None else
                 f"expected: {_time(3600 * hours)} in all on this machine ({basis})")  # fmt: skip
    if usd is not None and found.prices is not None:
        lines.append(f"that is {usd:.2f} USD at {found.prices.name}, if it took as long there")
    lines += filter(None, [stale(found)])
    source = "as measured" if found.variation_measured else "assumed; --variation says another"
    ratios = ", ".join(f"{name} {ratio:.3f}" for name, ratio in found.detectable.items())
    if ratios:
        lines.append(
            f"ratios between two levels that will show, with 80 % power at {100 * found.variation:.1f} % variation "
            f"({source}): {ratios}"
        )
    else:
        lines.append("one repetition shows no noise: no effect will have an interval")
    return lines


def finding_lines(findings: "Findings") -> list[str]:
    parts = (_cell_lines, _inference_lines, _effect_lines, _comparison_lines, _statement_lines)
    return [*answer_lines(findings), *findings.warnings, *(line for part in parts for line in part(findings))]


def answer_lines(findings: "Findings") -> list[str]:
    from fundoscope.report.study_words import answer

    return [sentence.replace("\u00a0", " ") for sentence in answer(findings)]


def _cell_lines(findings: "Findings") -> list[str]:
    from fundoscope.report.study_words import response_of

    metric = response_of(findings)
    usd = {cost.cell.number: cost.usd.mean for cost in findings.costs.cells} if findings.costs else {}
    rows = []
    for found in findings.cells[:MOST_ROWS]:
        of = found.readings.get(metric or "")
        interval = (
            [None, None] if of is None or of.low is None or of.high is None else [f"{of.low:.4g}", f"{of.high:.4g}"]
        )
        cost = usd.get(found.cell.number)
        mean = f"{of.mean:.4g}" if of else "failed" if found.failures else "not run"
        levels = map(str, found.cell.levels.values())
        rows.append([found.cell.name, *levels, found.measured, mean, *interval, cost and f"{cost:.6f}"])
    header = ["cell", *findings.design["factors"], "n", metric or "", "low", "high", "USD"]
    more = len(findings.cells) - MOST_ROWS
    return ["", *table(rows, header=header), *([f"… and {more} more cells, in findings.json"] if more > 0 else [])]


def _inference_lines(findings: "Findings") -> list[str]:
    found = findings.per_inference
    if found is None:
        return []
    header = ["cell", *findings.design["factors"], "billed as", "1000, as the thesis reckons", "1000, as billed",
              f"a month of {found.monthly:,}"]  # fmt: skip
    rows = []
    for one in found.cells[:MOST_ROWS]:
        billed = None if one.billed_per_thousand is None else f"{one.billed_per_thousand:.4f}"
        dollars = [f"{one.thesis_per_thousand:.4f}", billed, f"{one.billed_per_month:.2f}"]
        rows.append([one.cell.name, *map(str, one.cell.levels.values()), one.billed_as, *dollars])
    return ["", f"US$ at {found.prices}", *table(rows, header=header)]


def _effect_lines(findings: "Findings") -> list[str]:
    if findings.response is None:
        return []
    found = findings.response
    parts = sorted(found.effects.parts.items(), key=lambda item: -item[1].share)
    rows = [
        [" × ".join(term), f"{100 * part.share:.2f} %", part.degrees, part.f and f"{part.f:.1f}", _p(part.p)]
        for term, part in parts
    ]
    rows.append(["unexplained", f"{100 * found.effects.unexplained:.2f} %", found.effects.residual_degrees, None, None])
    assumptions = [f"{one.name}: {one.said}" for one in found.assumptions]
    header = ["of the variation", "share", "degrees", "F", "p"]
    return ["", f"{found.metric}, {found.scale} scale: {found.why}", *table(rows, header=header), *assumptions]


def _comparison_lines(findings: "Findings") -> list[str]:
    rows = []
    for one in findings.comparisons[:MOST_ROWS]:
        ends = [None if end is None else f"{end:.3f}" for end in (one.ratio.low, one.ratio.high)]
        rows.append(
            [one.factor, f"{one.one} / {one.other}", f"{one.ratio.value:.3f}", *ends, _p(one.p_holm), one.cells]
        )
    header = ["factor", "levels", "ratio", "low", "high", "p (Holm)", "pairs of cells"]
    return ["", *table(rows, header=header)] if rows else []


def _statement_lines(findings: "Findings") -> list[str]:
    said = [f"{one.verdict}: “{one.said}” {one.found}" for one in findings.statements if one.verdict != "not measured"]
    left = len(findings.statements) - len(said)
    return (
        ["", *said, *([f"{left} published statements need cells that were not measured"] if left else [])]
        if said
        else []
    )


def _p(p: float | None) -> str | None:
    return None if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def _machine(machine: "Machine") -> str:
    gpus = ", ".join(gpu.name for gpu in machine.gpus) or "no GPU"
    return f"{machine.processor}, {machine.processors} processors, {machine.memory_gb:g} GB, {gpus}"


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
