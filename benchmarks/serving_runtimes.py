"""The runtimes without a server: does OpenVINO earn its place beside ONNX Runtime, and how much is there to be had?

A network's floating-point operations over the time of its prediction, beside what the same processors reach in one
large multiplication of matrices: where the two are close, no runtime can make float32 much faster.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from serving_figures import Figure, ratio_of_medians
from serving_models import Model
from serving_peers import HERE, environment_of
from serving_photos import Photos

from fundoscope.artefact.artefact import Artefact
from fundoscope.artefact.files import MODEL_PATHS
from fundoscope.data.photo import prepare
from fundoscope.quota import cores

# Of one photograph of 224 pixels, two for a multiplication and its addition: Howard et al. (2017), table 8, has 569
# million pairs; He et al. (2016), table 1's text, 19.6 billion.
GFLOP = {"MobileNet": 1.138, "VGG19": 39.2}
MATRIX, TRIALS = 2048, 15  # a side; of which the fastest counts


def runtimes(
    model: Model, photos: Photos, cache: Path, *, repetitions: int, n: int, quick: bool
) -> tuple[list[Figure], dict[str, Any]]:
    """Each in a fresh process, in random order; ONNX Runtime's latency is the measure of the others'."""
    preparation = Artefact.open(model.onnx, verify=False).input.preparation
    pixels = np.stack([prepare(photo, preparation).pixels for photo in photos.small])
    onnx, savedmodel = model.onnx / MODEL_PATHS["onnx"], model.savedmodel / MODEL_PATHS["savedmodel"]
    ways: dict[str, tuple[Path | str, str, Path]] = {
        "ONNX Runtime": (sys.executable, "onnxruntime", onnx),
        "TensorFlow signature": (sys.executable, "tensorflow", savedmodel),
    }
    if model.int8 is not None:
        ways["ONNX Runtime INT8"] = (sys.executable, "onnxruntime", model.int8 / MODEL_PATHS["onnx"])
    if not quick or (cache / "environments" / "openvino" / "installed.json").is_file():
        try:
            python = environment_of("openvino", cache)
        except subprocess.CalledProcessError:
            print("openvino cannot be installed here: not measured", file=sys.stderr)
        else:
            ways["OpenVINO"] = (python, "openvino", onnx)
            if model.int8 is not None:
                ways["OpenVINO INT8"] = (python, "openvino", model.int8 / MODEL_PATHS["onnx"])
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in ways}
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder, "pixels.npy")
        np.save(saved, pixels)
        shuffled = random.Random(4)
        for _ in range(repetitions):
            for name in shuffled.sample(list(ways), len(ways)):
                found[name].append(_run(*ways[name], saved, n))
    return [*_figures(model, found), _of_the_peak(model, found)], found


def _of_the_peak(model: Model, found: dict[str, list[dict[str, Any]]]) -> Figure:
    """The share of the machine's float32 arithmetic that a prediction reaches."""
    peak = matrix_gflops()
    reached = GFLOP[model.name] / min(one["p50_ms"] for one in found["ONNX Runtime"]) * 1000
    note = f"{reached:.0f} GFLOP/s / {peak:.0f} GFLOP/s of a product of matrices of {MATRIX} a side, {cores()} threads"
    return Figure(f"ONNX Runtime of the machine's float32 arithmetic, {model.name}", reached / peak, note=note)


def matrix_gflops() -> float:
    """10⁹ operations a second in NumPy's product of two square matrices of float32, at the fastest."""
    left, right = np.random.default_rng(5).random((2, MATRIX, MATRIX), np.float32)
    fastest = np.inf
    for _ in range(TRIALS):
        start = time.perf_counter()
        left @ right
        fastest = min(fastest, time.perf_counter() - start)
    return float(2 * MATRIX**3 / fastest / 1e9)


def _run(python: Path | str, runtime: str, model: Path, pixels: Path, n: int) -> dict[str, Any]:
    script = HERE / "serving_handlers" / "runtime.py"
    environment = os.environ | {"PYTHONPATH": str(HERE.parent / "src"), "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [str(python), str(script), runtime, str(model), str(pixels), str(cores()), str(n)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _figures(model: Model, found: dict[str, list[dict[str, Any]]]) -> list[Figure]:
    figures = []
    base = found["ONNX Runtime"]
    for name, runs in found.items():
        if name == "ONNX Runtime":
            continue
        value, interval = ratio_of_medians([one["p50_ms"] for one in runs], [one["p50_ms"] for one in base])
        ms = [float(np.median([one["p50_ms"] for one in some])) for some in (runs, base)]
        open_s = [float(np.median([one["open_s"] for one in some])) for some in (runs, base)]
        note = f"{ms[0]:.1f} ms / {ms[1]:.1f} ms; until the first answer {open_s[0]:.2f} s / {open_s[1]:.2f} s"
        figures.append(Figure(f"runtime p50, {name} over ONNX Runtime, {model.name}", value, interval, note=note))
    return figures
