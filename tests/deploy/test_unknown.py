"""What AWS does not say is unknown: never gone. `destroy` then keeps what it needs to ask again."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_artefact import REGION, deploy_here, forget, make_artefact, make_image, make_parts, tell
from terraform_here import INFRA

from fundoscope.deploy.aws import MISSING, Cloud
from fundoscope.deploy.cloud import apply
from fundoscope.deploy.endpoint import Item, Serverless, Wanted
from fundoscope.deploy.parts import KINDS, OWNERS, SCALING, exists, refuse_taken, remove_strays, state
from fundoscope.deploy.terraform import STATE, Terraform
from fundoscope.errors import FundoscopeError
from fundoscope.provenance import write_json

# An account and a user whose names hold every word that a text could be searched for.
USER = "arn:aws:iam::140412345678:user/404-NotFound-NoSuchBucket-Could-not-find"
ASKED = {
    "aws_sagemaker_endpoint": "DescribeEndpoint",
    "aws_sagemaker_endpoint_configuration": "DescribeEndpointConfig",
    "aws_sagemaker_model": "DescribeModel",
    "aws_cloudwatch_log_group": "DescribeLogGroups",
    "aws_iam_role": "GetRole",
    "aws_iam_role_policy": "GetRole",
    "aws_ecr_repository": "DescribeRepositories",
    "aws_s3_bucket": "ListObjectsV2",
    "aws_s3_bucket_versioning": "ListObjectsV2",
    "aws_appautoscaling_target": "DescribeScalableTargets",
    "aws_appautoscaling_policy": "DescribeScalingPolicies",
}


def _deny(aws: str, action: str, code: str = "AccessDeniedException") -> None:
    message = f"User: {USER} is not authorized to perform: any:{action} on resource: Could not find, 404"
    tell(aws, action=action, code=code, message=message, always="yes")


@pytest.fixture
def denied(aws: str) -> Iterator[Any]:
    yield lambda *actions: [_deny(aws, action) for action in actions]
    forget(aws)


@pytest.mark.parametrize("kind", ASKED)
def test_a_refusal_is_not_an_absence_whatever_its_text_says(cloud: Cloud, denied: Any, kind: str) -> None:
    assert state(cloud, kind, "hal") == Item(kind, "hal", "gone")
    denied(ASKED[kind])
    assert state(cloud, kind, "hal") == Item(
        kind, "hal", "unknown", f"these credentials are not allowed any:{ASKED[kind]}"
    )
    with pytest.raises(FundoscopeError, match="these credentials are not allowed"):
        exists(cloud, kind, "hal")


@pytest.mark.parametrize("code", ["ThrottlingException", "ValidationException", "NoSuchEntity", "404", "NotFound"])
def test_only_the_codes_of_this_very_question_are_an_absence(
    aws: str, credentials: pytest.MonkeyPatch, denied: Any, code: str
) -> None:
    """A repository that is not there is a RepositoryNotFoundException, and nothing else is."""
    del denied  # for its end
    credentials.setenv("AWS_MAX_ATTEMPTS", "1")
    with Cloud(REGION, aws) as cloud:
        assert MISSING["DescribeRepositories"] == {"RepositoryNotFoundException"}
        _deny(aws, "DescribeRepositories", code)
        assert state(cloud, "aws_ecr_repository", "hal-server").now == "unknown"
        with pytest.raises(FundoscopeError):
            refuse_taken(cloud, "hal")


def test_a_code_of_absence_that_comes_with_a_refusal_is_a_refusal(cloud: Cloud, denied: Any, aws: str) -> None:
    """403 Forbidden: S3 says so to whoever may not know."""
    del denied
    _deny(aws, "ListObjectsV2", "NoSuchBucket")  # the double sends it with 403
    assert state(cloud, "aws_s3_bucket", "hal-bucket").now == "unknown"


def test_where_nobody_answers_all_is_unknown(credentials: pytest.MonkeyPatch) -> None:
    credentials.setenv("AWS_MAX_ATTEMPTS", "1")
    with Cloud(REGION, "http://127.0.0.1:9") as cloud:
        assert state(cloud, "aws_iam_role", "hal") == Item("aws_iam_role", "hal", "unknown", "AWS cannot be reached")


def test_every_kind_that_infra_makes_can_be_asked_about_and_any_other_is_unknown(cloud: Cloud) -> None:
    modules = "".join(path.read_text() for path in INFRA.glob("modules/*/*.tf"))
    made = {kind for kind in re.findall(r'^resource "(\w+)"', modules, re.MULTILINE) if kind.startswith("aws_")}
    assert len(made) == 15
    assert made <= {*KINDS, *OWNERS, *SCALING}
    assert state(cloud, "aws_lambda_function", "hal").now == "unknown"


def _up(folder: Path, aws: str, parts: dict[str, str], *, destroys: str = "") -> None:
    """A deployment's folder, and a Terraform whose `destroy` forgets its state and runs `destroys`."""
    variables = {"region": REGION, "aws_endpoint": aws, "prefix": "ivo", "deployment": "0123abcd"}
    write_json(folder / "ivo" / "terraform.tfvars.json", variables)
    state = [
        {
            "mode": "managed",
            "module": "module.x",
            "type": kind,
            "name": "x",
            "instances": [{"attributes": {"id": name}}],
        }
        for kind, name in parts.items()
    ]
    write_json(folder / "ivo" / STATE, {"resources": state})
    program = folder / "bin" / "terraform"
    program.parent.mkdir()
    forgets = f"echo '{{\"resources\": []}}' > {STATE}"
    program.write_text(
        f'#!/bin/sh\nmkdir -p .terraform\nif [ "$1" = destroy ]; then {forgets}; {destroys or ":"}; fi\n'
    )
    program.chmod(0o755)


