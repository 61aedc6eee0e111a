"""Tables of a page: each row for people, and exactly in the CSV that the page carries."""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from fundoscope.analysis.summaries import Summary
from fundoscope.data.table import no_formula
from fundoscope.report.study_words import Found, shown, shown_dollars

MOST_ROWS = 300
END_ROWS = 50  # listed at either end, where there are more


@dataclass(frozen=True)
class Column:
    label: str
    csv: tuple[str, ...]  # its columns there: a mean has its interval beside it
    number: bool = True


@dataclass(frozen=True)
class Entry:
    shown: str  # Markup where it has elements
    exact: tuple[Any, ...]
    order: float | str | None = None  # what a click on the heading sorts by


@dataclass(frozen=True)
class Table:
    name: str
    caption: str
    columns: tuple[Column, ...]
    rows: Sequence[Sequence[Entry]]
    csv: str  # a data: URL
    left_out: int = 0  # rows that are in the CSV alone
    note: str = ""
    sortable: bool = False


def table(
    name: str, caption: str, columns: Sequence[Column], rows: Sequence[Sequence[Entry]], **more: Any
) -> Table | None:
    """None where there is nothing to show."""
    if not rows:
        return None
    lines = ([value for entry in row for value in entry.exact] for row in rows)
    link = more.pop("csv", None) or csv_link([key for column in columns for key in column.csv], lines)
    return Table(name, caption, tuple(columns), rows[:MOST_ROWS], link, max(0, len(rows) - MOST_ROWS), **more)


def csv_link(header: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([no_formula(cell) if isinstance(cell, str) else cell for cell in line] for line in lines)
    return "data:text/csv;charset=utf-8," + quote(file.getvalue(), safe=",;:/()*+=!@'~")


def text(value: Any) -> Entry:
    return Entry("–" if value is None or value == "" else str(value), (value,), str(value))


def amount(value: float | None, unit: str = "") -> Entry:
    if value is None:
        return Entry("–", (None,))
    if 0 < abs(value) < 1e-4:
        return Entry(Markup('<data value="{}">{}</data>').format(repr(value), f"{value:.1e}"), (value,), value)
    return Entry(shown(Found(value), unit), (value,), value)


def whole(n: int) -> Entry:
    return Entry(Markup('<data value="{}">{:,}</data>').format(n, n), (n,), n)


def money(value: float | None) -> Entry:
    return Entry("–", (None,)) if value is None else Entry(shown_dollars(value), (value,), value)


def interval(found: Found | None, unit: str = "") -> Entry:
    if found is None:
        return Entry("–", (None, None, None))
    return Entry(shown(found, unit), (found.value, found.low, found.high), found.value)


def of_summary(summary: Summary | None, unit: str = "") -> Entry:
    return interval(None if summary is None else Found(summary.mean, summary.low, summary.high), unit)


def with_ends(label: str, key: str) -> Column:
    return Column(label, (key, f"{key}_low", f"{key}_high"))
