"""How a statement of the thesis is judged by the raw numbers. A verdict is worked out, never typed in:

    reproduced         the cells that the statement names give the printed number
    mislabelled        they do not, and others of the same network and experiment do; the closest is the right label
    not reproducible   none does, or the readings that it needs are in no file

"Give" means: rounded or cut off at the printed digits (the author does both), or within 0.5 %, because he divided means
that he had rounded: 1.59 s / 0.58 s is printed as 2.7413 where the readings give 2.7299. Other labels are those that
differ in at most two places, a level on either side or the metric of both, so that few enough are tried for a
coincidence to be unlikely; how many were is kept with the verdict.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import product
from math import floor, log10, sqrt
from typing import Literal

from scipy import stats

from fundoscope.analysis.thesis import CHECKABLE, Cell, Find, Quantity, Results, Value, finder, name_of, said

Verdict = Literal["reproduced", "mislabelled", "not reproducible"]
Holding = Literal["the", "each", "most"]

TOLERANCE = 0.005  # of the printed number
MOST_CHANGES = 2
ALPHA = 0.05
METRICS = (
    ("prediction_time", "total_latency"),
    ("cost_per_inference_total_latency", "cost_per_inference_server_time"),
    ("parameters", "savedmodel_size"),
)
NO_READINGS = "The readings it needs are in no file of the repository"


@dataclass(frozen=True)
class Statement:
    where: str
    english: str
    original: str


@dataclass(frozen=True)
class Number(Statement):
    """So much it is: of the one quantity named, of each of several, or of the greatest among several ("up to")."""

    printed: str  # the digits as printed, with a decimal point
    of: tuple[Quantity, ...]
    holding: Holding = "the"


@dataclass(frozen=True)
class Name(Statement):
    """This one is the slowest, the fastest, the cheapest."""

    printed: str  # a level
    among: tuple[Cell, ...]
    extreme: Literal["most", "least"]


@dataclass(frozen=True)
class NoDifference(Statement):
    """These do not differ: Welch's t-test of each pair, from n, mean and deviation."""

    pairs: tuple[tuple[Cell, Cell], ...]


@dataclass(frozen=True)
class Judged:
    statement: Number | Name | NoDifference
    verdict: Verdict
    found: str  # one sentence
    right: str = ""  # the label that fits, where mislabelled
    value: float | None = None  # of the labels as printed
    tried: int = 0  # other labels


def judge(statement: Number | Name | NoDifference, results: Results) -> Judged:
    if isinstance(statement, Number):
        return _judge_number(statement, results)
    if isinstance(statement, Name):
        return _judge_name(statement, finder(results))
    return _judge_same(statement, finder(results))


def agrees(printed: str, value: float) -> bool:
    return _to_the_digit(printed, value) or abs(value - float(printed)) <= TOLERANCE * abs(float(printed))


def _to_the_digit(printed: str, value: float) -> bool:
    number, digit = float(printed), float(Decimal(1).scaleb(int(Decimal(printed).as_tuple().exponent)))
    return number - digit / 2 <= value < number + digit


def _judge_number(statement: Number, results: Results) -> Judged:
    find, printed = finder(results), statement.printed
    values = [value for quantity in statement.of if (value := quantity.of(find)) and value.basis in CHECKABLE]
    if len(values) < len(statement.of):
        return Judged(statement, "not reproducible", _without_readings(statement, find))
    means = [value.mean for value in values]
    named = max(means) if statement.holding == "most" else means[0]
    if all(agrees(printed, x) for x in ([named] if statement.holding == "most" else means)):
        return Judged(statement, "reproduced", _agreeing(printed, named, values), value=named)
    own = f"As labelled it is {_as_labelled(statement, means)}"
    others = list(_other_labels(statement, results))
    fitting = [(abs(x - float(printed)), said(quantity), x) for quantity, x in others if agrees(printed, x)]
    if not fitting:
        found = f"{own}; no other label gives {printed}."
        return Judged(statement, "not reproducible", found, value=named, tried=len(others))
    _, right, fits = min(fitting)
    found = f"{own}; {right} gives {_digits(fits, printed)}."
    return Judged(statement, "mislabelled", found, right, named, len(others))


def _agreeing(printed: str, value: float, values: Sequence[Value]) -> str:
    source = "The thesis's own prices and sizes" if values[0].basis == "printed" else "The readings"
    off = abs(value / float(printed) - 1)
    near = f", {100 * off:.2f} % away" if off > 1e-3 and not _to_the_digit(printed, value) else ""
    return f"{source} give {_digits(value, printed)}{near}."


