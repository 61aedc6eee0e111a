"""What boto3 brings to the cloud, asks there and is refused, against an AWS on this machine, without terraform."""

import argparse
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from small_artefact import REGION, deploy_here, grader, make_artefact, make_image, make_model, put_image

from fundoscope.artefact.artefact import write
from fundoscope.cli import deploy
from fundoscope.deploy.aws import Cloud
from fundoscope.deploy.cloud import push, upload, verify, wait
from fundoscope.deploy.endpoint import Endpoint, read_image
from fundoscope.deploy.parts import KINDS, TAG, exists, refuse_taken, remove_strays
from fundoscope.deploy.terraform import STATE, Terraform
from fundoscope.errors import FundoscopeError
from fundoscope.provenance import sha256_file, write_json

PHOTO = b"\x89PNG\r\n\x1a\n"
ROLE = "arn:aws:iam::123456789012:role/any"


@pytest.fixture
def up(cloud: Cloud, tmp_path: Path) -> Iterator[Endpoint]:
    """An endpoint made by boto3 alone, and the model and configuration it had before."""
    cloud.s3.create_bucket(Bucket="bia")
    registry = "1.dkr.ecr.us-east-1.amazonaws.com/bia-server@"
    for number, brightness in (("0", 1.0), ("1", 2.0)):
        artefact = make_artefact(tmp_path / number, grader(brightness))
        digest = f"sha256:{number * 64}"
        endpoint = Endpoint(
            name="bia",
            region=REGION,
            kind="serverless",
            variant="grader",
            config=f"bia-{number}",
            model=f"bia-{number}",
            image=registry + digest,
            model_data=upload(cloud, "bia", artefact),
            artefact=artefact.digest,
        )
        _make(cloud, endpoint, FUNDOSCOPE_IMAGE=digest)
    cloud.sagemaker.create_endpoint(EndpointName="bia", EndpointConfigName="bia-1")
    yield endpoint
    cloud.sagemaker.delete_endpoint(EndpointName="bia")
    for kind, number in product(("aws_sagemaker_endpoint_configuration", "aws_sagemaker_model"), "01"):
        if exists(cloud, kind, f"bia-{number}"):
            KINDS[kind].remove(cloud, f"bia-{number}")
    KINDS["aws_s3_bucket"].remove(cloud, "bia")


def _make(cloud: Cloud, endpoint: Endpoint, **environment: str) -> None:
    container = {"Image": endpoint.image, "ModelDataUrl": endpoint.model_data, "Environment": environment}
    make_model(cloud, endpoint.model, container)


def test_a_silent_rollback_is_caught(cloud: Cloud, up: Endpoint) -> None:
    photo, content_type = deploy._photo(None)
    before = verify(cloud, up, photo, content_type=content_type)
    assert [check.what for check in before if not check.holds] == []
    assert len(before) == 7
    wait(cloud, up)
    cloud.sagemaker.update_endpoint(EndpointName="bia", EndpointConfigName="bia-0")
    after = verify(cloud, up, photo, content_type=content_type)
    old = cloud.sagemaker.describe_model(ModelName="bia-0")["PrimaryContainer"]["ModelDataUrl"]
    assert {check.what: check.found for check in after if not check.holds} == {
        "configuration": "bia-0",
        "model": "bia-0",
        "image": up.image[:-64] + "0" * 64,
        "artefact's address": old,
        "artefact, by its answer": old.split("/")[-2],
        "image, by its answer": "sha256:" + "0" * 64,
    }
    with pytest.raises(FundoscopeError, match="did not come up with what it was given, and goes on with what it had"):
        wait(cloud, up)
    cloud.sagemaker.delete_endpoint_config(EndpointConfigName="bia-0")
    gone = {check.what: check.found for check in verify(cloud, up, photo, content_type=content_type)}
    assert [gone[what] for what in ("configuration", "model", "image")] == ["bia-0", *["AWS no longer has it"] * 2]


def test_an_endpoint_that_does_not_say_which_image_it_runs_is_not_believed(cloud: Cloud, up: Endpoint) -> None:
    mute = replace(up, name="mute", config="mute", model="mute")
    _make(cloud, mute)
    cloud.sagemaker.create_endpoint(EndpointName="mute", EndpointConfigName="mute")
    photo, content_type = deploy._photo(None)
    checks = verify(cloud, mute, photo, content_type=content_type)
    assert {check.what: check.found for check in checks if not check.holds} == {
        "image, by its answer": "it does not say"
    }
    cloud.sagemaker.delete_endpoint(EndpointName="mute")


