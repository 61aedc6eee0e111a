"""What we ask SageMaker for, and what is up. Its limits are checked here, before anything is uploaded or paid for.

The limits are those of SageMaker's developer guide: "Serverless Inference", "CreateEndpointConfig", read in 2026.
"""

import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from fundoscope.errors import FundoscopeError, pick

MEMORY_MB = tuple(range(1024, 6145, 1024))
CONCURRENCY = range(1, 201)
COUNT = range(1, 1001)
NAME = re.compile(r"[a-z][a-z0-9-]{1,22}[a-z0-9]")
INSTANCE_TYPE = re.compile(r"ml\.[a-z]+[0-9][a-z0-9-]*\.[a-z0-9]+")
GRAVITON = re.compile(r"ml\.[a-z]+[0-9]+g[a-z]*\.")  # m6g, c7gn; not g4dn, g5
REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-[0-9]")
ADDRESS = re.compile(r"https?://[^/]")
DIGEST = re.compile(r"[0-9a-f]{64}")
TAG_LENGTH = 32  # of an image's own digest, hexadecimal: the same image has the same tag, and tags never move
# Where a registry's words for a processor differ from ours.
ARCHITECTURES: dict[str, "Architecture"] = {"linux/amd64": "x86-64", "linux/arm64": "arm64"}

Architecture = Literal["x86-64", "arm64"]


@dataclass(frozen=True)
class Serverless:
    """Billed while it works; the processor's share grows with the memory."""

    memory_mb: int = 2048
    max_concurrency: int = 5  # above it requests are throttled, not queued
    provisioned_concurrency: int = 0  # workers kept warm, and paid for

    def __post_init__(self) -> None:
        if self.memory_mb not in MEMORY_MB:
            sizes = ", ".join(map(str, MEMORY_MB))
            raise FundoscopeError(f"serverless endpoints have no size of {self.memory_mb} MB", f"use one of {sizes}")
        if self.max_concurrency not in CONCURRENCY:
            message = f"a serverless endpoint cannot have {self.max_concurrency} requests at once"
            raise FundoscopeError(message, "use 1 to 200; for more, a real-time endpoint")
        if not 0 <= self.provisioned_concurrency <= self.max_concurrency:
            message = f"{self.provisioned_concurrency} workers kept warm do not fit into {self.max_concurrency} at once"
            raise FundoscopeError(message, "use 0 (none) up to the maximum concurrency")

    @property
    def kind(self) -> str:
        return "serverless"

    @property
    def architecture(self) -> Architecture:
        return "x86-64"  # there is no way to ask for another


@dataclass(frozen=True)
class Autoscaling:
    """As many machines as keep each below so many requests a minute."""

    min_count: int
    max_count: int
    requests_per_minute: int  # of one machine

    def __post_init__(self) -> None:
        # To none at all: only with inference components, and requests fail until one is up again.
        if not (self.min_count in COUNT and self.max_count in COUNT and self.min_count <= self.max_count):
            message = f"it cannot scale between {self.min_count} and {self.max_count} machines"
            raise FundoscopeError(message, "use at least 1, and no more than the maximum, as in 1:4:300")
        if self.requests_per_minute < 1:
            raise FundoscopeError("a machine must be given at least 1 request a minute", "as in 1:4:300")


@dataclass(frozen=True)
class RealTime:
    """Machines that are up, and billed, until they are destroyed."""

    instance_type: str
    count: int = 1
    autoscaling: Autoscaling | None = None

    def __post_init__(self) -> None:
        if not INSTANCE_TYPE.fullmatch(self.instance_type):
            message = f"'{self.instance_type}' is not how SageMaker names a machine"
            raise FundoscopeError(message, "write it as ml.m5.xlarge; see `fundoscope prices list`")
        if self.count not in COUNT:
            raise FundoscopeError(f"an endpoint cannot have {self.count} machines", "use 1 or more")
        scaling = self.autoscaling
        if scaling and not scaling.min_count <= self.count <= scaling.max_count:
            message = f"{self.count} machines are not between {scaling.min_count} and {scaling.max_count}"
            raise FundoscopeError(message, "begin with a count that autoscaling would keep")

    @property
    def kind(self) -> str:
        return "real-time"

    @property
    def architecture(self) -> Architecture:
        return "arm64" if GRAVITON.match(self.instance_type) else "x86-64"


@dataclass(frozen=True)
class LocalImage:
    """An image that `fundoscope image build` made here."""

    tag: str
    digest: str  # of its configuration; a registry gives it another, that of its manifest
    platform: str
    engine: str

    @property
    def architecture(self) -> Architecture:
        return pick(ARCHITECTURES, self.platform, kind="platform")

    @property
    def registry_tag(self) -> str:
        return self.digest.removeprefix("sha256:")[:TAG_LENGTH]


