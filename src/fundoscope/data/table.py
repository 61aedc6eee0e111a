"""CSV files as people have them: read strictly, with line numbers for the errors."""

import csv
import io
import re
from dataclasses import dataclass
from pathlib import Path

from fundoscope.errors import FundoscopeError, nearest

# How a cell begins that a spreadsheet takes for a formula (OWASP, "CSV Injection"); and one that looks guarded already.
FORMULA, GUARDED = re.compile(r"'*[=+\-@\t\r\n]"), re.compile(r"'+[=+\-@\t\r\n]")


@dataclass(frozen=True)
class Row:
    line: int  # as an editor counts: the header is line 1
    cells: dict[str, str]


@dataclass(frozen=True)
class Table:
    name: str
    header: tuple[str, ...]
    rows: tuple[Row, ...]

    def need(self, *columns: str) -> None:
        """An error that names the first column missing."""
        for column in columns:
            if column not in self.header:
                near = nearest(column, dict.fromkeys(self.header))
                hint = f"its columns are {', '.join(self.header)}" if near.startswith("one of") else f"use {near}"
                raise FundoscopeError(f"{self.name} has no column '{column}'", hint)

    def first_of(self, *columns: str) -> str:
        """Whichever of these columns there is; datasets are re-published under other headings."""
        found = [column for column in columns if column in self.header]
        if not found:
            self.need(columns[0])
        return found[0]


def read_table(path: Path) -> Table:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise FundoscopeError(f"there is no file {path}", "check the path") from None
    except IsADirectoryError:
        raise FundoscopeError(f"{path} is a folder, not a CSV file", "name the file in it") from None
    except OSError as problem:
        raise FundoscopeError(f"{path} cannot be read: {problem.strerror}", "check its permissions") from None
    return parse_table(data, name=path.name)


def parse_table(data: bytes, *, name: str) -> Table:
    try:
        text = data.decode("utf-8-sig")  # spreadsheets put a mark in front
    except UnicodeDecodeError:
        raise FundoscopeError(f"{name} is not UTF-8 text", "save it as CSV in UTF-8") from None
    first = text.split("\n", 1)[0]
    delimiter = ";" if ";" in first and "," not in first else ","  # as spreadsheets write where 1,5 is a number
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        lines = [(reader.line_num, cells) for cells in reader]
    except csv.Error as problem:
        raise FundoscopeError(f"{name} is not CSV in line {reader.line_num}: {problem}", "correct that line") from None
    if not lines:
        raise FundoscopeError(f"{name} is empty", "its first line must name the columns")
    header = _header(lines[0][1], name)
    rows = (_row(line, cells, header, name) for line, cells in lines[1:] if any(cell.strip() for cell in cells))
    return Table(name, tuple(header), tuple(rows))


def _header(cells: list[str], name: str) -> list[str]:
    header = [cell.strip() for cell in cells]
    while header and not header[-1]:  # IDRiD's labels have empty columns at the end
        header.pop()
    for column in header:
        if header.count(column) > 1:
            raise FundoscopeError(f"{name} has two columns called '{column}'", "rename one of them")
    return header


def _row(line: int, cells: list[str], header: list[str], name: str) -> Row:
    if any(cell.strip() for cell in cells[len(header) :]):
        raise FundoscopeError(
            f"line {line} of {name} has {len(cells)} cells, its header {len(header)}",
            "a comma inside a cell needs quotes around the cell",
        )
    padded = cells + [""] * (len(header) - len(cells))
    return Row(line, {column: as_written(cell.strip()) for column, cell in zip(header, padded, strict=False)})


def no_formula(text: str) -> str:
    """The text for a CSV file that people open: with an apostrophe in front where it would else be run as a formula."""
    return f"'{text}" if FORMULA.match(text) else text


def as_written(cell: str) -> str:
    """What `no_formula` was given."""
    return cell[1:] if GUARDED.match(cell) else cell


def to_csv(header: tuple[str, ...], rows: list[list[str]]) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([no_formula(cell) for cell in row] for row in rows)
    try:
        return out.getvalue().encode()
    except UnicodeEncodeError:  # a file name may be any bytes; a table of names may not
        cell = next(cell for row in rows for cell in row if not cell.isprintable() and "\\udc" in ascii(cell))
        raise FundoscopeError(f"a file name is not valid UTF-8 text: {cell!a}", "rename the file") from None
