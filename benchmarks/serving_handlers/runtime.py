# mypy: ignore-errors
"""One runtime, one model, a fresh process: seconds until the first answer, then the median prediction.

python runtime.py onnxruntime|tensorflow|openvino MODEL PIXELS.npy THREADS N
"""

import json
import sys
import time

BEGAN = time.perf_counter()


def open_onnxruntime(model, threads):
    from pathlib import Path

    from fundoscope.artefact.runtime import OnnxPredictor

    return OnnxPredictor(Path(model), threads).probabilities


def open_tensorflow(model, threads):
    from pathlib import Path

    from fundoscope.artefact.runtime import SavedModelPredictor

    return SavedModelPredictor(Path(model), threads).probabilities


def open_openvino(model, threads):
    import openvino

    settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1}
    compiled = openvino.Core().compile_model(model, "CPU", settings)
    return lambda pixels: compiled([pixels])[0]


def main(runtime, model, pixels_file, threads, n):
    import numpy as np

    pixels = np.load(pixels_file)
    predict = {"onnxruntime": open_onnxruntime, "tensorflow": open_tensorflow, "openvino": open_openvino}[runtime](
        model, int(threads)
    )
    answer = predict(pixels[:1])
    opened_s = time.perf_counter() - BEGAN
    times = []
    for i in range(int(n)):
        start = time.perf_counter()
        predict(pixels[i % len(pixels)][None])
        times.append((time.perf_counter() - start) * 1000)
    print(json.dumps({"open_s": opened_s, "p50_ms": sorted(times)[len(times) // 2], "first": answer[0].tolist()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
