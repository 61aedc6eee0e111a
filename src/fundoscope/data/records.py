"""Records: prepared photographs on disk, as TFRecord shards with an index; what a training reads.

    index.json                     how they were prepared, from which manifest, the digest of every file
    photographs.csv                one row per photograph: pseudonyms, eye, grade, split, gradability, place
    SPLIT-NNNNN-of-NNNNN.tfrecord  tf.train.Example with the keys of Voets et al., and image/id
    left_out.csv                   what could not be prepared: its row in the manifest, its pseudonym, the reason
    cache/                         decoded pixels; made when first needed, may be deleted

Nothing here names a file, a patient or a camera: a photograph is called by the first 16 digits of its sha256, a
patient by a number whose order follows those, and prepared pixels carry no metadata.
"""

import json
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fundoscope.config import build
from fundoscope.data.gradability import GradabilityRule
from fundoscope.data.manifest import SPLITS
from fundoscope.data.mapped import mapped_array
from fundoscope.data.photo import Preparation, decode
from fundoscope.data.table import Row, read_table, to_csv
from fundoscope.data.tfrecord import decode_example, read_frame
from fundoscope.errors import FundoscopeError, pick
from fundoscope.progress import Track, quiet
from fundoscope.provenance import sha256_file, sha256_of
from fundoscope.quota import cores

FORMAT = 1
INDEX, PHOTOGRAPHS, LEFT_OUT, BEGUN = "index.json", "photographs.csv", "left_out.csv", "begun.json"
CIRCUMSTANCES = ("digest", "versions", "commands")  # of the index; all else is what the digest is of


@dataclass(frozen=True)
class Record:
    id: str  # pseudonym: the first 16 hexadecimal digits of the photograph's sha256
    patient: str  # pseudonym, or "" where unknown
    eye: str
    grade: int
    split: str
    gradability: float
    gradable: bool
    shard: str
    offset: int  # bytes into the shard


COLUMNS = tuple(field.name for field in fields(Record))


@dataclass(frozen=True)
class Records:
    folder: Path
    index: Mapping[str, Any]
    rows: tuple[Record, ...]

    @classmethod
    def open(cls, folder: Path) -> "Records":
        index = _read_index(folder)
        photographs = folder / PHOTOGRAPHS
        if sha256_file(photographs) != index["photographs_sha256"]:
            raise FundoscopeError(f"{photographs} is not the one that {INDEX} names", "prepare the photographs again")
        return cls(folder, index, tuple(map(_record, read_table(photographs).rows)))

    @cached_property
    def preparation(self) -> Preparation:
        return build(Preparation, self.index["preparation"], where=f"{self.folder / INDEX}, preparation")

    @cached_property
    def rule(self) -> GradabilityRule:
        return build(GradabilityRule, self.index["rule"], where=f"{self.folder / INDEX}, rule")

    @property
    def manifest_sha256(self) -> str:
        return str(self.index["manifest_sha256"])

    @property
    def digest(self) -> str:
        """Names the records: of all that decides them and of every shard, not of when and where they were made."""
        return str(self.index["digest"])

    @property
    def drawn(self) -> bool:
        return bool(self.index["drawn"])

    def of(self, split: str) -> tuple[Record, ...]:
        pick(dict.fromkeys(SPLITS, True), split, kind="split")
        return tuple(row for row in self.rows if row.split == split)

    def pixels(self, split: str, *, track: Track = quiet) -> NDArray[np.uint8]:
        """(n, size, size, 3), in the order of `of(split)`; read from disk as needed, so it takes no memory."""
        path = self.folder / "cache" / f"{split}-{self.digest[:16]}.npy"
        if not path.is_file():
            self._decode_into(path, self.of(split), track)
        return np.load(path, mmap_mode="r")  # type: ignore[no-any-return]

    def _decode_into(self, path: Path, rows: tuple[Record, ...], track: Track) -> None:
        if not rows:
            raise FundoscopeError(
                f"{self.folder} has no photograph to {path.name.split('-')[0]}", "see its photographs.csv"
            )
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        pixels = mapped_array(part, np.uint8, (len(rows), self.preparation.size, self.preparation.size, 3))
        by_shard = [list(found) for _, found in groupby(enumerate(rows), key=lambda item: item[1].shard)]
        try:
            with ThreadPoolExecutor(cores()) as pool:  # decoding releases the interpreter
                decoded = pool.map(lambda items: self._decode_shard(items, pixels), by_shard)
                for _ in track((row for shard in decoded for row in shard), total=len(rows), label="decoding"):
                    pass
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)

    def _decode_shard(self, items: list[tuple[int, Record]], out: NDArray[np.uint8]) -> list[Record]:
        shard = self.folder / items[0][1].shard
        if not shard.is_file():
            raise FundoscopeError(f"{shard} is missing", "delete the folder and prepare it again")
        with shard.open("rb") as file:
            for place, record in items:
                example = decode_example(read_frame(file, record.offset, shard.name))
                encoded = example["image/encoded"]
                if not isinstance(encoded, bytes):
                    raise FundoscopeError(f"{shard.name} holds no picture at {record.offset}", "prepare it again")
                out[place] = decode(encoded).pixels
        return [record for _, record in items]


def _read_index(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        hint = "prepare the photographs first: fundoscope data prepare manifest.csv --out records/"
        raise FundoscopeError(f"there is no folder {folder}", hint)
    try:
        index: dict[str, Any] = json.loads((folder / INDEX).read_bytes())
    except FileNotFoundError:
        if (folder / BEGUN).is_file():
            hint = "run the same command again: fundoscope data prepare goes on where it stopped"
            raise FundoscopeError(f"the photographs in {folder} are not all prepared yet", hint) from None
        raise FundoscopeError(
            f"{folder} holds no prepared photographs", "give the folder that data prepare wrote"
        ) from None
    except json.JSONDecodeError:
        raise FundoscopeError(f"{folder / INDEX} is not JSON", "delete the folder and prepare it again") from None
    if index.get("format") != FORMAT:
        raise FundoscopeError(f"{folder} was prepared by another version of fundoscope", "prepare it again")
    if index["digest"] != digest_of(index):
        raise FundoscopeError(f"{folder / INDEX} was changed after it was written", "prepare the photographs again")
    return index


def digest_of(index: Mapping[str, Any]) -> str:
    content = {name: value for name, value in index.items() if name not in CIRCUMSTANCES}
    return sha256_of(json.dumps(content, sort_keys=True, ensure_ascii=False).encode())


def records_csv(rows: Iterable[Record]) -> bytes:
    return to_csv(COLUMNS, [[_cell(value) for value in attrgetter(*COLUMNS)(row)] for row in rows])


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def _record(row: Row) -> Record:
    cells: dict[str, Any] = dict(row.cells)
    cells["grade"], cells["offset"] = int(cells["grade"]), int(cells["offset"])
    cells["gradability"], cells["gradable"] = float(cells["gradability"]), cells["gradable"] == "true"
    return Record(**cells)
