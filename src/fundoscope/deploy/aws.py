"""AWS by boto3, and its errors as ours."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from fundoscope.deploy.troubles import trouble
from fundoscope.errors import FundoscopeError


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
