"""One request, sent and answered: by plain HTTP, or by boto3's own call, which SageMaker and our servers both answer.

A caller takes a photograph and gives the answer's bytes, or raises one of the two ways in which there is none. It never
tries again: a request that was repeated would be two, and its latency that of neither.
"""

import http.client
from collections.abc import Callable
from importlib import import_module

from fundoscope.deploy.aws import Cloud, one_sentence

ANSWER_S = 60.0  # the platform gives up then
THROTTLED = (429, 503)

Caller = Callable[[bytes], bytes]


class Throttled(Exception):  # noqa: N818  # an answer too
    """Sent away for want of room: more requests at once than the endpoint takes."""


class NoAnswer(Exception):  # noqa: N818
    """One sentence: what came instead of an answer."""


def over_http(port: int) -> Caller:
    """To a server on this machine."""

    def ask(photo: bytes) -> bytes:
        try:
            status, body = request(port, "POST", "/invocations", photo)
        except (OSError, http.client.HTTPException) as problem:
            raise NoAnswer(f"{type(problem).__name__}: {problem}") from None
        return _judged(status, body)

    return ask


def request(port: int, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_S)
    try:
        connection.request(method, path, body, {"Content-Type": "image/jpeg"} if body else {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def over_boto3(name: str, *, port: int | None = None) -> Caller:
    """InvokeEndpoint: of SageMaker's endpoint `name`, or of a server on this machine, to which nothing is signed."""
    cloud = Cloud("us-east-1", f"http://127.0.0.1:{port}") if port else Cloud()
    signed = {"signature_version": import_module("botocore").UNSIGNED} if port else {}
    with one_sentence():
        client = cloud.client(
            "sagemaker-runtime",
            retries={"total_max_attempts": 1},
            read_timeout=ANSWER_S + 10,
            max_pool_connections=64,
            **signed,
        )

    def ask(photo: bytes) -> bytes:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            answer = client.invoke_endpoint(EndpointName=name, ContentType="image/jpeg", Body=photo)
            body: bytes = answer["Body"].read()
            return body
        except ClientError as problem:
            error, meta = problem.response.get("Error", {}), problem.response.get("ResponseMetadata", {})
            status = problem.response.get("OriginalStatusCode") or meta.get("HTTPStatusCode", 0)
            if error.get("Code") == "ThrottlingException" or status in THROTTLED:
                raise Throttled from None
            raise NoAnswer(f"{error.get('Code')}: {str(error.get('Message'))[:200]}") from None
        except BotoCoreError as problem:
            raise NoAnswer(str(problem)[:200]) from None

    return ask


def _judged(status: int, body: bytes) -> bytes:
    if status in THROTTLED:
        raise Throttled
    if status != 200:
        raise NoAnswer(f"status {status}: {body[:200].decode(errors='replace')}")
    return body
