"""Studies of the workload `invoke` to what was measured of each place an artefact can be served from.

A place is a size of serverless memory, measured cold and warm, or a machine that stands ready, measured warm or in real
time. Readings of all trials of a place are put together, each trial's kept apart for the bootstrap. What cannot be used
is never dropped in silence: a place that was measured only in part, or whose trials failed, is listed with the reason,
and anything that a reader of the numbers should know becomes a note.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from statistics import median
from typing import Any, TypeAlias

from fundoscope.analysis.options import Latency
from fundoscope.errors import FundoscopeError
from fundoscope.experiment.jobs import job_class
from fundoscope.experiment.outcome import Failed, Measured, Outcome, read_outcomes
from fundoscope.experiment.study import Study
from fundoscope.provenance import sha256_file

UNDER_LOAD = ("poisson", "trace")  # their latencies hold queues already, which the simulation makes itself
REASONS_TOLD = 2
# What a trial is told of where and when to ask; the rest of what it is told makes what answers another.
WHERE = ("memory_mb", "instance")
WHEN = ("schedule", "requests", "every_s", "rate_per_s", "trace", "faster", "photograph", "cloudwatch_s", "unsafe")
_Served: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(frozen=True, order=True)
class Place:
    """`memory_mb` of serverless memory, or an instance."""

    artefact: str
    memory_mb: int = 0
    instance: str = ""

    @property
    def name(self) -> str:
        return f"{self.artefact}: {self.where}"

    @property
    def where(self) -> str:
        return self.instance or (f"serverless {self.memory_mb} MB" if self.memory_mb else "a machine without a name")


@dataclass(frozen=True)
class Cannot:
    """A way to serve that cannot be had, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Source:
    """A study that the advice rests on."""

    name: str
    folder: str
    outcomes_sha256: str
    design_digest: str
    measured: int
    failed: int
    machines: int


@dataclass(frozen=True)
class MeasuredWays:
    places: Mapping[Place, Latency]
    refused: Mapping[str, str]  # by artefact: why its guard failed; empty: it did not
    told: Mapping[str, Mapping[str, Any]]  # by artefact: what its trials were told, such as its folder and its stack
    cannot: tuple[Cannot, ...]
    notes: tuple[str, ...]
    sources: tuple[Source, ...]


@dataclass(frozen=True)
class _Row:
    """One trial, and what it was of."""

    place: Place
    told: Mapping[str, Any]
    outcome: Outcome

    @property
    def schedule(self) -> str:
        return str(self.told["schedule"])

    @property
    def readings(self) -> Mapping[str, Any]:
        return self.outcome.readings if isinstance(self.outcome, Measured) else {}

    @property
    def is_cold(self) -> bool:
        return self.schedule == "cold"


def read_measured(studies: Sequence[Study], *, machine: str = "", network_s: float = 0.0) -> MeasuredWays:
    """`machine`: what servers are taken for that were measured without limits and under no instance's name.

    `network_s` is added to every latency and to no bill.
    """
    outcomes = {study.folder: _latest(study) for study in studies}
    rows = _rows(studies, outcomes, machine)
    if not any(isinstance(row.outcome, Measured) for row in rows):
        names = ", ".join(study.design.name for study in studies)
        raise FundoscopeError(f"nothing was measured in {names}", "run it first: fundoscope study run STUDY.toml")
    used = [row for row in rows if row.schedule not in UNDER_LOAD]
    places: dict[Place, Latency] = {}
    cannot: list[Cannot] = []
    for place in sorted({row.place for row in used}):
        here = [row for row in used if row.place == place]
        if lacks := _lacks(place, here):
            cannot.append(Cannot(place.name, lacks))
        else:
            places[place] = _latency(here, network_s)
    refused = {row.place.artefact: "" for row in rows}
    refused |= {row.place.artefact: str(why) for row in rows if (why := row.readings.get("artefact_refused"))}
    sources = tuple(_source(study, outcomes[study.folder]) for study in studies)
    told = {row.place.artefact: row.told for row in rows}
    return MeasuredWays(places, refused, told, tuple(cannot), tuple(_notes(rows, used, places)), sources)


def _latest(study: Study) -> list[Outcome]:
    """Of a trial that was repeated, the last."""
    if study.design.workload != "invoke":
        problem = f"{study.folder} is a study of the workload '{study.design.workload}'"
        raise FundoscopeError(problem, "give one of the workload 'invoke', such as designs/serverless-memory.toml")
    return list({outcome.trial.id: outcome for outcome in read_outcomes(study.log)}.values())


def _rows(studies: Sequence[Study], outcomes: Mapping[Any, Sequence[Outcome]], machine: str) -> list[_Row]:
    found: list[tuple[_Served, dict[str, Any], Outcome]] = []
    for study in studies:
        known = [(_parameters(study, outcome), outcome) for outcome in outcomes[study.folder]]
        digests = {
            _served(parameters): str(outcome.readings["artefact_digest"])
            for parameters, outcome in known
            if isinstance(outcome, Measured) and outcome.readings.get("artefact_digest")
        }
        for parameters, outcome in known:
            served = _served(parameters)
            found.append(((*served, ("digest", digests.get(served, "")[:8])), parameters, outcome))
    names = _names([served for served, _, _ in found])
    return [
        _Row(_place(names[served], parameters, machine), parameters, outcome) for served, parameters, outcome in found
    ]


def _parameters(study: Study, outcome: Outcome) -> dict[str, Any]:
    """All that the trial was told, and what it was not."""
    untold = {each.name: each.default for each in fields(job_class("invoke")) if each.default is not MISSING}
    return {**untold, **study.design.settings, **outcome.trial.cell.levels}


