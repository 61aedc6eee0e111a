"""The rules a server is held to, and their numbers.

1 to 16 are SageMaker's, from the AWS developer guide ("Use your own inference code with hosting services", the
serverless, multi-model and hosting FAQ pages). What a rule asks of the platform and not of the container is said in its
line, not tried. 17 to 21 are ours: what anybody who can reach a server may try, and the server should bear.
"""

from dataclasses import dataclass, replace
from typing import Literal

from fundoscope.errors import pick

Platform = Literal["real-time", "serverless"]
Source = Literal["SageMaker", "Fundoscope"]  # who asks for it

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
    source: Source = "SageMaker"


def _ours(number: int, title: str, says: str) -> Rule:
    return Rule(number, title, says, "Fundoscope")


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
        _ours(17, "endless heads", "64 MB of headers or of trailers cost it at most 10 MB of memory"),
        _ours(
            18, "hostile JSON", "a full payload of it neither delays /ping nor takes over 8 times its size in memory"
        ),
        _ours(19, "stalled uploads", "12 callers who send slowly or stop shut nobody out for more than 10 s"),
        _ours(20, "many pixels", "one request with many pixels holds up nobody for more than 10 s"),
        _ours(21, "memory afterwards", "30 s after all of that its memory is within 50 MB of before"),
    )
}
CONTRACT = tuple(number for number, rule in RULES.items() if rule.source == "SageMaker")
ATTACKS = tuple(number for number, rule in RULES.items() if rule.source == "Fundoscope")


@dataclass(frozen=True)
class Routes:
    """Where a server is asked. Other servers than SageMaker's have other places, which breaks rule 4 and no other."""

    ping: str = "/ping"
    invocations: str = "/invocations"


SAGEMAKER = Routes()


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


@dataclass(frozen=True)
class Bounds:
    """Our own numbers, of the rules under attack. Tests of our own checks make them smaller; nothing else does."""

    head_bytes: int = 64 * MIB  # of headers or trailers that are sent, at most
    head_growth_bytes: int = 10 * MIB
    json_factor: int = 8  # of the body's size: the body, its copy as text and a few more
    ping_s: float = 0.25  # printed beside the time; only the contract's 2 s break a rule
    stalled: int = 12  # connections
    wait_s: float = 10  # of a caller with one photograph, who tries again when refused
    left_bytes: int = 50 * MIB
    settle_s: float = 30


OURS = Bounds()

PLATFORMS: dict[str, Limits] = {
    "real-time": Limits(),
    "serverless": replace(Limits(), payload_bytes=4 * MIB, start_s=180),
}


def limits_of(platform: str) -> Limits:
    return pick(PLATFORMS, platform, kind="platform")
