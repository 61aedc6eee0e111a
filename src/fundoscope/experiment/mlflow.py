"""Every trial of a study as a run in MLflow, for those who keep their experiments there.

    experiment   the study's name; its description is the study file
    run          a trial: its last outcome; a failure is a run that failed, its reason among the tags
    parameters   levels and settings
    metrics      readings, what was seen from outside, wall_s; lists, such as epochs, by step; samples as system metrics

Exporting again adds what is new and replaces what was tried again.
"""

import json
import logging
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

from fundoscope.errors import FundoscopeError
from fundoscope.experiment.outcome import Failed, Measured, Outcome, read_outcomes
from fundoscope.experiment.study import Study
from fundoscope.progress import Track, quiet
from fundoscope.provenance import sha256_of, versions

# What MLflow accepts in one call, in one value and in one tag of an experiment.
BATCH, LONGEST_PARAMETER, LONGEST_TAG, LONGEST_NOTE = 1000, 6000, 8000, 5000
MOST_SAMPLES = 50  # of a series; all of them are in the study's folder
MB = 2**20 / 1e6  # ours are of 2^20 bytes, MLflow's of 10^6
SYSTEM = {  # our columns -> MLflow's names, and how many of theirs one of ours is
    "cpu_percent": ("system/cpu_utilization_percentage", 1.0),  # ours are of one processor: see _system
    "memory_mb": ("system/system_memory_usage_megabytes", MB),
    "gpu_percent": ("system/gpu_0_utilization_percentage", 1.0),
    "gpu_memory_mb": ("system/gpu_0_memory_usage_megabytes", MB),
    "gpu_watts": ("system/gpu_0_power_usage_watts", 1.0),
}


def export(study: Study, tracking: str, *, track: Track = quiet) -> int:
    """How many runs were written; those that are there already are not counted."""
    client_of, refusals = _import_mlflow()
    try:
        exporter = _Exporter(client_of(tracking), study)
        return sum(exporter.write(outcome) for outcome in track(exporter.new, total=len(exporter.new), label="runs"))
    except refusals as problem:
        what = str(problem).strip().partition("\n")[0]
        hint = "give --tracking as sqlite:///FILE.db, or the address of a server that runs, as http://HOST:5000"
        raise FundoscopeError(f"MLflow at {tracking} cannot be written to: {what}", hint) from None


