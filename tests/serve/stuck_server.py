"""The lean server with a predictor that can be made slow or stuck: `stuck_server.py SECONDS serve …`.

A photograph whose first row is green is predicted in SECONDS; all others as usual.
"""

import sys
import time

import numpy as np

from fundoscope.artefact import runtime
from fundoscope.cli.main import main

slow_s = float(sys.argv.pop(1))
original = runtime.OnnxPredictor.probabilities


def probabilities(self: runtime.OnnxPredictor, pixels: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    middle = pixels[:, pixels.shape[1] // 2, pixels.shape[2] // 2].astype(int)
    if (middle[:, 1] > 2 * middle[:, 0] + 40).any():
        time.sleep(slow_s)
    return original(self, pixels)


runtime.OnnxPredictor.probabilities = probabilities  # type: ignore[method-assign]
sys.exit(main(sys.argv[1:]))
