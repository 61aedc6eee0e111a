"""Several models behind one address: the verbs of SageMaker's multi-model contract."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import Reply, Running, serving

from fundoscope.artefact.artefact import Artefact
from fundoscope.serve import models
from fundoscope.serve.models import Models, NoMemory
from fundoscope.serve.settings import Settings


@pytest.fixture(scope="module")
def root(artefact_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    shutil.copytree(artefact_folder, root / "a" / "model")
    (root / "empty").mkdir()
    return root


@pytest.fixture
def several(root: Path) -> Iterator[Running]:
    with serving("--models-root", root, SAGEMAKER_MULTI_MODEL="true") as running:
        yield running


def load(running: Running, name: str, folder: Path) -> Reply:
    body = json.dumps({"model_name": name, "url": str(folder)}).encode()
    return running.send("POST", "/models", body, content_type="application/json")


def test_models_are_loaded_listed_invoked_and_unloaded(
    several: Running, root: Path, artefact_folder: Path, jpeg: bytes
) -> None:
    assert several.send("GET", "/ping").status == 200
    assert several.send("GET", "/models").json == {"models": []}
    loaded = load(several, "first", root / "a/model")
    known = {"modelName": "first", "modelUrl": str(root / "a/model")}
    assert (loaded.status, loaded.json) == (200, known)
    assert several.send("GET", "/models").json == {"models": [known]}
    assert several.send("GET", "/models/first").json == known
    reply = several.send(
        "POST", "/models/first/invoke", jpeg, content_type="image/jpeg", x_amzn_sagemaker_target_model="first"
    )
    assert (reply.status, reply.json["artefact"]) == (200, Artefact.open(artefact_folder).digest)
    assert several.metrics()['fundoscope_requests_total{status="200"}'] == 1
    assert several.send("DELETE", "/models/first").status == 200
    assert several.send("GET", "/models").json == {"models": []}


def test_a_model_that_is_not_there_is_404_and_one_that_is_there_is_409(
    several: Running, root: Path, jpeg: bytes
) -> None:
    assert several.send("GET", "/models/none").status == 404
    assert several.send("DELETE", "/models/none").status == 404
    assert several.send("POST", "/models/none/invoke", jpeg, content_type="image/jpeg").status == 404
    assert load(several, "a", root / "a/model").status == 200
    assert load(several, "a", root / "a/model").status == 409


def test_a_photograph_for_no_model_in_particular_is_sent_on_and_does_not_wait(several: Running, jpeg: bytes) -> None:
    reply = several.grade(jpeg)
    assert (reply.status, reply.json["hint"]) == (404, "post photographs to /models/NAME/invoke")


def test_what_is_not_an_artefact_or_lies_elsewhere_is_refused(several: Running, root: Path, tmp_path: Path) -> None:
    assert load(several, "b", root / "empty").status == 400
    outside = load(several, "c", tmp_path)
    assert (outside.status, outside.json["error"]) == (400, f"models are loaded from below {root} only")
    assert load(several, "d", root / ".." / "elsewhere").status == 400
    assert several.send("POST", "/models", b"[]", content_type="application/json").status == 400


def test_more_than_a_page_of_models_is_listed_page_by_page(several: Running, root: Path) -> None:
    for number in range(101):
        assert load(several, f"m{number:03}", root / "a/model").status == 200
    first = several.send("GET", "/models").json
    second = several.send("GET", f"/models?next_page_token={first['nextPageToken']}").json
    assert [len(first["models"]), len(second["models"])] == [100, 1]
    assert second["models"][0]["modelName"] == "m100"
    assert "nextPageToken" not in second


def test_a_model_beyond_the_memory_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "memory_limit_bytes", lambda: 64 * 2**20)  # less than this process has already
    with pytest.raises(NoMemory, match="MB are needed"):
        Models(Settings(root, multi_model=True, models_root=root)).load("a", root / "a/model")
