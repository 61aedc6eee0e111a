"""The sixteen rules a SageMaker container is held to, and their numbers.

From the AWS developer guide ("Use your own inference code with hosting services", the serverless, multi-model and
hosting FAQ pages). What a rule asks of the platform and not of the container is said in its line, not tried.
"""

from dataclasses import dataclass, replace
from typing import Literal

from fundoscope.errors import pick

Platform = Literal["real-time", "serverless"]

MIB = 2**20  # "25 MB": the platform's own refusals count in MiB ("HTTP content length exceeded 5246976 bytes")
DEFAULT_PORT = 8080
ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"
LABELS = "com.amazonaws.sagemaker.capabilities."
BIND_LABEL, MANY_LABEL, STREAM_LABEL = "accept-bind-to-port", "multi-models", "bidirectional-streaming"


@dataclass(frozen=True)
class Rule:
    number: int
    title: str
    says: str


RULES = {
    rule.number: rule
    for rule in (
        Rule(
            1, "start command", "IMAGE serve starts it; the entry point is in exec form, without tini, to get signals"
        ),
        Rule(2, "user", "the container runs as root"),
        Rule(3, "port", "8080, or SAGEMAKER_BIND_TO_PORT; any second port within SAGEMAKER_SAFE_PORT_RANGE"),
        Rule(4, "routes", "GET /ping, POST /invocations, for batch GET /execution-parameters; bad input is a 4xx"),
        Rule(5, "socket", "a connection is accepted within 250 ms"),
        Rule(6, "response", "an invocation is answered within 60 s"),
        Rule(7, "ping", "200, empty, within 2 s, steadily, within 8 min of the start (serverless: 3 min)"),
        Rule(8, "ping honesty", "a 200 means that an invocation would work"),
        Rule(9, "stop", "SIGTERM ends it within 30 s, with what is in flight answered; then comes SIGKILL"),
        Rule(10, "model", "read-only at /opt/ml/model, without symbolic links; nothing else need be writable"),
        Rule(11, "headers", "unknown ones are ignored; custom attributes are up to 1,024 visible ASCII characters"),
        Rule(12, "payload", "up to 25 MB (serverless: 4 MB) is taken; more is refused, not stumbled over"),
        Rule(13, "multi-model", "the /models verbs with 404, 409 and 507, where the label or the environment says so"),
        Rule(14, "bidirectional stream", "a WebSocket that answers pings, where the label says so"),
        Rule(
            15, "launch reasons", "patches and replacements start it again, so starting again must work, and be short"
        ),
        Rule(16, "latency metrics", "the platform reports microseconds; what the server reports has the unit it says"),
    )
}


@dataclass(frozen=True)
class Limits:
    """The contract's numbers. Tests of our own checks shorten the long ones; nothing else does."""

    payload_bytes: int = 25 * MIB
    start_s: float = 480
    connect_s: float = 0.25
    response_s: float = 60
    ping_s: float = 2
    stop_s: float = 30
    pong_s: float = 60
    attributes: int = 1024


PLATFORMS: dict[str, Limits] = {
    "real-time": Limits(),
    "serverless": replace(Limits(), payload_bytes=4 * MIB, start_s=180),
}


def limits_of(platform: str) -> Limits:
    return pick(PLATFORMS, platform, kind="platform")
