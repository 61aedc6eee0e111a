"""What boto3 brings to the cloud, asks there and is refused, against an AWS on this machine, without terraform."""

import argparse
import json
import re
import shlex
import subprocess
import sys
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest
from small_artefact import (
    REGION,
    deploy_here,
    grader,
    make_artefact,
    make_image,
    make_model,
    make_parts,
    put_image,
    tell,
)

from fundoscope.artefact.artefact import write
from fundoscope.cli import deploy
from fundoscope.deploy.aws import Cloud
from fundoscope.deploy.checks import verify
from fundoscope.deploy.cloud import PART, PLACES, PUSH, push, upload, wait
from fundoscope.deploy.endpoint import Endpoint, read_image
from fundoscope.deploy.parts import KINDS, exists, refuse_taken, remove_strays
from fundoscope.deploy.terraform import STATE, Terraform
from fundoscope.errors import FundoscopeError
from fundoscope.provenance import sha256_file, write_json

PHOTO = b"\x89PNG\r\n\x1a\n"


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


def test_each_check_says_whether_it_is_proven_or_read_and_whose_word_it_is(cloud: Cloud, up: Endpoint) -> None:
    photo, content_type = deploy._photo(None)
    checks = verify(cloud, up, photo, content_type=content_type)
    assert [(check.what, check.kind, check.source) for check in checks] == [
        ("status", "read", "AWS's description"),
        ("configuration", "read", "AWS's description"),
        ("model", "read", "AWS's description"),
        ("image", "read", "AWS's description"),
        ("artefact's address", "read", "AWS's description"),
        ("artefact, by its answer", "proven", "the endpoint's answer"),
        ("image, by its answer", "read", "the container's environment, in the answer"),
    ]


def test_what_aws_does_not_tell_of_is_unknown_and_the_rest_is_verified(aws: str, up: Endpoint, tmp_path: Path) -> None:
    write_json(tmp_path / "bia" / "endpoint.json", replace(up, aws_endpoint=aws).to_json())
    place = ["--name", "bia", "--deployments", tmp_path]
    assert deploy_here("verify", *place).ok
    user = "arn:aws:iam::140412345678:user/Could-not-find-404"
    not_allowed = f"User: {user} is not authorized to perform: sagemaker:DescribeModel on resource: model/bia-1"
    tell(aws, action="DescribeModel", code="AccessDeniedException", message=not_allowed)
    verified = deploy_here("verify", *place)
    assert (verified.ok, verified.values["holds"]) == (False, False)
    checks = {check["what"]: (check["found"], check["holds"], check["kind"]) for check in verified.values["checks"]}
    assert checks["model"] == (up.model, True, "read")
    assert checks["image"] == checks["artefact's address"] == ("unknown", False, "read")
    assert checks["artefact, by its answer"] == (up.artefact, True, "proven")
    assert verified.lines[0].split() == ["as", "deployed", "how", "what", "found", "by"]
    assert [line.split()[:3] for line in verified.lines if line.startswith("UNKNOWN")] == [
        ["UNKNOWN", "read", "image"],
        ["UNKNOWN", "read", "artefact's"],
    ]
    assert verified.lines[-1] == "artefact's address: these credentials are not allowed sagemaker:DescribeModel"
    tell(aws, action="DescribeEndpoint", code="AccessDeniedException", message=not_allowed)
    unread = {check["what"] for check in deploy_here("verify", *place).values["checks"] if check["found"] == "unknown"}
    assert unread == {"status", "configuration", "model", "image", "artefact's address"}


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


def test_what_a_killed_terraform_left_goes_and_nothing_of_anybody_else(cloud: Cloud, tmp_path: Path) -> None:
    work = Terraform(tmp_path, program="none")
    write_json(tmp_path / "terraform.tfvars.json", {"deployment": "01234567"})
    assert work.deployment == "01234567"
    theirs = make_parts(cloud, "fay-2", "fedcba98")  # whose names begin as ours do
    assert remove_strays(cloud, "fay", work) == []
    lost = make_parts(cloud, "fay", work.deployment)
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


@pytest.fixture
def bucket(cloud: Cloud) -> Iterator[str]:
    """Versioned, so that each time something is brought there can be counted."""
    cloud.s3.create_bucket(Bucket="dora")
    cloud.s3.put_bucket_versioning(Bucket="dora", VersioningConfiguration={"Status": "Enabled"})
    yield "dora"
    KINDS["aws_s3_bucket"].remove(cloud, "dora")


def _stored(cloud: Cloud, bucket: str, key: str) -> bytes:
    with cloud.s3.get_object(Bucket=bucket, Key=key)["Body"] as body:
        return bytes(body.read())


