"""An endpoint of SageMaker's: what it is, by its own configuration, and what CloudWatch counted while we asked it.

CloudWatch's latencies come in microseconds and some minutes late: ModelLatency is the container's part, OverheadLatency
the platform's (in it the start of a cold container), ModelSetupTime the time to launch one. What the caller waited
beyond the two is the way there and back.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from fundoscope.deploy.aws import Cloud, one_sentence
from fundoscope.errors import FundoscopeError
from fundoscope.experiment.unavailable import Unavailable

NAMESPACE = "AWS/SageMaker"
READINGS = {  # of CloudWatch's, all in microseconds -> of ours
    "ModelLatency": "model_latency_s",
    "OverheadLatency": "overhead_latency_s",
    "ModelSetupTime": "model_setup_s",
}
PERIOD_S = 60
ASK_EVERY_S = 20.0


@dataclass(frozen=True)
class Described:
    variant: str
    memory_mb: int  # 0: not serverless
    instance: str  # empty: serverless


def describe(name: str) -> Described:
    try:
        with Cloud() as cloud, one_sentence():
            config = cloud.sagemaker.describe_endpoint(EndpointName=name)["EndpointConfigName"]
            variant = cloud.sagemaker.describe_endpoint_config(EndpointConfigName=config)["ProductionVariants"][0]
    except FundoscopeError as problem:
        raise Unavailable(f"the endpoint {name} cannot be described: {problem.message}") from None
    serverless = variant.get("ServerlessConfig") or {}
    return Described(
        variant["VariantName"], int(serverless.get("MemorySizeInMB", 0)), "" if serverless else variant["InstanceType"]
    )


def check(found: Described, *, name: str, memory_mb: int, instance: str) -> None:
    """A cell that says 2048 MB and asks an endpoint of 1024 would be a false measurement."""
    wanted = f"{memory_mb} MB" if memory_mb else instance
    is_ = f"{found.memory_mb} MB" if found.memory_mb else found.instance
    if wanted and wanted != is_:
        raise FundoscopeError(
            f"the endpoint {name} has {is_}, and the cell says {wanted}", "deploy it as the cell says"
        )


@dataclass(frozen=True)
class Counted:
    """One of CloudWatch's metrics over a span."""

    n: float
    mean_s: float


def counted(
    name: str,
    variant: str,
    *,
    began: datetime,
    requests: int,
    wait_s: float,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Counted]:
    """What CloudWatch has from `began` on; it is late, and asked again until all is there or `wait_s` is over."""
    deadline = time.monotonic() + wait_s
    with Cloud() as cloud, one_sentence():
        while True:
            found = {metric: one for metric in READINGS if (one := _one(cloud, name, variant, metric, began))}
            enough = found.get("ModelLatency")
            if (enough and enough.n >= requests) or time.monotonic() >= deadline:
                return found
            sleep(min(ASK_EVERY_S, max(0.0, deadline - time.monotonic())))


def _one(cloud: Cloud, name: str, variant: str, metric: str, began: datetime) -> Counted | None:
    points = cloud.cloudwatch.get_metric_statistics(
        Namespace=NAMESPACE,
        MetricName=metric,
        Dimensions=[{"Name": "EndpointName", "Value": name}, {"Name": "VariantName", "Value": variant}],
        StartTime=began.replace(second=0, microsecond=0),  # its minutes are whole ones
        EndTime=datetime.now(UTC) + timedelta(seconds=PERIOD_S),
        Period=PERIOD_S,
        Statistics=["SampleCount", "Sum"],
    )["Datapoints"]
    n = sum(point["SampleCount"] for point in points)
    return Counted(n, sum(point["Sum"] for point in points) / n / 1e6) if n else None


def reconciled(
    found: Mapping[str, Counted], *, requests: int, mean_latency_s: float, mean_processing_s: float
) -> dict[str, float]:
    """Readings: theirs, and what ours are beyond them. CloudWatch's count may differ from ours: it is said."""
    readings = {
        "cloudwatch_missing": requests - found["ModelLatency"].n if "ModelLatency" in found else float(requests)
    }
    readings |= {READINGS[metric]: one.mean_s for metric, one in found.items()}
    if "model_latency_s" in readings:
        readings["beyond_container_s"] = readings["model_latency_s"] - mean_processing_s
        if "overhead_latency_s" in readings:
            theirs = readings["model_latency_s"] + readings["overhead_latency_s"]
            readings["way_there_and_back_s"] = mean_latency_s - theirs
    return readings