@pytest.fixture
def ivo(cloud: Cloud, aws: str, tmp_path: Path, credentials: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """A deployment with a part of each kind, made by boto3; its Terraform destroys nothing."""
    parts = make_parts(cloud, "ivo", "0123abcd")
    _up(tmp_path, aws, parts)
    credentials.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    yield parts
    forget(aws)
    for kind, name in parts.items():
        if exists(cloud, kind, name):
            KINDS[kind].remove(cloud, name)


def test_what_aws_still_has_is_said_whatever_terraform_says(ivo: dict[str, str], tmp_path: Path) -> None:
    place = ["--name", "ivo", "--deployments", tmp_path]
    destroyed = deploy_here("destroy", *place)
    assert not destroyed.ok
    assert {item["kind"]: item["id"] for item in destroyed.values["items"] if item["now"] == "there"} == ivo
    assert (destroyed.values["left"], destroyed.values["unknown"]) == (6, 0)
    assert destroyed.lines[2].startswith("STILL THERE")
    assert destroyed.lines[-1] == f"their names and Terraform's state stay in {tmp_path / 'ivo'}"
    assert (tmp_path / "ivo" / STATE).is_file()
    again = deploy_here("destroy", *place)  # by their tags, now that Terraform has forgotten them
    assert again.ok
    assert {item["kind"]: item["id"] for item in again.values["items"] if item["gone"]} == ivo
    assert again.lines[-1] == "nothing of ivo is left"
    assert not (tmp_path / "ivo").exists()


def test_parts_that_aws_does_not_tell_of_are_said_one_by_one_and_the_state_stays(
    cloud: Cloud, ivo: dict[str, str], denied: Any, tmp_path: Path
) -> None:
    for kind, name in ivo.items():
        KINDS[kind].remove(cloud, name)
    denied("DescribeModel", "GetRole")
    place = ["--name", "ivo", "--deployments", tmp_path]
    for _ in "12":  # the second time as the first: nothing was forgotten
        destroyed = deploy_here("destroy", *place)
        assert not destroyed.ok
        unknown = {item["kind"]: item["why"] for item in destroyed.values["items"] if item["now"] == "unknown"}
        assert unknown == {
            "aws_iam_role": "these credentials are not allowed any:GetRole",
            "aws_sagemaker_model": "these credentials are not allowed any:DescribeModel",
        }
        assert (destroyed.values["left"], destroyed.values["unknown"]) == (2, 2)
        assert sum(line.startswith("UNKNOWN") for line in destroyed.lines) == 2
        assert "sagemaker_model ivo-m: these credentials are not allowed any:DescribeModel" in destroyed.lines
        assert (tmp_path / "ivo" / STATE).is_file()
        assert (tmp_path / "ivo" / "terraform.tfvars.json").is_file()


def test_once_aws_tells_of_them_the_folder_goes(
    aws: str, cloud: Cloud, ivo: dict[str, str], denied: Any, tmp_path: Path
) -> None:
    del cloud
    denied("DescribeModel", "ListModels")
    place = ["--name", "ivo", "--deployments", tmp_path]
    assert not deploy_here("destroy", *place).ok
    assert not deploy_here("destroy", *place).ok
    forget(aws)
    gone = deploy_here("destroy", *place)
    assert gone.ok
    assert {"kind": "aws_sagemaker_model", "id": ivo["aws_sagemaker_model"]}.items() <= gone.values["items"][0].items()
    assert not (tmp_path / "ivo").exists()


def test_strays_that_cannot_be_listed_or_show_no_tags_are_said(
    cloud: Cloud, ivo: dict[str, str], denied: Any, tmp_path: Path
) -> None:
    work = Terraform(tmp_path / "ivo", program="none")
    write_json(tmp_path / "ivo" / STATE, {"resources": []})
    work.mark_unfinished()
    denied("ListModels", "ListRoleTags", "ListBuckets")
    strays = {item.kind: (item.id, item.now, item.why) for item in remove_strays(cloud, "ivo", work)}
    refused = "these credentials are not allowed any:"
    assert strays == {
        "aws_cloudwatch_metric_alarm": (ivo["aws_cloudwatch_metric_alarm"], "gone", ""),
        "aws_sagemaker_model": ("", "unknown", f"{refused}ListModels"),
        "aws_cloudwatch_log_group": (ivo["aws_cloudwatch_log_group"], "gone", ""),
        "aws_iam_role": (ivo["aws_iam_role"], "unknown", f"{refused}ListRoleTags"),
        "aws_ecr_repository": (ivo["aws_ecr_repository"], "gone", ""),
        "aws_s3_bucket": ("", "unknown", f"{refused}ListBuckets"),
    }
    destroyed = deploy_here("destroy", "--name", "ivo", "--deployments", tmp_path)
    assert not destroyed.ok
    assert destroyed.values["unknown"] == 3
    assert any(re.match(r"UNKNOWN +s3_bucket +that Terraform did not know of", line) for line in destroyed.lines)
    assert work.unfinished


def test_a_stray_that_may_not_be_removed_is_there_and_says_why(
    cloud: Cloud, ivo: dict[str, str], denied: Any, tmp_path: Path
) -> None:
    write_json(tmp_path / "ivo" / STATE, {"resources": []})
    denied("DeleteModel")
    (model,) = [item for item in remove_strays(cloud, "ivo", Terraform(tmp_path / "ivo", program="none")) if item.why]
    why = "these credentials are not allowed any:DeleteModel"
    assert model == Item("aws_sagemaker_model", ivo["aws_sagemaker_model"], "there", why)


@pytest.mark.usefixtures("ivo")
def test_apply_does_not_go_on_over_strays_that_it_cannot_list(aws: str, denied: Any, tmp_path: Path) -> None:
    """Its Terraform would end well, and with it the search for them."""
    artefact, image = make_artefact(tmp_path / "x", b"weights"), make_image(tmp_path / "image", "0")
    write_json(tmp_path / "ivo" / STATE, {"resources": []})
    work = Terraform(tmp_path / "ivo", program="none")
    work.mark_unfinished()
    denied("ListBuckets")
    with pytest.raises(FundoscopeError, match="may be left of a Terraform that was killed: these credentials are not"):
        apply(Wanted("ivo", REGION, artefact.digest, Serverless(), aws_endpoint=aws), artefact, image, work, INFRA)
    assert work.unfinished


def test_a_folder_that_has_lost_its_variables_is_kept(ivo: dict[str, str], tmp_path: Path) -> None:
    del ivo
    (tmp_path / "ivo" / "terraform.tfvars.json").unlink()
    with pytest.raises(FundoscopeError, match="does not say where its parts are"):
        deploy_here("destroy", "--name", "ivo", "--deployments", tmp_path)
    assert (tmp_path / "ivo" / STATE).is_file()
