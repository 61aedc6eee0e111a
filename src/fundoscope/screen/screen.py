"""Grade every photograph of a folder, a manifest or an archive: `fundoscope screen`.

    gradings.parquet               one row per photograph, whatever became of it (screen/table.py)
    gradings.patients.parquet      one per patient, where patients are known (screen/patients.py)
    gradings.screening.jsonl       the log (screen/log.py); with it the same command grades only what is new

One process per core reads, prepares and predicts, each with a predictor of its own (screen/crew.py). Killed at
any moment, the same command goes on with what is not in the log.
"""

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fundoscope.artefact.artefact import Artefact, OperatingPoint, usable
from fundoscope.errors import FundoscopeError, pick
from fundoscope.progress import Track, quiet
from fundoscope.provenance import command, versions
from fundoscope.quota import cores, memory_limit_bytes
from fundoscope.screen.crew import Done, Lost, grade_chunks
from fundoscope.screen.ledger import Ledger
from fundoscope.screen.listing import Listing, list_photographs
from fundoscope.screen.log import ScreenLog, log_beside
from fundoscope.screen.patients import name_patients, patients_from_names
from fundoscope.screen.results import Conflict, Results, as_counts
from fundoscope.screen.table import PatientRow, Row, check_ending, write_table
from fundoscope.screen.worker import Job, Work

PROCESS_BYTES = 200 * 2**20  # resident, of a worker beside its network (benchmarks/screen.py)
ENDED = "the process that graded it was ended from outside; is there enough memory for it?"


@dataclass(frozen=True)
class Asked:
    """What was to be done, and with what."""

    artefact: Artefact
    operating_point: OperatingPoint
    source: Path
    out: Path
    log: Path
    began: str  # the first run; ISO 8601
    versions: dict[str, str]  # of all the runs it took
    command: str


@dataclass
class Effort:
    """What this run took; earlier ones are not counted."""

    processes: int = 0
    photographs: int = 0  # looked at
    seconds: float = 0.0  # grading, start of the processes included
    peak_bytes: int = 0  # resident, of the largest worker
    aside: list[Job] = field(default_factory=list, repr=False)  # what a worker had in hand when it was ended


@dataclass(frozen=True)
class Screened:
    """What came of it: everything a summary or a report needs, and no more rows than one shows."""

    asked: Asked
    effort: Effort
    counts: dict[str, Any]
    reasons: dict[tuple[str, str], int]  # (status, reason) of what was not graded
    passed_over: dict[str, int]  # files that were not opened, by reason
    rows: tuple[Row, ...]  # the most severe
    not_graded: tuple[Row, ...]
    patients: tuple[PatientRow, ...] | None  # the most severe; None: no patient is known
    conflicts: tuple[Conflict, ...]

    @property
    def patients_out(self) -> Path | None:
        return None if self.patients is None else patients_table(self.asked.out)

    @property
    def speed(self) -> float:
        """Photographs per second of this run."""
        return self.effort.photographs / self.effort.seconds


def screen(
    source: Path,
    artefact_folder: Path,
    out: Path,
    *,
    operating_point: str = "high_sensitivity",
    patients: Path | None = None,
    names_are_patients: bool = False,
    processes: int | None = None,
    unsafe: bool = False,
    trusted_keys: Sequence[Path] = (),
    track: Track = quiet,
) -> Screened:
    """Grade what the log beside `out` lacks, then write the tables."""
    _check_out(out)
    artefact = usable(Artefact.open(artefact_folder), unsafe=unsafe, trusted_keys=trusted_keys)
    points = {point.name: point for point in artefact.operating_points}
    point = pick(points, operating_point, kind="operating point")
    listing = list_photographs(source)
    if patients is not None:
        name_patients(listing, patients)
    if names_are_patients:
        patients_from_names(listing)
    work = Work(listing.root, listing.is_archive, artefact_folder.resolve(), point.name)
    belongs_to = {"artefact": artefact.digest, "operating_point": point.name, "folder": str(source.resolve())}
    with ScreenLog(log_beside(out), belongs_to) as log:
        asked = Asked(artefact, point, source, out, log.path, *_note_run(log), command())
        ledger = Ledger(listing, log)
        effort = _grade(ledger, work, processes or affordable(artefact), track)
        with log.reader() as reader, _writing(out):
            return _write(asked, Results(ledger, reader, artefact.digest), listing, effort)


