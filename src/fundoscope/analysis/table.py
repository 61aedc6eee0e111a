"""A log of outcomes as columns: one row for each trial, the last outcome of it; one column for each metric.

Every number that a trial reported or that was seen of it from outside is a metric. Trials of different machines are not
put into one table unless the design says that machines may differ, since nothing could then tell what a machine adds
from what a factor adds.
"""

import json
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fundoscope.analysis.findings import FailureFinding, Metric
from fundoscope.errors import FundoscopeError
from fundoscope.experiment.design import Cell, Design
from fundoscope.experiment.outcome import Failed, Measured, Outcome, read_outcomes

MOST = 1e300  # a whole number beyond it is no reading, and no float
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

LABELS = {
    "wall_s": "time of the whole trial",
    "train_s": "training time",
    "import_s": "imports",
    "data_s": "loading of the pictures",
    "build_s": "building of the network",
    "first_step_s": "first batch, with compilation",
    "first_epoch_s": "first epoch",
    "steady_epoch_s": "time of an epoch after the first",
    "images": "pictures in an epoch",
    "images_per_s": "pictures a second",
    "parameters": "parameters of the network",
    "initial_loss": "loss before training",
    "accuracy": "accuracy on test pictures",
    "threads": "threads",
    "samples": "samples from outside",
    "latency_s": "latency of a request, median",
    "latency_mean_s": "latency of a request, mean",
    "predict_s": "prediction, median",
    "processing_s": "processing in the container, mean",
    "boot_s": "start of the container's process",
    "load_s": "opening of the model",
    "warm_up_s": "warming up",
    "first_prediction_s": "first caller's prediction",
    "requests": "requests answered",
    "throttled": "requests sent away",
    "errors": "requests without an answer",
    "not_cold": "requests that were not cold",
    "throttled_s": "waiting for a share of the processor",
    "peak_mb": "greatest memory, files included",
    "model_latency_s": "CloudWatch's ModelLatency, mean",
    "overhead_latency_s": "CloudWatch's OverheadLatency, mean",
    "model_setup_s": "CloudWatch's ModelSetupTime, mean",
    "cloudwatch_missing": "requests that CloudWatch did not count",
    "way_there_and_back_s": "latency beyond CloudWatch's",
    "beyond_container_s": "ModelLatency beyond the container's own",
    "gpu_joules": "energy of the GPU",
    **{
        f"{name}_{kind}": f"{label}, {said}"
        for name, label in {
            "cpu_percent": "use of processors",
            "memory_mb": "memory",
            "processes": "processes",
            "gpu_percent": "use of the GPU",
            "gpu_memory_mb": "memory of the GPU",
            "gpu_watts": "power of the GPU",
        }.items()
        for kind, said in {"mean": "mean", "max": "greatest"}.items()
    },
}
UNITS = {  # by how a name ends; the longest that fits
    "images_per_s": "pictures/s",
    "_per_s": "1/s",
    "_s": "s",
    "_ms": "ms",
    "_mb": "MB",
    "_gb": "GB",
    "_percent": "%",
    "_watts": "W",
    "_joules": "J",
    "_usd": "USD",
}
# What a summary of very many cells keeps, the most wanted first.
WANTED = (
    "train_s",
    "wall_s",
    "cpu_percent_mean",
    "memory_mb_mean",
    "gpu_percent_mean",
    "gpu_memory_mb_mean",
    "accuracy",
    "steady_epoch_s",
    "images_per_s",
)


def metric_of(name: str) -> Metric:
    stem = name.removesuffix("_mean").removesuffix("_max")
    ends = [end for end in UNITS if stem.endswith(end)]
    unit = UNITS[max(ends, key=len)] if ends else ""
    return Metric(name, LABELS.get(name, name.replace("_", " ")), unit)


@dataclass(frozen=True)
class Table:
    """Rows are trials in the order they were run; `cell` is a place among `cells`."""

    design: Design
    cells: tuple[Cell, ...]
    cell: Ints
    repetition: Ints
    order: Ints  # of run, from 1
    measured: Flags
    wall_s: Floats  # of failed trials too
    machine: Ints  # a place among `machines`
    machines: tuple[str, ...]  # digests
    flags: Mapping[str, Flags]
    metrics: Mapping[str, Floats]  # NaN: not read in that trial
    failures: tuple[FailureFinding, ...]
    failed_kinds: Mapping[int, Mapping[str, int]]  # by cell: reason -> how many
    warnings: tuple[str, ...]
    versions: Mapping[str, tuple[str, ...]]  # of libraries, as the trials said
    codes: Ints = field(repr=False)  # (cells, factors): which level of the design's

    def where(self, **levels: object) -> Flags:
        """Cells that have these levels; levels are compared as texts."""
        chosen = np.ones(len(self.cells), bool)
        for i, (name, known) in enumerate(self.design.factors.items()):
            if name in levels:
                wanted = [place for place, level in enumerate(known) if str(level) == str(levels[name])]
                chosen &= np.isin(self.codes[:, i], wanted)
        return chosen

    def readings(self, metric: str) -> tuple[Floats, Ints]:
        """Of all trials that have one, and the cells they are of."""
        column = self.metrics.get(metric, np.full(len(self.cell), np.nan))
        there = np.isfinite(column)
        return column[there], self.cell[there]


