"""What a server refuses to open: a model of other bytes than the artefact lists, and one too many for the memory."""

import json
import shutil
import sys
from pathlib import Path

import onnx
from running import DEADLINE_S, serving

HERE = Path(__file__).parent


def test_a_model_with_one_bit_changed_is_not_served_though_it_would_answer(
    artefact_folder: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(artefact_folder, tmp_path / "copy")
    path = copy / "model.onnx"
    content = bytearray(path.read_bytes())
    weights = max((tensor.raw_data for tensor in onnx.load(path).graph.initializer), key=len)
    content[content.index(weights) + len(weights) // 8 * 4] ^= 1  # the last bit of a float32
    path.write_bytes(content)
    onnx.checker.check_model(onnx.load(path))
    with serving(copy) as running:
        assert running.events("ready") == []
        assert running.process.wait(DEADLINE_S) == 2
    assert [line for line in running.lines if line.startswith("error: ") and "model.onnx" in line]


def test_a_model_too_many_for_the_memory_is_507_and_says_what_to_do(artefact_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(artefact_folder, tmp_path / "a" / "model")
    program = [sys.executable, str(HERE / "odd_server.py"), "memory", "-", "serve", "--port", "0"]
    sent = json.dumps({"model_name": "a", "url": str(tmp_path / "a/model")}).encode()
    with serving("--models-root", tmp_path, program=program, SAGEMAKER_MULTI_MODEL="true") as running:
        reply = running.send("POST", "/models", sent, content_type="application/json")
        assert (reply.status, reply.json) == (
            507,
            {"error": "there is not enough memory for another model", "hint": "unload one: DELETE /models/…"},
        )
        assert running.send("GET", "/models").json == {"models": []}


def test_a_model_that_cannot_be_loaded_when_first_asked_for_is_500_and_the_log_says_why(
    artefact_folder: Path, tmp_path: Path, jpeg: bytes
) -> None:
    copy = shutil.copytree(artefact_folder, tmp_path / "copy")
    (copy / "model.onnx").write_bytes((copy / "model.onnx").read_bytes()[:-1])
    with serving(copy, "--load", "first-request") as running:
        assert running.grade(jpeg).status == 500
        failed = running.wait_for("load failed")
        assert "model.onnx" in failed["problem"]
        assert running.events("worker replaced") == []
