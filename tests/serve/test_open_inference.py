"""The Open Inference Protocol, V2, over real HTTP. The protocol's text: github.com/kserve/open-inference-protocol,
specification/protocol/inference_rest.md and open_inference_rest.yaml (read 2026-11-15)."""

import base64
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pytest import approx
from running import Reply, Running, serving, until

from fundoscope.data.draw import draw_eye
from fundoscope.data.photo import encode_png


def infer(running: Running, *photos: bytes, name: str = "dr", **more: Any) -> Reply:
    tensor = {"name": "photograph", "datatype": "BYTES", "shape": [len(photos)], "data": [*map(encoded, photos)]}
    return post(running, {"inputs": [tensor], **more}, name=name)


def post(running: Running, table: Any, name: str = "dr") -> Reply:
    return running.send("POST", f"/v2/models/{name}/infer", json.dumps(table).encode(), content_type="application/json")


def encoded(photo: bytes) -> str:
    return base64.b64encode(photo).decode()


def tensors(reply: Reply) -> dict[str, dict[str, Any]]:
    assert reply.status == 200, reply.body
    return {output["name"]: output for output in reply.json["outputs"]}


def test_the_server_and_its_health_are_told_in_the_protocols_words(server: Running) -> None:
    about = server.send("GET", "/v2").json
    assert set(about) == {"name", "version", "extensions"}
    assert about["name"] == "fundoscope"
    assert server.send("GET", "/v2/").json == about  # the specification writes it both ways
    live, ready = (server.send("GET", f"/v2/health/{what}") for what in ("live", "ready"))
    assert (live.status, live.json["live"]) == (200, True)
    assert (ready.status, ready.json["ready"]) == (200, True)
    named = server.send("GET", "/v2/models/dr-mobilenet/ready")
    assert (named.status, named.json) == (200, {"name": "dr-mobilenet", "ready": True})


def test_the_models_metadata_describe_the_tensors_that_infer_takes_and_gives(server: Running, jpeg: bytes) -> None:
    about = server.send("GET", "/v2/models/dr").json
    assert (about["name"], about["platform"]) == ("dr", "onnx_onnxv1")
    assert about["inputs"] == [{"name": "photograph", "datatype": "BYTES", "shape": [-1]}]
    assert {output["name"]: (output["datatype"], output["shape"]) for output in about["outputs"]} == {
        "grade": ("INT32", [-1]),
        "probabilities": ("FP32", [-1, 5]),
        "referral": ("BOOL", [-1]),
        "referral_probability": ("FP32", [-1]),
        "gradable": ("BOOL", [-1]),
    }
    given = tensors(infer(server, jpeg))
    assert {name: (output["datatype"], len(output["shape"])) for name, output in given.items()} == {
        output["name"]: (output["datatype"], len(output["shape"])) for output in about["outputs"]
    }


def test_photographs_get_the_gradings_that_invocations_gives_them(server: Running, jpeg: bytes) -> None:
    photos = [jpeg, encode_png(draw_eye(5, 2, size=256).pixels)]
    alone = [server.grade(photo).json for photo in photos]
    reply = infer(server, *photos, id="request 7")
    assert (reply.json["model_name"], reply.json["id"]) == ("dr", "request 7")
    assert reply.json["parameters"] == {"artefact": alone[0]["artefact"], "operating_point": "high_sensitivity"}
    found = tensors(reply)
    assert (found["grade"]["shape"], found["grade"]["data"]) == ([2], [one["grade"] for one in alone])
    assert found["probabilities"]["shape"] == [2, 5]
    assert found["probabilities"]["data"] == approx([p for one in alone for p in one["probabilities"]], abs=1e-5)
    assert found["referral"]["data"] == [one["referral"] for one in alone]
    assert found["gradable"]["data"] == [one["gradable"] for one in alone]


def test_only_the_outputs_that_are_asked_for_are_given(server: Running, jpeg: bytes) -> None:
    reply = infer(server, jpeg, outputs=[{"name": "referral"}])
    assert list(tensors(reply)) == ["referral"]
    assert "id" not in reply.json  # there was none to give back
    refused = infer(server, jpeg, outputs=[{"name": "heat"}])
    assert (refused.status, refused.json["error"]) == (400, "there is no output called heat")


def test_a_tensor_may_be_a_column_flat_or_nested(server: Running, jpeg: bytes) -> None:
    tensor = {"name": "photograph", "datatype": "BYTES", "shape": [2, 1]}
    flat = post(server, {"inputs": [tensor | {"data": [encoded(jpeg)] * 2}]})
    nested = post(server, {"inputs": [tensor | {"data": [[encoded(jpeg)]] * 2}]})
    assert tensors(flat)["grade"]["data"] == tensors(nested)["grade"]["data"]


