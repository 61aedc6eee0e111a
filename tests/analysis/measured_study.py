"""A small study whose numbers are known, written through the real log."""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from fundoscope.experiment.design import Design, Pricing, Trial
from fundoscope.experiment.outcome import Failed, Measured, Outcome, OutcomeLog, Ran

STARTED = "2026-11-15T12:00:00+00:00"
CPU = {"processor": "EPYC", "processors": 2, "quota": None, "memory_gb": 20.0, "gpus": [], "kernel": "6.1"}
GPU = CPU | {"processors": 10, "gpus": [{"name": "H200", "memory_mb": 1000.0, "driver": "570"}]}
MACHINES: Mapping[str, Mapping[str, Any]] = {"cpu-digest": CPU, "gpu-digest": GPU}
PRICES = Pricing("moura-filho-souza-2024", factor="device", machines={"cpu": "F4s_v2", "gpu": "NC4as_T4_v3"})
DESIGN = Design(
    "known",
    "cnn",
    {"device": ("cpu", "gpu"), "framework": ("mxnet", "pytorch", "tensorflow"), "image": (32, 64)},
    repetitions=3,
    response="train_s",
    machine_factor="device",
    prices=PRICES,
)
NOISE = (0.98, 1.0, 1 / 0.98)  # of the three repetitions: a geometric mean of one


def seconds(trial: Trial) -> float:
    """On the CPU 100 s; a twentieth of it on the GPU; thrice for 64×64; 1.5 times PyTorch, 2.5 times TensorFlow."""
    levels = trial.cell.levels
    framework = {"mxnet": 1.0, "pytorch": 1.5, "tensorflow": 2.5}[str(levels["framework"])]
    device = 0.05 if levels["device"] == "gpu" else 1.0
    image = 3.0 if levels["image"] == 64 else 1.0
    # Which repetition is slow differs from cell to cell, so that repetitions are alike as wholes.
    return 100 * device * framework * image * NOISE[(trial.repetition + trial.cell.number) % 3]


def ran(trial: Trial, wall_s: float, flags: tuple[str, ...] = ()) -> Ran:
    return Ran(STARTED, wall_s, f"{trial.cell.levels.get('device', 'cpu')}-digest", flags)


def measured(trial: Trial, **readings: Any) -> Measured:
    train_s = seconds(trial)
    usage = {"samples": 9.0, "cpu_percent_mean": 190.0, "memory_mb_mean": 8000.0}
    if trial.cell.levels["device"] == "gpu":
        usage |= {"gpu_percent_mean": 90.0, "gpu_memory_mb_mean": 210.0, "gpu_memory_mb_max": 300.0}
    said = {"train_s": train_s, "epoch_s": [train_s], "accuracy": 0.9, "versions": {"numpy": "2.4.6"}, "data": "files"}
    return Measured(trial, ran(trial, train_s + 10), said | readings, usage)


def write(folder: Path, design: Design, outcomes: Iterable[Outcome]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "machines").mkdir(exist_ok=True)
    for digest, facts in MACHINES.items():
        (folder / "machines" / f"{digest}.json").write_text(json.dumps(facts))
    with OutcomeLog(folder / "outcomes.jsonl", design) as log:
        for outcome in outcomes:
            log.append(outcome)
    return folder


def study(folder: Path, design: Design = DESIGN, of: Callable[[Trial], Outcome] = measured) -> Path:
    """All trials of a design, in the order they are run."""
    return write(folder, design, (of(trial) for trial in design.trials))


def without_tensorflow_on_gpu(trial: Trial) -> Outcome:
    if trial.cell.levels["device"] == "gpu" and trial.cell.levels["framework"] == "tensorflow":
        return Failed(trial, ran(trial, 36.0), "unavailable", "tensorflow sees no GPU", "last line")
    return measured(trial)
