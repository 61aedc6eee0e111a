"""An artefact and an image into the cloud, the proof that they are what answers there, and the way back.

What stays up is Terraform's (infra/, deploy/terraform.py). What is brought there, and what is asked afterwards, is
boto3's. The image is pushed by the engine that built it (docker, podman or buildah), not by us.
"""

import json
import shutil
import subprocess
from base64 import b64decode
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from fundoscope.artefact.artefact import ARCHIVE, Artefact, pack
from fundoscope.deploy.aws import Cloud, one_sentence
from fundoscope.deploy.endpoint import Check, Endpoint, Item, LocalImage, Wanted, endpoint_of
from fundoscope.deploy.engines import ENGINES, run
from fundoscope.deploy.parts import KINDS, exists, or_none, refuse_taken, remove_strays
from fundoscope.deploy.terraform import VARIABLES, Change, Terraform
from fundoscope.deploy.troubles import ROLLED_BACK, trouble
from fundoscope.errors import FundoscopeError, pick
from fundoscope.progress import Track, quiet
from fundoscope.provenance import sha256_file, write_json

PLACES = ("module.bucket.aws_s3_bucket.artefacts", "module.registry.aws_ecr_repository.server")
SILENT, GONE = "it does not say", "AWS no longer has it"
# Docker's manifest type: SageMaker takes no other.
PUSH: dict[str, tuple[tuple[str, ...], ...]] = {
    "docker": (("docker", "tag", "{image}", "{target}"), ("docker", "push", "--quiet", "{target}")),
    "podman": (("podman", "push", "--quiet", "--format", "v2s2", "{image}", "{target}"),),
    "buildah": (("buildah", "push", "--quiet", "--format", "v2s2", "{image}", "docker://{target}"),),
}


def plan(wanted: Wanted, image: LocalImage | str, work: Terraform, infra: Path) -> list[Change]:
    """What `apply` would change. What an image not yet pushed will be called is not known: its own digest stands in."""
    with work.alone(), Cloud(wanted.region, wanted.aws_endpoint) as cloud:
        _same_place(wanted, work)
        digest = None
        if set(PLACES) <= work.parts():
            digest = _image_digest(cloud, work.outputs()["repository"], image)
        elif not work.unfinished and not work.parts():
            refuse_taken(cloud, wanted.name)
        work.prepare(infra, wanted.variables(digest or (image if isinstance(image, str) else image.digest)))
        return work.plan()


def apply(
    wanted: Wanted, artefact: Artefact, image: LocalImage | str, work: Terraform, infra: Path, *, track: Track = quiet
) -> Endpoint:
    """Bring up what is wanted, or bring what is up to it. Interrupted, the same call goes on from there.

    `image`: one built here, or the digest of one that is in the deployment's registry.
    """
    found = dict[str, Any]()
    with work.alone(), Cloud(wanted.region, wanted.aws_endpoint) as cloud:
        _same_place(wanted, work)
        steps: dict[str, Callable[[], Any]] = {
            "what is there": lambda: _begin(cloud, wanted, work),
            "places": lambda: _places(wanted, work, infra),
            "artefact": lambda: upload(cloud, found["places"]["bucket"], artefact),
            "image": lambda: push(cloud, found["places"], image, log=work.log),
            "endpoint": lambda: _endpoint(wanted, found["image"], work, infra),
            "in service": lambda: wait(cloud, found["endpoint"]),
        }
        for name in track(steps, total=len(steps), label=f"deploying {wanted.name}"):
            found[name] = steps[name]()
    endpoint: Endpoint = found["endpoint"]
    return endpoint


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
    """Until it is in service with what it was given, or an error that says why it never will be.

    infra/ asks Terraform whether SageMaker went back to the former configuration; this is for one that did so later.
    """
    problems: Any = import_module("botocore.exceptions")
    with one_sentence():
        with suppress(problems.WaiterError):
            cloud.sagemaker.get_waiter("endpoint_in_service").wait(EndpointName=endpoint.name)
        found = cloud.sagemaker.describe_endpoint(EndpointName=endpoint.name)
    if found["EndpointStatus"] != "InService":
        reason = found.get("FailureReason") or f"its status is {found['EndpointStatus']}"
        raise trouble(f"{endpoint.name} is not in service: {reason}")
    if found["EndpointConfigName"] != endpoint.config:
        raise FundoscopeError(*ROLLED_BACK)


def verify(cloud: Cloud, endpoint: Endpoint, photo: bytes, *, content_type: str) -> list[Check]:
    """What answers is what was deployed: by what AWS says of it, and by what it says of itself."""
    with one_sentence():
        up = cloud.sagemaker.describe_endpoint(EndpointName=endpoint.name)
        config = or_none(KINDS["aws_sagemaker_endpoint_configuration"].there_is, cloud, up["EndpointConfigName"])
        model = config["ProductionVariants"][0]["ModelName"] if config else GONE
        found = or_none(KINDS["aws_sagemaker_model"].there_is, cloud, model) if config else None
        container = found["PrimaryContainer"] if found else {}
        answer = cloud.sagemaker_runtime.invoke_endpoint(
            EndpointName=endpoint.name, ContentType=content_type, Accept="application/json", Body=photo
        )["Body"].read()
    said = _said(answer)
    checks = [
        Check("status", "InService", up["EndpointStatus"]),
        Check("configuration", endpoint.config, up["EndpointConfigName"]),
        Check("model", endpoint.model, model),
        Check("image", endpoint.image, container.get("Image", GONE)),
        Check("artefact's address", endpoint.model_data, container.get("ModelDataUrl", GONE)),
        Check("artefact, by its answer", endpoint.artefact, said.get("artefact") or SILENT),
        Check("image, by its answer", endpoint.image_digest, said.get("container", {}).get("image") or SILENT),
    ]
    for running in [image for part in up.get("ProductionVariants", []) for image in part.get("DeployedImages", [])]:
        found = running["ResolvedImage"].rpartition("@")[2]
        checks.append(Check("image, as resolved", endpoint.image_digest, found))
    return checks


def destroy(work: Terraform) -> list[Item]:
    """Everything of this deployment, item by item; the folder goes too once AWS says that all is gone."""
    items: list[Item] = []
    with work.alone():
        if (work.folder / VARIABLES).is_file():
            variables, unfinished = work.variables, work.unfinished
            with Cloud(variables["region"], variables["aws_endpoint"]) as cloud:
                if work.parts():
                    work.init()
                    removed = [part for part in work.destroy() if part.kind.startswith("aws_")]
                    items = [Item(part.kind, part.id, gone=not exists(cloud, part.kind, part.id)) for part in removed]
                if unfinished:
                    items += remove_strays(cloud, variables["prefix"], work)
        if all(item.gone for item in items):
            shutil.rmtree(work.folder)
    return items


def _same_place(wanted: Wanted, work: Terraform) -> None:
    """Another region is another deployment: Terraform would look for the old one there, and not find it."""
    if not work.parts():
        return
    before = work.variables
    for name, now in (("region", wanted.region), ("aws_endpoint", wanted.aws_endpoint)):
        if before[name] != now:
            message = f"{wanted.name} is up at {before[name] or 'AWS'}, not at {now or 'AWS'}"
            raise FundoscopeError(message, "use another --name, or destroy it first")


def _begin(cloud: Cloud, wanted: Wanted, work: Terraform) -> None:
    if work.unfinished:
        remove_strays(cloud, wanted.name, work)
    if not work.parts():
        refuse_taken(cloud, wanted.name)


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
