"""How many candidates the same photographs have judged: a ledger beside them, only ever appended to.

    records/attempts.jsonl   {"judges": …, "model": …, "candidate": …, "margin": 0.02, "seed": 0, "attempts": 3, …}

The guard lets a candidate that is worse by the margin pass at most once in forty times. That holds for one candidate:
whoever tries one after the other on the same photographs, until one passes, has more than one chance in forty. So the
candidates are counted, per network and per set of judging photographs, and the artefact says how many there were. The
verdict is not made stricter. Bonferroni's level, 2.5 % divided by the number, would judge the same candidate otherwise
by what was tried before it, and would still promise nothing about the attempts to come. The number, and the bound that
follows from it (artefact/guard.py), let the reader decide.

The same candidate judged again by the same margin and seed is no new attempt: nothing about it is new. Photographs that
were added or taken away make other judges; overlap is not seen.
"""

import fcntl
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from fundoscope.errors import FundoscopeError
from fundoscope.provenance import sync_folder

LEDGER = "attempts.jsonl"


@dataclass(frozen=True)
class Attempt:
    """What was judged, by whom and how. Equal ones are one."""

    judges: str  # digest of the photographs' ids
    model: str  # sha256 of the trained network that all candidates come from
    candidate: str  # sha256 of the candidate's file
    margin: float
    seed: int


def count_attempts(folder: Path, attempts: Mapping[str, Attempt]) -> dict[str, int]:
    """Enter candidates of one network, by method, that were judged together; for each, how many there were by then.

    What is in the ledger already keeps the number it was given. Once this returns, all are on disk, whatever becomes of
    their artefacts.
    """
    path = folder / LEDGER
    try:
        with path.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # until it is closed
            numbers = _enter(file, path, attempts)
            file.flush()
            os.fsync(file.fileno())
        sync_folder(folder)
    except OSError as problem:
        hint = "make the records' folder writable: whoever judges has to remember whom"
        raise FundoscopeError(f"{path} cannot be written: {problem.strerror}", hint) from None
    return numbers


def _enter(file: IO[bytes], path: Path, attempts: Mapping[str, Attempt]) -> dict[str, int]:
    file.seek(0)
    content = file.read()
    whole = content[: content.rfind(b"\n") + 1]
    file.truncate(len(whole))  # a line that a power cut left unfinished: no artefact was made of it
    numbers = _numbers(whole, path)
    for method, attempt in attempts.items():
        rivals = {other for other in (*numbers, *attempts.values()) if _same_judges(other, attempt)}
        if attempt not in numbers:
            line = {**asdict(attempt), "method": method, "attempts": len(rivals)}
            file.write(json.dumps(line).encode() + b"\n")
            numbers[attempt] = len(rivals)
    return {method: numbers[attempt] for method, attempt in attempts.items()}


def _same_judges(one: Attempt, other: Attempt) -> bool:
    return (one.judges, one.model) == (other.judges, other.model)


def _numbers(content: bytes, path: Path) -> dict[Attempt, int]:
    numbers: dict[Attempt, int] = {}
    for number, line in enumerate(content.splitlines(), 1):
        try:
            table = json.loads(line)
            attempt = Attempt(*(table[name] for name in Attempt.__dataclass_fields__))
            numbers.setdefault(attempt, int(table["attempts"]))
        except (ValueError, TypeError, KeyError):
            hint = "restore it: without it nobody knows how many candidates these photographs have judged"
            raise FundoscopeError(f"line {number} of {path} is not an attempt", hint) from None
    return numbers
