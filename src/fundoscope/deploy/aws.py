"""AWS by boto3, and its errors as ours."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from fundoscope.deploy.troubles import trouble
from fundoscope.errors import FundoscopeError

# The codes with which AWS answers a question about what it does not have, by the question. Never by the text: any
# word may be part of a name, and any digits of an account's number. SageMaker has no code of its own for this; a name
# that breaks no rule (Terraform made it, so it does not) is invalid to it for no other reason.
MISSING: dict[str, frozenset[str]] = {
    "DescribeEndpoint": frozenset({"ValidationException"}),
    "DescribeEndpointConfig": frozenset({"ValidationException"}),
    "DescribeModel": frozenset({"ValidationException"}),
    "DescribeRepositories": frozenset({"RepositoryNotFoundException"}),
    "GetRole": frozenset({"NoSuchEntity"}),
    "ListRoleTags": frozenset({"NoSuchEntity"}),
    "ListObjectsV2": frozenset({"NoSuchBucket"}),
    "ListTagsForResource": frozenset({"RepositoryNotFoundException", "ResourceNotFoundException"}),
}
MISSING_STATUS = (400, 404)  # 403 is a refusal and 429 a throttled request, whatever code comes with it


class Cloud:
    """AWS in one region, or an emulator of it; no region: the one that AWS's own tools would take here."""

    def __init__(self, region: str | None = None, aws_endpoint: str | None = None) -> None:
        try:
            boto3: Any = import_module("boto3")
        except ModuleNotFoundError:
            raise FundoscopeError("boto3 is not installed here", "pip install 'fundoscope[aws]'") from None
        with one_sentence():
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

    def client(self, service: str, **settings: Any) -> Any:
        """A client of its own, with botocore's settings; closed by whoever asked for it."""
        config = import_module("botocore.config").Config(**settings)
        return self._session.client(service, endpoint_url=self._address, config=config)

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


def or_none(ask: Callable[[Cloud, str], Any], cloud: Cloud, name: str) -> Any:
    """What AWS says of it; None where AWS says that it has no such thing. Any other error stays one."""
    botocore: Any = import_module("botocore.exceptions")
    try:
        return ask(cloud, name)
    except botocore.ClientError as problem:
        code = problem.response.get("Error", {}).get("Code")
        status = problem.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        if code in MISSING.get(problem.operation_name, ()) and status in MISSING_STATUS:
            return None
        raise
