"""An AWS on this machine: moto's server on a free port, which it prints first. `python tests/deploy/aws_double.py`.

moto keeps what it is told; what it lacks for a deployment is added here. Its endpoints run: behind each is a real
`fundoscope serve`, started as SageMaker would start the container, from the archive in the bucket and with the model's
environment. As there, an endpoint that does not come up has failed, and one that is updated to something that does not
come up goes on with what it had, in service, without a word. The image is not run: moto has no registry to push to.

Tests tell it what to go wrong with, at /double (see `Ordered`).
"""

import http.client
import io
import json
import logging
import os
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from moto.applicationautoscaling.responses import ApplicationAutoScalingResponse
from moto.core.responses import ActionResult
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.s3.models import s3_backends
from moto.sagemaker.models import FakeEndpointConfig, SageMakerModelBackend, sagemaker_backends
from moto.sagemaker.responses import SageMakerResponse
from werkzeug.serving import make_server
from werkzeug.wrappers import Request, Response

ACCOUNT, DEADLINE_S = "123456789012", 60.0
SIGNED_FOR = re.compile(r"Credential=(?P<key>[^/]+)/[0-9]+/(?P<region>[^/]+)/(?P<service>[^/]+)/")
INVOKED = re.compile(r"/endpoints/([^/]+)/invocations")
UNHEALTHY = "The primary container for production variant grader did not pass the ping health check."
# Who uses these credentials is answered as AWS would answer.
REFUSED = {
    "WRONG": ("UnrecognizedClientException", "The security token included in the request is invalid."),
    "EXPIRED": ("ExpiredTokenException", "The security token included in the request is expired"),
}


class Server:
    """What runs in an endpoint's container."""

    def __init__(self, container: dict[str, Any]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="endpoint-"))
        bucket, _, key = container["ModelDataUrl"].removeprefix("s3://").partition("/")
        stored = s3_backends[ACCOUNT]["aws"].get_object(bucket, key)
        if stored is not None:
            with tarfile.open(fileobj=io.BytesIO(stored.value)) as archive:
                safely: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # not in Debian 12's Python
                archive.extractall(self.folder / "model", **safely)
        command = [sys.executable, "-m", "fundoscope.cli.main", "serve", self.folder / "model", "--port", "0"]
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                command,
                env=os.environ | (container.get("Environment") or {}),
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )
        self.port = self._ready()

    def _ready(self) -> int:
        """Its port, once it takes requests; 0: it never will."""
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            ended = self.process.poll() is not None
            for line in (self.folder / "log").read_text().splitlines():
                if line.startswith("{") and (event := json.loads(line))["event"] == "ready":
                    return int(event["port"])
            if ended:
                break
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(0.05)
        return 0

    def answer(self, request: Request) -> Response:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        try:
            headers = {"Content-Type": request.content_type or "", "Accept": request.headers.get("Accept", "*/*")}
            connection.request("POST", request.path, request.get_data(), headers)
            said = connection.getresponse()
            answer = said.read()
        finally:
            connection.close()
        if said.status >= 400:
            whose = "client" if said.status < 500 else "server"
            message = f'Received {whose} error ({said.status}) from primary with message "{answer.decode()}".'
            return _error("json", "ModelError", message)
        return Response(answer, said.status, content_type=said.headers.get("Content-Type"))

    def end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


SERVERS: dict[str, Server] = {}  # by the endpoint's name


def _comes_up(backend: SageMakerModelBackend, name: str, config: str) -> bool:
    """Only then it takes the place of what ran before."""
    (variant,) = backend.endpoint_configs[config].production_variants
    container = backend._models[variant["ModelName"]].primary_container
    if "ModelDataUrl" not in container:  # nothing to run: moto's own
        return True
    server = Server(container)
    if not server.port:
        server.end()
        return False
    before = SERVERS.pop(name, None)
    SERVERS[name] = server
    if before:
        before.end()
    return True


moto_creates, moto_deletes = SageMakerModelBackend.create_endpoint, SageMakerModelBackend.delete_endpoint


def create_endpoint(self: SageMakerModelBackend, endpoint_name: str, endpoint_config_name: str, tags: Any) -> Any:
    endpoint = moto_creates(self, endpoint_name, endpoint_config_name, tags)
    if not _comes_up(self, endpoint_name, endpoint_config_name):
        endpoint.endpoint_status, endpoint.failure_reason = "Failed", UNHEALTHY
    return endpoint


def update_endpoint(self: SageMakerResponse) -> ActionResult:
    name, config = self._get_param("EndpointName"), self._get_param("EndpointConfigName")
    backend = self.sagemaker_backend
    before = backend.endpoints[name]
    if _comes_up(backend, name, config):
        moto_creates(backend, name, config, before.tags)
    return ActionResult({"EndpointArn": before.arn})


def delete_endpoint(self: SageMakerModelBackend, endpoint_name: str) -> None:
    moto_deletes(self, endpoint_name)
    if endpoint_name in SERVERS:
        SERVERS.pop(endpoint_name).end()


moto_creates_model = SageMakerResponse.create_model


def create_model(self: SageMakerResponse) -> ActionResult:
    made = moto_creates_model(self)
    model = self.sagemaker_backend._models[self._get_param("ModelName")]
    model.enable_network_isolation = bool(self._get_param("EnableNetworkIsolation"))
    return made