def _import_mlflow() -> tuple[Any, tuple[type[Exception], ...]]:
    """Its client, and what it raises where it cannot do as asked."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # seven take minutes to say that nobody is there
    try:
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient
        from sqlalchemy.exc import SQLAlchemyError
    except ImportError:
        raise FundoscopeError("MLflow is not installed here", "pip install 'fundoscope[mlflow]'") from None
    for talkative in ("alembic", "mlflow"):
        logging.getLogger(talkative).setLevel(logging.WARNING)
    return MlflowClient, (MlflowException, SQLAlchemyError, OSError)


@dataclass(frozen=True)
class _Point:
    name: str
    value: float
    at_ms: int
    step: int = 0


class _Exporter:
    def __init__(self, client: Any, study: Study) -> None:
        self._client, self._study = client, study
        self._machines = study.machines()
        outcomes = {outcome.trial.id: outcome for outcome in read_outcomes(study.log)}  # the last of each
        self._identity = _identity(study)
        self._experiment = self._find_experiment() if outcomes else ""
        self._there = dict(self._runs()) if outcomes else {}
        self.new = [outcome for outcome in outcomes.values() if self._is_new(outcome)]

    def write(self, outcome: Outcome) -> bool:
        """A run that is not whole is replaced when exporting again, since it still counts as running."""
        client, key = self._client, self._key(outcome)
        for run_id, _ in self._there.get(key, []):
            client.delete_run(run_id)
        started = _ms(outcome.ran.started)
        ended = started + round(1000 * outcome.ran.wall_s)
        run = client.create_run(self._experiment, started, self._tags(outcome), outcome.trial.id)
        self._log(run.info.run_id, _parameters(outcome, self._study), list(self._points(outcome, started, ended)))
        status = "FINISHED" if isinstance(outcome, Measured) else "FAILED"
        client.set_terminated(run.info.run_id, status, ended)
        return True

    def _find_experiment(self) -> str:
        design, client = self._study.design, self._client
        found = client.get_experiment_by_name(design.name)
        if found is not None and found.lifecycle_stage == "deleted":
            hint = f"restore it: mlflow experiments restore --experiment-id {found.experiment_id}"
            raise FundoscopeError(f"the experiment '{design.name}' was deleted in MLflow", hint)
        text = (self._study.folder / "design.toml").read_text(encoding="utf-8")
        tags = {"fundoscope.design": design.digest, "mlflow.note.content": f"```toml\n{text[: LONGEST_NOTE - 20]}\n```"}
        if found is None:
            return str(client.create_experiment(design.name, tags=tags))
        for name, value in tags.items():
            client.set_experiment_tag(found.experiment_id, name, value)
        return str(found.experiment_id)

    def _runs(self) -> Iterator[tuple[str, list[tuple[str, str]]]]:
        """Of this study, by trial: their ids, and of which outcome they are; none while one is being written."""
        found: dict[str, list[tuple[str, str]]] = {}
        token, wanted = None, f"tags.`fundoscope.study` = '{self._identity}'"
        while True:
            page = self._client.search_runs([self._experiment], wanted, max_results=1000, page_token=token)
            for run in page:
                whole = run.info.status in ("FINISHED", "FAILED")
                of = run.data.tags.get("fundoscope.outcome", "") if whole else ""
                found.setdefault(run.data.tags.get("fundoscope.trial", ""), []).append((run.info.run_id, of))
            token = page.token
            if not token:
                return iter(found.items())

    def _is_new(self, outcome: Outcome) -> bool:
        return [of for _, of in self._there.get(self._key(outcome), [])] != [_digest(outcome)]

    def _key(self, outcome: Outcome) -> str:
        return f"{self._identity}/{outcome.trial.id}"

    def _tags(self, outcome: Outcome) -> dict[str, str]:
        ran = outcome.ran
        found = {
            "fundoscope.study": self._identity,
            "fundoscope.trial": self._key(outcome),
            "fundoscope.outcome": _digest(outcome),
            "fundoscope.design": self._study.design.digest,
            "fundoscope.version": versions()["fundoscope"],
            "cell": outcome.trial.cell.name,
            "repetition": str(outcome.trial.repetition),
            "machine": ran.machine,
            "processor": str(self._machines.get(ran.machine, {}).get("processor", "")),
            "flags": ", ".join(ran.flags),
        }
        if isinstance(outcome, Failed):
            found |= {"failure": outcome.kind, "reason": outcome.reason, "last_words": outcome.last_words}
        else:
            found |= {f"said.{_name(n)}": v for n, v in outcome.readings.items() if isinstance(v, str)}
            tables = [(n, v) for n, v in outcome.readings.items() if isinstance(v, Mapping)]
            found |= {f"{_name(n)}.{_name(str(k))}": str(value) for n, v in tables for k, value in v.items()}
        return {name: value[:LONGEST_TAG] for name, value in found.items() if value}

    def _points(self, outcome: Outcome, started: int, ended: int) -> Iterator[_Point]:
        scalars: dict[str, Any] = {"wall_s": outcome.ran.wall_s}
        if isinstance(outcome, Measured):
            scalars = {**outcome.readings, **outcome.usage, **scalars}
        for name, value in scalars.items():
            if _is_number(value):
                yield _Point(_name(name), float(value), ended)
            elif isinstance(value, list) and value and all(map(_is_number, value)):
                yield from (_Point(_name(name), float(v), ended, step) for step, v in enumerate(value, 1))
        yield from self._system(outcome, started)

    def _system(self, outcome: Outcome, started: int) -> Iterator[_Point]:
        rows = self._study.series(outcome.trial.id)
        processors = self._machines.get(outcome.ran.machine, {}).get("processors", 1)
        for step, row in enumerate(rows[:: -(-len(rows) // MOST_SAMPLES) or 1]):
            for column, (name, scale) in SYSTEM.items():
                if column in row:
                    value = row[column] * scale / (processors if column == "cpu_percent" else 1)
                    yield _Point(name, value, started + round(1000 * row["at_s"]), step)

    def _log(self, run_id: str, parameters: dict[str, str], points: list[_Point]) -> None:
        from mlflow.entities import Metric, Param

        metrics = iter([Metric(p.name, p.value, p.at_ms, p.step) for p in points])
        named = iter([Param(name, value) for name, value in parameters.items()])
        while True:
            some, few = list(islice(metrics, BATCH - 100)), list(islice(named, 100))
            if not some and not few:
                return
            self._client.log_batch(run_id, some, few)


def _identity(study: Study) -> str:
    """Of a study that was run: of its design and its first outcome. Its folder may be moved, a design run again."""
    with study.log.open("rb") as log:
        log.readline()
        return sha256_of(study.design.digest.encode() + log.readline())[:16]


def _digest(outcome: Outcome) -> str:
    return sha256_of(repr(outcome).encode())[:16]


def _parameters(outcome: Outcome, study: Study) -> dict[str, str]:
    settings = {name: v if isinstance(v, str) else json.dumps(v) for name, v in study.design.settings.items()}
    levels = {name: v if isinstance(v, str) else json.dumps(v) for name, v in outcome.trial.cell.levels.items()}
    return {_name(name): value[:LONGEST_PARAMETER] for name, value in {**settings, **levels}.items()}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _name(text: str) -> str:
    """In the characters that MLflow allows."""
    return re.sub(r"[^\w./ -]", "_", text, flags=re.ASCII)[:250] or "_"


def _ms(moment: str) -> int:
    return round(1000 * datetime.fromisoformat(moment).timestamp())
