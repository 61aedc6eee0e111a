"""The workload `invoke`: real servers under real limits."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fundoscope.artefact.export import Exported
from fundoscope.errors import FundoscopeError
from fundoscope.experiment.design import Design
from fundoscope.experiment.invoke import InvokeJob, run
from fundoscope.experiment.limits import Limits, limited
from fundoscope.experiment.workloads import check_workload


@pytest.fixture(scope="module")
def artefact(exported: dict[str, Exported]) -> str:
    return str(exported["onnx"].artefact.folder)


@pytest.fixture
def may_limit() -> None:
    try:
        with limited(Limits(64, 1.0)):
            pass
    except FundoscopeError as problem:
        pytest.skip(problem.message)


def worker(parameters: dict[str, Any], folder: Path) -> "subprocess.CompletedProcess[str]":
    task = {"workload": "invoke", "parameters": parameters, "seed": 3, "data": ""}
    (folder / "task.json").write_text(json.dumps(task))
    command = [sys.executable, "-m", "fundoscope.experiment.worker", folder / "task.json", folder / "readings.json"]
    return subprocess.run(command, capture_output=True, text=True)


def test_a_warm_server_answers_as_often_as_asked(artefact: str) -> None:
    found = run(InvokeJob(artefact, requests=5, every_s=0.01), seed=1, data_folder=None)
    assert found["requests"] == len(found["latencies_s"]) == 5
    assert 0 < found["predict_s"] < found["latency_s"] < 5
    assert 0 < found["imported_s"] < found["ready_s"]
    assert "peak_mb" not in found  # no limits, no group


@pytest.mark.usefixtures("may_limit")
def test_a_cold_request_is_counted_from_the_start_of_its_container(artefact: str, tmp_path: Path) -> None:
    done = worker({"artefact": artefact, "schedule": "cold", "requests": 2, "memory_mb": 1024}, tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "readings.json").read_text())
    assert found["requests"] == 2
    assert found["latency_s"] > found["ready_s"] > found["imported_s"] > 0
    assert found["cpus"] == pytest.approx(1024 / 1769)
    assert 20 < found["peak_mb"] <= 1024


@pytest.mark.usefixtures("may_limit")
def test_too_little_memory_is_out_of_memory_as_it_would_be_there(artefact: str, tmp_path: Path) -> None:
    done = worker({"artefact": artefact, "memory_mb": 24, "mb_per_cpu": 24.0, "requests": 1}, tmp_path)
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1] == "MemoryError: the server was ended for want of memory at 24 MB"


def test_what_is_no_artefact_or_no_job_is_said(tmp_path: Path) -> None:
    with pytest.raises(FundoscopeError, match="nowhere is not an artefact"):
        run(InvokeJob("nowhere"), seed=0, data_folder=tmp_path)
    design = Design("x", "invoke", {"memory_mb": (1024, -1)}, 1, settings={"artefact": "x"})
    with pytest.raises(FundoscopeError, match="cannot be below 0"):
        check_workload(design, "x.toml")
