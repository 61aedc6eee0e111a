"""Run every trial of a study, each in a process of its own, and log what came of it.

This process imports no framework: a framework takes its threads and its device when it is first imported, so a process
can measure only one, and a fresh process gives every trial the same start. Ctrl-C loses the trial in progress and
nothing else, and so does kill -9; the same command resumes from the log.
"""

import shutil
from collections.abc import Callable, Iterable, Iterator

from fundoscope.experiment.design import Trial
from fundoscope.experiment.measure import Observation, Task, measure
from fundoscope.experiment.outcome import Failed, FailureKind, Outcome, OutcomeLog, read_outcomes
from fundoscope.experiment.study import Study
from fundoscope.experiment.watched import adopting_orphans, end_marked
from fundoscope.experiment.workloads import Place
from fundoscope.provenance import sha256_of

# How trials are run: tasks in, observations out, in whatever order they end. Here one after the other; on Ray many.
Lab = Callable[[Iterable[Task]], Iterator[Observation]]


def here(tasks: Iterable[Task]) -> Iterator[Observation]:
    with adopting_orphans():
        yield from map(measure, tasks)


def run(
    study: Study, log: OutcomeLog, place: Place, lab: Lab = here, *, retry: frozenset[str] = frozenset()
) -> Iterator[Outcome]:
    """Measure what the log lacks, yielding each outcome once it is safely on disk."""
    clean_up(study)
    study.scratch.mkdir(exist_ok=True)
    for observation in lab(_task(study, trial, place) for trial in missing(study, log, retry)):
        study.keep_machine(observation.machine)
        study.keep_series(observation.outcome.trial.id, observation.series)
        log.append(observation.outcome)
        yield observation.outcome
    clean_up(study)


def missing(study: Study, log: OutcomeLog, retry: frozenset[str] = frozenset()) -> list[Trial]:
    """In the order they are run. A failure is a finding and is not tried again, unless its kind is in `retry`."""
    last: dict[str, FailureKind | None] = {}
    for outcome in read_outcomes(log.path):
        last[outcome.trial.id] = outcome.kind if isinstance(outcome, Failed) else None
    return [t for t in study.design.trials if t.id not in last or last[t.id] in retry]


def clean_up(study: Study) -> None:
    """What a run that was killed left: processes, and half-written files. The log's lock says that none is running."""
    end_marked(f"{study.mark}/")
    shutil.rmtree(study.scratch, ignore_errors=True)


def _task(study: Study, trial: Trial, place: Place) -> Task:
    design = study.design
    # Repetitions differ in their seed, cells of one repetition do not: frameworks are compared on the same start.
    seed = int(sha256_of(f"{design.seed}/{trial.repetition}".encode())[:8], 16)
    return Task(study.mark, trial, design.workload, design.settings, seed, design.timeout_s, design.sample_s, place)
