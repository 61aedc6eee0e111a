"""The cloud, without an account: real terraform and real boto3 against moto's server on this machine.

moto keeps what it is told and runs no container: what an endpoint would answer is told it too.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from terraform_here import plugins_or_skip

from fundoscope.artefact.artefact import GRADES, NOTICE, Artefact, Input, ModelFile, OperatingPoint, Output, write
from fundoscope.cli import deploy
from fundoscope.cli.command import Answer
from fundoscope.data.draw import draw_eye
from fundoscope.data.gradability import GradabilityRule
from fundoscope.data.photo import Preparation, encode_png
from fundoscope.deploy.cloud import Cloud, exists, push, upload, verify
from fundoscope.deploy.endpoint import Endpoint, LocalImage, read_image
from fundoscope.errors import FundoscopeError
from fundoscope.provenance import sha256_file, write_json

pytest.importorskip("boto3", reason="boto3 is not installed: nothing about the cloud was tried")
pytest.importorskip("moto", reason="moto is not installed: nothing about the cloud was tried")
REGION = "us-east-1"
PHOTO = b"\x89PNG\r\n\x1a\n"  # as far as moto cares: bytes that are no text


@pytest.fixture(scope="module")
def aws() -> Iterator[str]:
    """The address of an AWS of our own, empty at first."""
    command = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("aws_double.py"))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.terminate()


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Invented ones; nothing of this machine's own is read."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))


@pytest.fixture
def cloud(aws: str) -> Iterator[Cloud]:
    with Cloud(REGION, aws) as cloud:
        yield cloud


def _artefact(folder: Path, model: bytes) -> Artefact:
    """One that can be deployed, though no server would open it: its model is these bytes."""
    folder.mkdir()
    (folder / "model.onnx").write_bytes(model)
    shape = (None, 64, 64, 3)
    return write(
        Artefact(
            folder=folder,
            version=1,
            digest="",
            format="onnx",
            precision="float32",
            files=(ModelFile("model.onnx", len(model), sha256_file(folder / "model.onnx")),),
            input=Input("photograph", "uint8", shape, Preparation(64), GradabilityRule()),
            output=Output("probabilities", "ordinal", (None, 5), GRADES),
            referral_from=2,
            operating_points=(OperatingPoint("high_sensitivity", 0.3, 0.95, "sensitivity"),),
            scores={},
            drawn=True,
            notice=NOTICE,
            origin={},
            parity=None,
            export={},
        )
    )


def _put_image(cloud: Cloud, repository: str, content: str, tag: str) -> str:
    """As an engine's push would leave it; the registry's digest."""
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
        "config": {"digest": f"sha256:{content * 64}", "size": 1},
        "layers": [],
    }
    put = cloud.ecr.put_image(repositoryName=repository, imageManifest=json.dumps(manifest), imageTag=tag)
    return str(put["image"]["imageId"]["imageDigest"])


def _will_answer(aws: str, **answer: Any) -> None:
    results = {"results": [{"Body": json.dumps(answer), "ContentType": "application/json"}]}
    body = json.dumps(results).encode()
    headers = {"Content-Type": "application/json"}
    with urlopen(Request(f"{aws}/moto-api/static/sagemaker/endpoint-results", body, headers)) as said:
        assert said.status == 201


def _deploy(*arguments: object) -> Answer:
    """As on the command line."""
    parser = argparse.ArgumentParser()
    deploy.add_commands(parser.add_subparsers())
    parsed = parser.parse_args(["deploy", *map(str, arguments)])
    answer: Answer = parsed.run(parsed)
    return answer


def _photo(path: Path, index: int) -> Path:
    path.write_bytes(encode_png(draw_eye(5, index, size=64).pixels))
    return path


def test_plan_apply_verify_update_destroy(aws: str, cloud: Cloud, tmp_path: Path) -> None:
    plugins = plugins_or_skip()
    first, second = (_artefact(tmp_path / name, name.encode()) for name in ("first", "second"))
    image = LocalImage("fundoscope:lean", "sha256:" + "c" * 64, "linux/amd64", "podman")
    write_json(tmp_path / "image" / "image.json", vars(image))
    place = ["--name", "ana", "--deployments", tmp_path / "up", "--plugins", plugins]
    options = [*place, "--image", tmp_path / "image", "--aws-endpoint", aws]

    planned = _deploy("plan", first.folder, *options, "--memory-mb", 2048)
    kinds = [change["kind"] for change in planned.values["changes"]]
    assert {change["action"] for change in planned.values["changes"]} == {"create"}
    assert len(kinds) == 15  # and at AWS a policy for encrypted connections, which moto's are not
    assert {"aws_s3_bucket", "aws_ecr_repository", "aws_iam_role", "aws_sagemaker_endpoint"} <= set(kinds)
    assert planned.values["costs"]["idle_usd_per_hour"] == 0
    assert cloud.s3.list_buckets()["Buckets"] == []

    # The image is not there, and cannot be pushed to moto: an apply that stops half way.
    with pytest.raises(FundoscopeError, match="has no image sha256:d"):
        _deploy("apply", first.folder, *place, "--aws-endpoint", aws, "--image", "sha256:" + "d" * 64)
    bucket = cloud.s3.list_buckets()["Buckets"][0]["Name"]
    assert bucket.startswith("ana-artefacts-")
    assert cloud.s3.get_bucket_versioning(Bucket=bucket)["Status"] == "Enabled"
    assert cloud.sagemaker.list_endpoints()["Endpoints"] == []

    # The same again goes on from there.
    digest = _put_image(cloud, "ana-server", "c", image.registry_tag)
    applied = _deploy("apply", first.folder, *options, "--memory-mb", 2048)
    assert applied.values["image"].endswith(f"ana-server@{digest}")
    assert applied.values["model_data"] == f"s3://{bucket}/artefacts/{first.digest}/model.tar.gz"
    assert applied.next == f"fundoscope deploy verify --name ana --deployments {tmp_path / 'up'}"
    variant = _variant(cloud, applied.values["config"])
    assert variant["ServerlessConfig"]["MemorySizeInMB"] == 2048

    _will_answer(aws, artefact=first.digest, image=digest)
    verified = _deploy("verify", *place)
    assert verified.ok
    assert [check["what"] for check in verified.values["checks"]][-2:] == [
        "artefact, by its answer",
        "image, by its answer",
    ]

    # Another artefact, another size: another model and configuration at the same endpoint, and nothing of the old.
    updated = _deploy("apply", second.folder, *options, "--memory-mb", 3072)
    assert updated.values["name"] == applied.values["name"] == "ana"
    assert updated.values["model"] != applied.values["model"]
    up = cloud.sagemaker.describe_endpoint(EndpointName="ana")
    assert up["EndpointConfigName"] == updated.values["config"] != applied.values["config"]
    assert _variant(cloud, updated.values["config"])["ServerlessConfig"]["MemorySizeInMB"] == 3072
    assert not exists(cloud, "aws_sagemaker_model", applied.values["model"])

    # It goes on answering with the old artefact: a rollback that nobody told us of.
    _will_answer(aws, artefact=first.digest, image=digest)
    rolled_back = _deploy("verify", *place, "--photo", _photo(tmp_path / "1.png", 1))
    assert not rolled_back.ok
    assert [check["what"] for check in rolled_back.values["checks"] if not check["holds"]] == [
        "artefact, by its answer"
    ]
    assert rolled_back.lines[-1] == f"artefact, by its answer: {second.digest} was deployed"
    _will_answer(aws, artefact=second.digest, image=digest)
    assert _deploy("verify", *place, "--photo", _photo(tmp_path / "2.png", 2)).ok

    # Another kind: the endpoint is made anew, with machines that come and go.
    moved = _deploy("apply", second.folder, *options, "--instance", "ml.m5.xlarge", "--autoscale", "1:3:300")
    assert moved.values["kind"] == "real-time"
    assert _variant(cloud, moved.values["config"])["InstanceType"] == "ml.m5.xlarge"
    (scaled,) = cloud.application_autoscaling.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"]
    assert (scaled["ResourceId"], scaled["MinCapacity"], scaled["MaxCapacity"]) == ("endpoint/ana/variant/grader", 1, 3)

    destroyed = _deploy("destroy", *place)
    assert destroyed.ok
    assert destroyed.lines[-1] == "nothing of ana is left"
    items = {item["kind"]: item["id"] for item in destroyed.values["items"]}
    assert items["aws_s3_bucket"] == bucket
    assert items["aws_sagemaker_endpoint"] == "ana"
    assert cloud.s3.list_buckets()["Buckets"] == []
    assert cloud.ecr.describe_repositories()["repositories"] == []
    assert cloud.iam.list_roles()["Roles"] == []
    assert cloud.sagemaker.list_models()["Models"] == []
    assert cloud.sagemaker.list_endpoint_configs()["EndpointConfigs"] == []
    assert cloud.logs.describe_log_groups()["logGroups"] == []
    assert cloud.cloudwatch.describe_alarms()["MetricAlarms"] == []
    assert not (tmp_path / "up" / "ana").exists()


def _variant(cloud: Cloud, config: str) -> dict[str, Any]:
    (variant,) = cloud.sagemaker.describe_endpoint_config(EndpointConfigName=config)["ProductionVariants"]
    return dict(variant)


@pytest.fixture
def up(cloud: Cloud) -> Iterator[Endpoint]:
    """An endpoint made by boto3 alone."""
    role = "arn:aws:iam::123456789012:role/any"
    endpoint = Endpoint(
        name="bia",
        region=REGION,
        kind="serverless",
        variant="grader",
        config="bia-1",
        model="bia-1",
        image="1.dkr.ecr.us-east-1.amazonaws.com/bia-server@sha256:" + "1" * 64,
        model_data="s3://bia/artefacts/1/model.tar.gz",
        artefact="1" * 64,
    )
    for number in "01":
        container = {"Image": endpoint.image[:-1] + number, "ModelDataUrl": endpoint.model_data}
        cloud.sagemaker.create_model(ModelName=f"bia-{number}", ExecutionRoleArn=role, PrimaryContainer=container)
        cloud.sagemaker.create_endpoint_config(
            EndpointConfigName=f"bia-{number}",
            ProductionVariants=[
                {
                    "VariantName": "grader",
                    "ModelName": f"bia-{number}",
                    "ServerlessConfig": {"MemorySizeInMB": 1024, "MaxConcurrency": 1},
                }
            ],
        )
    cloud.sagemaker.create_endpoint(EndpointName="bia", EndpointConfigName="bia-1")
    yield endpoint
    cloud.sagemaker.delete_endpoint(EndpointName="bia")
    for number in "01":
        cloud.sagemaker.delete_endpoint_config(EndpointConfigName=f"bia-{number}")
        cloud.sagemaker.delete_model(ModelName=f"bia-{number}")


def test_a_silent_rollback_is_caught(aws: str, cloud: Cloud, up: Endpoint) -> None:
    _will_answer(aws, artefact=up.artefact, image=up.image_digest)
    before = verify(cloud, up, PHOTO + b"1", content_type="image/png")
    assert all(check.holds for check in before)
    cloud.sagemaker.update_endpoint(EndpointName="bia", EndpointConfigName="bia-0")
    _will_answer(aws, artefact="0" * 64, image="sha256:" + "0" * 64)
    after = verify(cloud, up, PHOTO + b"2", content_type="image/png")
    assert {check.what: check.found for check in after if not check.holds} == {
        "configuration": "bia-0",
        "model": "bia-0",
        "image": up.image[:-1] + "0",
        "artefact, by its answer": "0" * 64,
        "image, by its answer": "sha256:" + "0" * 64,
    }


def test_an_endpoint_that_does_not_say_what_it_runs_is_not_believed(cloud: Cloud, up: Endpoint) -> None:
    checks = verify(cloud, up, PHOTO + b"3", content_type="image/png")  # moto answers "body"
    assert {check.what: check.found for check in checks if not check.holds} == {
        "artefact, by its answer": "it does not say"
    }


def test_an_endpoint_that_is_gone_is_one_sentence(cloud: Cloud, up: Endpoint) -> None:
    with pytest.raises(FundoscopeError, match="AWS has no such endpoint any more"):
        verify(cloud, replace(up, name="carla"), PHOTO + b"4", content_type="image/png")


def test_an_artefact_is_brought_once_under_its_digest(cloud: Cloud, tmp_path: Path) -> None:
    cloud.s3.create_bucket(Bucket="dora")
    cloud.s3.put_bucket_versioning(Bucket="dora", VersioningConfiguration={"Status": "Enabled"})
    artefact = _artefact(tmp_path / "x", b"weights")
    assert upload(cloud, "dora", artefact) == f"s3://dora/artefacts/{artefact.digest}/model.tar.gz"
    upload(cloud, "dora", artefact)
    (version,) = cloud.s3.list_object_versions(Bucket="dora")["Versions"]
    stored = cloud.s3.get_object(Bucket="dora", Key=version["Key"])
    with stored["Body"] as body:
        assert body.read() == (artefact.folder / "model.tar.gz").read_bytes()
    assert stored["Metadata"]["sha256"] == sha256_file(artefact.folder / "model.tar.gz")
    cloud.s3.delete_object(Bucket="dora", Key=version["Key"], VersionId=version["VersionId"])
    cloud.s3.delete_bucket(Bucket="dora")


def test_an_image_is_pushed_by_the_engine_that_built_it_and_named_by_the_registry(
    cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine is one that writes down what it is asked; the registry's part is done by boto3 before."""
    made = cloud.ecr.create_repository(repositoryName="eva-server")["repository"]
    places = {"repository": "eva-server", "repository_url": made["repositoryUri"]}
    program = tmp_path / "podman"
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    image = LocalImage("fundoscope:lean", "sha256:" + "e" * 64, "linux/arm64", "podman")
    with pytest.raises(FundoscopeError, match="was pushed, and eva-server does not have it"):
        push(cloud, places, image, log=tmp_path / "log")
    host = made["repositoryUri"].partition("/")[0]
    assert (tmp_path / "asked").read_text().splitlines() == [
        f"login --username AWS --password-stdin {host}",
        f"push --quiet --format v2s2 fundoscope:lean {made['repositoryUri']}:{'e' * 32}",
    ]
    digest = _put_image(cloud, "eva-server", "e", image.registry_tag)
    assert push(cloud, places, image, log=tmp_path / "log") == digest  # it is there: nothing is pushed
    assert len((tmp_path / "asked").read_text().splitlines()) == 2
    assert image.architecture == "arm64"
    cloud.ecr.delete_repository(repositoryName="eva-server", force=True)


