"""The workload `invoke`: real servers under real limits."""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fundoscope.artefact.artefact import Artefact
from fundoscope.artefact.export import Exported
from fundoscope.errors import FundoscopeError
from fundoscope.experiment import endpoints
from fundoscope.experiment.design import Design, open_design
from fundoscope.experiment.invoke import InvokeJob, _artefact, run, vcpus
from fundoscope.experiment.limits import Limits, limited
from fundoscope.experiment.replies import Reply, proven_cold
from fundoscope.experiment.unavailable import Unavailable
from fundoscope.experiment.workloads import check_workload

DESIGNS = Path(__file__).resolve().parents[2] / "designs"


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
    assert found["requests"] == len(found["latencies_s"]) == len(found["processings_s"]) == 5
    assert (found["throttled"], found["errors"], found["not_cold"], found["artefact_refused"]) == (0, 0, 0, "")
    assert 0 < found["predict_s"] < found["processing_s"] < 5
    assert found["latency_s"] > found["predict_s"]
    assert min(found[f"{phase}_s"] for phase in ("boot", "import", "load", "first_prediction")) > 0
    assert "peak_mb" not in found  # no limits, no group
    assert found["artefact_digest"] == Artefact.open(Path(artefact)).digest


def test_the_call_of_the_cloud_is_answered_here(artefact: str) -> None:
    pytest.importorskip("boto3")
    found = run(InvokeJob(artefact, requests=3, every_s=0.0, client="boto3"), seed=1, data_folder=None)
    assert (found["requests"], found["errors"]) == (3, 0)
    assert found["artefact_digest"] == Artefact.open(Path(artefact)).digest


@pytest.mark.usefixtures("may_limit")
def test_a_cold_request_is_counted_from_the_start_of_its_container(artefact: str, tmp_path: Path) -> None:
    done = worker({"artefact": artefact, "schedule": "cold", "requests": 2, "memory_mb": 1024}, tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "readings.json").read_text())
    assert (found["requests"], found["not_cold"]) == (2, 0)
    assert found["latency_s"] > found["boot_s"] + found["import_s"] + found["load_s"] > 0
    assert found["processings_s"] == found["latencies_s"]  # a start is billed, for all that is known
    assert found["cpus"] == pytest.approx(1024 / 1769)
    assert 20 < found["peak_mb"] <= 1024


def test_a_reply_of_a_container_that_was_met_before_is_not_cold() -> None:
    first, later, other = (
        Reply(1.0, 1.0, container={"id": id, "answered": n, "phases_s": {}}) for id, n in (("a", 1), ("a", 1), ("b", 2))
    )
    assert proven_cold(first, [], ours=False) == first
    assert proven_cold(later, [first], ours=False).why_not == "not cold"  # the same container
    assert proven_cold(other, [first], ours=False).why_not == "not cold"  # somebody else had warmed it
    silent = Reply(1.0, 1.0)
    assert proven_cold(silent, [], ours=True) == silent  # started by us
    assert proven_cold(silent, [], ours=False).why_not == "not cold"


def test_an_open_loop_waits_for_nobody_and_counts_what_is_sent_away(artefact: str) -> None:
    """Far more than one processor answers: latency grows from the scheduled moment, and the full queue is counted."""
    job = InvokeJob(artefact, "poisson", requests=300, rate_per_s=3000.0)
    found = run(job, seed=1, data_folder=None)
    assert found["requests"] + found["throttled"] == 300
    assert found["errors"] == 0
    assert max(found["latencies_s"]) > 5 * found["predict_s"]  # those at the end of the line