@pytest.mark.parametrize(
    "change",
    [
        {"name": "image"},
        {"datatype": "UINT8"},
        {"shape": [2]},
        {"shape": [-1, -1]},
        {"shape": [1.0]},
        {"shape": []},
        {"shape": None},
        {"data": []},
        {"data": [7]},
    ],
)
def test_another_tensor_is_refused_with_what_to_send(server: Running, jpeg: bytes, change: dict[str, Any]) -> None:
    tensor = {"name": "photograph", "datatype": "BYTES", "shape": [1], "data": [encoded(jpeg)]}
    reply = post(server, {"inputs": [tensor | change]})
    assert reply.status == 400
    assert reply.json["error"].startswith("the JSON holds no tensor of BYTES called photograph")
    assert '"datatype": "BYTES"' in reply.json["hint"]


def test_the_limits_are_those_of_invocations(server: Running, jpeg: bytes) -> None:
    assert infer(server, *[b"\0"] * 65).json["error"] == "there are 65 photographs in the request"
    assert infer(server, *[b"\0"] * 65).status == 413
    large = server.send("POST", "/v2/models/dr/infer", bytes(25 * 2**20 + 1), content_type="application/json")
    assert large.status == 413
    raw = server.send("POST", "/v2/models/dr/infer", jpeg, content_type="image/jpeg")
    assert raw.status == 415


def test_a_photograph_that_cannot_be_read_is_named_by_its_place(server: Running, jpeg: bytes) -> None:
    reply = infer(server, jpeg, b"no picture")
    message = "photograph 2 of 2: the file is not a picture in a format we read"
    assert (reply.status, reply.json["error"]) == (400, message)
    alone = infer(server, b"no picture")
    assert (alone.status, alone.json["error"]) == (400, "the file is not a picture in a format we read")


def test_other_addresses_and_methods_below_v2_are_refused(server: Running) -> None:
    for path in ("/v2x", "/v2/models", "/v2/models/a/b/infer", "/v2/models/dr/versions/1", "/v2/models/a%20b/ready"):
        assert server.send("GET", path).status == 404, path
    assert server.send("GET", "/v2/models/dr/infer").headers["allow"] == "POST"


def test_answers_are_counted_and_the_log_knows_no_name(artefact_folder: Path, jpeg: bytes) -> None:
    with serving(artefact_folder, "--log-requests") as running:
        assert infer(running, jpeg, name="Maria").status == 200
        assert infer(running, b"Maria", name="Maria", id="Maria").status == 400
        counted = running.metrics()
        assert counted['fundoscope_requests_total{status="200"}'] == 1
        assert counted['fundoscope_requests_total{status="400"}'] == 1
        assert running.grade(jpeg).json["container"]["answered"] == 2
        assert until(lambda: len(running.events("request")) == 4)
        assert "Maria" not in "".join(running.lines)


def test_readiness_follows_the_model(artefact_folder: Path, jpeg: bytes) -> None:
    with serving(artefact_folder, "--load", "first-request") as running:
        assert running.send("GET", "/v2/models/dr").status == 503  # not open: nothing is known of it
        assert infer(running, jpeg).status == 200
        assert running.send("GET", "/v2/models/dr").status == 200


def test_several_models_are_asked_by_the_names_they_were_loaded_by(
    artefact_folder: Path, tmp_path: Path, jpeg: bytes
) -> None:
    shutil.copytree(artefact_folder, tmp_path / "a")
    with serving("--models-root", tmp_path, "--multi-model") as running:
        body = json.dumps({"model_name": "first", "url": str(tmp_path / "a")}).encode()
        assert running.send("POST", "/models", body, content_type="application/json").status == 200
        assert infer(running, jpeg, name="first").json["model_name"] == "first"
        assert running.send("GET", "/v2/models/first/ready").json["ready"] is True
        assert running.send("GET", "/v2/models/second/ready").status == 503
        assert running.send("GET", "/v2/models/second").status == 404
        assert infer(running, jpeg, name="second").status == 404
        said = running.send("POST", "/models/first/invoke", jpeg, content_type="image/jpeg").json["container"]
        assert (said["answered"], set(said["phases_s"])) == (2, {"boot", "import", "first_prediction"})


def test_a_server_that_is_not_asked_for_it_does_not_import_it() -> None:
    code = "import sys, fundoscope.serve.app; print([n for n in sys.modules if n.endswith(('inference', 'vertex'))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
