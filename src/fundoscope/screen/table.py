"""The result of a screening as a file: one row per photograph, and one per patient, in Parquet, CSV or JSON lines.

Rows are written as they come, never held; the file appears under its name when it is whole. pyarrow is imported only
to write Parquet.

In CSV, a text that a spreadsheet would take for a formula (a file may be called "=HYPERLINK(…).jpg") has an apostrophe
in front; Parquet and JSON lines hold it as it is.
"""

import csv
import glob
import importlib.util
import json
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias

from fundoscope.data.table import no_formula
from fundoscope.errors import FundoscopeError, nearest
from fundoscope.provenance import writing

Status = Literal["graded", "ungradable", "unreadable", "failed"]
STATUSES = typing.get_args(Status)
ROWS_AT_A_TIME = 10_000  # a row group of Parquet


@dataclass(frozen=True, slots=True)
class Row:
    """One photograph. Empty where there is nothing to say."""

    path: str  # relative to the folder or archive; as the manifest has it
    sha256: str  # of the file's bytes; "" where they could not be read
    same_as: str  # path of the first photograph with the very same bytes: graded once, for both
    patient: str
    eye: str  # left | right
    status: Status
    reason: str  # why it was not graded
    grade: int | None  # 0 to 4, the median; an ungradable photograph has one too, but it is not to be relied on
    p0: float | None  # probability of each grade; empty where the model answers referral only
    p1: float | None
    p2: float | None
    p3: float | None
    p4: float | None
    referral_probability: float | None
    referral: bool | None  # at the operating point; an ungradable photograph is referred
    gradability: float | None  # 0 to 1; 0.5 or more is gradable
    gradability_reasons: str  # worst first, with "; " between
    decode_ms: float | None  # reading pixels, finding the retina, judging the quality
    predict_ms: float | None  # the network
    artefact: str  # digest of the artefact that answered


@dataclass(frozen=True, slots=True)
class PatientRow:
    """One patient: the worse eye (screen/patients.py)."""

    patient: str
    result: str  # refer | retake or refer | no referral
    referral: bool  # intention to screen: both of the first
    grade: int | None  # the highest of the photographs that can be graded
    referral_probability: float | None  # the highest of the same
    worst: str  # path of the photograph that decides
    reason: str  # why some could not be graded
    left: str  # the result of that eye; "" without a photograph of it
    left_grade: int | None
    right: str
    right_grade: int | None
    photographs: int
    graded: int
    ungradable: int
    unreadable: int
    failed: int


Values: TypeAlias = Sequence[Any]
About: TypeAlias = Callable[[], Mapping[str, str]]
Write: TypeAlias = Callable[[IO[bytes], type, Iterable[Values], About], None]


def check_ending(out: Path) -> None:
    """Whether a table can be written there, asked before hours of work rather than after."""
    if out.suffix.lower() not in WRITERS:
        use = nearest(out.suffix.lower(), WRITERS)
        what = f"'{out.suffix}' is not an ending" if out.suffix else "the name has no ending"
        raise FundoscopeError(f"{what} of a table we write: {out.name}", f"use {use}")
    if out.suffix.lower() == ".parquet" and importlib.util.find_spec("pyarrow") is None:
        hint = f"pip install pyarrow, or write another kind of table: --out {out.with_suffix('.csv')}"
        raise FundoscopeError("writing Parquet needs pyarrow, which is not installed", hint)


def write_table(out: Path, kind: type, rows: Iterable[Any], about: About) -> None:
    """Rows (all of the dataclass `kind`) to `out`.

    `about` is asked when the last row has been written; it goes into a Parquet file's metadata. The others have none.
    """
    names = [field.name for field in fields(kind)]
    values = ([getattr(row, name) for name in names] for row in rows)
    for left_behind in out.parent.glob(f".{glob.escape(out.name)}.*.part"):  # by one that was killed
        left_behind.unlink(missing_ok=True)
    with writing(out) as file:
        WRITERS[out.suffix.lower()](file, kind, values, about)


def _write_csv(file: IO[bytes], kind: type, rows: Iterable[Values], _about: About) -> None:
    text = _Text(file)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(field.name for field in fields(kind))
    for row in rows:
        writer.writerow([_cell(value) for value in row])


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return no_formula(value)
    return f"{value:.7g}" if isinstance(value, float) else value  # as many digits as a float32 has


def _write_jsonl(file: IO[bytes], kind: type, rows: Iterable[Values], _about: About) -> None:
    names = [field.name for field in fields(kind)]
    for row in rows:
        line = json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False)
        file.write(f"{line}\n".encode())


def _write_parquet(file: IO[bytes], kind: type, rows: Iterable[Values], about: About) -> None:
    import pyarrow
    import pyarrow.parquet

    hints = typing.get_type_hints(kind)
    schema = pyarrow.schema(
        [pyarrow.field(field.name, _arrow_type(hints[field.name], field.name)) for field in fields(kind)]
    )
    with pyarrow.parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        for group in _groups(rows):
            columns = [pyarrow.array(list(values), type=one.type) for values, one in zip(group, schema, strict=True)]
            writer.write_table(pyarrow.Table.from_arrays(columns, schema=schema))
        writer.add_key_value_metadata(dict(about()))


def _groups(rows: Iterable[Values]) -> Iterator[list[tuple[Any, ...]]]:
    """The columns of ROWS_AT_A_TIME rows each."""
    held: list[Values] = []
    for row in rows:
        held.append(row)
        if len(held) == ROWS_AT_A_TIME:
            yield list(zip(*held, strict=True))
            held = []
    if held:
        yield list(zip(*held, strict=True))


def _arrow_type(hint: Any, name: str) -> Any:
    import pyarrow

    if isinstance(hint, types.UnionType):  # int | None: every column may be empty
        hint = next(kind for kind in typing.get_args(hint) if kind is not type(None))
    if hint is int:
        return pyarrow.int8() if name.endswith("grade") else pyarrow.int32()
    return {float: pyarrow.float32(), bool: pyarrow.bool_()}.get(hint, pyarrow.string())


WRITERS: dict[str, Write] = {".parquet": _write_parquet, ".csv": _write_csv, ".jsonl": _write_jsonl}


class _Text:
    """A text file in the shape of csv.writer's wish, over bytes that others close."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, text: str) -> int:
        return self._file.write(text.encode())
