"""The thesis (Camargo 2023) from its raw numbers: every table and figure of its results, and ours in the next column.

`thesis_results.csv` has, a row per cell and metric, what the 20 CSV files of the author's repository come to, and what
the thesis prints of which no file exists. Each row's source says which of the two it is, and no table here hides it:

    readings        summarised from a CSV file of the repository
    derived         a price times such readings
    printed         a fact that the thesis states: a price, a size
    inferred        worked out from other printed numbers
    unsupported     printed or drawn, and its readings are in no file

Deviations are of the readings themselves (divided by n), as the thesis draws them: figure 6.7 is the only one whose
labels can be read, and they agree. A measurement of ours is brought to the same form before it stands beside them. The
tables and figures are declared in thesis_exhibits.py; what the thesis says of them is in thesis_statements.py.
"""

import csv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from math import isfinite, sqrt
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple, get_args

from scipy import stats

from fundoscope.analysis.summaries import Summary
from fundoscope.errors import FundoscopeError

RESULTS = Path(__file__).with_name("thesis_results.csv")
COLUMNS = ("source", "scenario", "model", "factor", "level", "metric", "n", "mean", "std", "min", "max", "unit")
UNITS = ("s", "USD", "MB", "GB", "count", "requests/s")

Basis = Literal["readings", "derived", "printed", "inferred", "unsupported"]  # from the firmest to the least
SOURCES: Mapping[str, Basis] = {
    "dr-detection-deploy@": "readings",
    "derived: ": "derived",
    "thesis table ": "printed",
    "inferred: ": "inferred",
    "thesis (no CSV in repo)": "unsupported",
}
CHECKABLE: tuple[Basis, ...] = ("readings", "derived", "printed")

COLD, WARM, REAL_TIME = "serverless-cold-start", "serverless-warm-up", "real-time"
MOBILENET, VGG19 = "MobileNet", "VGG19"
MEMORY = ("1024MB", "2048MB", "3072MB")
IMAGES = ("4.97GB", "3.32GB", "2.06GB")
INSTANCES = ("ml.m4.xlarge", "ml.m5.xlarge", "ml.m6g.xlarge", "ml.c7g.xlarge")


class Cell(NamedTuple):
    """What a number is of; the key to `beside`."""

    scenario: str
    model: str
    factor: str
    level: str
    metric: str


@dataclass(frozen=True)
class Value:
    """A number of a table. What is worked out from several has no n and no deviation."""

    mean: float
    unit: str
    basis: Basis | Literal["ours"]
    n: int | None = None
    deviation: float | None = None  # divided by n
    low: float | None = None  # of the mean, 95 %
    high: float | None = None


@dataclass(frozen=True)
class Row:
    cell: Cell
    source: str
    basis: Basis
    unit: str
    n: int | None
    mean: float | None
    deviation: float | None
    least: float | None
    greatest: float | None

    def value(self) -> Value | None:
        if self.mean is None:
            return None
        low, high = None, None
        if self.n is not None and self.n > 1 and self.deviation is not None:
            half = float(stats.t.ppf(0.975, self.n - 1)) * self.deviation / sqrt(self.n - 1)
            low, high = self.mean - half, self.mean + half
        return Value(self.mean, self.unit, self.basis, self.n, self.deviation, low, high)


Results = Mapping[Cell, Row]
Find = Callable[[Cell], Value | None]


@cache
def thesis_results() -> Results:
    return MappingProxyType(read_results(RESULTS))


def read_results(path: Path) -> dict[Cell, Row]:
    """Every row, or an error that names the line: a number misread here would be blamed on the thesis."""
    found: dict[Cell, Row] = {}
    with path.open(encoding="utf-8", newline="") as file:
        lines = csv.reader(file)
        if tuple(next(lines, ())) != COLUMNS:
            raise FundoscopeError(f"{path} has other columns than the thesis's results", f"use {','.join(COLUMNS)}")
        for number, line in enumerate(lines, start=2):
            try:
                row = _row(line)
                if row.cell in found:
                    raise ValueError(f"{' '.join(row.cell)} is there twice")
            except ValueError as problem:
                raise FundoscopeError(f"line {number} of {path} cannot be read: {problem}", "correct it") from problem
            found[row.cell] = row
    return found