@pytest.mark.parametrize("size", [7, PART, 2 * PART + 5])
def test_an_artefact_is_brought_once_under_its_digest_and_larger_ones_in_parts(
    cloud: Cloud, bucket: str, tmp_path: Path, size: int
) -> None:
    artefact = make_artefact(tmp_path / "x", Random(1).randbytes(size))  # which does not get smaller when packed
    assert upload(cloud, bucket, artefact) == f"s3://dora/artefacts/{artefact.digest}/model.tar.gz"
    upload(cloud, bucket, artefact)
    (version,) = cloud.s3.list_object_versions(Bucket=bucket)["Versions"]
    archive = artefact.folder / "model.tar.gz"
    assert _stored(cloud, bucket, version["Key"]) == archive.read_bytes()
    head = cloud.s3.head_object(Bucket=bucket, Key=version["Key"])
    assert head["Metadata"]["sha256"] == sha256_file(archive)
    assert head["ETag"].endswith(f'-{archive.stat().st_size // PART + 1}"') == (size >= PART)


@pytest.mark.parametrize("checksum", ["SHA256", "CRC32"])
def test_other_bytes_under_the_artefacts_key_are_replaced_whatever_their_metadata_says(
    cloud: Cloud, bucket: str, tmp_path: Path, checksum: str
) -> None:
    artefact = make_artefact(tmp_path / "x", b"weights")
    key = upload(cloud, bucket, artefact).removeprefix("s3://dora/")
    metadata = cloud.s3.head_object(Bucket=bucket, Key=key)["Metadata"]
    archive = (artefact.folder / "model.tar.gz").read_bytes()
    other = archive[:-1] + b"!"  # as long
    cloud.s3.put_object(Bucket=bucket, Key=key, Body=other, Metadata=metadata, ChecksumAlgorithm=checksum)
    assert _stored(cloud, bucket, key) == other
    upload(cloud, bucket, artefact)
    assert _stored(cloud, bucket, key) == archive
    assert len(cloud.s3.list_object_versions(Bucket=bucket)["Versions"]) == 3


def test_an_upload_that_left_other_bytes_is_an_error(
    cloud: Cloud, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where somebody else writes to the same key meanwhile."""

    def overtaken(_path: str, bucket: str, key: str, *, ExtraArgs: dict[str, Any], Config: object) -> None:
        assert Config
        cloud.s3.put_object(Bucket=bucket, Key=key, Body=b"other", **ExtraArgs)

    monkeypatch.setattr(cloud.s3, "upload_file", overtaken)
    with pytest.raises(FundoscopeError, match="does not hold the bytes that were brought there"):
        upload(cloud, bucket, make_artefact(tmp_path / "x", b"weights"))


# Stands where an engine would: logs in as they do, writes down what it is asked, where its login is and who may look.
ENGINE = """#!/bin/sh
file="${REGISTRY_AUTH_FILE:-$DOCKER_CONFIG/config.json}"
folder=$(dirname "$file")
echo "$@" >> "$ASKED/asked"
echo "$(stat -c %a "$folder") $file" >> "$ASKED/logins"
case "$1" in
  login) if [ -f "$file" ]; then cp "$file" "$ASKED/before"; fi; cat > "$file" ;;
  push) cat "$file" > "$ASKED/password" ;;
