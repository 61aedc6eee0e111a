"""The lean server on a bad day: `odd_server.py orphan|failure|prediction|memory FILE serve …`.

orphan      as process 1 of a container: a process that is not its worker is its child, and ends once FILE exists
failure     its first worker fails before it serves; FILE then exists
prediction  its network fails as long as FILE exists
memory      the container has less memory than this process has already
"""

import ctypes
import os
import sys
import time
from pathlib import Path
from typing import Any

from fundoscope.artefact import runtime
from fundoscope.cli.main import main
from fundoscope.serve import launch, models

SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER: who has lost its parent becomes our child
trouble, file = sys.argv.pop(1), Path(sys.argv.pop(1))

if trouble == "orphan":
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    if (parent := os.fork()) == 0:
        if os.fork() == 0:
            while not file.exists():
                time.sleep(0.01)  # between two looks
        os._exit(0)
    os.waitpid(parent, 0)
elif trouble == "prediction":
    predict = runtime.OnnxPredictor.probabilities

    def probabilities(self: runtime.OnnxPredictor, pixels: Any) -> Any:
        if file.exists():
            raise RuntimeError("by order of a test")
        return predict(self, pixels)

    runtime.OnnxPredictor.probabilities = probabilities  # type: ignore[method-assign]
elif trouble == "memory":
    models.memory_limit_bytes = lambda: 64 * 2**20
else:
    work = launch.work

    def fail_once(*arguments: Any) -> int:
        if not file.exists():
            file.touch()
            raise RuntimeError("by order of a test")
        return work(*arguments)

    launch.work = fail_once
sys.exit(main(sys.argv[1:]))