def test_what_the_command_line_refuses_before_it_starts_anything(tmp_path: Path) -> None:
    artefact = _artefact(tmp_path / "x", b"weights")
    write_json(tmp_path / "image.json", vars(LocalImage("fundoscope:lean", "sha256:0", "linux/amd64", "podman")))
    options = ["plan", artefact.folder, "--name", "ana", "--image", tmp_path, "--deployments", tmp_path / "up"]
    for extra, message in (
        (["--instance", "ml.c7g.xlarge"], "the image is for x86-64, and ml.c7g.xlarge runs arm64"),
        (["--instance", "ml.m5.xlarge", "--memory-mb", "1024"], "an endpoint is serverless or real-time, and options"),
        (["--count", "2"], "a real-time endpoint needs a machine"),
        (["--instance", "ml.m5.xlarge", "--autoscale", "1-4"], "'1-4' does not say how to scale"),
        (["--memory-mb", "1500"], "serverless endpoints have no size of 1500 MB"),
        (["--instance", "ml.m5.huge"], "has no price for 'ml.m5.huge'"),
    ):
        with pytest.raises(FundoscopeError, match=message):
            _deploy(*options, *extra)
    with pytest.raises(FundoscopeError, match="there are no deployments in"):
        _deploy("destroy", "--name", "ana", "--deployments", tmp_path / "up")
    with pytest.raises(FundoscopeError, match="holds no image.json"):
        read_image(tmp_path / "elsewhere")


