"""The workload `invoke` on an endpoint of SageMaker's: moto for what describes and counts, a real server answers."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fundoscope.artefact.export import Exported
from fundoscope.errors import FundoscopeError
from fundoscope.experiment.endpoints import Worker, process
from fundoscope.experiment.invoke import InvokeJob, run
from fundoscope.experiment.sagemaker import Counted, counted, reconciled
from fundoscope.experiment.unavailable import Unavailable

boto3 = pytest.importorskip("boto3")
pytest.importorskip("moto")

DOUBLE = Path(__file__).resolve().parents[1] / "deploy" / "aws_double.py"
NAME = "ana-eyes-2048"


@pytest.fixture(scope="module")
def cloud() -> Iterator[str]:
    """moto's address, with one serverless endpoint in it."""
    with subprocess.Popen([sys.executable, str(DOUBLE)], stdout=subprocess.PIPE, text=True) as moto:
        try:
            assert moto.stdout is not None
            url = f"http://127.0.0.1:{moto.stdout.readline().strip()}"
            with pytest.MonkeyPatch.context() as patch:
                _environment(patch, url)
                _deploy()
            yield url
        finally:
            moto.kill()


def _environment(patch: pytest.MonkeyPatch, url: str) -> None:
    for name in ("AWS_ENDPOINT_URL_SAGEMAKER", "AWS_ENDPOINT_URL_CLOUDWATCH"):
        patch.setenv(name, url)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        patch.setenv(name, "testing")
    patch.setenv("AWS_DEFAULT_REGION", "us-east-1")


def _deploy() -> None:
    client = boto3.client("sagemaker")
    variant = {
        "VariantName": "only",
        "ModelName": "eyes",
        "ServerlessConfig": {"MemorySizeInMB": 2048, "MaxConcurrency": 5},
    }
    role = "arn:aws:iam::123456789012:role/x"
    client.create_model(ModelName="eyes", ExecutionRoleArn=role, PrimaryContainer={"Image": "x"})
    client.create_endpoint_config(EndpointConfigName="eyes", ProductionVariants=[variant])
    client.create_endpoint(EndpointName=NAME, EndpointConfigName="eyes")


@pytest.fixture
def here(cloud: str, monkeypatch: pytest.MonkeyPatch) -> str:
    _environment(monkeypatch, cloud)
    return cloud


def put(metric: str, *microseconds: float) -> None:
    dimensions = [{"Name": "EndpointName", "Value": NAME}, {"Name": "VariantName", "Value": "only"}]
    data: list[dict[str, Any]] = [
        {"MetricName": metric, "Dimensions": dimensions, "Value": value, "Timestamp": datetime.now(UTC)}
        for value in microseconds
    ]
    boto3.client("cloudwatch").put_metric_data(Namespace="AWS/SageMaker", MetricData=data)