def test_an_endpoint_that_never_comes_up_says_why(cloud: Cloud, up: Endpoint) -> None:
    dead = replace(up, name="dead", config="dead", model="dead", model_data="s3://bia/nothing")
    _make(cloud, dead)
    cloud.sagemaker.create_endpoint(EndpointName="dead", EndpointConfigName="dead")
    with pytest.raises(FundoscopeError) as failed:
        wait(cloud, dead)
    assert failed.value.message == "the container did not answer /ping in time"
    assert failed.value.hint == "try the image here: fundoscope conform IMAGE --model ARTEFACT"
    cloud.sagemaker.delete_endpoint(EndpointName="dead")


def test_a_photograph_that_the_server_cannot_read_is_one_sentence(cloud: Cloud, up: Endpoint) -> None:
    with pytest.raises(FundoscopeError, match="the container answered the photograph with an error, 400"):
        verify(cloud, up, PHOTO, content_type="image/png")


def test_an_endpoint_that_is_gone_is_one_sentence(cloud: Cloud, up: Endpoint) -> None:
    with pytest.raises(FundoscopeError, match="AWS has no such endpoint any more"):
        verify(cloud, replace(up, name="carla"), PHOTO, content_type="image/png")


@pytest.mark.parametrize("key", ["WRONG", "EXPIRED"])
def test_credentials_that_aws_refuses_are_one_sentence_whatever_the_service(
    aws: str, credentials: pytest.MonkeyPatch, key: str
) -> None:
    pytest.importorskip("boto3")
    credentials.setenv("AWS_ACCESS_KEY_ID", key)
    with Cloud(REGION, aws) as cloud:
        for kind in KINDS:
            if "cloudwatch" not in kind:
                with pytest.raises(FundoscopeError, match="AWS does not accept these credentials"):
                    exists(cloud, kind, "ana")


def test_no_credentials_and_no_such_profile(aws: str, credentials: pytest.MonkeyPatch) -> None:
    pytest.importorskip("boto3")
    credentials.delenv("AWS_ACCESS_KEY_ID")
    credentials.delenv("AWS_SECRET_ACCESS_KEY")
    with (
        Cloud(REGION, aws) as cloud,
        pytest.raises(FundoscopeError, match="there are no credentials for AWS here") as refused,
    ):
        exists(cloud, "aws_ecr_repository", "ana-server")
    assert refused.value.hint == "run `aws configure`, or set AWS_PROFILE"
    credentials.setenv("AWS_PROFILE", "clinic")
    with pytest.raises(FundoscopeError, match="there is no profile 'clinic' for AWS here"):
        Cloud(REGION, aws)


def test_an_address_where_nobody_answers(credentials: pytest.MonkeyPatch) -> None:
    pytest.importorskip("boto3")
    credentials.setenv("AWS_MAX_ATTEMPTS", "1")
    with Cloud(REGION, "http://127.0.0.1:9") as cloud, pytest.raises(FundoscopeError, match="AWS cannot be reached"):
        exists(cloud, "aws_ecr_repository", "ana-server")


def test_without_boto3_one_sentence_and_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(FundoscopeError) as refused:
        Cloud(REGION)
    assert (refused.value.message, refused.value.hint) == (
        "boto3 is not installed here",
        "pip install 'fundoscope[aws]'",
    )


def _lost(cloud: Cloud, name: str, deployment: str) -> dict[str, str]:
    """One of each kind that a killed terraform may leave, AWS's names of them."""
    pairs = [{"Key": TAG, "Value": deployment}]
    bucket, role, group = f"{name}-{deployment}-1", f"{name}-endpoint-1", f"/aws/sagemaker/Endpoints/{name}"
    cloud.s3.create_bucket(Bucket=bucket)
    cloud.s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    cloud.s3.put_object(Bucket=bucket, Key="artefacts/1/model.tar.gz", Body=b"1")
    cloud.s3.delete_object(Bucket=bucket, Key="artefacts/1/model.tar.gz")
    cloud.ecr.create_repository(repositoryName=f"{name}-server", tags=pairs)
    cloud.iam.create_role(RoleName=role, AssumeRolePolicyDocument="{}", Tags=pairs)
    document = (
        '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}]}'
    )
    cloud.iam.put_role_policy(RoleName=role, PolicyName="endpoint", PolicyDocument=document)
    cloud.logs.create_log_group(logGroupName=group, tags={TAG: deployment})
    cloud.sagemaker.create_model(ModelName=f"{name}-m", ExecutionRoleArn=ROLE, PrimaryContainer={}, Tags=pairs)
    cloud.cloudwatch.put_metric_alarm(
        AlarmName=f"{name}-errors", ComparisonOperator="GreaterThanThreshold", EvaluationPeriods=1, Tags=pairs
    )
    return {
        "aws_cloudwatch_metric_alarm": f"{name}-errors",
        "aws_sagemaker_model": f"{name}-m",
        "aws_cloudwatch_log_group": group,
        "aws_iam_role": role,
        "aws_ecr_repository": f"{name}-server",
        "aws_s3_bucket": bucket,
    }


