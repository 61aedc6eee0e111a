"""Processes that grade, and the parent that hands out the work: each photograph's bytes to one of them only.

A worker first says what the bytes it was given are called (sha256); the parent knows which have been graded or are
being graded, and only the others are. So nothing is graded twice, and no file is read twice to find that out.

A worker that is ended from outside, as a rule for want of memory, is replaced. What it had in hand is for the caller to
try again: alone, and in one process, to learn whether the photograph is the reason.
"""

import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from fundoscope.errors import FundoscopeError
from fundoscope.screen.worker import Answered, Job, Opened, Work, work

Chunk = list[Job]
Claim = Callable[[list[Opened]], list[int]]  # which of them, by place, are to be graded


@dataclass(frozen=True)
class Done:
    """What became of a chunk."""

    opened: list[Opened]
    answered: Answered


@dataclass(frozen=True)
class Lost:
    """A chunk whose worker was ended, and as far as it had got."""

    chunk: Chunk
    opened: list[Opened]


@dataclass(eq=False)
class Worker:
    process: BaseProcess
    pipe: Connection
    chunk: Chunk = field(default_factory=list)
    opened: list[Opened] = field(default_factory=list)


def grade_chunks(
    settings: Work, chunks: Iterable[Chunk], claim: Claim, *, processes: int, patience: int = 5
) -> Iterator[Done | Lost]:
    """Every chunk once, in the order in which they finish. `patience`: losses in a row before it is an error."""
    left, crew, losses = iter(chunks), list[Worker](), 0
    try:
        crew += [_hire(settings, chunk) for chunk in islice(left, processes)]
        while crew:
            ready = wait([worker.pipe for worker in crew])
            for worker in [worker for worker in crew if worker.pipe in ready]:
                outcome = _listen(worker, claim)
                if outcome is None:
                    continue  # it has work to do
                losses = losses + 1 if isinstance(outcome, Lost) else 0
                if losses >= patience:
                    hint = "is the memory used up? try with fewer: --processes 1; the same command goes on from here"
                    raise FundoscopeError("worker processes keep being ended from outside", hint)
                _go_on(crew, worker, next(left, None), settings, lost=isinstance(outcome, Lost))
                yield outcome
    finally:
        for worker in crew:
            _dismiss(worker)


def _listen(worker: Worker, claim: Claim) -> Done | Lost | None:
    try:
        message = worker.pipe.recv()
        if isinstance(message, FundoscopeError):
            raise message
        if isinstance(message, Answered):
            return Done(worker.opened, message)
        worker.opened = message
        worker.pipe.send(claim(message))
        return None
    except (EOFError, OSError):
        return Lost(worker.chunk, worker.opened)


def _go_on(crew: list[Worker], worker: Worker, chunk: Chunk | None, settings: Work, *, lost: bool) -> None:
    """Give it the next chunk, or that to another in its place."""
    if chunk is not None and not lost:
        _give(worker, chunk)
        return
    crew.remove(worker)
    _dismiss(worker)
    if chunk is not None:
        crew.append(_hire(settings, chunk))


def _hire(settings: Work, chunk: Chunk) -> Worker:
    # Spawned, not forked: a fork copies the locks of threads that runtimes and progress bars have running.
    spawned = multiprocessing.get_context("spawn")
    ours, its = spawned.Pipe()
    process = spawned.Process(target=work, args=(its, settings), daemon=True)
    process.start()
    its.close()  # or its end would not be the only one, and we would not hear it go
    worker = Worker(process, ours)
    _give(worker, chunk)
    return worker


def _give(worker: Worker, chunk: Chunk) -> None:
    worker.chunk, worker.opened = chunk, []
    with suppress(OSError):  # it is gone already: we hear of that when we listen
        worker.pipe.send(chunk)


def _dismiss(worker: Worker) -> None:
    worker.pipe.close()
    worker.process.kill()  # it holds nothing that is not in the log or would not be done again
    worker.process.join()
    worker.process.close()