def _row(line: list[str]) -> Row:
    if len(line) != len(COLUMNS):
        raise ValueError(f"it has {len(line)} fields, not {len(COLUMNS)}")
    source, scenario, model, factor, level, metric, n, *numbers, unit = line
    basis = next((basis for start, basis in SOURCES.items() if source.startswith(start)), None)
    if basis is None:
        raise ValueError(f"its source '{source}' is of no known kind")
    if unit not in UNITS:
        raise ValueError(f"its unit '{unit}' is none of {', '.join(UNITS)}")
    if not (scenario and model and metric):
        raise ValueError("scenario, model and metric may not be empty")
    mean, deviation, least, greatest = (float(text) if text else None for text in numbers)
    known = [x for x in (mean, deviation, least, greatest) if x is not None]
    if not all(isfinite(x) and x >= 0 for x in known):
        raise ValueError("a number is not finite, or below 0")
    ordered = [x for x in (least, mean, greatest) if x is not None]
    if ordered != sorted(ordered) or (mean is None and known):
        raise ValueError("the mean is not between the least and the greatest")
    count = int(n) if n else None
    if count is not None and count < 1:
        raise ValueError(f"n is {count}")
    return Row(
        Cell(scenario, model, factor, level, metric), source, basis, unit, count, mean, deviation, least, greatest
    )


Measure = Literal["mean", "deviation", "times", "percent less", "percent of", "most over least"]


@dataclass(frozen=True)
class Quantity:
    """A number worked out from cells: of two, how many times the first is the second, or how much less."""

    measure: Measure
    cells: tuple[Cell, ...]

    def of(self, find: Find) -> Value | None:
        """None where a cell it needs has no number, or one that nothing can be divided by."""
        values = [value for cell in self.cells if (value := find(cell)) is not None]
        if len(values) < len(self.cells):
            return None
        if self.measure == "mean":
            return values[0]
        if self.measure == "deviation":
            only = values[0]
            return None if only.deviation is None else Value(only.deviation, only.unit, only.basis, only.n)
        basis = max((value.basis for value in values), key=_firmness)
        means = [value.mean for value in values]
        one, other = (max(means), min(means)) if self.measure == "most over least" else means
        if not other:
            return None
        if self.measure in ("times", "most over least"):
            return Value(one / other, "×", basis)
        return Value(100 * (1 - one / other) if self.measure == "percent less" else 100 * one / other, "%", basis)


def _firmness(basis: str) -> int:
    return [*get_args(Basis), "ours"].index(basis)


@dataclass(frozen=True)
class Exhibit:
    """A table or figure of the thesis: which numbers stand in it, and what it says of itself."""

    name: str
    title: str
    original: str  # its caption
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    asks: tuple[tuple[Quantity, ...], ...]  # row by row
    note: str = ""

    @property
    def is_figure(self) -> bool:
        return self.name.startswith("Figure")


@dataclass(frozen=True)
class Entry:
    asked: Quantity
    published: Value | None
    lacking: str  # why it cannot be regenerated from readings; empty: it can
    ours: Value | None = None

    @property
    def times(self) -> float | None:
        """Ours over the published one."""
        if self.published is None or self.ours is None or not self.published.mean:
            return None
        return self.ours.mean / self.published.mean


@dataclass(frozen=True)
class Table:
    exhibit: Exhibit
    entries: tuple[tuple[Entry, ...], ...]

    def __iter__(self) -> Iterator[Entry]:
        return (entry for row in self.entries for entry in row)

    @property
    def lacking(self) -> tuple[str, ...]:
        """Each reason once, with what it is said of."""
        at: dict[str, list[str]] = {}
        places = product(self.exhibit.rows, self.exhibit.columns)
        for (row, column), entry in zip(places, self, strict=True):
            if entry.lacking:
                at.setdefault(entry.lacking, []).append(row if len(self.exhibit.columns) == 1 else f"{row}, {column}")
        return tuple(f"{'; '.join(where)}: {why}." for why, where in at.items())

    @property
    def measured(self) -> bool:
        return any(entry.ours is not None for entry in self)