def test_an_artefact_that_was_refused_is_not_deployed(tmp_path: Path) -> None:
    artefact = write(replace(_artefact(tmp_path / "x", b"weights"), guard={"passed": False, "why": "it lost 4 points"}))
    with pytest.raises(FundoscopeError, match="was refused: it lost 4 points"):
        _deploy("plan", artefact.folder, "--name", "ana", "--image", "sha256:" + "0" * 64)


@pytest.mark.parametrize(
    ("options", "idle", "busy"),
    [
        # 0.00002 USD per GB and second: 2 GB x 0.25 s x 1000; 0.016 per GB of 2^30 bytes: 0.5 GB of 10^9.
        (["--memory-mb", "2048"], 0.0, 2 * 0.25 * 1000 * 0.00002 + 0.016 * 0.5e9 / 2**30),
        (["--instance", "ml.m5.xlarge", "--count", "2"], 0.46, 0.23 * 250 / 3600),
    ],
)
def test_the_plan_says_what_it_costs_idle_and_busy(options: list[str], idle: float, busy: float) -> None:
    from fundoscope.analysis.prices import open_prices

    parser = argparse.ArgumentParser()
    deploy.add_commands(parser.add_subparsers())
    parsed = parser.parse_args(["deploy", "plan", "x", "--name", "ana", "--image", "y", "--region", REGION, *options])
    costs, lines = deploy._costs(deploy._serving(parsed), open_prices(deploy.PRICES), parsed)
    assert costs == {"idle_usd_per_hour": pytest.approx(idle), "usd_per_1000_requests": pytest.approx(busy)}
    assert lines[0] == f"idle: {idle:.4f} USD an hour"
