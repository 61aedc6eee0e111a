"""The workloads that run in a worker of ours: for each, the dataclass of all that can be varied and set, in a module
whose run() does the work. Apart from workloads.py because workers import it where little else of ours can be."""

from importlib import import_module
from pathlib import Path
from typing import Any

from fundoscope.config import build

JOBS = {
    "cnn": "fundoscope.experiment.cnn:CnnJob",
    "referral": "fundoscope.experiment.referral:ReferralJob",
    "invoke": "fundoscope.experiment.invoke:InvokeJob",
}


def job_class(workload: str) -> type:
    module, _, name = JOBS[workload].partition(":")
    found: type = getattr(import_module(module), name)
    return found


def run_job(workload: str, parameters: dict[str, Any], *, seed: int, data: Path | None) -> dict[str, Any]:
    """Its readings: names with units, numbers or lists of them."""
    cls = job_class(workload)
    job: Any = build(cls, parameters, where="the trial")
    found: dict[str, Any] = import_module(cls.__module__).run(job, seed=seed, data_folder=data)
    return found
