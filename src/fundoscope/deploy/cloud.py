"""An artefact and an image into the cloud, the proof that they are what answers there, and the way back.

What stays up is Terraform's (infra/, deploy/terraform.py). What is brought there, and what is asked afterwards, is
boto3's. The image is pushed by the engine that built it (docker, podman or buildah), not by us.
"""

import json
import shutil
import subprocess
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from fundoscope.artefact.artefact import ARCHIVE, Artefact, pack
from fundoscope.deploy.endpoint import Check, Endpoint, Item, LocalImage, Wanted, endpoint_of
from fundoscope.deploy.engines import ENGINES, run
from fundoscope.deploy.terraform import STATE, Change, Terraform, trouble
from fundoscope.errors import FundoscopeError, pick
from fundoscope.progress import Track, quiet
from fundoscope.provenance import sha256_file, write_json

PLACES = ("module.bucket.aws_s3_bucket.artefacts", "module.registry.aws_ecr_repository.server")
# Docker's manifest type: SageMaker takes no other.
PUSH: dict[str, tuple[tuple[str, ...], ...]] = {
    "docker": (("docker", "tag", "{image}", "{target}"), ("docker", "push", "--quiet", "{target}")),
    "podman": (("podman", "push", "--quiet", "--format", "v2s2", "{image}", "{target}"),),
    "buildah": (("buildah", "push", "--quiet", "--format", "v2s2", "{image}", "docker://{target}"),),
}


class Cloud:
    """AWS in one region, or an emulator of it."""

    def __init__(self, region: str, aws_endpoint: str | None = None) -> None:
        try:
            boto3: Any = import_module("boto3")
        except ModuleNotFoundError:
            raise FundoscopeError("boto3 is not installed here", "pip install 'fundoscope[aws]'") from None
        self._session = boto3.session.Session(region_name=region)
        self._address = aws_endpoint
        self._clients: dict[str, Any] = {}

    def __getattr__(self, service: str) -> Any:
        """A client, by the name of the service with _ for -: cloud.s3, cloud.sagemaker_runtime."""
        if service.startswith("_"):
            raise AttributeError(service)
        if service not in self._clients:  # slow to make
            self._clients[service] = self._session.client(service.replace("_", "-"), endpoint_url=self._address)
        return self._clients[service]

    def __enter__(self) -> "Cloud":
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients.values():
            client.close()


@contextmanager
def one_sentence() -> Iterator[None]:
    """AWS's errors as ours."""
    botocore: Any = import_module("botocore.exceptions")
    boto3: Any = import_module("boto3.exceptions")
    try:
        yield
    except (botocore.ClientError, botocore.BotoCoreError, boto3.Boto3Error) as problem:
        raise trouble(str(problem)) from None


def plan(wanted: Wanted, image: LocalImage | str, work: Terraform, infra: Path) -> list[Change]:
    """What `apply` would change. What an image not yet pushed will be called is not known: its own digest stands in."""
    _same_place(wanted, work)
    digest = None
    if set(PLACES) <= work.parts():
        with Cloud(wanted.region, wanted.aws_endpoint) as cloud:
            digest = _image_digest(cloud, work.outputs()["repository"], image)
    work.prepare(infra, wanted.variables(digest or (image if isinstance(image, str) else image.digest)))
    return work.plan()


def apply(
    wanted: Wanted, artefact: Artefact, image: LocalImage | str, work: Terraform, infra: Path, *, track: Track = quiet
) -> Endpoint:
    """Bring up what is wanted, or bring what is up to it. Interrupted, the same call goes on from there.

    `image`: one built here, or the digest of one that is in the deployment's registry.
    """
    _same_place(wanted, work)
    cloud, found = Cloud(wanted.region, wanted.aws_endpoint), dict[str, Any]()
    steps: dict[str, Callable[[], Any]] = {
        "places": lambda: _places(wanted, work, infra),
        "artefact": lambda: upload(cloud, found["places"]["bucket"], artefact),
        "image": lambda: push(cloud, found["places"], image, log=work.log),
        "endpoint": lambda: _endpoint(wanted, found["image"], work, infra),
        "in service": lambda: wait(cloud, found["endpoint"]),
    }
    with cloud:
        for name in track(steps, total=len(steps), label=f"deploying {wanted.name}"):
            found[name] = steps[name]()
    endpoint: Endpoint = found["endpoint"]
    return endpoint


