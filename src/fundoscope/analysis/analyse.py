"""Outcomes -> Findings: all that the report of a study needs, in one call.

What cannot be said is left out with its reason; everything else is still there. A study of which every trial failed has
findings too.
"""

import dataclasses
import json
from collections.abc import Mapping
from datetime import date
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from fundoscope.analysis.compare import comparisons, precision
from fundoscope.analysis.cost import billing, costs
from fundoscope.analysis.effects import Effects, Part
from fundoscope.analysis.evidence import Evidence
from fundoscope.analysis.findings import CellFinding, Findings, Response
from fundoscope.analysis.model import explain_response
from fundoscope.analysis.per_inference import MONTHLY, PerInference, per_inference
from fundoscope.analysis.prices import SAGEMAKER, open_prices
from fundoscope.analysis.published import statements
from fundoscope.analysis.summaries import Summary, summarise_cells
from fundoscope.analysis.table import WANTED, Table, metric_of, open_table
from fundoscope.errors import FundoscopeError, pick
from fundoscope.experiment.outcome import read_outcomes
from fundoscope.experiment.study import Study
from fundoscope.provenance import command, sha256_file, versions, write_whole

MOST_SUMMARIES = 150_000  # cells x metrics: more would not fit into a report, nor into a gigabyte
MOST_INDENTED = 1_000  # cells: findings of more are for machines


def analyse(
    study: Study,
    *,
    metric: str | None = None,
    prices: str | None = None,
    machines_by_level: Mapping[str, str] | None = None,
    spot: bool = False,
    monthly: int = MONTHLY,
    today: date,
) -> Findings:
    """`metric` replaces the design's response; `prices`, `machines_by_level` and `spot` its prices.

    `monthly`: requests, for what a month of the workload `invoke` costs.
    """
    design, log, facts = study.design, study.log, study.machines()
    requested = _per_inference(study, prices, monthly)
    # Of a study of requests these are what is priced: the machine that emulates an endpoint is no part of its bill.
    bill = None if requested else billing(design, prices=prices, machines=machines_by_level, spot=spot)
    table = open_table(design, log, facts)
    if metric is not None and table.metrics:
        pick(table.metrics, metric, kind="metric in this study")
    response_name = metric or design.response
    names = _names(table, response_name)
    kept = _kept(table, names, response_name)
    cells = _cells(table, kept)
    response, no_response = _response(table, response_name)
    pairs, said = comparisons(table, response_name)
    cost = costs(table, bill, response_name, today=today, machines=facts) if bill else None
    # Where a study is about another time than all of training, it says so because all of training misleads there.
    time = response_name if response_name in table.metrics and metric_of(response_name).unit == "s" else "train_s"
    evidence = Evidence(table, facts, bill, cost.total_usd if cost else None, time)
    warnings = [*table.warnings, *said]
    if response is not None and response.not_modelled:
        warnings.append(response.not_modelled)
    if len(kept) < len(names):
        warnings.append(f"with {len(table.cells):,} cells only {', '.join(kept)} are summarised cell by cell")
    measured, planned = int(table.measured.sum()), len(design.cells) * design.repetitions
    return Findings(
        study=design.name,
        workload=design.workload,
        design=dataclasses.asdict(design),
        machines={digest: facts.get(digest, {}) for digest in table.machines},
        planned=planned,
        measured=measured,
        failed=len(table.cell) - measured,
        not_run=max(0, planned - int((table.repetition <= design.repetitions).sum())),
        metrics={name: metric_of(name) for name in names},
        cells=cells,
        failures=table.failures,
        response=response,
        no_response=no_response,
        comparisons=pairs,
        precision=precision(cells, response_name, cost),
        costs=cost,
        per_inference=requested,
        statements=statements(evidence),
        warnings=tuple(warnings),
        made_by={"command": command(), "versions": versions(), "log_sha256": sha256_file(log), **_head(log)},
        versions=table.versions,
    )


