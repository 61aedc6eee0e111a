"""The cloud, without an account: real terraform and real boto3, from a plan to nothing, against an AWS on this machine.

Whatever can go wrong on the way does so here: two at once, killed, not allowed, no quota, rolled back in silence. One
test, because each of terraform's commands starts a provider of 707 MB: some ten seconds, whatever it then does.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from small_artefact import (
    deploy_here,
    grader,
    make_artefact,
    make_image,
    make_model,
    put_image,
    tell,
    unanswered,
    variant,
)
from terraform_here import plugins_or_skip

from fundoscope.cli.command import Answer
from fundoscope.deploy.aws import Cloud
from fundoscope.deploy.parts import exists
from fundoscope.deploy.terraform import Terraform
from fundoscope.errors import FundoscopeError

DEADLINE_S = 180.0  # for what would otherwise hang
# What is asked of Terraform when nothing is wrong: this, not the machine, is ours to decide of how long it takes.
COMMANDS = {
    "plan": ["init", "plan"],
    "apply, again, without an image": ["apply", "output"],
    "apply": ["output", "apply", "output"],
    "verify": [],
    "apply, updated": ["output", "apply", "output"],
    "destroy": ["destroy"],
}
BUSY = "another command is at work on this deployment"


# Terraform, which first writes down where it was called and for what.
COUNTING = """#!/bin/sh
echo "$PWD $1" >> {log}
exec {terraform} "$@"
"""


class Clock:
    """What each step asked of Terraform, and how long it took, for benchmarks/RESULTS.md."""

    def __init__(self, bin: Path, folder: Path) -> None:
        """`folder`: the deployment's; other Terraforms are not counted."""
        self.seconds: dict[str, float] = {}
        self.commands: dict[str, list[str]] = {}
        self._log, self._folder = bin / "commands", folder
        self._log.parent.mkdir()
        self._log.touch()
        (bin / "terraform").write_text(COUNTING.format(log=self._log, terraform=shutil.which("terraform")))
        (bin / "terraform").chmod(0o755)

    @contextmanager
    def __call__(self, step: str) -> Iterator[None]:
        began, before = time.monotonic(), len(self._counted())
        try:
            yield
        finally:
            self.seconds[step] = time.monotonic() - began
            self.commands[step] = self._counted()[before:]

    def _counted(self) -> list[str]:
        lines = [line.rsplit(" ", 1) for line in self._log.read_text().splitlines()]
        return [command for folder, command in lines if folder == str(self._folder)]

    def __str__(self) -> str:
        lines = [f"{seconds:6.1f} s  {step}" for step, seconds in self.seconds.items()]
        return "\n".join(["", *lines, f"{sum(self.seconds.values()):6.1f} s  in all"])


def _until(condition: Any) -> Any:
    deadline = time.monotonic() + DEADLINE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)  # between two looks; the condition, not the clock, ends the wait
    return found


def _terraform_in(folder: Path) -> psutil.Process | None:
    for process in psutil.process_iter(["name", "cwd"]):
        if process.info["name"] == "terraform" and process.info["cwd"] == str(folder):
            return process
    return None


def _is_free(folder: Path) -> bool:
    """What was killed is gone, with its locks: that takes it a moment."""
    with suppress(FundoscopeError), Terraform(folder).alone():
        return True
    return False