esac
[ "$1" != "$FAILS" ] || { echo "no $1 here" >&2; exit 1; }
if [ "$1" = "$ENDS" ]; then kill -TERM $PPID; exec sleep 600; fi
"""


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where it writes that down. The user has a docker, with logins and settings of their own."""
    for name in PUSH:
        (tmp_path / "bin" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "bin" / name).write_text(ENGINE)
        (tmp_path / "bin" / name).chmod(0o755)
    settings = {"auths": {"elsewhere": {"auth": "b3du"}}, "credsStore": "desktop", "currentContext": "desktop-linux"}
    write_json(tmp_path / "home" / ".docker" / "config.json", settings)
    (tmp_path / "home" / ".docker" / "contexts").mkdir()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    for name, value in (
        ("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin"),
        ("HOME", tmp_path / "home"),
        ("ASKED", tmp_path),
    ):
        monkeypatch.setenv(name, str(value))
    for name in ("REGISTRY_AUTH_FILE", "DOCKER_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    yield tmp_path
    assert list((tmp_path / "tmp").iterdir()) == []  # whatever happened
    assert json.loads((tmp_path / "home" / ".docker" / "config.json").read_text()) == settings
    assert [path.name for path in (tmp_path / "home").iterdir()] == [".docker"]


@pytest.fixture
def places(cloud: Cloud) -> Iterator[dict[str, str]]:
    made = cloud.ecr.create_repository(repositoryName="eva-server")["repository"]
    yield {"repository": "eva-server", "repository_url": made["repositoryUri"]}
    cloud.ecr.delete_repository(repositoryName="eva-server", force=True)


def test_an_image_is_pushed_by_the_engine_that_built_it_and_named_by_the_registry(
    cloud: Cloud, engine: Path, places: dict[str, str]
) -> None:
    """The registry's part is done by boto3 before."""
    image = make_image(engine, "e", "linux/arm64")
    with pytest.raises(FundoscopeError, match="was pushed, and eva-server does not have it"):
        push(cloud, places, image, log=engine / "log")
    host = places["repository_url"].partition("/")[0]
    assert (engine / "asked").read_text().splitlines() == [
        f"login --username AWS --password-stdin {host}",
        f"push --quiet --format v2s2 fundoscope:lean {places['repository_url']}:{'e' * 32}",
    ]
    digest = put_image(cloud, "eva-server", image)
    assert push(cloud, places, image, log=engine / "log") == digest  # it is there: nothing is pushed
    assert len((engine / "asked").read_text().splitlines()) == 2
    assert image.architecture == "arm64"


@pytest.mark.parametrize("name", PUSH)
def test_the_registrys_login_is_for_this_push_alone_and_for_nobody_elses_eyes(
    cloud: Cloud, engine: Path, places: dict[str, str], name: str
) -> None:
    image = replace(make_image(engine, "e"), engine=name)
    with pytest.raises(FundoscopeError, match="was pushed, and eva-server does not have it"):
        push(cloud, places, image, log=engine / "log")
    (entry,) = cloud.ecr.get_authorization_token()["authorizationData"]
    assert f"AWS:{(engine / 'password').read_text()}" == b64decode(entry["authorizationToken"]).decode()
    logins = (engine / "logins").read_text().splitlines()
    assert len(set(logins)) == 1  # the push finds what the login left
    mode, _, file = logins[0].partition(" ")
    assert (mode, Path(file).parents[1]) == ("700", engine / "tmp")
    assert not Path(file).exists()
    assert (engine / "before").exists() == (name == "docker")
    if name == "docker":  # which finds its service by these, and has no keyring to leave the login in
        assert json.loads((engine / "before").read_text()) == {"currentContext": "desktop-linux"}


@pytest.mark.parametrize("name", PUSH)
@pytest.mark.parametrize(
    ("fails", "message"),
    [("login", "cannot enter .*: no login here"), ("push", "could not push fundoscope:lean: no push")],
)
def test_the_registrys_login_is_gone_when_the_engine_fails(
    cloud: Cloud,
    engine: Path,
    places: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    fails: str,
    message: str,
) -> None:
    monkeypatch.setenv("FAILS", fails)
    with pytest.raises(FundoscopeError, match=message):
        push(cloud, places, replace(make_image(engine, "e"), engine=name), log=engine / "log")
    assert (engine / "logins").read_text()  # there was one; the fixture looks whether it is left


def test_the_registrys_login_is_gone_when_we_are_ended(
    aws: str, cloud: Cloud, engine: Path, places: dict[str, str], bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real command, with a Terraform that has made the places already, ended in the middle of the push."""
    artefact, image = make_artefact(engine / "x", b"weights"), make_image(engine / "image", "e")
    variables = {"region": REGION, "aws_endpoint": aws, "prefix": "eva", "deployment": "0123abcd", "endpoint": None}
    write_json(engine / "eva" / "terraform.tfvars.json", variables)
    parts = [address.split(".") for address in PLACES]
    made = [{"attributes": {"id": "x"}}]
    state = [
        {"mode": "managed", "module": f"{a}.{b}", "type": kind, "name": name, "instances": made}
        for a, b, kind, name in parts
    ]
    write_json(engine / "eva" / STATE, {"resources": state})
    outputs = json.dumps({name: {"value": value} for name, value in (places | {"bucket": bucket}).items()})
    (engine / "bin" / "terraform").write_text(f"#!/bin/sh\necho '{outputs}'\n")
    (engine / "bin" / "terraform").chmod(0o755)
    monkeypatch.setenv("ENDS", "push")
    monkeypatch.setenv("TMPDIR", str(engine / "tmp"))
    command = [sys.executable, "-m", "fundoscope.cli.main", "deploy", "apply", artefact.folder, "--name", "eva"]
    options = ["--deployments", engine, "--aws-endpoint", aws, "--region", REGION, "--image", engine / "image"]
    ended = subprocess.run([*command, *options], capture_output=True, text=True, check=False, timeout=120)
    assert (ended.returncode, ended.stderr.splitlines()[-2]) == (130, "error: interrupted")
    assert (engine / "password").read_text()
    assert image.engine == "podman"
    assert cloud.s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 1


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