def _served(parameters: Mapping[str, Any]) -> _Served:
    """What answers, wherever it is asked and whenever: artefact, stack, image, precision and whatever else was set."""
    return tuple((name, str(value)) for name, value in sorted(parameters.items()) if name not in WHERE + WHEN)


def _names(every: Iterable[_Served]) -> dict[_Served, str]:
    """An artefact's name, with whatever tells it from the others of that name; its digest where nothing else does."""
    served = list(dict.fromkeys(every))
    found = {}
    for each in served:
        artefact, told = dict(each)["artefact"], each[:-1]
        others = [dict(other) for other in served if dict(other)["artefact"] == artefact]
        apart = [value for name, value in told if any(other.get(name, "") != value for other in others)]
        if sum(other[:-1] == told for other in served) > 1:
            apart.append(each[-1][1])
        found[each] = f"{artefact} ({', '.join(value or 'any' for value in apart)})" if apart else artefact
    return found


def _place(artefact: str, parameters: Mapping[str, Any], machine: str) -> Place:
    if instance := str(parameters.get("instance") or ""):
        return Place(artefact, instance=instance)
    memory_mb = int(parameters.get("memory_mb") or 0)
    return Place(artefact, memory_mb) if memory_mb else Place(artefact, instance=machine)


def _lacks(place: Place, rows: Sequence[_Row]) -> str:
    """Why nothing can be said of it; empty: enough was measured."""
    if not (place.memory_mb or place.instance):
        return "nothing says which machine it was measured on is billed as: give --machine"
    for cold in (False, True) if place.memory_mb else (False,):
        asked = [row for row in rows if row.is_cold is cold]
        if any(isinstance(row.outcome, Measured) for row in asked):
            continue
        failures = [row.outcome for row in asked if isinstance(row.outcome, Failed)]
        if failures:
            return _reasons(failures)
        what, schedule = ("cold starts", "cold") if cold else ("warm requests", "warm")
        return f"no {what} were measured of it: measure them, with the schedule '{schedule}'"
    return ""


def _reasons(failures: Sequence[Failed]) -> str:
    """out of memory: the server was ended for want of memory at 1024 MB (3 trials)"""
    counts = Counter(f"{failed.kind}: {failed.reason}" for failed in failures)
    told = [f"{reason} ({n} {'trial' if n == 1 else 'trials'})" for reason, n in counts.most_common(REASONS_TOLD)]
    return "; ".join(told)


def _latency(rows: Sequence[_Row], network_s: float) -> Latency:
    parts: dict[bool, tuple[list[float], list[float], list[int]]] = {False: ([], [], []), True: ([], [], [])}
    for row in rows:
        if isinstance(row.outcome, Measured):
            waited = [float(value) for value in row.readings["latencies_s"]]
            billed = [float(value) for value in row.readings.get("processings_s") or waited]
            latencies_s, billed_s, trials = parts[row.is_cold]
            latencies_s += [value + network_s for value in waited]
            billed_s += billed
            trials.append(len(waited))
    (warm_s, warm_billed_s, warm_trials), (cold_s, cold_billed_s, cold_trials) = parts[False], parts[True]
    return Latency(
        tuple(warm_s),
        tuple(cold_s),
        _typical(rows, "photograph_bytes"),
        _typical(rows, "answer_bytes"),
        tuple(warm_billed_s),
        tuple(cold_billed_s),
        tuple(warm_trials),
        tuple(cold_trials),
    )


def _typical(rows: Sequence[_Row], name: str) -> int:
    values = [row.readings[name] for row in rows if row.readings.get(name) is not None]
    return round(median(values)) if values else 0


def _source(study: Study, outcomes: Sequence[Outcome]) -> Source:
    failed = sum(isinstance(outcome, Failed) for outcome in outcomes)
    return Source(
        study.design.name,
        str(study.folder),
        sha256_file(study.log),
        study.design.digest,
        len(outcomes) - failed,
        failed,
        len({outcome.ran.machine for outcome in outcomes}),
    )


def _notes(rows: Sequence[_Row], used: Sequence[_Row], places: Mapping[Place, Latency]) -> Iterable[str]:
    measured = [row for row in used if isinstance(row.outcome, Measured)]
    if len(machines := {row.outcome.ran.machine for row in rows}) > 1:
        yield f"measured on {len(machines)} machines: differences between ways may be differences between machines"
    if under_load := len(rows) - len(used):
        yield f"{_trials(under_load)} under load not used: their latencies hold queues, which are simulated here"
    if busy := sum("busy" in row.outcome.ran.flags for row in measured):
        yield f"{_trials(busy)} of {len(measured)} ran while others used the processors"
    for place in places:
        here = [row for row in used if row.place == place]
        if failures := [row.outcome for row in here if isinstance(row.outcome, Failed)]:
            yield f"{place.name}: {len(failures)} of {_trials(len(here))} failed: {_reasons(failures)}"
        if lost := sum(int(row.readings.get("errors") or 0) for row in here):
            yield f"{place.name}: {lost} requests got an error and have no latency"
        if place.instance and any(row.is_cold for row in here):
            yield f"{place.name}: its cold trials are not used; how long a machine takes to start is assumed"
    if any(not row.readings.get("processings_s") for row in measured):
        yield "what a container worked on a request is not among the readings: billed is as long as the caller waited"
    if any(not row.readings.get("answer_bytes") for row in measured):
        yield "the size of answers is not among the readings: they are billed as empty"
    unjudged = sorted({row.place.artefact for row in measured if "artefact_refused" not in row.readings})
    if unjudged:
        yield f"no reading says whether {', '.join(unjudged)} passed a guard: taken as not refused"


def _trials(n: int) -> str:
    return f"{n} trial" if n == 1 else f"{n} trials"