def test_an_endpoint_is_asked_through_boto3_and_what_cloudwatch_counted_stands_beside(
    here: str,  # noqa: ARG001
    exported: dict[str, Exported],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    artefact = exported["onnx"].artefact
    for metric, value in (("ModelLatency", 40_000), ("OverheadLatency", 5_000), ("ModelSetupTime", 900_000)):
        put(metric, *[value] * 4)
    with process(artefact.folder, Worker(), platform="serverless") as up:
        monkeypatch.setenv("AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME", f"http://127.0.0.1:{up.port}")
        job = InvokeJob(
            "eyes",
            endpoint="sagemaker:ana-{artefact}-{memory_mb}",
            memory_mb=2048,
            requests=3,
            every_s=0.0,
            cloudwatch_s=0.0,
        )
        found = run(job, seed=1, data_folder=None)
    assert (found["requests"], found["errors"], found["artefact_digest"]) == (3, 0, artefact.digest)
    assert found["cloudwatch_missing"] == 0  # three and the one that does not count
    assert found["model_latency_s"] == pytest.approx(0.040)
    assert found["overhead_latency_s"] == pytest.approx(0.005)
    assert found["model_setup_s"] == pytest.approx(0.9)
    assert found["way_there_and_back_s"] == pytest.approx(found["latency_mean_s"] - 0.045)
    assert found["beyond_container_s"] == pytest.approx(0.040 - found["processing_s"])


def test_a_cold_request_elsewhere_is_proven_and_counted_whole(
    here: str,  # noqa: ARG001
    exported: dict[str, Exported],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three of one container: the first was cold. CloudWatch counts all of them, cold or not."""
    with process(exported["onnx"].artefact.folder, Worker(), platform="serverless") as up:
        monkeypatch.setenv("AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME", f"http://127.0.0.1:{up.port}")
        monkeypatch.setenv("AWS_ENDPOINT_URL_CLOUDWATCH", "http://127.0.0.1:9")
        job = InvokeJob(
            "eyes", "cold", endpoint=f"sagemaker:{NAME}", memory_mb=2048, requests=3, every_s=0.0, cloudwatch_s=0.0
        )
        found = run(job, seed=1, data_folder=None)
    assert (found["requests"], found["not_cold"], found["cloudwatch_missing"]) == (1, 2, 3)
    assert found["processings_s"] == found["latencies_s"]


def test_a_cell_that_says_otherwise_than_its_endpoint_is_not_measured(here: str) -> None:  # noqa: ARG001
    with pytest.raises(FundoscopeError, match=f"the endpoint {NAME} has 2048 MB, and the cell says 1024 MB"):
        run(InvokeJob("eyes", endpoint=f"sagemaker:{NAME}", memory_mb=1024), seed=1, data_folder=None)
    with pytest.raises(FundoscopeError, match="has 2048 MB, and the cell says ml.m5.xlarge"):
        run(InvokeJob("eyes", endpoint=f"sagemaker:{NAME}", instance="ml.m5.xlarge"), seed=1, data_folder=None)


def test_an_endpoint_that_is_not_there_is_unavailable(here: str) -> None:  # noqa: ARG001
    with pytest.raises(Unavailable, match="the endpoint nobody cannot be described: AWS has no such endpoint any more"):
        run(InvokeJob("eyes", endpoint="sagemaker:nobody"), seed=1, data_folder=None)


def test_a_cloudwatch_that_cannot_be_asked_does_not_cost_the_measurement(
    here: str,  # noqa: ARG001
    exported: dict[str, Exported],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_CLOUDWATCH", "http://127.0.0.1:9")
    with process(exported["onnx"].artefact.folder, Worker(), platform="serverless") as up:
        monkeypatch.setenv("AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME", f"http://127.0.0.1:{up.port}")
        job = InvokeJob("eyes", endpoint=f"sagemaker:{NAME}", requests=2, every_s=0.0, cloudwatch_s=0.0)
        found = run(job, seed=1, data_folder=None)
    assert (found["requests"], found["cloudwatch_missing"]) == (2, 3)
    assert found["cloudwatch_error"] == "AWS cannot be reached"
    assert "artefact_refused" not in found  # the artefact is not here: nothing is known of its guard


def test_an_endpoint_that_answers_with_another_artefact_is_not_measured(
    here: str,  # noqa: ARG001
    exported: dict[str, Exported],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    shutil.copytree(exported["savedmodel"].artefact.folder, tmp_path / "eyes")
    with process(exported["onnx"].artefact.folder, Worker(), platform="serverless") as up:
        monkeypatch.setenv("AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME", f"http://127.0.0.1:{up.port}")
        job = InvokeJob("eyes", endpoint=f"sagemaker:{NAME}", requests=1, cloudwatch_s=0.0)
        with pytest.raises(FundoscopeError, match=f"artefact {exported['onnx'].artefact.digest[:12]}, not eyes"):
            run(job, seed=1, data_folder=tmp_path)


def test_requests_that_cloudwatch_never_counted_are_said(here: str) -> None:  # noqa: ARG001
    began, waits = datetime.now(UTC), list[float]()
    assert counted("other", "only", began=began, requests=5, wait_s=0.0, sleep=waits.append) == {}
    assert waits == []
    assert reconciled({}, requests=5, mean_latency_s=1.0, mean_processing_s=0.5) == {"cloudwatch_missing": 5.0}
    some = {"ModelLatency": Counted(3, 0.04)}
    found = reconciled(some, requests=5, mean_latency_s=1.0, mean_processing_s=0.03)
    assert found == {
        "cloudwatch_missing": 2,
        "model_latency_s": 0.04,
        "beyond_container_s": pytest.approx(0.01),
    }
