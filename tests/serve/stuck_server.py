"""The lean server with a predictor that gets stuck until it is told to go on: `stuck_server.py FILE serve …`.

A photograph whose middle is green is predicted once FILE exists; all others as usual.
"""

import sys
import time
from pathlib import Path

import numpy as np

from fundoscope.artefact import runtime
from fundoscope.cli.main import main

go_on = Path(sys.argv.pop(1))
original = runtime.OnnxPredictor.probabilities


def probabilities(self: runtime.OnnxPredictor, pixels: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    middle = pixels[:, pixels.shape[1] // 2, pixels.shape[2] // 2].astype(int)
    while (middle[:, 1] > 2 * middle[:, 0] + 40).any() and not go_on.exists():
        time.sleep(0.01)  # between two looks
    return original(self, pixels)


runtime.OnnxPredictor.probabilities = probabilities  # type: ignore[method-assign]
sys.exit(main(sys.argv[1:]))