def _killed_on_the_way(aws: str, arguments: list[object], folder: Path) -> None:
    """An apply whose process is killed, and then its terraform, which had gone on: with a repository just made."""
    tell(aws, action="CreateRepository")
    command = [sys.executable, "-m", "fundoscope.cli.main", "deploy", "apply", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as ours:
        _until(lambda: unanswered(aws) == ["CreateRepository"])
        with pytest.raises(FundoscopeError, match=BUSY):
            deploy_here("apply", *arguments)
        ours.kill()
    terraform = _terraform_in(folder)
    assert terraform
    with pytest.raises(FundoscopeError, match=BUSY):
        deploy_here("apply", *arguments)
    os.killpg(terraform.pid, signal.SIGKILL)
    _until(lambda: _is_free(folder))


def _somebody_else(aws: str, cloud: Cloud, artefact: Path, folder: Path) -> Answer:
    """At the same AWS, under another name: machines with another processor, no quota for them, and away again."""
    image = make_image(folder / "image", "e", "linux/arm64")
    place = ["--name", "bia", "--deployments", folder, "--plugins", plugins_or_skip()]
    with pytest.raises(FundoscopeError, match="has no image sha256:f"):
        deploy_here("apply", artefact, *place, "--aws-endpoint", aws, "--image", "sha256:" + "f" * 64)
    put_image(cloud, "bia-server", image)
    limit = "The account-level service limit 'ml.c7g.xlarge for endpoint usage' is 0 Instances, with 0 in use."
    tell(aws, action="CreateEndpoint", code="ResourceLimitExceeded", message=limit)
    machines = ["--aws-endpoint", aws, "--image", folder / "image", "--instance", "ml.c7g.xlarge"]
    with pytest.raises(FundoscopeError, match="this account may have no more: ml.c7g.xlarge for endpoint usage"):
        deploy_here("apply", artefact, *place, *machines)
    return deploy_here("destroy", *place)


def test_a_deployment_from_a_plan_to_nothing(
    aws: str, cloud: Cloud, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plugins, clock = plugins_or_skip(), Clock(tmp_path / "bin", tmp_path / "up" / "ana")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    first, second = make_artefact(tmp_path / "first", grader()), make_artefact(tmp_path / "second", grader(2.0))
    broken = make_artefact(tmp_path / "broken", b"no server opens this")
    image, arm_image = make_image(tmp_path / "image", "c"), make_image(tmp_path / "arm", "d", "linux/arm64")
    place = ["--name", "ana", "--deployments", tmp_path / "up", "--plugins", plugins]
    options = [*place, "--aws-endpoint", aws, "--image", tmp_path / "image"]

    with clock("plan"):
        planned = deploy_here("plan", first.folder, *options, "--memory-mb", 2048)
    kinds = [change["kind"] for change in planned.values["changes"]]
    assert {change["action"] for change in planned.values["changes"]} == {"create"}
    assert len(kinds) == 15  # and at AWS a policy for encrypted connections, which these are not
    assert {"aws_s3_bucket", "aws_ecr_repository", "aws_iam_role", "aws_sagemaker_endpoint"} <= set(kinds)
    assert planned.values["costs"]["idle_usd_per_hour"] == 0
    assert cloud.s3.list_buckets()["Buckets"] == []

    with clock("apply, killed"):
        _killed_on_the_way(aws, [first.folder, *options], tmp_path / "up" / "ana")
    assert exists(cloud, "aws_ecr_repository", "ana-server")
    assert '"ana-server"' not in (tmp_path / "up" / "ana" / "terraform.tfstate").read_text()

    # The same again goes on from there, as far as it can: no image can be pushed to moto.
    with clock("apply, again, without an image"), pytest.raises(FundoscopeError, match="has no image sha256:d"):
        deploy_here("apply", first.folder, *place, "--aws-endpoint", aws, "--image", "sha256:" + "d" * 64)
    (bucket,) = [bucket["Name"] for bucket in cloud.s3.list_buckets()["Buckets"]]
    assert re.fullmatch("ana-[0-9a-f]{8}-[0-9]+", bucket)
    assert cloud.s3.get_bucket_versioning(Bucket=bucket)["Status"] == "Enabled"
    assert len(cloud.iam.list_roles()["Roles"]) == 1
    assert cloud.sagemaker.list_endpoints()["Endpoints"] == []

    digest = put_image(cloud, "ana-server", image)
    denied = "User: arn:aws:iam::1:user/ana is not authorized to perform: sagemaker:CreateEndpointConfig on resource: x"
    tell(aws, action="CreateEndpointConfig", code="AccessDeniedException", message=denied)
    with clock("apply, not allowed"), pytest.raises(FundoscopeError, match="not allowed sagemaker:CreateEndpointConf"):
        deploy_here("apply", first.folder, *options, "--memory-mb", 2048)

    with clock("apply"):
        applied = deploy_here("apply", first.folder, *options, "--memory-mb", 2048)
    assert applied.values["image"].endswith(f"ana-server@{digest}")
    assert applied.values["model_data"] == f"s3://{bucket}/artefacts/{first.digest}/model.tar.gz"
    assert applied.next == f"fundoscope deploy verify --name ana --deployments {tmp_path / 'up'}"
    assert variant(cloud, applied.values["config"])["ServerlessConfig"]["MemorySizeInMB"] == 2048

    with clock("verify"):
        verified = deploy_here("verify", *place)
    assert verified.ok
    assert [check["found"] for check in verified.values["checks"]][-2:] == [first.digest, digest]

    with clock("plan, of the same"):
        assert deploy_here("plan", first.folder, *options, "--memory-mb", 2048).values["changes"] == []

    with pytest.raises(FundoscopeError, match="AWS has a deployment called ana already, and its folder is not here"):
        deploy_here("apply", first.folder, *options, "--deployments", tmp_path / "elsewhere")

    others = ThreadPoolExecutor(1).submit(_somebody_else, aws, cloud, first.folder, tmp_path / "others")

    # What does not come up: SageMaker goes back to what it had, and says nothing of it.
    with clock("apply, rolled back"), pytest.raises(FundoscopeError, match="goes on with what it had before"):
        deploy_here("apply", broken.folder, *options, "--memory-mb", 2048)
    assert deploy_here("verify", *place).values == verified.values  # nor was any of it removed

    # Another artefact, another size: another model and configuration at the same endpoint, and nothing of the old.
    with clock("apply, updated"):
        updated = deploy_here("apply", second.folder, *options, "--memory-mb", 3072)
    assert updated.values["name"] == applied.values["name"] == "ana"
    up = cloud.sagemaker.describe_endpoint(EndpointName="ana")
    assert up["EndpointConfigName"] == updated.values["config"] != applied.values["config"]
    assert variant(cloud, updated.values["config"])["ServerlessConfig"]["MemorySizeInMB"] == 3072
    models = [model["ModelName"] for model in cloud.sagemaker.list_models()["Models"]]
    assert [model for model in models if model.startswith("ana-")] == [updated.values["model"]]
    assert deploy_here("verify", *place).ok

    # Long after an apply, and without us: the endpoint has the old artefact again.
    old = cloud.sagemaker.describe_model(ModelName=updated.values["model"])["PrimaryContainer"]
    make_model(cloud, "ana-old", old | {"ModelDataUrl": applied.values["model_data"]})
    cloud.sagemaker.update_endpoint(EndpointName="ana", EndpointConfigName="ana-old")
    rolled_back = deploy_here("verify", *place)
    assert not rolled_back.ok
    assert {check["what"]: check["found"] for check in rolled_back.values["checks"] if not check["holds"]} == {
        "configuration": "ana-old",
        "model": "ana-old",
        "artefact's address": applied.values["model_data"],
        "artefact, by its answer": first.digest,
    }
    assert rolled_back.lines[-1] == f"artefact, by its answer: {second.digest} was deployed"
    cloud.sagemaker.update_endpoint(EndpointName="ana", EndpointConfigName=updated.values["config"])
    cloud.sagemaker.delete_endpoint_config(EndpointConfigName="ana-old")
    cloud.sagemaker.delete_model(ModelName="ana-old")

    with clock("somebody else's, the rest"):
        gone = others.result()
    assert gone.ok
    assert len(gone.values["items"]) == 10
    assert {item["id"].partition("-")[0] for item in gone.values["items"] if item["kind"] == "aws_iam_role"} == {"bia"}
    assert deploy_here("verify", *place).ok

    # Another kind: the endpoint is made anew, with machines that come and go.
    arm_digest = put_image(cloud, "ana-server", arm_image)
    with clock("apply, another kind"):
        machines = ["--instance", "ml.c7g.xlarge", "--autoscale", "1:3:300", "--image", tmp_path / "arm"]
        moved = deploy_here("apply", second.folder, *options, *machines)
    assert (moved.values["kind"], moved.values["image"].partition("@")[2]) == ("real-time", arm_digest)
    assert variant(cloud, moved.values["config"])["InstanceType"] == "ml.c7g.xlarge"
    (scaled,) = cloud.application_autoscaling.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"]
    assert (scaled["ResourceId"], scaled["MinCapacity"], scaled["MaxCapacity"]) == ("endpoint/ana/variant/grader", 1, 3)
    assert deploy_here("verify", *place).ok

    with clock("destroy"):
        destroyed = deploy_here("destroy", *place)
    assert destroyed.ok
    assert destroyed.lines[-1] == "nothing of ana is left"
    items = {item["kind"]: item["id"] for item in destroyed.values["items"]}
    assert items["aws_s3_bucket"] == bucket
    assert items["aws_sagemaker_endpoint"] == "ana"
    _is_empty(cloud)
    assert not (tmp_path / "up" / "ana").exists()

    with capsys.disabled():
        print(clock)
    assert {step: clock.commands[step] for step in COMMANDS} == COMMANDS


def _is_empty(cloud: Cloud) -> None:
    assert cloud.s3.list_buckets()["Buckets"] == []
    assert cloud.ecr.describe_repositories()["repositories"] == []
    assert cloud.iam.list_roles()["Roles"] == []
    assert cloud.sagemaker.list_models()["Models"] == []
    assert cloud.sagemaker.list_endpoint_configs()["EndpointConfigs"] == []
    assert cloud.sagemaker.list_endpoints()["Endpoints"] == []
    assert cloud.logs.describe_log_groups()["logGroups"] == []
    assert cloud.cloudwatch.describe_alarms()["MetricAlarms"] == []
    assert (
        cloud.application_autoscaling.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"] == []
    )