def regenerate(exhibit: Exhibit, results: Results) -> Table:
    def entry(asked: Quantity) -> Entry:
        return Entry(asked, asked.of(finder(results)), _lacking(asked, results))

    return Table(exhibit, tuple(tuple(map(entry, row)) for row in exhibit.asks))


def finder(results: Results) -> Find:
    def find(cell: Cell) -> Value | None:
        row = results.get(cell)
        return None if row is None else row.value()

    return find


def _lacking(asked: Quantity, results: Results) -> str:
    for cell in asked.cells:
        row = results.get(cell)
        if row is None:
            return "the thesis has no such number"
        if row.mean is None:
            return "drawn in the figure, printed nowhere, and its readings are in no file of the repository"
        if row.basis == "unsupported":
            return "printed in the thesis; its readings are in no file of the repository"
        if row.basis == "inferred":
            return "its readings are in no file of the repository; this is " + row.source.split(" [")[0]
    return ""


def beside(table: Table, ours: Mapping[Cell, Summary]) -> Table:
    """Our measurements in the next column, under the same labels: what was not measured stays empty.

    In the thesis's units; a plain tuple of the five labels is as good a key as a Cell.
    """

    def find(cell: Cell) -> Value | None:
        found = ours.get(cell)
        return None if found is None else _of_summary(found, cell)

    return replace(table, entries=tuple(tuple(replace(e, ours=e.asked.of(find)) for e in row) for row in table.entries))


def _of_summary(found: Summary, cell: Cell) -> Value:
    # Ours divides by n - 1, and the thesis by n.
    deviation = None if found.deviation is None else found.deviation * sqrt((found.n - 1) / found.n)
    row = thesis_results().get(cell)
    unit = row.unit if row is not None else "s"
    return Value(found.mean, unit, "ours", found.n, deviation, found.low, found.high)


NAMES = {
    "1024MB": "1 GB",
    "2048MB": "2 GB",
    "3072MB": "3 GB",
    "prediction_time": "prediction time",
    "server_request_time": "processing time",
    "total_latency": "total latency",
    "cost_per_inference_printed": "cost, as printed",
    "cost_per_inference_total_latency": "cost: price × total latency",
    "cost_per_inference_server_time": "cost: price × processing time",
    "savedmodel_size": "artefact (SavedModel)",
    "compressed_size": "compressed",
    "disk_size": "on disk",
    "price_per_hour": "price of an hour",
    COLD: "cold start",
    WARM: "warm",
}


def name_of(label: str) -> str:
    """2048MB -> 2 GB, ml.m5.xlarge -> m5, total_latency -> total latency"""
    if label.startswith("ml."):
        return label.split(".")[1]
    if label in IMAGES:
        return label.replace("GB", " GB")
    return NAMES.get(label, label.replace("_", " "))


def said(asked: Quantity) -> str:
    """MobileNet, warm, prediction time: 1 GB over 3 GB"""
    labels = [(cell.level, cell.model, cell.scenario, cell.metric) for cell in asked.cells]
    apart = [i for i in range(4) if len({each[i] for each in labels}) > 1]
    joint = {"times": " over ", "percent less": " against ", "percent of": " of "}.get(asked.measure, ", ")
    parts = joint.join(" ".join(_named(each[i]) for i in apart) for each in labels) if apart else ""
    common = ", ".join(filter(None, (_named(labels[0][i]) for i in (1, 2, 0, 3) if i not in apart)))
    return ": ".join(filter(None, (common, parts)))


def _named(label: str) -> str:
    return "" if label in ("any", "price", "model-size", "image-size") else name_of(label)
