"""A process that grades: reads some photographs, asks which of them are new, answers those.

Started by crew.py, one per core, each with a predictor of one thread. Nothing heavy is imported before the
environment is set: numpy's own threads, one pool per process, would fight over the cores.
"""

import os
import signal
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fundoscope.serve.grading import Grader, Grading

Line = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """One photograph to look at."""

    place: int  # in the listing
    name: str
    size: int
    offset: int


@dataclass(frozen=True)
class Work:
    """What a worker needs to know once."""

    root: Path
    is_archive: bool
    artefact: Path
    operating_point: str


@dataclass(frozen=True)
class Opened:
    """What one photograph's bytes are called, or why there are none."""

    place: int
    sha256: str = ""
    problem: str = ""


@dataclass(frozen=True)
class Answered:
    """The lines of a log for the photographs asked for, by place; and the most memory this process has had."""

    lines: dict[int, Line]
    peak_bytes: int


def work(pipe: Connection, work: Work) -> None:
    """Until the parent has nothing more, or is no more: its end of the pipe closes with it, were it by kill -9."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all of us; the parent says what follows
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    from fundoscope.errors import FundoscopeError

    try:
        grader = _open(work)
    except FundoscopeError as problem:
        pipe.send(problem)
        return
    except Exception as problem:  # a runtime that is not installed, a library it needs
        pipe.send(FundoscopeError(f"{work.artefact} cannot be opened: {_named(problem)}", "is its runtime installed?"))
        return
    try:
        while True:
            jobs: list[Job] = pipe.recv()
            photos = {job.place: _read(work, job) for job in jobs}
            pipe.send([opened for opened, _ in photos.values()])
            wanted: list[int] = pipe.recv()
            lines = {place: _answer(grader, photos.pop(place)[1]) for place in wanted}
            pipe.send(Answered(lines, peak_bytes()))
    except (EOFError, OSError):
        return


def _open(work: Work) -> "Grader":
    from fundoscope.artefact.artefact import Artefact
    from fundoscope.artefact.runtime import open_predictor
    from fundoscope.serve.grading import Grader

    artefact = Artefact.open(work.artefact, verify=False)  # the parent has looked at every byte
    return Grader(artefact, open_predictor(artefact, threads=1), operating_point=work.operating_point)


def _read(work: Work, job: Job) -> tuple[Opened, bytes]:
    from fundoscope.data.photo import UnreadablePhoto
    from fundoscope.provenance import sha256_of
    from fundoscope.screen.listing import read_listed

    try:
        photo = read_listed(work.root, job.name, job.size, job.offset, is_archive=work.is_archive)
    except UnreadablePhoto as problem:
        return Opened(job.place, problem=problem.message), b""
    except Exception as problem:  # an archive that was cut short meanwhile, a disk that gave up
        return Opened(job.place, problem=f"the file cannot be read: {_named(problem)}"), b""
    return Opened(job.place, sha256=sha256_of(photo)), photo


def _answer(grader: "Grader", photo: bytes) -> Line:
    """One prediction each: together they are no faster on one core, and their last bits would depend on the company."""
    from fundoscope.data.photo import UnreadablePhoto

    try:
        (grading,) = grader.grade([grader.read(photo)])
    except UnreadablePhoto as problem:
        return {"status": "unreadable", "reason": problem.message}
    except Exception as problem:  # ours or the libraries': one photograph must not stop a million others
        return {"status": "failed", "reason": _named(problem)}
    return _line(grading)


def _line(grading: "Grading") -> Line:
    rated = grading.gradability
    return {
        "status": "graded" if rated.gradable else "ungradable",
        "reason": "; ".join(rated.reasons),
        "grade": grading.grade,
        "probabilities": [float(f"{p:.7g}") for p in grading.probabilities],  # a float32's digits
        "referral_probability": grading.referral_probability,
        "referral": grading.referral,
        "gradability": round(rated.score, 4),
        "decode_ms": round(grading.timings_ms["decode"], 2),
        "predict_ms": round(grading.timings_ms["predict"], 2),
    }


def _named(problem: Exception) -> str:
    """What went wrong, without the photograph's name or contents."""
    first = (str(problem).strip().splitlines() or [""])[0][:200]
    return f"{type(problem).__name__}: {first}" if first else type(problem).__name__


def peak_bytes() -> int:
    """The most resident memory of this process."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024
    except (OSError, IndexError, ValueError):  # not on Linux
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
