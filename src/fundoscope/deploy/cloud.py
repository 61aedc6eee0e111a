"""An artefact and an image into the cloud, and the way back. Whether they are what answers there: deploy/checks.py.

What stays up is Terraform's (infra/, deploy/terraform.py). What is brought there, and what is asked afterwards, is
boto3's. The image is pushed by the engine that built it (docker, podman or buildah), not by us.
"""

import hashlib
import json
import shutil
from base64 import b64decode, b64encode
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from fundoscope.artefact.artefact import ARCHIVE, Artefact, pack
from fundoscope.deploy.aws import Cloud, one_sentence
from fundoscope.deploy.endpoint import Endpoint, Item, LocalImage, Wanted, endpoint_of
from fundoscope.deploy.engines import ENGINES, logged_in, run
from fundoscope.deploy.parts import refuse_taken, remove_strays, state
from fundoscope.deploy.terraform import VARIABLES, Change, Terraform
from fundoscope.deploy.troubles import ROLLED_BACK, trouble
from fundoscope.errors import FundoscopeError, pick
from fundoscope.progress import Track, quiet
from fundoscope.provenance import sha256_file, write_json

PLACES = ("module.bucket.aws_s3_bucket.artefacts", "module.registry.aws_ecr_repository.server")
LEFT = "left.json"  # in a deployment's folder: parts that AWS did not say were gone, to be asked about again
PART = 8 * 2**20  # bytes; a larger archive is brought in parts of this size, and S3's checksum is of their checksums
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
    """The artefact's address, its digest in it. What is there already is not brought again.

    Whether it is there, AWS's own checksum of the stored bytes says: metadata can be copied onto any bytes.
    """
    archive = pack(artefact)
    key, checksum = f"artefacts/{artefact.digest}/{ARCHIVE}", _checksum(archive)
    transfer: Any = import_module("boto3.s3.transfer")
    with one_sentence():
        if _stored_checksum(cloud, bucket, key) != checksum:
            extra = {"Metadata": {"sha256": sha256_file(archive)}, "ChecksumAlgorithm": "SHA256"}
            parts = transfer.TransferConfig(multipart_threshold=PART, multipart_chunksize=PART)
            cloud.s3.upload_file(str(archive), bucket, key, ExtraArgs=extra, Config=parts)
            if _stored_checksum(cloud, bucket, key) != checksum:
                message = f"s3://{bucket}/{key} does not hold the bytes that were brought there"
                raise FundoscopeError(message, "run the same command again; see who else writes to that bucket")
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
    words = {"image": image.tag, "target": f"{places['repository_url']}:{image.registry_tag}"}
    with logged_in(engine, host, user, password) as environment:
        for command in PUSH[engine.name]:
            filled = tuple(part.format(**words) for part in command)
            run(filled, doing=f"push {image.tag}", log=log, environment=environment)
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


def destroy(work: Terraform) -> list[Item]:
    """Everything of this deployment, item by item; the folder goes too once AWS says that all is gone.

    Where AWS does not say so of a part, the folder stays, and the same call asks again.
    """
    items: list[Item] = []
    with work.alone():
        if (work.folder / VARIABLES).is_file():
            items = _destroyed(work)
        elif work.parts():
            hint = f"bring {VARIABLES} back: it has the region, and what the parts are tagged with"
            raise FundoscopeError(f"{work.folder} does not say where its parts are", hint)
        left = [item for item in items if not item.gone]
        if left:
            write_json(work.folder / LEFT, [(item.kind, item.id) for item in left if item.id])
            work.mark_unfinished()
        else:
            shutil.rmtree(work.folder)
    return items


def _destroyed(work: Terraform) -> list[Item]:
    variables, unfinished = work.variables, work.unfinished
    names = {(kind, name) for kind, name in work.names() if kind.startswith("aws_")} | _left(work)
    with Cloud(variables["region"], variables["aws_endpoint"]) as cloud:
        if work.parts():
            # Before, because afterwards Terraform's state no longer has the names to ask AWS about.
            write_json(work.folder / LEFT, sorted(names))
            work.init()
            work.destroy()
        strays = remove_strays(cloud, variables["prefix"], work) if unfinished else []
        asked = {(item.kind, item.id) for item in strays}
        return [state(cloud, kind, name) for kind, name in sorted(names - asked)] + strays


def _left(work: Terraform) -> set[tuple[str, str]]:
    """Of an earlier `destroy`: what AWS did not say was gone."""
    path = work.folder / LEFT
    return {(kind, name) for kind, name in json.loads(path.read_text(encoding="utf-8"))} if path.is_file() else set()


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
        left = [item for item in remove_strays(cloud, wanted.name, work) if not item.gone]
        if left:  # going on would end the search for them
            message = f"{left[0].kind} {left[0].id} may be left of a Terraform that was killed: {left[0].why}"
            raise FundoscopeError(message, "mend that, and run the same command again")
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


def _stored_checksum(cloud: Cloud, bucket: str, key: str) -> str:
    """AWS's, of what it has under that key; empty where that is nothing, or was brought there without one."""
    if not cloud.s3.list_objects_v2(Bucket=bucket, Prefix=key).get("KeyCount", 0):
        return ""
    checksum: str = cloud.s3.head_object(Bucket=bucket, Key=key, ChecksumMode="ENABLED").get("ChecksumSHA256", "")
    return checksum.partition("-")[0]  # after it, of one brought in parts: their number


def _checksum(path: Path) -> str:
    """As S3 will have it: of the file, or, of one brought in parts, of the parts' checksums."""
    with path.open("rb") as file:
        parts = [hashlib.sha256(part).digest() for part in iter(lambda: file.read(PART), b"")]
    whole = path.stat().st_size < PART
    return b64encode(parts[0] if whole else hashlib.sha256(b"".join(parts)).digest()).decode()
