"""The same server under other platforms' variables: Vertex AI's and Azure ML's. A real process, real HTTP."""

import base64
import json
import re
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest import approx
from running import Reply, Running, serving, until

from fundoscope.artefact.artefact import Artefact

SERVE = [sys.executable, "-m", "fundoscope.cli.main", "serve"]
ANY_PORT = [*SERVE, "--port", "0"]


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture(scope="module")
def vertex(artefact_folder: Path) -> Iterator[Running]:
    routes = {"AIP_HEALTH_ROUTE": "/health", "AIP_PREDICT_ROUTE": "/v1/models/dr:predict"}
    port = {"AIP_HTTP_PORT": str(free_port()), "AIP_STORAGE_URI": ""}  # empty where no model was uploaded with it
    with serving(artefact_folder, "--log-requests", program=SERVE, **routes, **port) as running:
        assert running.port == int(port["AIP_HTTP_PORT"])
        yield running


def predict(running: Running, *photos: bytes) -> Reply:
    instances = [{"b64": base64.b64encode(photo).decode()} for photo in photos]
    body = json.dumps({"instances": instances}).encode()
    return running.send("POST", "/v1/models/dr:predict", body, content_type="application/json")


def test_vertex_is_answered_where_its_variables_say(vertex: Running, jpeg: bytes) -> None:
    assert (vertex.send("GET", "/health").status, vertex.send("GET", "/health").body) == (200, b"")
    reply = predict(vertex, jpeg, b"no picture")
    assert (reply.status, set(reply.json)) == (200, {"predictions"})
    first, second = reply.json["predictions"]
    expected = vertex.grade(jpeg).json
    assert first["probabilities"] == approx(expected["probabilities"], abs=1e-5)
    assert (first["grade"], first["referral"]) == (expected["grade"], expected["referral"])
    assert second["error"] == "the file is not a picture in a format we read"
    assert vertex.send("GET", "/ping").status == 200  # and as SageMaker asks, all the same


def test_a_photograph_sent_raw_is_answered_raw(vertex: Running, jpeg: bytes) -> None:
    """Vertex AI's rawPredict hands the body on as it is."""
    reply = vertex.send("POST", "/v1/models/dr:predict", jpeg, content_type="image/jpeg")
    assert (reply.status, reply.json["grade"]) == (200, vertex.grade(jpeg).json["grade"])


def test_what_vertex_may_send_wrongly_is_refused(vertex: Running) -> None:
    assert predict(vertex).status == 400
    assert predict(vertex, b"no picture").status == 400
    assert predict(vertex, *[b"\0"] * 65).status == 413
    assert vertex.send("GET", "/v1/models/dr:predict").status == 405
    kind = vertex.send("POST", "/v1/models/dr:predict", b"1,2", content_type="text/csv")
    assert kind.status == 415


def test_the_log_names_the_addresses_that_the_platform_named(vertex: Running) -> None:
    vertex.send("GET", "/health")
    assert until(lambda: "/health" in [event["route"] for event in vertex.events("request")])


def test_without_its_variables_nothing_is_there(server: Running, jpeg: bytes) -> None:
    assert server.send("GET", "/health").status == 404
    assert server.send("POST", "/v1/models/dr:predict", jpeg).status == 404


def test_vertex_may_name_our_own_addresses(artefact_folder: Path, jpeg: bytes) -> None:
    with serving(artefact_folder, AIP_HEALTH_ROUTE="/ping", AIP_PREDICT_ROUTE="/invocations") as running:
        body = json.dumps({"instances": [{"b64": base64.b64encode(jpeg).decode()}]}).encode()
        reply = running.send("POST", "/invocations", body, content_type="application/json")
        assert set(reply.json) == {"predictions"}
        assert running.grade(jpeg).json["container"]["answered"] == 2
        assert running.send("GET", "/ping").status == 200


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        (
            {"AIP_STORAGE_URI": "gs://bucket/model"},
            "error: AIP_STORAGE_URI is gs://bucket/model, which this server does not download",
        ),
        ({"AIP_HTTP_PORT": "eighty"}, "error: AIP_HTTP_PORT is 'eighty', not a port"),
        ({"AIP_PREDICT_ROUTE": "predict"}, "error: AIP_PREDICT_ROUTE is not a path"),
        ({"AIP_HEALTH_ROUTE": "/a b"}, "error: AIP_HEALTH_ROUTE is not a path"),
        ({"AZUREML_MODEL_DIR": "/nowhere"}, "error: /nowhere is not an artefact: it has no artefact.json"),
    ],
)
def test_what_a_platform_says_wrongly_is_told_in_one_sentence(environment: dict[str, str], said: str) -> None:
    with serving(program=SERVE, **environment) as running:
        assert running.process.wait(60) == 2
        until(lambda: len(running.lines) >= 2)
        assert running.lines[0] == said
        assert running.lines[1].startswith("hint: ")
        assert not [line for line in running.lines if "Traceback" in line]


def test_sagemakers_port_goes_before_vertexs(artefact_folder: Path) -> None:
    first, second = free_port(), free_port()
    ports = {"SAGEMAKER_BIND_TO_PORT": str(first), "AIP_HTTP_PORT": str(second)}
    with serving(artefact_folder, program=SERVE, **ports) as running:
        assert running.port == first


@pytest.mark.parametrize("registered", ["", "artefact"])  # the folder itself, or by its name below
def test_azures_model_folder_is_served(artefact_folder: Path, tmp_path: Path, jpeg: bytes, registered: str) -> None:
    mounted = tmp_path / "azureml-models" / "dr" / "1"
    shutil.copytree(artefact_folder, mounted / registered)
    with serving(program=ANY_PORT, AZUREML_MODEL_DIR=str(mounted)) as running:
        assert running.send("GET", "/ping").status == 200
        assert running.grade(jpeg).json["artefact"] == Artefact.open(artefact_folder).digest


def test_a_folder_named_on_the_command_line_goes_before_the_platforms(artefact_folder: Path, jpeg: bytes) -> None:
    with serving(artefact_folder, AZUREML_MODEL_DIR="/nowhere", AIP_STORAGE_URI="gs://bucket/x") as running:
        assert running.grade(jpeg).status == 200


def test_two_artefacts_in_azures_folder_are_one_too_many(artefact_folder: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        shutil.copytree(artefact_folder, tmp_path / name)
    with serving(program=ANY_PORT, AZUREML_MODEL_DIR=str(tmp_path)) as running:
        assert running.process.wait(60) == 2
        until(lambda: len(running.lines) >= 2)
        assert running.lines == [f"error: there are 2 artefacts in {tmp_path}", "hint: name one: serve FOLDER"]


def test_every_variable_that_the_page_on_platforms_names_is_read() -> None:
    root = Path(__file__).parents[2]
    named = set(
        re.findall(r"\b(?:AIP|AZUREML|SAGEMAKER|FUNDOSCOPE)_[A-Z_]+\b", (root / "docs/platforms.md").read_text())
    )
    read = (root / "src/fundoscope/cli/serve.py").read_text() + (root / "containers/lean.Dockerfile").read_text()
    assert named
    assert not [name for name in named if name not in read]