def test_what_a_killed_terraform_left_goes_and_nothing_of_anybody_else(cloud: Cloud, tmp_path: Path) -> None:
    work = Terraform(tmp_path, program="none")
    write_json(tmp_path / "terraform.tfvars.json", {"deployment": "01234567"})
    assert work.deployment == "01234567"
    theirs = _lost(cloud, "fay-2", "fedcba98")  # whose names begin as ours do
    assert remove_strays(cloud, "fay", work) == []
    lost = _lost(cloud, "fay", work.deployment)
    removed = remove_strays(cloud, "fay", work)
    assert {item.kind: item.id for item in removed} == lost
    assert all(item.gone for item in removed)
    assert all(exists(cloud, kind, id) for kind, id in theirs.items())
    write_json(tmp_path / "terraform.tfvars.json", {"deployment": "fedcba98"})
    state = [
        {
            "mode": "managed",
            "module": "module.registry",
            "type": kind,
            "name": "x",
            "instances": [{"attributes": {"id": id}}],
        }
        for kind, id in theirs.items()
    ]
    write_json(tmp_path / STATE, {"resources": state})
    assert remove_strays(cloud, "fay-2", work) == []  # terraform knows of all of it
    (tmp_path / STATE).unlink()
    assert len(remove_strays(cloud, "fay-2", work)) == 6


def test_a_name_that_somebody_else_has_is_refused_before_anything_is_made(cloud: Cloud) -> None:
    refuse_taken(cloud, "gil")
    cloud.ecr.create_repository(repositoryName="gil-server")
    with pytest.raises(FundoscopeError, match="AWS has a deployment called gil already") as refused:
        refuse_taken(cloud, "gil")
    assert refused.value.hint == "use another --name, or say where its folder is: --deployments FOLDER"
    cloud.ecr.delete_repository(repositoryName="gil-server")


def test_an_artefact_is_brought_once_under_its_digest(cloud: Cloud, tmp_path: Path) -> None:
    cloud.s3.create_bucket(Bucket="dora")
    cloud.s3.put_bucket_versioning(Bucket="dora", VersioningConfiguration={"Status": "Enabled"})
    artefact = make_artefact(tmp_path / "x", b"weights")
    assert upload(cloud, "dora", artefact) == f"s3://dora/artefacts/{artefact.digest}/model.tar.gz"
    upload(cloud, "dora", artefact)
    (version,) = cloud.s3.list_object_versions(Bucket="dora")["Versions"]
    stored = cloud.s3.get_object(Bucket="dora", Key=version["Key"])
    with stored["Body"] as body:
        assert body.read() == (artefact.folder / "model.tar.gz").read_bytes()
    assert stored["Metadata"]["sha256"] == sha256_file(artefact.folder / "model.tar.gz")
    KINDS["aws_s3_bucket"].remove(cloud, "dora")


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
    image = make_image(tmp_path, "e", "linux/arm64")
    with pytest.raises(FundoscopeError, match="was pushed, and eva-server does not have it"):
        push(cloud, places, image, log=tmp_path / "log")
    host = made["repositoryUri"].partition("/")[0]
    assert (tmp_path / "asked").read_text().splitlines() == [
        f"login --username AWS --password-stdin {host}",
        f"push --quiet --format v2s2 fundoscope:lean {made['repositoryUri']}:{'e' * 32}",
    ]
    digest = put_image(cloud, "eva-server", image)
    assert push(cloud, places, image, log=tmp_path / "log") == digest  # it is there: nothing is pushed
    assert len((tmp_path / "asked").read_text().splitlines()) == 2
    assert image.architecture == "arm64"
    cloud.ecr.delete_repository(repositoryName="eva-server", force=True)


