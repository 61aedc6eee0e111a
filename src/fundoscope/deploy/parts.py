"""KINDS: the parts of a deployment as AWS knows them, how to find them, whose they are, and how they go.

Terraform knows what it has made once it has written that down. Killed in between, it leaves parts that it would make a
second time (a bucket, whose name is drawn) or stumble over (a repository). Every part has a tag with the deployment
that it belongs to, and by that it is found again.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fundoscope.deploy.aws import Cloud, one_sentence, or_none
from fundoscope.deploy.endpoint import Item
from fundoscope.deploy.terraform import Terraform
from fundoscope.errors import FundoscopeError

TAG = "fundoscope-deployment"  # infra/main.tf puts it on everything
BUCKET = re.compile(r"-([0-9a-f]{8})-[0-9]+$")
Ask = Callable[[Cloud, str], Any]


@dataclass(frozen=True)
class Kind:
    """Found by the deployment's name, with what its tags are asked by; there is and remove take AWS's name of it."""

    find: Callable[[Cloud, str], list[tuple[str, str]]]
    tags: Ask
    there_is: Ask  # empty or an error where there is not
    remove: Ask


def exists(cloud: Cloud, kind: str, name: str) -> bool:
    """Whether AWS has it; an error where AWS does not say."""
    kind, name = _asked_about(kind, name)
    if kind not in KINDS and kind not in SCALING:
        raise FundoscopeError(f"nothing here can ask AWS about {kind}", "look for it in AWS's console")
    with one_sentence():
        return bool(or_none(KINDS[kind].there_is if kind in KINDS else SCALING[kind], cloud, name))


def state(cloud: Cloud, kind: str, name: str, *, why: str = "") -> Item:
    """What AWS says of it now. What cannot be asked about is unknown: never gone."""
    try:
        there = exists(cloud, kind, name)
    except FundoscopeError as problem:
        return Item(kind, name, "unknown", problem.message)
    return Item(kind, name, "there" if there else "gone", why if there else "")


def refuse_taken(cloud: Cloud, name: str) -> None:
    """Names that are not drawn: another deployment that has them would be met half way."""
    for kind, taken in (("aws_ecr_repository", f"{name}-server"), ("aws_sagemaker_endpoint", name)):
        if exists(cloud, kind, taken):
            message = f"AWS has a deployment called {name} already, and its folder is not here"
            raise FundoscopeError(message, "use another --name, or say where its folder is: --deployments FOLDER")


def remove_strays(cloud: Cloud, name: str, work: Terraform) -> list[Item]:
    """What this deployment has in AWS and Terraform does not know of. Nothing that anybody else has made.

    A kind that cannot be listed, and a part that does not show whose it is, are unknown, and stay.
    """
    strays: list[Item] = []
    for kind in KINDS:
        try:
            candidates = _candidates(cloud, kind, name, work)
        except FundoscopeError as problem:
            strays.append(Item(kind, "", "unknown", problem.message))
            continue
        for stray, asked_by in candidates:
            try:
                ours = _tags(cloud, kind, asked_by).get(TAG) == work.deployment
            except FundoscopeError as problem:
                strays.append(Item(kind, stray, "unknown", problem.message))
                continue
            if ours:
                strays.append(_removed(cloud, kind, stray))
    return strays


def _candidates(cloud: Cloud, kind: str, name: str, work: Terraform) -> list[tuple[str, str]]:
    known = work.names()
    with one_sentence():
        candidates: list[tuple[str, str]] = or_none(KINDS[kind].find, cloud, name) or []
    return [(stray, asked_by) for stray, asked_by in candidates if (kind, stray) not in known]


def _tags(cloud: Cloud, kind: str, asked_by: str) -> dict[str, str]:
    with one_sentence():
        tags = or_none(KINDS[kind].tags, cloud, asked_by) or {}
    return tags if isinstance(tags, dict) else {tag["Key"]: tag["Value"] for tag in tags}


def _removed(cloud: Cloud, kind: str, name: str) -> Item:
    why = ""
    try:
        with one_sentence():
            KINDS[kind].remove(cloud, name)
    except FundoscopeError as problem:
        why = problem.message
    return state(cloud, kind, name, why=why)


def _asked_about(kind: str, name: str) -> tuple[str, str]:
    """A part of another part (a bucket's versioning) goes with that, whose name its own begins with."""
    return (OWNERS[kind], re.split("[:,]", name)[0]) if kind in OWNERS else (kind, name)


def _bucket_goes(cloud: Cloud, name: str) -> None:
    for page in cloud.s3.get_paginator("list_object_versions").paginate(Bucket=name):
        for version in [*page.get("Versions", []), *page.get("DeleteMarkers", [])]:
            cloud.s3.delete_object(Bucket=name, Key=version["Key"], VersionId=version["VersionId"])
    cloud.s3.delete_bucket(Bucket=name)


def _role_goes(cloud: Cloud, name: str) -> None:
    for policy in cloud.iam.list_role_policies(RoleName=name)["PolicyNames"]:
        cloud.iam.delete_role_policy(RoleName=name, PolicyName=policy)
    cloud.iam.delete_role(RoleName=name)


def _endpoint_goes(cloud: Cloud, name: str) -> None:
    cloud.sagemaker.delete_endpoint(EndpointName=name)
    cloud.sagemaker.get_waiter("endpoint_deleted").wait(EndpointName=name)


def _log_groups(cloud: Cloud, name: str) -> list[dict[str, Any]]:
    groups = cloud.logs.describe_log_groups(logGroupNamePrefix=name)["logGroups"]
    return [group for group in groups if group["logGroupName"] == name]


def _roles(cloud: Cloud, begins: str) -> list[tuple[str, str]]:
    pages = cloud.iam.get_paginator("list_roles").paginate()
    names = [role["RoleName"] for page in pages for role in page["Roles"]]
    return [(name, name) for name in names if name.startswith(begins)]


def _tags_in_sagemaker(cloud: Cloud, arn: str) -> Any:
    return cloud.sagemaker.list_tags(ResourceArn=arn)["Tags"]


# In the order in which they can go.
KINDS: dict[str, Kind] = {
    "aws_cloudwatch_metric_alarm": Kind(
        find=lambda cloud, name: [
            (alarm["AlarmName"], alarm["AlarmArn"])
            for alarm in cloud.cloudwatch.describe_alarms(AlarmNamePrefix=f"{name}-")["MetricAlarms"]
        ],
        tags=lambda cloud, arn: cloud.cloudwatch.list_tags_for_resource(ResourceARN=arn)["Tags"],
        there_is=lambda cloud, name: cloud.cloudwatch.describe_alarms(AlarmNames=[name])["MetricAlarms"],
        remove=lambda cloud, name: cloud.cloudwatch.delete_alarms(AlarmNames=[name]),
    ),
    "aws_sagemaker_endpoint": Kind(
        find=lambda cloud, name: [(name, cloud.sagemaker.describe_endpoint(EndpointName=name)["EndpointArn"])],
        tags=_tags_in_sagemaker,
        there_is=lambda cloud, name: cloud.sagemaker.describe_endpoint(EndpointName=name),
        remove=_endpoint_goes,
    ),
    "aws_sagemaker_endpoint_configuration": Kind(
        find=lambda cloud, name: [
            (config["EndpointConfigName"], config["EndpointConfigArn"])
            for page in cloud.sagemaker.get_paginator("list_endpoint_configs").paginate(NameContains=f"{name}-")
            for config in page["EndpointConfigs"]
        ],
        tags=_tags_in_sagemaker,
        there_is=lambda cloud, name: cloud.sagemaker.describe_endpoint_config(EndpointConfigName=name),
        remove=lambda cloud, name: cloud.sagemaker.delete_endpoint_config(EndpointConfigName=name),
    ),
    "aws_sagemaker_model": Kind(
        find=lambda cloud, name: [
            (model["ModelName"], model["ModelArn"])
            for page in cloud.sagemaker.get_paginator("list_models").paginate(NameContains=f"{name}-")
            for model in page["Models"]
        ],
        tags=_tags_in_sagemaker,
        there_is=lambda cloud, name: cloud.sagemaker.describe_model(ModelName=name),
        remove=lambda cloud, name: cloud.sagemaker.delete_model(ModelName=name),
    ),
    "aws_cloudwatch_log_group": Kind(
        find=lambda cloud, name: [
            (group["logGroupName"], group["arn"].removesuffix(":*"))
            for group in _log_groups(cloud, f"/aws/sagemaker/Endpoints/{name}")
        ],
        tags=lambda cloud, arn: cloud.logs.list_tags_for_resource(resourceArn=arn)["tags"],
        there_is=_log_groups,
        remove=lambda cloud, name: cloud.logs.delete_log_group(logGroupName=name),
    ),
    "aws_iam_role": Kind(
        find=lambda cloud, name: _roles(cloud, f"{name}-endpoint-"),
        tags=lambda cloud, name: cloud.iam.list_role_tags(RoleName=name)["Tags"],
        there_is=lambda cloud, name: cloud.iam.get_role(RoleName=name),
        remove=_role_goes,
    ),
    "aws_ecr_repository": Kind(
        find=lambda cloud, name: [
            (found["repositoryName"], found["repositoryArn"])
            for found in cloud.ecr.describe_repositories(repositoryNames=[f"{name}-server"])["repositories"]
        ],
        tags=lambda cloud, arn: cloud.ecr.list_tags_for_resource(resourceArn=arn)["tags"],
        there_is=lambda cloud, name: cloud.ecr.describe_repositories(repositoryNames=[name]),
        remove=lambda cloud, name: cloud.ecr.delete_repository(repositoryName=name, force=True),
    ),
    "aws_s3_bucket": Kind(
        find=lambda cloud, name: [
            (bucket["Name"], bucket["Name"])
            for bucket in cloud.s3.list_buckets()["Buckets"]
            if bucket["Name"].startswith(f"{name}-")
        ],
        tags=lambda _, name: {TAG: found[1]} if (found := BUCKET.search(name)) else {},  # it is tagged after it is made
        there_is=lambda cloud, name: cloud.s3.list_objects_v2(Bucket=name, MaxKeys=1),  # HEAD cannot say what is wrong
        remove=_bucket_goes,
    ),
}
OWNERS = {
    "aws_iam_role_policy": "aws_iam_role",
    "aws_s3_bucket_policy": "aws_s3_bucket",
    "aws_s3_bucket_public_access_block": "aws_s3_bucket",
    "aws_s3_bucket_server_side_encryption_configuration": "aws_s3_bucket",
    "aws_s3_bucket_versioning": "aws_s3_bucket",
}
# Asked about, and never looked for: without their endpoint they do nothing, and cost nothing.
SCALING: dict[str, Ask] = {
    "aws_appautoscaling_target": lambda cloud, name: cloud.application_autoscaling.describe_scalable_targets(
        ServiceNamespace="sagemaker", ResourceIds=[name]
    )["ScalableTargets"],
    "aws_appautoscaling_policy": lambda cloud, name: cloud.application_autoscaling.describe_scaling_policies(
        ServiceNamespace="sagemaker", PolicyNames=[name]
    )["ScalingPolicies"],
}