def describe_model(self: SageMakerResponse) -> ActionResult:
    return _given(self.sagemaker_backend.describe_model(self._get_param("ModelName")).response_object)


def describe_endpoint_config(self: SageMakerResponse) -> ActionResult:
    return _given(self.sagemaker_backend.describe_endpoint_config(self._get_param("EndpointConfigName")))


def _given(found: dict[str, Any]) -> ActionResult:
    """AWS leaves out what was not given; Terraform would take an empty answer for a change, and begin anew."""
    return ActionResult({key: value for key, value in found.items() if value != {}})


def list_tags_for_resource(_self: Any) -> str:
    return json.dumps({"Tags": {}})


class Ordered:
    """moto, but for what it was told to do otherwise:

    POST   /double {"action": "CreateEndpoint", "code": …, "message": …}   it answers with that error, once
    POST   /double {"action": "GetRole", "code": …, "always": "yes"}       each time
    POST   /double {"action": "CreateRepository"}                          it does it, and never answers, once
    DELETE /double                                                         it forgets all of that
    GET    /double                                                         actions it has not answered
    """

    def __init__(self, moto: Callable[..., Iterable[bytes]]) -> None:
        self._moto = moto
        self._orders: dict[str, dict[str, str]] = {}
        self._unanswered: list[str] = []

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        request = Request(environ)
        if request.path == "/double":
            return self._told(request)(environ, start_response)
        signed = SIGNED_FOR.search(request.headers.get("Authorization", ""))
        if signed and signed["key"] in REFUSED:
            return _error(signed["service"], *REFUSED[signed["key"]])(environ, start_response)
        if signed and (invoked := INVOKED.fullmatch(request.path)):
            return self._invoke(signed["region"], invoked[1], request)(environ, start_response)
        service = signed["service"] if signed else ""
        action = _action(service, request, environ)
        order = self._orders.get(action) if "always" in self._orders.get(action, {}) else self._orders.pop(action, None)
        if order and "code" in order:
            return _error(service, order["code"], order["message"])(environ, start_response)
        if order:
            answer = b"".join(self._moto(environ, lambda *_: None))
            self._unanswered.append(action)
            threading.Event().wait()
            return [answer]
        return self._moto(environ, start_response)

    def _told(self, request: Request) -> Response:
        if request.method == "POST":
            order = request.get_json()
            self._orders[order["action"]] = order
        if request.method == "DELETE":
            self._orders.clear()
        return Response(json.dumps(self._unanswered), content_type="application/json")

    def _invoke(self, region: str, name: str, request: Request) -> Response:
        if name not in SERVERS or name not in sagemaker_backends[ACCOUNT][region].endpoints:
            return _error("json", "ValidationError", f"Endpoint {name} of account {ACCOUNT} not found.")
        return SERVERS[name].answer(request)


def _action(service: str, request: Request, environ: dict[str, Any]) -> str:
    """What is asked, in the words of each protocol, as far as tests go."""
    if service == "s3":
        listed = "ListObjectsV2" if request.args.get("list-type") == "2" else ""
        return "ListBuckets" if (request.method, request.path) == ("GET", "/") else listed
    if service == "iam":
        body = request.get_data()
        environ["wsgi.input"] = io.BytesIO(body)  # for moto, once more
        return parse_qs(body.decode()).get("Action", [""])[0]
    return request.headers.get("X-Amz-Target", "").rpartition(".")[2]


def _error(service: str, code: str, message: str) -> Response:
    """In the words of each protocol: S3's, that of old services, and JSON."""
    if service == "s3":
        code = {"UnrecognizedClientException": "InvalidAccessKeyId"}.get(code, code.removesuffix("Exception"))
        return Response(f"<Error><Code>{code}</Code><Message>{message}</Message></Error>", 403, mimetype="text/xml")
    if service in ("iam", "sts"):
        code = {"UnrecognizedClientException": "InvalidClientTokenId"}.get(code, code.removesuffix("Exception"))
        error = f"<ErrorResponse><Error><Code>{code}</Code><Message>{message}</Message></Error></ErrorResponse>"
        return Response(error, 403, mimetype="text/xml")
    said = json.dumps({"__type": code, "message": message, "Message": message})
    return Response(said, 400, {"x-amzn-ErrorType": code}, content_type="application/x-amz-json-1.1")


def main() -> None:
    SageMakerModelBackend.create_endpoint = create_endpoint
    SageMakerModelBackend.delete_endpoint = delete_endpoint
    SageMakerResponse.create_model = create_model
    SageMakerResponse.describe_model = describe_model
    SageMakerResponse.describe_endpoint_config = describe_endpoint_config
    SageMakerResponse.update_endpoint = update_endpoint
    FakeEndpointConfig.validate_instance_type = lambda *_: None  # its list is older than Graviton
    ApplicationAutoScalingResponse.list_tags_for_resource = list_tags_for_resource
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    server = make_server("127.0.0.1", port, Ordered(DomainDispatcherApplication(create_backend_app)), threaded=True)
    server.daemon_threads = True
    for asked in (signal.SIGTERM, signal.SIGINT):
        signal.signal(asked, lambda *_: sys.exit(0))
    print(server.port, flush=True)
    try:
        server.serve_forever()
    finally:
        for endpoint in SERVERS.values():
            endpoint.end()


if __name__ == "__main__":
    main()