def open_table(design: Design, path: Path, machines: Mapping[str, Mapping[str, Any]]) -> Table:
    """`path` is a study's folder or its log; `machines` the facts behind their digests."""
    log = path / "outcomes.jsonl" if path.is_dir() else path
    if not log.exists():
        raise FundoscopeError(f"{path} has no outcomes", "measure first: fundoscope study run")
    table = _Reader(design).read(read_outcomes(log))
    with log.open("rb") as file:
        digest = json.loads(file.readline()).get("design_digest")
    if digest != design.digest:
        raise FundoscopeError(f"{log} holds outcomes of another design", "analyse it with the design in its folder")
    _refuse_to_mix(table, machines)
    return table


class _Reader:
    """Outcomes into growing columns. No outcome is kept: a hundred thousand of them would be a gigabyte."""

    def __init__(self, design: Design) -> None:
        self.design = design
        self.places = {cell.number: i for i, cell in enumerate(design.cells)}
        self.rows: dict[tuple[int, int], int] = {}  # the last row of each trial
        self.cell, self.repetition = array("q"), array("q")
        self.measured, self.wall_s, self.machine = array("b"), array("d"), array("q")
        self.machines: dict[str, int] = {}
        self.flags: dict[str, set[int]] = {}
        self.metrics: dict[str, array[float]] = {}
        self.failed: dict[int, Failed] = {}  # by row
        self.versions: Counter[tuple[str, tuple[tuple[str, str], ...]]] = Counter()
        self.data: Counter[str] = Counter()
        self.strange = 0

    def read(self, outcomes: Iterable[Outcome]) -> Table:
        for outcome in outcomes:
            place = self.places.get(outcome.trial.cell.number)
            if place is None:
                self.strange += 1
                continue
            try:
                self._add(place, outcome)
            except (TypeError, AttributeError):
                hint = "restore the log, or take its line out: the trial is then run again"
                raise FundoscopeError(f"the outcome of {outcome.trial.id} is not one", hint) from None
        return self._table()

    def _add(self, place: int, outcome: Outcome) -> None:
        row = len(self.cell)
        self.wall_s.append(outcome.ran.wall_s)
        self.machine.append(self.machines.setdefault(outcome.ran.machine, len(self.machines)))
        self.repetition.append(outcome.trial.repetition)
        self.measured.append(isinstance(outcome, Measured))
        for flag in outcome.ran.flags:
            self.flags.setdefault(flag, set()).add(row)
        if isinstance(outcome, Measured):
            self._take(row, outcome)
        else:
            self.failed[row] = outcome
        self.rows[place, outcome.trial.repetition] = row
        self.cell.append(place)

    def _take(self, row: int, outcome: Measured) -> None:
        # What the trial said comes first: of a name that is also seen from outside, it counts.
        numbers = chain((("wall_s", outcome.ran.wall_s),), outcome.readings.items(), outcome.usage.items())
        for name, value in numbers:
            kind = type(value)
            if kind is float or kind is int:  # true and false are no numbers
                column = self.metrics.get(name)
                if column is None:
                    column = self.metrics[name] = array("d")
                if missing := row - len(column):
                    if missing < 0:
                        continue
                    column.extend(repeat(nan, missing))
                column.append(value if abs(value) < MOST else nan)
        versions = outcome.readings.get("versions")
        if isinstance(versions, dict):
            framework = str(outcome.trial.cell.levels.get("framework", ""))
            self.versions[framework, tuple(sorted((str(k), str(v)) for k, v in versions.items()))] += 1
        if isinstance(data := outcome.readings.get("data"), str):
            self.data[data] += 1

    def _table(self) -> Table:
        rows, kept = len(self.cell), np.array(sorted(self.rows.values()), np.int64)
        whole = {name: np.full(rows, np.nan) for name in self.metrics}
        for name, column in self.metrics.items():
            whole[name][: len(column)] = column
        flags = {}
        for name, of in sorted(self.flags.items()):
            flags[name] = np.isin(kept, np.fromiter(of, np.int64))
        cells = np.array(self.cell, np.int64)[kept]
        failed = [(int(row), self.failed[int(row)]) for row in kept if int(row) in self.failed]
        kinds: dict[int, Counter[str]] = {}
        for row, outcome in failed:
            kinds.setdefault(self.cell[row], Counter())[outcome.reason] += 1
        columns = {name: column[kept] for name, column in whole.items()}
        return Table(
            design=self.design,
            cells=self.design.cells,
            cell=cells,
            repetition=np.array(self.repetition, np.int64)[kept],
            order=np.arange(1, len(kept) + 1),
            measured=np.array(self.measured, bool)[kept],
            wall_s=np.array(self.wall_s, np.float64)[kept],
            machine=np.array(self.machine, np.int64)[kept],
            machines=tuple(self.machines),
            flags={name: of for name, of in flags.items() if of.any()},
            metrics={name: column for name, column in columns.items() if np.isfinite(column).any()},
            failures=_failures(outcome for _, outcome in failed),
            failed_kinds=kinds,
            warnings=tuple(self._warnings(flags, len(kept))),
            versions=_versions(self.versions),
            codes=_codes(self.design),
        )

    def _warnings(self, flags: Mapping[str, Flags], trials: int) -> Iterable[str]:
        said = {"busy": "ran while others used the processors", "throttled": "ran on slowed-down processors"}
        for name, of in flags.items():
            if of.any():
                yield f"{of.sum():,} of {trials:,} trials {said.get(name, f'are flagged {name}')}"
        yield from _differing_versions(self.versions)
        if len(self.data) > 1:
            kinds = ", ".join(f"{count:,} of {name}" for name, count in sorted(self.data.items()))
            yield f"the data of trials differ: {kinds}"
        if self.strange:
            yield f"{self.strange:,} outcomes are of cells that the design leaves out, and were not counted"


