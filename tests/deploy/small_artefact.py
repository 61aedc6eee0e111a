"""The smallest artefact that a server opens, and what else a deployment is made from."""

import argparse
import json
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import onnx
from onnx import TensorProto, helper

from fundoscope.artefact.artefact import GRADES, NOTICE, Artefact, Input, OperatingPoint, Output, write
from fundoscope.cli import deploy
from fundoscope.cli.command import Answer
from fundoscope.data.gradability import GradabilityRule
from fundoscope.data.photo import Preparation
from fundoscope.deploy.aws import Cloud
from fundoscope.deploy.endpoint import LocalImage
from fundoscope.deploy.parts import TAG
from fundoscope.provenance import write_json

REGION = "us-east-1"
ROLE = "arn:aws:iam::123456789012:role/any"


def grader(brightness: float = 1.0) -> bytes:
    """A model: the mean colour of a photograph, weighed."""
    weights = [brightness * (row - column) / 255 for row in range(3) for column in range(5)]
    graph = helper.make_graph(
        [
            helper.make_node("Cast", ["photograph"], ["colours"], to=TensorProto.FLOAT),
            helper.make_node("ReduceMean", ["colours", "axes"], ["mean"], keepdims=0),
            helper.make_node("MatMul", ["mean", "weights"], ["scores"]),
            helper.make_node("Softmax", ["scores"], ["probabilities"], axis=1),
        ],
        "mean-colour",
        [helper.make_tensor_value_info("photograph", TensorProto.UINT8, ["n", 64, 64, 3])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["n", 5])],
        [
            helper.make_tensor("axes", TensorProto.INT64, [2], [1, 2]),
            helper.make_tensor("weights", TensorProto.FLOAT, [3, 5], weights),
        ],
    )
    opset = [helper.make_opsetid("", 18)]
    return bytes(helper.make_model(graph, opset_imports=opset, ir_version=10).SerializeToString())


def make_artefact(folder: Path, model: bytes) -> Artefact:
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(model)
    return write(
        Artefact(
            folder=folder,
            version=1,
            digest="",
            format="onnx",
            precision="float32",
            files=(),  # writing lists them
            input=Input("photograph", "uint8", (None, 64, 64, 3), Preparation(64), GradabilityRule()),
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


def make_image(folder: Path, content: str, platform: str = "linux/amd64") -> LocalImage:
    """As `fundoscope image build` leaves it in `folder`; there is no image."""
    image = LocalImage("fundoscope:lean", f"sha256:{content * 64}", platform, "podman")
    write_json(folder / "image.json", vars(image))
    return image


def put_image(cloud: Cloud, repository: str, image: LocalImage) -> str:
    """As an engine's push would leave it; the registry's digest."""
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
        "config": {"digest": image.digest, "size": 1},
        "layers": [],
    }
    put = cloud.ecr.put_image(
        repositoryName=repository, imageManifest=json.dumps(manifest), imageTag=image.registry_tag
    )
    return str(put["image"]["imageId"]["imageDigest"])


def make_model(cloud: Cloud, name: str, container: dict[str, Any]) -> None:
    """And a configuration of the same name."""
    cloud.sagemaker.create_model(ModelName=name, ExecutionRoleArn=ROLE, PrimaryContainer=container)
    serverless = {"MemorySizeInMB": 1024, "MaxConcurrency": 1}
    variants = [{"VariantName": "grader", "ModelName": name, "ServerlessConfig": serverless}]
    cloud.sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=variants)


def make_parts(cloud: Cloud, name: str, deployment: str) -> dict[str, str]:
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


def tell(aws: str, **order: str) -> None:
    """The double, what to go wrong with."""
    with urlopen(Request(f"{aws}/double", json.dumps(order).encode(), {"Content-Type": "application/json"})):
        pass


def forget(aws: str) -> None:
    """Nothing goes wrong any more."""
    with urlopen(Request(f"{aws}/double", method="DELETE")):
        pass


def unanswered(aws: str) -> list[str]:
    with urlopen(f"{aws}/double") as said:
        found: list[str] = json.load(said)
    return found


def deploy_here(*arguments: object) -> Answer:
    """As on the command line."""
    parser = argparse.ArgumentParser()
    deploy.add_commands(parser.add_subparsers())
    parsed = parser.parse_args(["deploy", *map(str, arguments)])
    answer: Answer = parsed.run(parsed)
    return answer


def variant(cloud: Cloud, config: str) -> dict[str, Any]:
    (found,) = cloud.sagemaker.describe_endpoint_config(EndpointConfigName=config)["ProductionVariants"]
    return dict(found)


if __name__ == "__main__":
    import sys

    onnx.checker.check_model(onnx.load_from_string(grader()))
    print(make_artefact(Path(sys.argv[1]), grader()).digest)
