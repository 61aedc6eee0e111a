"""What an artefact lists is what is loaded: all of the model, nothing beside it, nothing from elsewhere."""

import json
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hand_made import forge, make_artefact
from onnx import TensorProto, helper, numpy_helper

from fundoscope.artefact.artefact import Artefact, pack, usable, write
from fundoscope.artefact.files import ModelFile
from fundoscope.errors import FundoscopeError
from fundoscope.provenance import sha256_of


def listed(folder: Path) -> list[dict[str, Any]]:
    files: list[dict[str, Any]] = json.loads((folder / "artefact.json").read_text())["files"]
    return files


def refusal(folder: Path, *, verify: bool = False) -> FundoscopeError:
    with pytest.raises(FundoscopeError) as caught:
        Artefact.open(folder, verify=verify)
    assert "\n" not in caught.value.message
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize(
    "name", ["../secret.txt", "saved_model/../../secret.txt", "/etc/passwd", "..\\secret.txt", "./model.onnx", ""]
)
def test_a_path_that_leads_out_of_the_folder_is_refused_and_never_packed(name: str, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_bytes(b"weights")
    artefact = make_artefact(tmp_path / "x")
    entry = {"path": name, "size_bytes": 7, "sha256": sha256_of(b"weights")}
    forge(artefact.folder, files=[*listed(artefact.folder), entry])
    message = f"{artefact.folder}/artefact.json lists '{name}', which is not a plain path inside the artefact"
    assert refusal(artefact.folder).message == message
    with pytest.raises(FundoscopeError, match="not a plain path inside the artefact"):
        pack(replace(artefact, files=(*artefact.files, ModelFile(**entry))))
    assert not (artefact.folder / "model.tar.gz").exists()


def test_a_list_that_leaves_the_model_out_is_refused(tmp_path: Path) -> None:
    artefact = make_artefact(tmp_path / "x")
    forge(artefact.folder, files=[])
    assert refusal(artefact.folder).message.endswith("does not list model.onnx, which is part of the model")
    saved = make_artefact(tmp_path / "y", format="savedmodel")
    forge(saved.folder, files=listed(saved.folder)[:1])
    assert refusal(saved.folder).message == (
        f"{saved.folder}/artefact.json does not list saved_model/variables/variables.x, which is part of the model"
    )


def test_a_file_slipped_into_a_saved_model_is_refused(tmp_path: Path) -> None:
    """TensorFlow reads what lies in its folder, whatever a list says."""
    artefact = make_artefact(tmp_path / "x", format="savedmodel")
    (tmp_path / "x" / "saved_model" / "assets").mkdir()
    assert Artefact.open(artefact.folder).digest == artefact.digest  # an empty folder holds nothing
    (tmp_path / "x" / "saved_model" / "assets" / "table").write_bytes(b"other words")
    assert "does not list saved_model/assets/table" in refusal(artefact.folder).message


def test_a_file_beside_the_model_is_not_part_of_it(tmp_path: Path) -> None:
    artefact = make_artefact(tmp_path / "x")
    (tmp_path / "x" / "README.txt").write_text("notes of mine")
    assert Artefact.open(artefact.folder) == artefact
    entry = {"path": "README.txt", "size_bytes": 13, "sha256": sha256_of(b"notes of mine")}
    forge(artefact.folder, files=[*listed(artefact.folder), entry])
    assert refusal(artefact.folder).message.endswith("lists 'README.txt', which is no part of the model")
    forge(artefact.folder, files=2 * listed(artefact.folder)[:1])
    assert refusal(artefact.folder).message.endswith("lists 'model.onnx' twice")


@pytest.mark.parametrize("format", ["onnx", "savedmodel"])
def test_a_link_in_the_place_of_the_model_is_refused_and_never_packed(format: str, tmp_path: Path) -> None:
    artefact = make_artefact(tmp_path / "x", format=format)
    place = artefact.folder / artefact.files[-1].path
    (tmp_path / "elsewhere").write_bytes(place.read_bytes())
    place.unlink()
    place.symlink_to(tmp_path / "elsewhere")  # the very same bytes, today
    assert refusal(artefact.folder, verify=True).message == f"{place} is a link, and an artefact holds its own files"
    with pytest.raises(FundoscopeError, match="is a link"):
        pack(artefact)
    with pytest.raises(FundoscopeError, match="is a link"):
        write(artefact)


def test_a_linked_folder_of_a_saved_model_is_refused(tmp_path: Path) -> None:
    artefact = make_artefact(tmp_path / "x", format="savedmodel")
    (tmp_path / "x" / "saved_model").rename(tmp_path / "saved_model")
    (tmp_path / "x" / "saved_model").symlink_to(tmp_path / "saved_model")
    assert "saved_model is a link" in refusal(artefact.folder).message


def test_the_artefacts_own_folder_may_be_reached_by_a_link(tmp_path: Path) -> None:
    artefact = make_artefact(tmp_path / "x")
    (tmp_path / "current").symlink_to(tmp_path / "x")
    assert Artefact.open(tmp_path / "current").digest == artefact.digest


def test_a_model_whose_weights_lie_in_another_file_is_refused(tmp_path: Path) -> None:
    """ONNX Runtime would read them from beside the model: bytes that nothing has hashed."""
    weights = numpy_helper.from_array(np.ones((3, 5), np.float32), "weights")
    pixels, answers = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", k]) for name, k in (("x", 3), ("y", 5))
    )
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "weights"], ["y"])], "g", [pixels], [answers], [weights]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    artefact = make_artefact(tmp_path / "x", model.SerializeToString())
    assert Artefact.open(artefact.folder).digest == artefact.digest
    path = tmp_path / "x" / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert session.run(None, {"x": np.ones((1, 3), np.float32)})[0].tolist() == [[3.0] * 5]
    with pytest.raises(FundoscopeError, match="keeps weights in another file"):
        write(artefact)
    data = path.read_bytes()
    entry = {"path": "model.onnx", "size_bytes": len(data), "sha256": sha256_of(data)}
    forge(artefact.folder, files=[entry])
    error = refusal(artefact.folder, verify=True)
    assert error.message == f"{path} keeps weights in another file, which the artefact does not vouch for"
    assert "as one file" in error.hint


