"""The log of a screening: what has been graded so far, safe from kill -9 and from a power cut.

One JSON object per line, only ever appended to, beside the result: gradings.screening.jsonl beside gradings.parquet.

    {"screening": 1, "artefact": …, "operating_point": …, "folder": …}      the first line: what all of it belongs to
    {"run": …}                                     a command that went on with it: when, which versions
    {"path": …, "size": …, "stamp": …, "sha256": …, "status": …, …}         a photograph that was looked at
    {"path": …, "size": …, "stamp": …, "sha256": …}                         one whose bytes have been graded already

Lines reach the operating system as soon as they are known, and the disk every second. A last line that a power cut
left unfinished is cut off; its photograph is graded again.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from fundoscope.errors import FundoscopeError
from fundoscope.provenance import sync_folder

FORMAT = 1
OPENING = b'{"screening"'
SYNC_EVERY_S = 1.0
LINE_BYTES = 1024  # most are shorter
Line = dict[str, Any]


def log_beside(out: Path) -> Path:
    return out.with_name(f"{out.stem}.screening.jsonl")


class ScreenLog:
    """Open for one process at a time; the offset of a line is its address."""

    def __init__(self, path: Path, belongs_to: Line) -> None:
        """Begin a log, or go on with one that belongs to the same artefact, operating point and folder."""
        self.path = path
        try:
            self._file: IO[bytes] = path.open("a+b", buffering=0)
        except OSError as problem:
            raise FundoscopeError(f"{path} cannot be written to: {problem.strerror}", "choose another --out") from None
        try:
            self._lock()
            self._refuse_a_stranger()
            self._cut_off_what_is_unfinished()
            self._claim({"screening": FORMAT, **belongs_to})
        except BaseException:
            self._file.close()
            raise
        self._synced_s = time.monotonic()

    def __enter__(self) -> "ScreenLog":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if not self._file.closed:
            with suppress(OSError):  # a full disk has been reported by `append`
                os.fsync(self._file.fileno())
            self._file.close()

    def append(self, lines: Sequence[Line]) -> list[int]:
        """Their offsets, once they are with the operating system."""
        encoded = [json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines]
        try:
            start = os.fstat(self._file.fileno()).st_size
            written = self._file.write(b"".join(encoded))
            if written != sum(map(len, encoded)):
                raise OSError(28, "no space left on device")
            if time.monotonic() - self._synced_s >= SYNC_EVERY_S:
                os.fsync(self._file.fileno())
                self._synced_s = time.monotonic()
        except OSError as problem:
            hint = "make room and give the same command again: it goes on from here"
            raise FundoscopeError(f"{self.path} cannot be written to: {problem.strerror}", hint) from None
        offsets = []
        for line in encoded:
            offsets.append(start)
            start += len(line)
        return offsets

    def lines(self) -> Iterator[tuple[int, Line]]:
        """Offset and content of all but the first."""
        with self.path.open("rb") as file:
            offset = len(file.readline())
            for number, line in enumerate(file, start=2):
                try:
                    yield offset, json.loads(line)
                except ValueError:
                    hint = "choose another --out, or delete it and screen anew"
                    raise FundoscopeError(f"{self.path} is damaged in line {number}", hint) from None
                offset += len(line)

    def reader(self) -> "LogReader":
        return LogReader(self.path)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            message = f"another screening is writing to {self.path} at this moment"
            raise FundoscopeError(message, "wait for it, or choose another --out") from None

    def _refuse_a_stranger(self) -> None:
        """Before anything of it is changed."""
        self._file.seek(0)
        head = self._file.read(len(OPENING))
        if head and not OPENING.startswith(head) and head.strip(b"\0"):
            hint = "choose another --out, or move that file away"
            raise FundoscopeError(f"{self.path} is not the log of a screening", hint)

    def _cut_off_what_is_unfinished(self) -> None:
        """Everything behind the last whole line: a power cut may leave half a line, or a block of zeros."""
        size = whole = os.fstat(self._file.fileno()).st_size
        while whole:
            start = self._start_of_line(whole)
            self._file.seek(start)
            if _is_whole(self._file.read(whole - start)):
                break
            whole = start
        if whole < size:
            os.ftruncate(self._file.fileno(), whole)

    def _start_of_line(self, end: int, block: int = 65536) -> int:
        """Where the line that ends before `end` begins."""
        before = end - 1  # its own line feed does not count
        while before > 0:
            start = max(0, before - block)
            self._file.seek(start)
            found = self._file.read(before - start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            before = start
        return 0

    def _claim(self, header: Line) -> None:
        self._file.seek(0)
        first = self._file.read(65536).split(b"\n", 1)[0]
        if not first:
            self._file.write(json.dumps(header).encode() + b"\n")
            os.fsync(self._file.fileno())
            sync_folder(self.path.parent)  # the log is new: its name has to outlive a power cut too
            return
        there = json.loads(first)
        for name, wanted in header.items():
            if there.get(name) != wanted:
                what = f"{name.replace('_', ' ')}, {_short(there.get(name))}, not {_short(wanted)}"
                hint = f"choose another --out, or delete {self.path} to begin anew"
                raise FundoscopeError(f"{self.path} belongs to a screening with another {what}", hint)


class LogReader:
    """Lines by their offsets; read and not mapped, so that the log does not count as our memory."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb", buffering=0)

    def __enter__(self) -> "LogReader":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def at(self, offset: int) -> Line:
        block = LINE_BYTES
        while (end := (read := os.pread(self._file.fileno(), block, offset)).find(b"\n")) < 0:
            if len(read) < block:
                raise FundoscopeError(f"{self._file.name} was cut short meanwhile", "give the same command again")
            block *= 4  # a long path
        line: Line = json.loads(read[:end])
        return line


def _is_whole(line: bytes) -> bool:
    try:
        return line.endswith(b"\n") and isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _short(value: object) -> str:
    text = str(value)
    return f"{text[:12]}…" if len(text) == 64 else text  # a digest