def affordable(artefact: Artefact) -> int:
    """Processes to use unless somebody says: one per core, as far as the memory goes."""
    each = PROCESS_BYTES + 3 * artefact.size_bytes
    return max(1, min(cores(), int(0.8 * _available_bytes()) // each))


def _available_bytes() -> int:
    limit = memory_limit_bytes() or 2**62
    try:
        free = Path("/proc/meminfo").read_text(encoding="ascii").partition("MemAvailable:")[2].split()[0]
        return min(limit, int(free) * 1024)
    except (OSError, IndexError):  # not Linux
        return limit


def patients_table(out: Path) -> Path:
    return out.with_name(f"{out.stem}.patients{out.suffix}")


def page_beside(out: Path) -> Path:
    return out.with_name(f"{out.stem}.html")


def _check_out(out: Path) -> None:
    """Everything that could keep us from writing the result, before the work."""
    check_ending(out)
    if not out.parent.is_dir():
        raise FundoscopeError(
            f"there is no folder {out.parent} to write {out.name} to", f"make it: mkdir -p {out.parent}"
        )
    if not os.access(out.parent, os.W_OK):
        raise FundoscopeError(f"the folder {out.parent} cannot be written to", "choose another --out")
    for path in (out, patients_table(out), page_beside(out)):
        if path.is_dir():
            raise FundoscopeError(f"{path} is a folder", "choose another --out")
        if path.exists() and not log_beside(out).exists():  # were it a slip, it would destroy somebody's table
            raise FundoscopeError(f"{path} exists and no screening has written it", "choose another --out")


def _note_run(log: ScreenLog) -> tuple[str, dict[str, str]]:
    """Log that a run begins; when the first one did, and the versions of all, with commas between where they differ."""
    log.append([{"run": {"began": datetime.now(UTC).isoformat(timespec="seconds"), "versions": versions()}}])
    runs = [line["run"] for _, line in log.lines() if "run" in line]
    found: dict[str, dict[str, None]] = {}
    for run in runs:
        for name, version in run["versions"].items():
            found.setdefault(name, {})[version] = None
    return runs[0]["began"], {name: ", ".join(used) for name, used in found.items()}


def _grade(ledger: Ledger, work: Work, processes: int, track: Track) -> Effort:
    effort = Effort(processes)
    todo = ledger.todo()
    began = time.perf_counter()
    for _ in track(grade_all(ledger, work, todo, effort), total=len(todo), label="screening"):
        pass
    effort.seconds = time.perf_counter() - began
    return effort


def grade_all(ledger: Ledger, work: Work, todo: list[int], effort: Effort) -> Iterator[int]:
    """A step for every photograph that is in the log."""
    while todo:
        chunks = ledger.chunks(todo, processes=effort.processes)
        for outcome in grade_chunks(work, chunks, ledger.claim, processes=effort.processes):
            if isinstance(outcome, Lost):
                ledger.release(outcome.opened)
                effort.aside += outcome.chunk
                continue
            effort.peak_bytes = max(effort.peak_bytes, outcome.answered.peak_bytes)
            yield from range(_settled(ledger, outcome, effort))
        yield from _try_alone(ledger, work, effort)
        todo = ledger.orphans()


def _settled(ledger: Ledger, outcome: Done, effort: Effort) -> int:
    n = ledger.settle(outcome)
    effort.photographs += n
    return n


def _try_alone(ledger: Ledger, work: Work, effort: Effort) -> Iterator[int]:
    """What a worker was ended with: one at a time, in one process, with all of the memory."""
    aside, effort.aside = effort.aside, []
    chunks = ledger.alone([job.place for job in aside])
    for outcome in grade_chunks(work, chunks, ledger.claim, processes=1, patience=len(aside) + 1):
        if isinstance(outcome, Lost):
            ledger.release(outcome.opened)
            ledger.fail(outcome.chunk[0], outcome.opened, ENDED)
            effort.photographs += 1
            yield 0
        else:
            yield from range(_settled(ledger, outcome, effort))


def _write(asked: Asked, results: Results, listing: Listing, effort: Effort) -> Screened:
    def about() -> Mapping[str, str]:
        return {
            "artefact": asked.artefact.digest,
            "operating_point": json.dumps(asdict(asked.operating_point)),
            "counts": json.dumps(as_counts(results, listing.has_patients)),
            "passed_over": json.dumps(listing.passed_over),
            "versions": json.dumps(asked.versions),
            "command": asked.command,
        }

    write_table(asked.out, Row, results.rows(), about)
    if listing.has_patients:
        write_table(patients_table(asked.out), PatientRow, results.patients(), about)
    return Screened(
        asked,
        effort,
        counts=as_counts(results, listing.has_patients),
        reasons=dict(results.reasons),
        passed_over=dict(listing.passed_over),
        rows=tuple(results.most_severe()),
        not_graded=tuple(results.not_graded()),
        patients=tuple(results.most_severe_patients()) if listing.has_patients else None,
        conflicts=tuple(results.conflicts),
    )


@contextmanager
def _writing(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        hint = "make room and give the same command again: nothing is graded twice"
        raise FundoscopeError(f"{out} cannot be written: {problem.strerror or problem}", hint) from None