@contextmanager
def deployed(
    wanted: Wanted, artefact: Artefact, image: LocalImage | str, work: Terraform, infra: Path
) -> Iterator[Endpoint]:
    """Up while the block runs, and destroyed whatever happens in it."""
    try:
        yield apply(wanted, artefact, image, work, infra)
    finally:
        destroy(work)


def upload(cloud: Cloud, bucket: str, artefact: Artefact) -> str:
    """The artefact's address, its digest in it. What is there already is not brought again."""
    archive = pack(artefact)
    key, sha256 = f"artefacts/{artefact.digest}/{ARCHIVE}", sha256_file(archive)
    with one_sentence():
        there = cloud.s3.list_objects_v2(Bucket=bucket, Prefix=key).get("KeyCount", 0)
        if not there or cloud.s3.head_object(Bucket=bucket, Key=key)["Metadata"].get("sha256") != sha256:
            # Each part's own sum is checked on arrival; ours is of the whole, to be read later.
            extra = {"Metadata": {"sha256": sha256}, "ChecksumAlgorithm": "SHA256"}
            cloud.s3.upload_file(str(archive), bucket, key, ExtraArgs=extra)
    return f"s3://{bucket}/{key}"


def push(cloud: Cloud, places: dict[str, Any], image: LocalImage | str, *, log: Path) -> str:
    """The digest under which the registry has the image."""
    if digest := _image_digest(cloud, places["repository"], image):
        return digest
    if isinstance(image, str):
        message = f"the registry {places['repository']} has no image {image}"
        raise FundoscopeError(message, f"push it to {places['repository_url']}, and run the same command again")
    with one_sentence():
        (entry,) = cloud.ecr.get_authorization_token()["authorizationData"]
    engine = pick(ENGINES, image.engine, kind="container engine")
    host = places["repository_url"].partition("/")[0]
    user, _, password = b64decode(entry["authorizationToken"]).decode().partition(":")
    # Not as an argument, which others on this machine could read.
    login = [engine.name, "login", "--username", user, "--password-stdin", host]
    entered = subprocess.run(login, input=password, capture_output=True, text=True, check=False)
    if entered.returncode != 0:
        raise FundoscopeError(f"{engine.name} cannot enter {host}: {entered.stderr.strip()[-300:]}", "check the region")
    words = {"image": image.tag, "target": f"{places['repository_url']}:{image.registry_tag}"}
    for command in PUSH[engine.name]:
        run(tuple(part.format(**words) for part in command), doing=f"push {image.tag}", log=log)
    digest = _image_digest(cloud, places["repository"], image)
    if not digest:
        raise FundoscopeError(f"{image.tag} was pushed, and {places['repository']} does not have it", f"see {log}")
    return digest


def wait(cloud: Cloud, endpoint: Endpoint) -> None:
    """Until it is in service, or an error that says why it never will be."""
    problems: Any = import_module("botocore.exceptions")
    with one_sentence():
        try:
            cloud.sagemaker.get_waiter("endpoint_in_service").wait(EndpointName=endpoint.name)
        except problems.WaiterError:
            found = cloud.sagemaker.describe_endpoint(EndpointName=endpoint.name)
            reason = found.get("FailureReason") or f"its status is {found['EndpointStatus']}"
            raise trouble(f"{endpoint.name} is not in service: {reason}") from None


def verify(cloud: Cloud, endpoint: Endpoint, photo: bytes, *, content_type: str) -> list[Check]:
    """What answers is what was deployed: by what AWS says of it, and by what it says of itself.

    An update that fails is rolled back, and Terraform has been known to call that a success.
    """
    with one_sentence():
        up = cloud.sagemaker.describe_endpoint(EndpointName=endpoint.name)
        config = cloud.sagemaker.describe_endpoint_config(EndpointConfigName=up["EndpointConfigName"])
        (variant,) = config["ProductionVariants"]
        container = cloud.sagemaker.describe_model(ModelName=variant["ModelName"])["PrimaryContainer"]
        answer = cloud.sagemaker_runtime.invoke_endpoint(
            EndpointName=endpoint.name, ContentType=content_type, Accept="application/json", Body=photo
        )["Body"].read()
    said = _said(answer)
    checks = [
        Check("status", "InService", up["EndpointStatus"]),
        Check("configuration", endpoint.config, up["EndpointConfigName"]),
        Check("model", endpoint.model, variant["ModelName"]),
        Check("image", endpoint.image, container["Image"]),
        Check("artefact's address", endpoint.model_data, container["ModelDataUrl"]),
        Check("artefact, by its answer", endpoint.artefact, said.get("artefact", "it does not say")),
    ]
    if "image" in said:
        checks.append(Check("image, by its answer", endpoint.image_digest, said["image"]))
    for running in [image for part in up.get("ProductionVariants", []) for image in part.get("DeployedImages", [])]:
        found = running["ResolvedImage"].rpartition("@")[2]
        checks.append(Check("image, as resolved", endpoint.image_digest, found))
    return checks