def _without_readings(statement: Number, find: Find) -> str:
    """What can still be said: whether the thesis's own printed numbers give it."""
    values = [value.mean for quantity in statement.of if (value := quantity.of(find)) is not None]
    if not values or statement.of[0].measure == "mean":
        return f"{NO_READINGS}."
    return f"{NO_READINGS}; what is printed elsewhere in the thesis gives {_digits(max(values), statement.printed)}."


def _as_labelled(statement: Number, means: Sequence[float]) -> str:
    if statement.holding == "each":
        each = zip(statement.of, means, strict=True)
        return "; ".join(f"{_digits(x, statement.printed)} ({said(quantity)})" for quantity, x in each)
    return _digits(max(means), statement.printed) + (" at most" if statement.holding == "most" else "")


def _digits(value: float, printed: str) -> str:
    """As many as are printed and one more, and three significant ones at least."""
    if abs(value) < 1e-3:
        return f"{value:.8f}"
    places = max(1 - int(Decimal(printed).as_tuple().exponent), 2 - floor(log10(abs(value))))
    return f"{value:.{min(places, 7)}f}"


def _other_labels(statement: Number, results: Results) -> Iterator[tuple[Quantity, float]]:
    """Each once, with its value; where several are named, one of them alone is another label too."""
    named = dict.fromkeys(statement.of)
    near = dict.fromkeys(other for quantity in named for other in _near(quantity, results) if other not in named)
    for other in (*(() if statement.holding == "the" else named), *near):
        value = other.of(finder(results))
        if value is not None and value.basis in CHECKABLE:
            yield other, value.mean


def _near(quantity: Quantity, results: Results) -> Iterator[Quantity]:
    metric = quantity.cells[0].metric
    same = all(cell.metric == metric for cell in quantity.cells)
    family = next((family for family in METRICS if metric in family), (metric,))
    for other in family if same else ("",):
        cells = [cell._replace(metric=other or cell.metric) for cell in quantity.cells]
        for levels in product(*(_levels(cell, results) for cell in cells)):
            changed = tuple(cell._replace(level=level) for cell, level in zip(cells, levels, strict=True))
            changes = sum(new.level != old.level for new, old in zip(changed, cells, strict=True))
            changes += other not in ("", metric)
            if 1 <= changes <= MOST_CHANGES and len({*changed}) == len(changed):
                yield Quantity(quantity.measure, changed)


def _levels(cell: Cell, results: Results) -> list[str]:
    return [other.level for other in results if other._replace(level=cell.level) == cell]


def _judge_name(statement: Name, find: Find) -> Judged:
    known = {cell.level: value.mean for cell in statement.among if (value := find(cell)) is not None}
    if len(known) < len(statement.among):
        return Judged(statement, "not reproducible", f"{NO_READINGS}.")
    found = (max if statement.extreme == "most" else min)(known, key=lambda level: known[level])
    ranked = ", ".join(f"{name_of(level)} {_few(value)}" for level, value in sorted(known.items(), key=lambda x: x[1]))
    if found == statement.printed:
        return Judged(statement, "reproduced", f"From the least: {ranked}.")
    return Judged(statement, "mislabelled", f"It is {name_of(found)}. From the least: {ranked}.", name_of(found))


def _few(value: float) -> str:
    return f"{value:.4g}" if value >= 1e-3 else f"{value:.8f}"


def _judge_same(statement: NoDifference, find: Find) -> Judged:
    found = [_welch(find(one), find(other)) for one, other in statement.pairs]
    tests = [pair for pair in found if pair is not None]
    if len(tests) < len(found):
        return Judged(statement, "not reproducible", f"{NO_READINGS}.")
    ratios, differ = [ratio for ratio, _ in tests], sum(p < ALPHA for _, p in tests)
    times = " to ".join(dict.fromkeys(f"{end:.3g}" for end in (min(ratios), max(ratios)))) + " times the other"
    if not differ:
        return Judged(statement, "reproduced", f"One is {times}, which chance alone explains.")
    many = "" if len(ratios) == 1 else f" in {differ} of {len(ratios)} pairs"
    return Judged(statement, "not reproducible", f"One is {times}, more than chance explains{many}.")


def _welch(a: Value | None, b: Value | None) -> tuple[float, float] | None:
    """One over the other, and the probability that they are the same."""
    if a is None or b is None or not a.n or not b.n or a.deviation is None or b.deviation is None:
        return None
    errors = a.deviation**2 / (a.n - 1), b.deviation**2 / (b.n - 1)  # of the means: deviations here divide by n
    degrees = sum(errors) ** 2 / (errors[0] ** 2 / (a.n - 1) + errors[1] ** 2 / (b.n - 1))
    return a.mean / b.mean, 2 * float(stats.t.sf(abs(a.mean - b.mean) / sqrt(sum(errors)), degrees))