def test_an_open_loop_below_what_a_server_can_do_is_answered_whole(artefact: str, tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("time\n" + "".join(f"{moment}\n" for moment in range(20)))
    job = InvokeJob(artefact, "trace", trace=str(tmp_path / "trace.csv"), faster=20)
    began = time.monotonic()
    found = run(job, seed=1, data_folder=None)
    assert (found["requests"], found["throttled"], found["errors"]) == (20, 0, 0)
    assert time.monotonic() - began > 19 / 20  # sent over the time that the trace says


def test_an_instance_is_as_many_processors_as_it_has(artefact: str) -> None:
    assert [vcpus(f"ml.m5.{size}") for size in ("large", "xlarge", "2xlarge", "12xlarge")] == [2, 4, 8, 48]
    with pytest.raises(Unavailable, match="192 processors are asked for, and this process may use"):
        run(InvokeJob(artefact, "real-time", instance="ml.m6g.48xlarge"), seed=1, data_folder=None)


@pytest.mark.parametrize(("workers", "processes"), [(0, 2), (2, 3)])  # with the one that watches over them
def test_a_server_has_as_many_workers_as_the_job_says(artefact: str, workers: int, processes: int) -> None:
    with endpoints.process(Path(artefact), endpoints.Worker(), platform="real-time", workers=workers) as up:
        commands = [_command(entry) for entry in Path("/proc").glob("[0-9]*/cmdline")]
        assert sum(f"--port\0{up.port}\0".encode() in command for command in commands) == processes


def _command(entry: Path) -> bytes:
    try:
        return entry.read_bytes()
    except OSError:  # it has ended meanwhile
        return b""


@pytest.mark.usefixtures("may_limit")
def test_too_little_memory_is_out_of_memory_as_it_would_be_there(artefact: str, tmp_path: Path) -> None:
    done = worker({"artefact": artefact, "memory_mb": 24, "mb_per_cpu": 24.0, "requests": 1}, tmp_path)
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1] == "MemoryError: the server was ended for want of memory at 24 MB"


def test_of_several_artefacts_the_format_says_which(exported: dict[str, Exported], tmp_path: Path) -> None:
    for format, one in exported.items():
        shutil.copytree(one.artefact.folder, tmp_path / "eyes" / format)
    found = {format: _artefact(InvokeJob("eyes", format=format), tmp_path).name for format in exported}
    assert found == {"onnx": "onnx", "savedmodel": "savedmodel"}
    assert _artefact(InvokeJob("eyes", stack="published"), tmp_path).name == "savedmodel"
    with pytest.raises(Unavailable, match="there is no eyes of precision float16 in"):
        _artefact(InvokeJob("eyes", precision="float16"), tmp_path)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"instance": "m5.xlarge"}, "is no instance type such as ml.m5.xlarge"),
        ({"instance": "ml.m5.xlarge", "memory_mb": 1024}, "memory_mb or is an instance, not both"),
        ({"schedule": "trace"}, "the schedule trace, and no other, has a file"),
        ({"endpoint": "docker:x"}, "not process, image:NAME or sagemaker:NAME"),
        ({"endpoint": "image:{variant}"}, "in which braces name a field"),
        ({"memory_mb": -1}, "cannot be below 0"),
        ({"workers": -1}, "cannot be below 0"),
        ({"workers": 1, "endpoint": "image:x"}, "workers can be chosen for a process here"),
    ],
)
def test_a_job_that_cannot_be_is_refused_before_anything_runs(wrong: dict[str, Any], said: str) -> None:
    design = Design("x", "invoke", {"requests": (1, 2)}, 1, settings={"artefact": "x", **wrong})
    with pytest.raises(FundoscopeError, match=said):
        check_workload(design, "x.toml")


def test_what_is_no_artefact_is_said(tmp_path: Path) -> None:
    with pytest.raises(FundoscopeError, match="nowhere is not an artefact"):
        run(InvokeJob("nowhere"), seed=0, data_folder=tmp_path)


@pytest.mark.parametrize("name", ["serverless-memory", "serverless-image", "instance-types", "precision-and-runtime"])
def test_the_designs_that_are_shipped_can_be_run(name: str) -> None:
    design = open_design(DESIGNS / f"{name}.toml")
    cells = {"serverless-memory": 12, "serverless-image": 6, "instance-types": 8, "precision-and-runtime": 36}
    assert len(design.cells) == cells[name]
    check_workload(design, name)
