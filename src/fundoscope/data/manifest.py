"""Manifest: the table of photographs, with patient, eye, grade and split; a CSV file that people can read and edit.

A row's number is its line in the file, as editors and spreadsheets count: the first photograph is in row 2.
`left_out` says why a photograph is not used; rows are never removed, so that nothing disappears silently.
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from fundoscope.data.archive import read_member, split_address
from fundoscope.data.photo import UnreadablePhoto
from fundoscope.data.table import Row, read_table, to_csv
from fundoscope.errors import FundoscopeError, nearest
from fundoscope.provenance import sha256_of, write_whole

GRADES = (0, 1, 2, 3, 4)
SPLITS = ("train", "tune", "test")
EYES = ("left", "right")
FIRST_ROW = 2
MISSING, NO_GRADE = "the file is missing", "it has no grade"
LARGEST_PHOTO_BYTES = 512 * 2**20  # a 200-megapixel TIFF; more is no photograph, and would fill the memory


@dataclass(frozen=True)
class Photograph:
    path: str  # relative to the manifest's folder or absolute; a tar member is "archive.tar::images/x.jpg"
    grade: int | None  # 0..4
    patient: str = ""  # "" where unknown
    eye: str = ""  # left | right | ""
    split: str = ""  # train | tune | test | ""
    sha256: str = ""  # of the file's bytes
    width: int | None = None  # in pixels, as displayed
    height: int | None = None
    gradability: float | None = None  # 0..1
    left_out: str = ""  # why it is not used; "" = used
    source: str = ""  # the name it was imported under


class Graded(Protocol):
    """A photograph here, or its record."""

    @property
    def grade(self) -> int | None: ...
    @property
    def split(self) -> str: ...


COLUMNS = tuple(field.name for field in fields(Photograph))


@dataclass(frozen=True)
class Manifest:
    photographs: tuple[Photograph, ...]
    folder: Path  # what relative paths are relative to

    @classmethod
    def read(cls, path: Path) -> "Manifest":
        if path.is_dir():
            hint = f"import it first: fundoscope data import SOURCE {path} --out manifest.csv"
            raise FundoscopeError(f"{path} is a folder, not a manifest", hint)
        table = read_table(path)
        table.need("path", "grade")
        for column in table.header:
            if column not in COLUMNS:
                hint = f"use {nearest(column, dict.fromkeys(COLUMNS))}, or: fundoscope data import csv {path}"
                raise FundoscopeError(f"a manifest has no column '{column}', as {path.name} has", hint)
        photographs = tuple(_photograph(row, table.name) for row in table.rows)
        if not photographs:
            raise FundoscopeError(f"{path} lists no photograph", "import some: fundoscope data import --help")
        return cls(photographs, path.resolve().parent)

    def write(self, path: Path) -> None:
        """All of the file or nothing of it; paths are rewritten if it goes to another folder."""
        write_whole(path, self.moved_to(path.resolve().parent).to_csv())

    def moved_to(self, folder: Path) -> "Manifest":
        if folder == self.folder:
            return self
        moved = (replace(p, path=_seen_from(folder, self.folder / p.path)) for p in self.photographs)
        return Manifest(tuple(moved), folder)

    def to_csv(self) -> bytes:
        return to_csv(COLUMNS, [[_cell(getattr(p, name)) for name in COLUMNS] for p in self.photographs])

    @cached_property
    def digest(self) -> str:
        """sha256 of the manifest as `write` writes it."""
        return sha256_of(self.to_csv())

    def read_bytes(self, photograph: Photograph) -> bytes:
        """The file's bytes, or UnreadablePhoto that says why not, without naming the file."""
        return read_photo_bytes(self.folder, photograph.path)

    @property
    def used(self) -> tuple[Photograph, ...]:
        return tuple(p for p in self.photographs if not p.left_out)

    @property
    def reasons(self) -> Counter[str]:
        """How many are left out, by reason; the numbers of rows and grades in it set aside."""
        return Counter(re.sub(r"\d+", "N", p.left_out) for p in self.photographs if p.left_out)


def counts(photographs: Iterable[Graded]) -> dict[str, dict[int, int]]:
    """How many of each split and grade."""
    n = Counter((photograph.split, photograph.grade) for photograph in photographs)
    return {split: {grade: n[split, grade] for grade in GRADES} for split in SPLITS}