def read_image(folder: Path) -> LocalImage:
    """What image.json says, in the folder that an image's build wrote it to."""
    path = folder / "image.json"
    if not path.is_file():
        hint = "build one: fundoscope image build, and give its folder, such as build/images/lean"
        raise FundoscopeError(f"{folder} holds no image.json", hint)
    table = json.loads(path.read_text(encoding="utf-8"))
    return LocalImage(table["tag"], table["digest"], table["platform"], table["engine"])


@dataclass(frozen=True)
class Wanted:
    """Everything that decides a deployment, but for the digest that a registry gives its image."""

    name: str  # what the names of all its parts begin with
    region: str
    artefact: str  # digest
    serving: Serverless | RealTime
    architecture: Architecture = "x86-64"  # of the image
    latency_alarm_ms: int = 2000
    alarm_topic_arn: str | None = None
    aws_endpoint: str | None = None  # an emulator of AWS, not AWS
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            hint = "use 3 to 24 small letters, digits and hyphens, beginning with a letter"
            raise FundoscopeError(f"'{self.name}' cannot be the name of a deployment", hint)
        if not REGION.fullmatch(self.region):
            raise FundoscopeError(f"'{self.region}' is not a region of AWS", "write it as us-east-1")
        if self.aws_endpoint is not None and not ADDRESS.match(self.aws_endpoint):
            raise FundoscopeError(f"'{self.aws_endpoint}' is not an address", "write it as http://127.0.0.1:5000")
        if not DIGEST.fullmatch(self.artefact):
            raise FundoscopeError(f"'{self.artefact}' is not the digest of an artefact", "give its folder")
        if self.architecture != self.serving.architecture:
            runs_on = self.serving.instance_type if isinstance(self.serving, RealTime) else "a serverless endpoint"
            message = f"the image is for {self.architecture}, and {runs_on} runs {self.serving.architecture}"
            platform = next(name for name, ours in ARCHITECTURES.items() if ours == self.serving.architecture)
            raise FundoscopeError(message, f"build it for that: fundoscope image build --platform {platform}")

    def variables(self, image_digest: str | None) -> dict[str, Any]:
        """What infra/ is told. Without an image: only the places that image and artefact are brought to."""
        kind = "serverless" if isinstance(self.serving, Serverless) else "real_time"
        endpoint = {
            "artefact_digest": self.artefact,
            "image_digest": image_digest,
            "architecture": self.architecture,
            kind: asdict(self.serving),
            "environment": self.environment,
            "latency_alarm_ms": self.latency_alarm_ms,
            "alarm_topic_arn": self.alarm_topic_arn,
        }
        return {
            "prefix": self.name,
            "region": self.region,
            "aws_endpoint": self.aws_endpoint,
            "endpoint": endpoint if image_digest else None,
        }


@dataclass(frozen=True)
class Endpoint:
    """What is up, as Terraform left it: endpoint.json."""

    name: str
    region: str
    kind: Literal["serverless", "real-time"]
    variant: str
    config: str
    model: str
    image: str  # repository@sha256:…
    model_data: str  # s3://…
    artefact: str  # digest
    aws_endpoint: str | None = None

    @property
    def image_digest(self) -> str:
        return self.image.rpartition("@")[2]

    def to_json(self) -> dict[str, Any]:
        """What endpoint.json holds."""
        return asdict(self)


@dataclass(frozen=True)
class Check:
    """What was deployed, what is there, and how that is known."""

    what: str
    wanted: str
    found: str
    kind: Literal["proven", "read"]  # by an answer of the endpoint itself, or in what somebody else wrote down of it
    source: str  # whose word it is
    why: str = ""  # it is unknown

    @property
    def holds(self) -> bool:
        return self.wanted == self.found


@dataclass(frozen=True)
class Item:
    """A part of a deployment that was destroyed, and what AWS says of it now."""

    kind: str
    id: str  # AWS's name of it; empty: those of this kind that Terraform does not know of
    now: Literal["gone", "there", "unknown"]
    why: str = ""  # it is unknown, or could not be removed

    @property
    def gone(self) -> bool:
        return self.now == "gone"

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"gone": self.gone}


def endpoint_of(outputs: dict[str, Any], variables: dict[str, Any]) -> Endpoint:
    """From what Terraform says it made, and what it was told."""
    made = outputs.get("endpoint")
    if not made:
        raise FundoscopeError("this deployment has no endpoint yet", "finish it: fundoscope deploy apply …")
    return Endpoint(
        name=made["name"],
        region=variables["region"],
        kind="serverless" if variables["endpoint"].get("serverless") else "real-time",
        variant=made["variant"],
        config=made["config"],
        model=made["model"],
        image=made["image"],
        model_data=made["model_data"],
        artefact=made["artefact_digest"],
        aws_endpoint=variables["aws_endpoint"],
    )
