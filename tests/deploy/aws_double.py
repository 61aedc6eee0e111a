"""moto's server on a free port of this machine, which it prints first. `python tests/deploy/aws_double.py`.

moto 5.2 has no UpdateEndpoint, which is how a new configuration reaches an endpoint, does not list the tags of what
scales, and takes only text for a photograph: all three are mended here.
"""

import json
import logging
from typing import Any

from moto.applicationautoscaling.responses import ApplicationAutoScalingResponse
from moto.core.responses import ActionResult
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.sagemaker.responses import SageMakerResponse
from moto.sagemakerruntime.responses import SageMakerRuntimeResponse
from werkzeug.serving import make_server


def update_endpoint(self: Any) -> ActionResult:
    """In service at once, as moto's new endpoints are."""
    name, config, backend = (
        self._get_param("EndpointName"),
        self._get_param("EndpointConfigName"),
        self.sagemaker_backend,
    )
    before = backend.endpoints[name]
    backend.create_endpoint(name, config, before.tags)
    return ActionResult({"EndpointArn": before.arn})


def list_tags_for_resource(_self: Any) -> str:
    return json.dumps({"Tags": {}})


def setup_class(self: Any, request: Any, full_url: str, headers: Any, use_raw_body: bool = False) -> None:  # noqa: ARG001
    super(SageMakerRuntimeResponse, self).setup_class(request, full_url, headers, use_raw_body=True)
    self.body = self.raw_body.decode("latin-1")


if __name__ == "__main__":
    SageMakerRuntimeResponse.setup_class = setup_class
    ApplicationAutoScalingResponse.list_tags_for_resource = list_tags_for_resource
    SageMakerResponse.update_endpoint = update_endpoint
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=True)
    print(server.port, flush=True)
    server.serve_forever()