def _per_inference(study: Study, prices: str | None, monthly: int) -> PerInference | None:
    if study.design.workload != "invoke" or not study.log.is_file():
        return None
    named = prices or (study.design.prices.list if study.design.prices else SAGEMAKER)
    return per_inference(study.design, read_outcomes(study.log), open_prices(named), monthly=monthly)


def _head(log: Path) -> dict[str, Any]:
    """Which command measured it, and with which of us."""
    with log.open("rb") as file:
        head = json.loads(file.readline())
    return {name: head[name] for name in ("measured_by", "measured_with") if name in head}


def write_findings(path: Path, findings: Findings) -> None:
    """All of it or nothing. JSON without NaN: what is not known is null."""
    indent = 2 if len(findings.cells) <= MOST_INDENTED else None
    try:
        text = json.dumps(findings, default=_fields, indent=indent, ensure_ascii=False, allow_nan=False)
    except ValueError:  # one of them is no number: look at each, which takes longer
        text = json.dumps(_finite(findings), indent=indent, ensure_ascii=False, allow_nan=False)
    write_whole(path, text.encode() + b"\n")


def _names(table: Table, response: str) -> list[str]:
    """Of all metrics with readings: the response first, then what is most wanted, then the others as they came."""
    order = [response, *WANTED, *table.metrics]
    return [name for name in dict.fromkeys(order) if name in table.metrics]


def _kept(table: Table, names: list[str], response: str) -> list[str]:
    """Those that are summarised cell by cell: all of them, unless there are very many cells."""
    most = max(1, MOST_SUMMARIES // max(1, len(table.cells)))
    always = [name for name in names if name in (response, "wall_s")]
    return [*always, *(name for name in names if name not in always)][: max(most, len(always))]


def _cells(table: Table, names: list[str]) -> tuple[CellFinding, ...]:
    columns: dict[str, list[Summary | None]] = {}
    for name in names:
        columns[name] = summarise_cells(*table.readings(name), len(table.cells))
    measured = np.bincount(table.cell[table.measured], minlength=len(table.cells)).tolist()
    flagged: dict[int, dict[str, int]] = {}
    for flag, of in table.flags.items():
        for place, count in zip(*np.unique(table.cell[of], return_counts=True), strict=True):
            flagged.setdefault(int(place), {})[flag] = int(count)
    return tuple(
        CellFinding(
            cell,
            table.design.repetitions,
            measured[i],
            table.failed_kinds.get(i, {}),
            flagged.get(i, {}),
            {name: found for name in names if (found := columns[name][i]) is not None},
        )
        for i, cell in enumerate(table.cells)
    )


def _response(table: Table, metric: str) -> tuple[Response | None, str]:
    if not len(table.cell):
        return None, "No trial was run yet."
    if not table.measured.any():
        return None, "Every trial failed."
    try:
        return explain_response(table, metric), ""
    except FundoscopeError as problem:
        return None, f"{problem.message[0].upper()}{problem.message[1:]}; {problem.hint}."


def _fields(value: Any) -> Any:
    """One level of what JSON has no word for. Terms and combinations of levels become "device × image"."""
    if isinstance(value, Mapping):
        return {_key(key): item for key, item in value.items()}
    if not dataclasses.is_dataclass(value):
        return str(value)
    names = _NAMES.get(type(value)) or _NAMES.setdefault(type(value), [f.name for f in dataclasses.fields(value)])
    table = {name: getattr(value, name) for name in names}
    if isinstance(value, Effects):
        table["parts"] = _fields(value.parts)
        table["not_estimable"] = [_key(term) for term in value.not_estimable]
    if isinstance(value, Part):
        table["effects"] = _fields(value.effects)
    return table


def _finite(value: Any) -> Any:
    """The whole tree, with null for what is not a number."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    table = value if type(value) is dict else _fields(value)
    return {key: _finite(item) for key, item in table.items()} if isinstance(table, dict) else table


def _key(key: Any) -> str:
    return " × ".join(map(str, key)) if isinstance(key, tuple) else str(key)


_NAMES: dict[type, list[str]] = {}
