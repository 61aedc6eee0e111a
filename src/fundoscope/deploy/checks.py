"""Whether what answers is what was deployed, and how that is known.

Proven: the server that answered computes its artefact's digest from the files it opened. Read: what somebody wrote
down, AWS of its own parts, or infra/ in the container's environment; true of what runs as far as the writer is right.
"""

import json
from dataclasses import dataclass
from typing import Any

from fundoscope.deploy.aws import Cloud, one_sentence, or_none
from fundoscope.deploy.endpoint import Check, Endpoint
from fundoscope.deploy.parts import KINDS
from fundoscope.deploy.troubles import trouble
from fundoscope.errors import FundoscopeError

SILENT, GONE, UNKNOWN = "it does not say", "AWS no longer has it", "unknown"
ANSWER, DESCRIPTION, RESOLVED = "the endpoint's answer", "AWS's description", "AWS's description of what it pulled"
ENVIRONMENT = "the container's environment, in the answer"


def verify(cloud: Cloud, endpoint: Endpoint, photo: bytes, *, content_type: str) -> list[Check]:
    """What answers is what was deployed: read in what AWS writes down of it, proven by what the endpoint answers.

    What AWS does not tell these credentials is unknown, which is not as deployed; the rest is compared all the same.
    """
    checks = _described(cloud, endpoint)
    with one_sentence():
        answer = cloud.sagemaker_runtime.invoke_endpoint(
            EndpointName=endpoint.name, ContentType=content_type, Accept="application/json", Body=photo
        )["Body"].read()
    table = _table(answer)
    artefact, image = table.get("artefact") or SILENT, table.get("container", {}).get("image") or SILENT
    return [
        *checks,
        Check("artefact, by its answer", endpoint.artefact, artefact, "proven", ANSWER),
        Check("image, by its answer", endpoint.image_digest, image, "read", ENVIRONMENT),
    ]


def _described(cloud: Cloud, endpoint: Endpoint) -> list[Check]:
    """Each description names the next: where one is missing or unknown, so is what it would have led to."""
    up = _description(cloud, "aws_sagemaker_endpoint", endpoint.name)
    if not up.table and not up.why:
        raise trouble(f"Could not find endpoint {endpoint.name}")
    config_name = up.table.get("EndpointConfigName")
    config = _description(cloud, "aws_sagemaker_endpoint_configuration", config_name, why=up.why)
    model_name = (config.table.get("ProductionVariants") or [{}])[0].get("ModelName")
    model = _description(cloud, "aws_sagemaker_model", model_name, why=config.why)
    container = model.table.get("PrimaryContainer", {})
    running = [image for part in up.table.get("ProductionVariants", []) for image in part.get("DeployedImages", [])]
    digests = [image["ResolvedImage"].rpartition("@")[2] for image in running]
    return [
        up.check("status", "InService", up.table.get("EndpointStatus")),
        up.check("configuration", endpoint.config, config_name),
        config.check("model", endpoint.model, model_name),
        model.check("image", endpoint.image, container.get("Image")),
        model.check("artefact's address", endpoint.model_data, container.get("ModelDataUrl")),
        *[Check("image, as resolved", endpoint.image_digest, digest, "read", RESOLVED) for digest in digests],
    ]


@dataclass(frozen=True)
class Description:
    """What AWS says of a part; an empty table: it has no such thing, or `why` it does not say."""

    table: dict[str, Any]
    why: str = ""

    def check(self, what: str, wanted: str, value: str | None) -> Check:
        missing = UNKNOWN if self.why else GONE
        return Check(what, wanted, value or missing, "read", DESCRIPTION, "" if value else self.why)


def _description(cloud: Cloud, kind: str, name: str | None, *, why: str = "") -> Description:
    if not name:
        return Description({}, why)
    try:
        with one_sentence():
            return Description(or_none(KINDS[kind].there_is, cloud, name) or {})
    except FundoscopeError as problem:
        return Description({}, problem.message)


def _table(answer: bytes) -> dict[str, Any]:
    try:
        table = json.loads(answer)
    except ValueError:
        return {}
    return table if isinstance(table, dict) else {}