def _codes(design: Design) -> Ints:
    places = [{level: i for i, level in enumerate(levels)} for levels in design.factors.values()]
    rows = [[of[cell.levels[name]] for name, of in zip(design.factors, places, strict=True)] for cell in design.cells]
    return np.array(rows, np.int64).reshape(len(design.cells), len(design.factors))


def _failures(failed: Iterable[Failed]) -> tuple[FailureFinding, ...]:
    """By kind and reason, in the order they first happened."""
    found: dict[tuple[str, str], tuple[list[str], str]] = {}
    for outcome in failed:
        found.setdefault((outcome.kind, outcome.reason), ([], outcome.last_words))[0].append(outcome.trial.id)
    return tuple(FailureFinding(*what, tuple(trials), words) for what, (trials, words) in found.items())


def _versions(versions: Iterable[tuple[str, tuple[tuple[str, str], ...]]]) -> dict[str, tuple[str, ...]]:
    found: dict[str, set[str]] = {}
    for _, some in versions:
        for library, version in some:
            found.setdefault(library, set()).add(version)
    return {library: tuple(sorted(found[library])) for library in sorted(found)}


def _differing_versions(versions: Mapping[tuple[str, tuple[tuple[str, str], ...]], int]) -> Iterable[str]:
    found: dict[tuple[str, str], set[str]] = {}
    for framework, some in versions:
        for library, version in some:
            found.setdefault((framework, library), set()).add(version)
    for (framework, library), some_versions in sorted(found.items()):
        if len(some_versions) > 1:
            where = f" of trials with {framework}" if framework else ""
            yield f"versions of {library}{where} differ: {', '.join(sorted(some_versions))}"


def _refuse_to_mix(table: Table, machines: Mapping[str, Mapping[str, Any]]) -> None:
    """One machine for all trials; or one for each level of the design's machine factor; or machine is a factor."""
    if len(set(table.machine.tolist())) < 2 or "machine" in table.design.factors:
        return
    factor = table.design.machine_factor
    if factor:
        level = table.codes[table.cell, list(table.design.factors).index(factor)]
        pairs = np.unique(np.stack([level, table.machine], axis=1), axis=0)
        levels, counts = np.unique(pairs[:, 0], return_counts=True)
        if (counts == 1).all():
            return
        mixed = pairs[pairs[:, 0] == levels[counts > 1][0], 1]
        name = table.design.factors[factor][levels[counts > 1][0]]
        where, hint = f"trials of {factor} '{name}'", "analyse the machines apart, or make machine a factor"
    else:
        mixed = np.unique(table.machine)
        where = f"the trials of {table.design.name}"
        hint = 'analyse the machines apart, make machine a factor, or say machine_factor = "…" in the design'
    one, other = (table.machines[i] for i in mixed[:2])
    what = _difference(machines.get(one, {}), machines.get(other, {}))
    raise FundoscopeError(f"{where} ran on two machines, {one[:12]} and {other[:12]}, {what}", hint)


def _difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    if not one or not other:
        return "whose facts are not in the study's folder"
    names = [name for name in {**one, **other} if one.get(name) != other.get(name)]
    said = "; ".join(f"{name}: {_short(one.get(name))} and {_short(other.get(name))}" for name in names)
    return f"which differ in {said}" if names else "which are recorded alike"


def _short(value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(_short(item) for item in value) or "none"
    if isinstance(value, Mapping):
        return str(value.get("name", dict(value)))
    return "none" if value is None else str(value)