def note_history(manifest: Path, commands: Sequence[str], *, anew: bool) -> None:
    """Keep which commands made a manifest, beside it: a report then says how to repeat everything."""
    path = _history_file(manifest)
    before = [] if anew else read_history(manifest)
    write_whole(path, "".join(f"{line}\n" for line in [*before, *commands] if line).encode())


def read_history(manifest: Path) -> list[str]:
    path = _history_file(manifest)
    return path.read_text(encoding="utf-8").splitlines() if path.is_file() else []


def _history_file(manifest: Path) -> Path:
    return manifest.with_name(f"{manifest.stem}.history.txt")


def row_number(index: int) -> int:
    """What `photographs[index]` is called in messages."""
    return index + FIRST_ROW


def read_photo_bytes(folder: Path, path: str) -> bytes:
    name, member = split_address(path)
    file = folder / name
    try:
        if member:
            found = read_member(file, member) if file.is_file() else None
            if found is None:
                raise UnreadablePhoto(MISSING, "check the path in the manifest")
            return found
        size = file.stat().st_size
        if not file.is_file():  # reading a pipe would wait for ever
            raise UnreadablePhoto("it is a folder or a device, not a file", "check the path in the manifest")
        if size > LARGEST_PHOTO_BYTES:
            raise UnreadablePhoto(f"the file has {size / 2**30:.1f} GB, more than a photograph", "is it one?")
        return file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise UnreadablePhoto(MISSING, "check the path in the manifest") from None
    except OSError as problem:  # its text would name the file
        reason = os.strerror(problem.errno).lower() if problem.errno else "input error"
        raise UnreadablePhoto(f"the file cannot be read: {reason}", "check its permissions") from None


def _seen_from(folder: Path, path: Path) -> str:
    """Relative where the photograph lies below the folder, so that both can be moved together."""
    absolute = Path(os.path.abspath(path))  # noqa: PTH100  (resolve() would follow links out of the folder)
    return absolute.relative_to(folder).as_posix() if absolute.is_relative_to(folder) else str(absolute)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def _photograph(row: Row, name: str) -> Photograph:
    values: dict[str, Any] = {}
    for column, cell in row.cells.items():
        try:
            values[column] = PARSERS.get(column, str)(cell)
        except ValueError:
            problem = f"{column} in line {row.line} of {name} is '{cell}'"
            raise FundoscopeError(problem, f"it must be {ALLOWED[column]}") from None
    return Photograph(**values)


def _one_of(choices: tuple[str, ...]) -> Callable[[str], str]:
    def parse(cell: str) -> str:
        if cell and cell not in choices:
            raise ValueError(cell)
        return cell

    return parse


def _grade(cell: str) -> int | None:
    if cell and cell not in map(str, GRADES):
        raise ValueError(cell)
    return int(cell) if cell else None


def _path(cell: str) -> str:
    if not cell:
        raise ValueError(cell)
    return cell


def _pixels(cell: str) -> int | None:
    if cell and not (cell.isascii() and cell.isdigit()):
        raise ValueError(cell)
    return int(cell) if cell else None


def _share(cell: str) -> float | None:
    if not cell:
        return None
    if not 0 <= (value := float(cell)) <= 1:
        raise ValueError(cell)
    return value


def _digest(cell: str) -> str:
    if cell and (len(cell) != 64 or not set(cell) <= set("0123456789abcdef")):
        raise ValueError(cell)
    return cell


PARSERS: dict[str, Callable[[str], Any]] = {
    "path": _path,
    "grade": _grade,
    "eye": _one_of(EYES),
    "split": _one_of(SPLITS),
    "sha256": _digest,
    "width": _pixels,
    "height": _pixels,
    "gradability": _share,
}
ALLOWED = {
    "path": "the file of the photograph",
    "grade": "0, 1, 2, 3 or 4, or empty",
    "eye": "left or right, or empty",
    "split": "train, tune or test, or empty",
    "sha256": "64 hexadecimal digits, or empty",
    "width": "a whole number, or empty",
    "height": "a whole number, or empty",
    "gradability": "a number from 0 to 1, or empty",
}
