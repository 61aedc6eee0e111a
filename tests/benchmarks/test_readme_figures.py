"""Every figure of README's table of results stands in benchmarks/RESULTS.md, with its unit, and a row's in one section.

A figure is a number in digits (words such as "two minutes" are prose) in a cell to the right of the row's name. It
stands in a section if a number there is the same once rounded to the figure's decimals. Its unit is the one behind it,
or else the one of its range or of the figure that its interval belongs to; in RESULTS.md the head of its column, the
name of its row or the line it stands in may name it too ("published / ours" is a number of times). s and ms, and kB, MB
and GB, are turned into each other.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UNITS = {  # -> what it measures, and how much of it
    "times": ("times", 1.0),
    "×": ("times", 1.0),
    "%": ("%", 1.0),
    "ms": ("s", 1e-3),
    "s": ("s", 1.0),
    "seconds": ("s", 1.0),
    "min": ("s", 60.0),
    "minutes": ("s", 60.0),
    "kB": ("MB", 1e-3),
    "MB": ("MB", 1.0),
    "GB": ("MB", 1e3),
    "USD": ("USD", 1.0),
    "/s": ("/s", 1.0),
    "requests/s": ("/s", 1.0),
}
UNIT = "|".join(re.escape(unit) for unit in sorted(UNITS, key=len, reverse=True))
# Not the digits of a name (VGG19, p99, 224 × 224), nor of a date or a version.
NUMBER = re.compile(
    rf"(?<![\w.,-])(?P<value>[+-]?\d[\d,]*(?:\.\d+)?)(?![\w,]*[\w-]|\.\d)\s?(?P<unit>(?:{UNIT})(?!\w))?"
)
UNIT_WORD = re.compile(rf"(?<!\w)(?:{UNIT})(?!\w)")


@dataclass(frozen=True)
class Figure:
    text: str  # of the number, its decimals kept
    unit: str = ""
    nearby: frozenset[str] = field(default=frozenset(), compare=False)  # units that the place it stands in names

    def __str__(self) -> str:
        return f"{self.text} {self.unit}".strip()

    def is_in(self, section: "Section") -> bool:
        return any(self._equals(other) for other in section.figures)

    def _equals(self, other: "Figure") -> bool:
        if not self.unit:
            return self._rounds(other, 1.0)
        kind, amount = UNITS[self.unit]
        named = [other.unit] if other.unit else other.nearby
        return any(self._rounds(other, UNITS[unit][1] / amount) for unit in named if UNITS[unit][0] == kind)

    def _rounds(self, other: "Figure", factor: float) -> bool:
        step = 10.0 ** -len(self.text.partition(".")[2])
        return abs(number(other.text) * factor - number(self.text)) <= step * (0.5 + 1e-6)


@dataclass(frozen=True)
class Section:
    name: str
    figures: tuple[Figure, ...]


@dataclass(frozen=True)
class Row:
    """A row of README's table."""

    name: str
    figures: tuple[Figure, ...]

    def missing(self, sections: list[Section]) -> tuple[str, list[str]]:
        """The section that holds the most of its figures, and those that it does not hold."""
        best = max(sections, key=lambda section: sum(figure.is_in(section) for figure in self.figures))
        return best.name, [str(figure) for figure in self.figures if not figure.is_in(best)]


def number(text: str) -> float:
    return float(text.replace(",", ""))


def figures(text: str, nearby: frozenset[str] = frozenset()) -> list[Figure]:
    """The numbers of a text with their units, a range's and an interval's included."""
    text = text.replace("−", "-").replace("**", "").replace("`", "")
    matches = list(NUMBER.finditer(text))
    units = [match["unit"] or "" for match in matches]
    for i in reversed(range(len(matches) - 1)):  # "0.48 to 0.96 s"
        if not units[i] and re.fullmatch(r"\s*(to|and|,|/)\s*", text[matches[i].end() : matches[i + 1].start()]):
            units[i] = units[i + 1]
    for i in range(1, len(matches)):  # "12.5 times shorter (11.5 to 13.4)"
        between = text[matches[i - 1].end() : matches[i].start()]
        begins_interval = re.fullmatch(r"[\w\s]*\(", between) and ")" in text[matches[i].end() :]
        in_interval = re.fullmatch(r"\s*to\s*", between) and text.rfind("(", 0, matches[i].start()) > text.rfind(
            ")", 0, matches[i].start()
        )
        if not units[i] and (begins_interval or in_interval):
            units[i] = units[i - 1]
    return [Figure(match["value"], unit, nearby) for match, unit in zip(matches, units, strict=True)]


