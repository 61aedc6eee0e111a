"""How fast and how hungry a model is, as it will be served: ONNX Runtime, one photograph at a time.

python -m fundoscope.artefact.measure MODEL THREADS      a fresh process that opens, predicts and says its peak memory
"""

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fundoscope.artefact.runtime import OnnxPredictor, Pixels, Predictor
from fundoscope.errors import FundoscopeError
from fundoscope.progress import Track, quiet

ROUNDS, TIMED, SETTLE_S = 40, 3, 0.02


@dataclass(frozen=True)
class Latency:
    """Milliseconds for one photograph at the median; how many times faster than the first model, 95 % interval."""

    predict_ms: float
    faster: float
    faster_low: float
    faster_high: float


def compare_latency(
    models: Mapping[str, Path],
    photographs: Pixels,
    *,
    threads: int,
    seed: int,
    rounds: int = ROUNDS,
    track: Track = quiet,
) -> dict[str, Latency]:
    """Each model once in every round, in a new random order: what slows the machine down slows them all.

    A model's threads spin for a while after an answer, waiting for the next, and would take a core from the model that
    follows. So each first answers, unwatched, until that has died down.
    """
    predictors: dict[str, Predictor] = {name: OnnxPredictor(path, threads) for name, path in models.items()}
    names, rng = list(models), np.random.default_rng(seed)
    seen = np.empty((rounds, len(names)))
    for round_ in track(range(rounds), total=rounds, label="measuring latency"):
        photograph = photographs[round_ % len(photographs)][np.newaxis]
        for i in rng.permutation(len(names)):
            seen[round_, i] = _visit(predictors[names[i]], np.ascontiguousarray(photograph))
    draws = rng.integers(0, rounds, (2000, rounds))
    medians = np.median(seen[draws], axis=1)  # of resampled rounds: (2000, models)
    whole = np.median(seen, axis=0)
    return {
        name: Latency(
            float(whole[i]) * 1e3,
            float(whole[0] / whole[i]),
            *(float(bound) for bound in np.quantile(medians[:, 0] / medians[:, i], (0.025, 0.975))),
        )
        for i, name in enumerate(names)
    }


def _visit(predictor: Predictor, photograph: NDArray[np.uint8]) -> float:
    """Seconds, the median of a few."""
    settled = time.perf_counter() + SETTLE_S
    predictor.probabilities(photograph)
    while time.perf_counter() < settled:
        predictor.probabilities(photograph)
    took = []
    for _ in range(TIMED):
        began = time.perf_counter()
        predictor.probabilities(photograph)
        took.append(time.perf_counter() - began)
    return float(np.median(took))


def peak_memory(model: Path, *, threads: int) -> int:
    """Bytes, at the most, of a fresh process that opens the model and answers three photographs."""
    worker = subprocess.run(
        [sys.executable, "-m", "fundoscope.artefact.measure", str(model), str(threads)],
        capture_output=True,
        text=True,
        check=False,
    )
    if worker.returncode != 0:
        last = (worker.stderr.strip().splitlines() or [f"status {worker.returncode}"])[-1][:200]
        raise FundoscopeError(f"{model} cannot be opened in a process of its own: {last}", "is there memory for it?")
    return int(json.loads(worker.stdout)["peak_bytes"])


def _own_peak() -> int:
    status = Path("/proc/self/status")
    if status.is_file():  # getrusage would do, but on Linux it also remembers the process that started this one
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def main(model: str, threads: str) -> None:
    predictor = OnnxPredictor(Path(model), int(threads))
    for _ in range(3):
        predictor.warm_up()
    sys.stdout.write(json.dumps({"peak_bytes": _own_peak()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