def test_what_the_command_line_refuses_before_it_starts_anything(tmp_path: Path) -> None:
    artefact = make_artefact(tmp_path / "x", b"weights")
    make_image(tmp_path / "intel", "0")
    make_image(tmp_path / "arm", "0", "linux/arm64")
    options = ["plan", artefact.folder, "--name", "ana", "--deployments", tmp_path / "up", "--image"]
    for extra, message in (
        (["intel", "--instance", "ml.c7g.xlarge"], "the image is for x86-64, and ml.c7g.xlarge runs arm64"),
        (["arm", "--instance", "ml.m5.xlarge"], "the image is for arm64, and ml.m5.xlarge runs x86-64"),
        (["arm"], "the image is for arm64, and a serverless endpoint runs x86-64"),
        (["intel", "--instance", "ml.m5.xlarge", "--memory-mb", "1024"], "an endpoint is serverless or real-time, and"),
        (["intel", "--count", "2"], "a real-time endpoint needs a machine"),
        (["intel", "--instance", "ml.m5.xlarge", "--autoscale", "1-4"], "'1-4' does not say how to scale"),
        (["intel", "--memory-mb", "1500"], "serverless endpoints have no size of 1500 MB"),
        (["intel", "--instance", "ml.m5.huge"], "has no price for 'ml.m5.huge'"),
        (["intel", "--aws-endpoint", "localhost:5000"], "'localhost:5000' is not an address"),
    ):
        with pytest.raises(FundoscopeError, match=message):
            deploy_here(*options, tmp_path / extra[0], *extra[1:])
    assert not (tmp_path / "up").exists()
    with pytest.raises(FundoscopeError, match="there are no deployments in"):
        deploy_here("destroy", "--name", "ana", "--deployments", tmp_path / "up")
    with pytest.raises(FundoscopeError, match="holds no image.json"):
        read_image(tmp_path / "elsewhere")


def test_an_artefact_that_was_refused_is_not_deployed(tmp_path: Path) -> None:
    made = make_artefact(tmp_path / "x", b"weights")
    artefact = write(replace(made, guard={"passed": False, "why": "it lost 4 points"}))
    with pytest.raises(FundoscopeError, match="was refused: it lost 4 points"):
        deploy_here("plan", artefact.folder, "--name", "ana", "--image", "sha256:" + "0" * 64)


@pytest.mark.parametrize(
    ("options", "idle", "busy"),
    [
        # 0.00002 USD per GB and second: 2 GB x 0.25 s x 1000; 0.016 per GB of 2^30 bytes: 0.5 GB of 10^9.
        (["--memory-mb", "2048"], 0.0, 2 * 0.25 * 1000 * 0.00002 + 0.016 * 0.5e9 / 2**30),
        (["--instance", "ml.m5.xlarge", "--count", "2"], 0.46, 0.23 * 250 / 3600),
    ],
)
def test_the_plan_says_what_it_costs_idle_and_busy(options: list[str], idle: float, busy: float) -> None:
    from fundoscope.analysis.prices import SAGEMAKER, open_prices

    parser = argparse.ArgumentParser()
    deploy.add_commands(parser.add_subparsers())
    parsed = parser.parse_args(["deploy", "plan", "x", "--name", "ana", "--image", "y", "--region", REGION, *options])
    costs, lines = deploy._costs(deploy._serving(parsed), open_prices(SAGEMAKER), parsed)
    assert costs == {"idle_usd_per_hour": pytest.approx(idle), "usd_per_1000_requests": pytest.approx(busy)}
    assert lines[0] == f"idle: {idle:.4f} USD an hour"


def test_every_command_of_the_page_is_one() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "deploy.md").read_text()
    here = re.search(r'^here="(.*)"$', page, re.MULTILINE)
    assert here
    parser = argparse.ArgumentParser()
    deploy.add_commands(parser.add_subparsers())
    commands = re.findall(r"^fundoscope (deploy [^#\n]+)", page, re.MULTILINE)
    assert len(commands) == 9
    for command in commands:
        parsed = parser.parse_args(shlex.split(re.sub(r"\$\([^)]*\)", "0", command).replace("$here", here[1])))
        assert parsed.name == "ana"