@pytest.mark.parametrize("at", [0, 2**20 - 10, 2**20 - 5, 2**20 - 1, 2**20, 3 * 2**20 - 4])
def test_weights_elsewhere_are_found_wherever_in_a_large_file_they_are_named(at: int, tmp_path: Path) -> None:
    """The file is read in blocks of a megabyte; the name may lie across two of them."""
    model = bytearray(3 * 2**20 + 100)
    assert make_artefact(tmp_path / "whole", bytes(model)).size_bytes == len(model)
    model[at : at + 10] = b"\n\x08location"
    with pytest.raises(FundoscopeError, match="keeps weights in another file"):
        make_artefact(tmp_path / "x", bytes(model))


@pytest.mark.parametrize("precision", ["int8", "int8-dynamic", "float16", "bfloat16"])
def test_a_smaller_model_that_nobody_judged_is_refused(precision: str, tmp_path: Path) -> None:
    artefact = make_artefact(tmp_path / "x", precision=precision)
    assert artefact.refused == f"it is {precision} and was never judged"
    with pytest.raises(FundoscopeError) as caught:
        usable(artefact, unsafe=False)
    assert caught.value.message == f"{artefact.folder} was refused: it is {precision} and was never judged"
    assert "fundoscope quantise" in caught.value.hint
    assert "--unsafe" in caught.value.hint
    assert usable(artefact, unsafe=True) is artefact


@pytest.mark.parametrize(
    ("precision", "guard", "refused"),
    [
        ("float32", None, None),
        ("int8", {"passed": True, "why": "not inferior"}, None),
        ("int8", {"passed": False, "why": "it misses more"}, "it misses more"),
        ("float32", {"passed": False, "why": "it misses more"}, "it misses more"),
        ("int8", {"passed": "yes"}, "its guard does not say why"),
        ("int8", {}, "its guard does not say why"),
    ],
)
def test_only_a_guard_that_passed_lets_an_artefact_through(
    precision: str, guard: dict[str, Any] | None, refused: str | None, tmp_path: Path
) -> None:
    assert make_artefact(tmp_path / "x", precision=precision, guard=guard).refused == refused


def test_an_archive_holds_what_is_listed_and_no_more(tmp_path: Path) -> None:
    artefact = make_artefact(tmp_path / "x", format="savedmodel")
    (tmp_path / "x" / "notes.txt").write_text("mine")
    (tmp_path / "x" / "link").symlink_to("/etc/passwd")
    with tarfile.open(pack(artefact)) as tar:
        assert tar.getnames() == ["artefact.json", "saved_model/saved_model.pb", "saved_model/variables/variables.x"]
        assert all(member.isreg() for member in tar.getmembers())
