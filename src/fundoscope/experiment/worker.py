"""The process of one trial: read its task, run its workload, write its readings.

    python -m fundoscope.experiment.worker TASK READINGS

Readings go into a file because frameworks print on standard output. Runs in the framework's own environment, where
nothing of ours but this package can be imported: the standard library and NumPy only, until the workload says more.
"""

import json
import sys
from pathlib import Path

from fundoscope.errors import FundoscopeError
from fundoscope.experiment.jobs import run_job
from fundoscope.experiment.unavailable import Unavailable


def main(task: Path, readings: Path) -> int:
    about = json.loads(task.read_text(encoding="utf-8"))
    try:
        data = Path(about["data"]) if about["data"] else None
        found = run_job(about["workload"], about["parameters"], seed=about["seed"], data=data)
    except Unavailable as reason:
        found = {"unavailable": str(reason)}
    except FundoscopeError as problem:
        print(f"{problem.message}: {problem.hint}", file=sys.stderr)  # noqa: T201  # its last words
        return 1
    part = readings.with_suffix(".part")
    part.write_text(json.dumps(found, allow_nan=False), encoding="utf-8")
    part.replace(readings)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