def named_units(*texts: str) -> frozenset[str]:
    ratio = {"times"} if any(" / " in text or " over " in text for text in texts) else set()
    return frozenset(match[0] for text in texts for match in UNIT_WORD.finditer(text)) | ratio


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def table_rows(text: str, last_heading: str) -> list[Row]:
    """Of the table whose last column is called so."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("|") and cells(line)[-1] == last_heading)
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        name, *values = cells(line)
        rows.append(Row(name, tuple(figure for value in values for figure in figures(value))))
    return rows


def sections(text: str) -> list[Section]:
    parts = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    return [Section(part.partition("\n")[0].partition(" — ")[0], tuple(_figures_of(part))) for part in parts]


def _figures_of(section: str) -> Iterator[Figure]:
    heads: list[str] = []
    for line in section.splitlines()[1:]:
        if not line.startswith("|"):
            heads = []
            yield from figures(line, named_units(line))
            continue
        values = cells(line)
        heads = heads or values
        for head, value in zip(heads, values, strict=True):
            yield from figures(value, named_units(head, values[0], value))


README = table_rows((ROOT / "README.md").read_text(encoding="utf-8"), "reached")
RESULTS = sections((ROOT / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize("row", README, ids=lambda row: row.name[:50])
def test_the_figures_of_a_row_of_readme_stand_in_one_section_of_results(row: Row) -> None:
    section, missing = row.missing(RESULTS)
    assert not missing, f"'{row.name}': of its {len(row.figures)} figures, '{section}' of RESULTS.md lacks {missing}"


def test_readme_has_figures_to_look_for() -> None:
    assert len(README) >= 10
    assert sum(len(row.figures) for row in README) >= 50


@pytest.mark.parametrize("row", [row for row in README if row.figures], ids=lambda row: row.name[:50])
def test_a_figure_that_nobody_measured_is_missed(row: Row) -> None:
    """The first figure of each row, with another number that no section has."""
    invented = Row(row.name, (Figure("98765.4", row.figures[0].unit), *row.figures[1:]))
    assert str(invented.figures[0]) in invented.missing(RESULTS)[1]


SMALL = """
## Speed — 2026-11-15, CPU

| what | published | ours ms | times (95 %) |
| --- | --- | --- | --- |
| a request, p50 | 59.9 ms | 9.04 | **6.6** (6.5 to 6.8) |

Memory 346 MB at most; AUC 0.9695 (0.95 to 0.98).

## Cost

1,000 requests cost 0.149 USD.
"""


def lacking(reached: str) -> list[str]:
    (row,) = table_rows(f"| | against | reached |\n| --- | --- | --- |\n| a row | – | {reached} |\n", "reached")
    return row.missing(sections(SMALL))[1]


@pytest.mark.parametrize(
    "reached",
    ["6.6 times (6.5 to 6.8)", "9 ms", "0.0599 s", "0.35 GB", "AUC 0.970 (0.95 to 0.98)", "60 ms / 9.0 ms", "0.15 USD"],
)
def test_a_figure_is_recognised_rounded_and_in_another_unit(reached: str) -> None:
    assert lacking(reached) == []


@pytest.mark.parametrize(
    ("reached", "lacks"),
    [
        ("6.7 times (6.5 to 6.8)", ["6.7 times"]),  # another number
        ("6.6 times (6.4 to 6.8)", ["6.4 times"]),  # another interval
        ("9.05 ms", ["9.05 ms"]),  # more decimals than were measured
        ("6.6 ms, 9 ms", ["6.6 ms"]),  # the number of another column
        ("346 s", ["346 s"]),  # another unit
        ("9 ms, 0.149 USD", ["0.149 USD"]),  # of another section
        ("7 times (6.5 to 6.8), 3 %", ["3 %"]),
    ],
)
def test_a_figure_that_is_not_what_was_measured_is_named(reached: str, lacks: list[str]) -> None:
    assert lacking(reached) == lacks
