"""Our own server with a model that takes a second to open, as large ones do: `slow_to_load.py serve …`."""

import sys
import time
from pathlib import Path

from fundoscope.artefact import runtime
from fundoscope.cli.main import main

original = runtime.OnnxPredictor.__init__


def slowly(self: runtime.OnnxPredictor, model: Path, threads: int) -> None:
    time.sleep(1)
    original(self, model, threads)


runtime.OnnxPredictor.__init__ = slowly  # type: ignore[method-assign]
sys.exit(main(sys.argv[1:]))