def destroy(work: Terraform) -> list[Item]:
    """Everything of this deployment, item by item; the folder goes too once AWS says that all is gone."""
    items: list[Item] = []
    if (work.folder / STATE).is_file():
        variables = work.variables
        work.init()
        with Cloud(variables["region"], variables["aws_endpoint"]) as cloud:
            removed = [part for part in work.destroy() if part.kind.startswith("aws_")]
            items = [Item(part.kind, part.id, gone=not exists(cloud, part.kind, part.id)) for part in removed]
    if all(item.gone for item in items):
        shutil.rmtree(work.folder)
    return items


def exists(cloud: Cloud, kind: str, name: str) -> bool:
    """Whether AWS still has it. Parts of something else (a bucket's versioning) go with that."""
    problems: Any = import_module("botocore.exceptions")
    with one_sentence():
        try:
            found = LOOKUPS[kind](cloud, name) if kind in LOOKUPS else None
        except problems.ClientError as problem:
            if any(word in str(problem) for word in ("NotFound", "NoSuch", "404", "Could not find")):
                return False
            raise
    return bool(found)


# Whether there is such a thing: empty or an error where there is not.
LOOKUPS: dict[str, Callable[[Cloud, str], Any]] = {
    "aws_s3_bucket": lambda cloud, name: cloud.s3.head_bucket(Bucket=name),
    "aws_ecr_repository": lambda cloud, name: cloud.ecr.describe_repositories(repositoryNames=[name]),
    "aws_iam_role": lambda cloud, name: cloud.iam.get_role(RoleName=name),
    "aws_sagemaker_model": lambda cloud, name: cloud.sagemaker.describe_model(ModelName=name),
    "aws_sagemaker_endpoint_configuration": lambda cloud, name: cloud.sagemaker.describe_endpoint_config(
        EndpointConfigName=name
    ),
    "aws_sagemaker_endpoint": lambda cloud, name: cloud.sagemaker.describe_endpoint(EndpointName=name),
    "aws_cloudwatch_log_group": lambda cloud, name: [
        group
        for group in cloud.logs.describe_log_groups(logGroupNamePrefix=name)["logGroups"]
        if group["logGroupName"] == name
    ],
    "aws_cloudwatch_metric_alarm": lambda cloud, name: cloud.cloudwatch.describe_alarms(AlarmNames=[name])[
        "MetricAlarms"
    ],
}


def _same_place(wanted: Wanted, work: Terraform) -> None:
    """Another region is another deployment: Terraform would look for the old one there, and not find it."""
    if not work.parts():
        return
    before = work.variables
    for name, now in (("region", wanted.region), ("aws_endpoint", wanted.aws_endpoint)):
        if before[name] != now:
            message = f"{wanted.name} is up at {before[name] or 'AWS'}, not at {now or 'AWS'}"
            raise FundoscopeError(message, "use another --name, or destroy it first")


def _places(wanted: Wanted, work: Terraform, infra: Path) -> dict[str, Any]:
    """Bucket and registry. Only made where they are missing: with these variables an endpoint would be destroyed."""
    if not set(PLACES) <= work.parts():
        work.prepare(infra, wanted.variables(None))
        work.apply()
    return work.outputs()


def _endpoint(wanted: Wanted, image_digest: str, work: Terraform, infra: Path) -> Endpoint:
    variables = wanted.variables(image_digest)
    work.prepare(infra, variables)
    work.apply()
    endpoint = endpoint_of(work.outputs(), variables)
    write_json(work.folder / "endpoint.json", endpoint.to_json())
    return endpoint


def _image_digest(cloud: Cloud, repository: str, image: LocalImage | str) -> str | None:
    """The registry's digest of an image, where it has it."""
    by = {"imageDigest": image} if isinstance(image, str) else {"imageTag": image.registry_tag}
    with one_sentence():
        try:
            (found,) = cloud.ecr.describe_images(repositoryName=repository, imageIds=[by])["imageDetails"]
        except cloud.ecr.exceptions.ImageNotFoundException:
            return None
    digest: str = found["imageDigest"]
    return digest


def _said(answer: bytes) -> dict[str, Any]:
    try:
        found = json.loads(answer)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
