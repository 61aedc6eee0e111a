"""Two studies of the workload `invoke`, written through the real log: their latencies are made up, and known.

`memory`: three sizes of serverless memory, cold and warm; VGG19 does not fit into 1024 MB, and the INT8 MobileNet, the
quickest of all, failed its guard. `instances`: two machines, in real time.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fundoscope.experiment.design import Trial, open_design
from fundoscope.experiment.outcome import Failed, Measured, Outcome, OutcomeLog, Ran

MEMORY = """
name = "memory"
workload = "invoke"
repetitions = 3
response = "latency_s"
[factors]
schedule = ["cold", "warm"]
artefact = ["mobilenet", "mobilenet-int8", "vgg19"]
memory_mb = [1024, 2048, 3072]
[settings]
every_s = 0.2
"""
INSTANCES = """
name = "instances"
workload = "invoke"
repetitions = 3
response = "latency_s"
[factors]
artefact = ["mobilenet", "vgg19"]
instance = ["ml.c5.large", "ml.c7g.xlarge"]
[settings]
schedule = "real-time"
"""
REFUSED = "sensitivity 0.031 lower than float32, margin 0.02"
WARM_S = {"mobilenet": 0.12, "mobilenet-int8": 0.08, "vgg19": 1.0}
COLD_S = {"mobilenet": 1.3, "mobilenet-int8": 1.2, "vgg19": 4.5}
SPEED = {1024: 0.6, 2048: 1.15, 3072: 1.6, "ml.c5.large": 1.8, "ml.c7g.xlarge": 2.4}
MACHINE = {"processor": "EPYC", "processors": 2, "quota": None, "memory_gb": 20.0, "gpus": [], "kernel": "6.1"}
REQUESTS = {"cold": 10, "warm": 25, "real-time": 25}


def readings(trial: Trial, schedule: str) -> dict[str, Any]:
    """Per the contract of the workload: one entry of a list for each counted request."""
    levels = trial.cell.levels
    artefact, n = str(levels["artefact"]), REQUESTS[schedule]
    speed = SPEED[levels.get("memory_mb") or levels["instance"]]  # type: ignore[index]
    draw = np.random.default_rng([trial.cell.number, trial.repetition])
    typical = (COLD_S if schedule == "cold" else WARM_S)[artefact] / speed
    worked = typical * draw.lognormal(0, 0.03) * draw.lognormal(0, 0.06, n)
    return {
        "latencies_s": (worked + 0.004).tolist(),
        "processings_s": worked.tolist(),
        "predicts_s": (0.8 * worked).tolist(),
        "latency_s": float(np.median(worked)) + 0.004,
        "requests": n,
        "throttled": 0,
        "errors": 0,
        "photograph_bytes": 300_000,
        "answer_bytes": 700,
        "cpus": 1.0,
        "artefact_digest": artefact[:1].encode().hex() * 32,
        "artefact_refused": REFUSED if artefact == "mobilenet-int8" else "",
    }


def outcome_of(trial: Trial, schedule: str) -> Outcome:
    levels, ran = trial.cell.levels, Ran("2026-11-15T12:00:00+00:00", 60.0, "machine-digest")
    if levels["artefact"] == "vgg19" and levels.get("memory_mb") == 1024:
        return Failed(trial, ran, "out of memory", "the server was ended for want of memory at 1024 MB", "Killed")
    return Measured(trial, ran, readings(trial, schedule))


def write_study(
    folder: Path, text: str, of: Callable[[Trial, str], Outcome] = outcome_of, *, keep: Callable[[Trial], bool] = bool
) -> Path:
    """All trials of a design for which `keep` holds, in the order they are run."""
    (folder / "machines").mkdir(parents=True)
    (folder / "machines" / "machine-digest.json").write_text(json.dumps(MACHINE))
    (folder / "design.toml").write_text(text)
    design = open_design(folder / "design.toml")
    with OutcomeLog(folder / "outcomes.jsonl", design) as log:
        for trial in design.trials:
            if keep(trial):
                log.append(of(trial, str({**design.settings, **trial.cell.levels}["schedule"])))
    return folder


def both_studies(folder: Path) -> tuple[Path, Path]:
    return write_study(folder / "memory", MEMORY), write_study(folder / "instances", INSTANCES)
