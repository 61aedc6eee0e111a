"""fundoscope export: from a run folder to an artefact that passed the gate, or nothing at all."""

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from untrained_run import UntrainedRun, blotches, change_json, keras_warnings_are_its_own, telling_network

from fundoscope.artefact.convert import EXPORTERS
from fundoscope.artefact.export import Exported, Photographs, export
from fundoscope.artefact.runtime import RUNTIMES
from fundoscope.cli.main import main
from fundoscope.errors import FundoscopeError
from fundoscope.model.predictions import Predictions
from fundoscope.provenance import sha256_file


@pytest.fixture
def spoilt(run: UntrainedRun, tmp_path: Path) -> UntrainedRun:
    """A copy of the run that a test may spoil."""
    return UntrainedRun(Path(shutil.copytree(run.folder, tmp_path / "run")), run.pixels, run.answers)


def test_the_gate_ran_on_every_tuning_photograph_and_is_on_record(exported: dict[str, Exported]) -> None:
    for done in exported.values():
        parity = done.artefact.parity
        assert parity is not None
        assert parity["photographs"] == 40
        assert parity["against"] == "predictions.csv"
        assert parity["largest_difference"] < 1e-4
        assert parity["referral_flips"] == {"high_sensitivity": 0, "high_specificity": 0}
        assert parity["grade_flips"] == 0


def test_the_run_lists_its_artefacts_for_its_report(run: UntrainedRun, exported: dict[str, Exported]) -> None:
    listed = json.loads((run.folder / "artefacts.json").read_text())
    digests = {line["digest"]: line["format"] for line in listed}
    assert digests.items() >= {(done.artefact.digest, format) for format, done in exported.items()}
    assert {line["referral_flips"] for line in listed} == {0}


@pytest.mark.parametrize("format", ["onnx", "savedmodel"])
def test_exporting_again_gives_the_same_bytes(
    run: UntrainedRun, exported: dict[str, Exported], tmp_path: Path, format: Any
) -> None:
    first = exported[format].artefact
    again = export(run.folder, tmp_path / "again", format=format)
    assert not again.already_there
    assert again.artefact.digest == first.digest
    assert sha256_file(again.artefact.folder / "model.tar.gz") == sha256_file(first.folder / "model.tar.gz")


def test_a_folder_with_other_things_in_it_is_refused_at_once(
    run: UntrainedRun, exported: dict[str, Exported], tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(FundoscopeError, match="holds other things"):
        export(run.folder, tmp_path)
    with pytest.raises(FundoscopeError, match="holds another artefact"):
        export(run.folder, exported["onnx"].artefact.folder, format="savedmodel")


def test_a_network_other_than_the_trained_one_is_refused(spoilt: UntrainedRun, tmp_path: Path) -> None:
    with (spoilt.folder / "model.keras").open("ab") as file:
        file.write(b"x")
    with pytest.raises(FundoscopeError, match=r"model\.keras is not the network that was trained"):
        export(spoilt.folder, tmp_path / "x")


def test_a_conversion_that_fails_says_its_last_words(spoilt: UntrainedRun, tmp_path: Path) -> None:
    (spoilt.folder / "model.keras").write_bytes(b"not a network")
    change_json(spoilt.folder / "run.json", model_sha256=sha256_file(spoilt.folder / "model.keras"))
    with pytest.raises(FundoscopeError, match=r"the export to onnx failed: .*not") as problem:
        export(spoilt.folder, tmp_path / "x")
    assert problem.value.hint == f"all it said is in {spoilt.folder}/export.log"
    assert "Traceback" in (spoilt.folder / "export.log").read_text()
    assert not (tmp_path / "x").exists()


def test_without_the_tuning_photographs_there_is_no_export(spoilt: UntrainedRun, tmp_path: Path) -> None:
    records = json.loads((spoilt.folder / "run.json").read_text())["records"]
    change_json(spoilt.folder / "run.json", records=records | {"folder": str(tmp_path / "gone")})
    with pytest.raises(FundoscopeError, match="the tuning photographs to compare with are not in") as problem:
        export(spoilt.folder, tmp_path / "x")
    assert "--records" in problem.value.hint
    change_json(spoilt.folder / "run.json", records=records | {"digest": "0" * 64})
    with pytest.raises(FundoscopeError, match="holds other records than"):
        export(spoilt.folder, tmp_path / "x", records=Path(records["folder"]))


def test_photographs_that_were_not_scored_cannot_stand_in(run: UntrainedRun, tmp_path: Path) -> None:
    others = Photographs([f"other-{i}" for i in range(len(run.pixels))], run.pixels)
    with pytest.raises(FundoscopeError, match="do not share the photograph"):
        export(run.folder, tmp_path / "x", photographs=others)


def test_a_run_scored_on_a_gpu_is_compared_with_its_network_in_float32(spoilt: UntrainedRun, tmp_path: Path) -> None:
    """Tensor cores round "float32" to ten bits: that is no fault of the export, and is said."""
    change_json(spoilt.folder / "run.json", device="NVIDIA H200")
    predictions = Predictions.read_csv(spoilt.folder / "predictions.csv")
    assert predictions.probabilities is not None
    predictions.probabilities[:, :2] += (0.002, -0.002)
    predictions.write_csv(spoilt.folder / "predictions.csv")
    done = export(spoilt.folder, tmp_path / "x")
    assert done.parity.against == "model.keras in float32"
    assert done.parity.largest_difference < 1e-4
    assert done.from_training.against == "predictions.csv"
    assert done.from_training.largest_difference == pytest.approx(0.002, abs=1e-4)


def test_the_same_artefact_at_the_same_place_is_left_as_it_is(
    run: UntrainedRun, exported: dict[str, Exported], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = Path(shutil.copytree(exported["onnx"].artefact.folder, tmp_path / "there"))
    written_ns = (there / "model.onnx").stat().st_mtime_ns
    assert main(["export", str(run.folder), "--format", "onnx", "--out", str(there), "--json"]) == 0
    captured = capsys.readouterr()
    answer = json.loads(captured.out)
    assert captured.err == ""  # not a word of TensorFlow's
    assert answer["already_there"]
    assert answer["digest"] == exported["onnx"].artefact.digest
    assert answer["parity"]["photographs"] == 40
    assert (there / "model.onnx").stat().st_mtime_ns == written_ns
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def turn_the_first_photograph_around(run: Path) -> None:
    """As if the trained network had graded one tuning photograph from the other end of the scale."""
    predictions = Predictions.read_csv(run / "predictions.csv")
    assert predictions.probabilities is not None
    predictions.probabilities[0] = predictions.probabilities[0, ::-1].copy()
    predictions.write_csv(run / "predictions.csv")


def test_the_command_fails_with_status_1_and_leaves_nothing_where_the_models_disagree(
    spoilt: UntrainedRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    turn_the_first_photograph_around(spoilt.folder)
    assert main(["export", str(spoilt.folder), "--out", str(tmp_path / "artefacts" / "x")]) == 1
    printed = capsys.readouterr().out
    assert "refused: the exported model does not answer as the trained one: 40 tuning photographs" in printed
    assert list((tmp_path / "artefacts").iterdir()) == []


RESAVE = """
import sys
import keras
import numpy as np
import fundoscope.model.layers
network = keras.models.load_model(sys.argv[1], compile=False)
np.save(sys.argv[3], network.predict(np.load(sys.argv[2]), verbose=0))
network.save(sys.argv[1])
"""


@pytest.mark.backend
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_a_network_scored_and_saved_by_another_backend_is_exported(
    spoilt: UntrainedRun, tmp_path: Path, backend: str
) -> None:
    if find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed here (make test-backends)")
    model, pixels, answers = spoilt.folder / "model.keras", tmp_path / "pixels.npy", tmp_path / "answers.npy"
    np.save(pixels, spoilt.pixels)
    command = [sys.executable, "-c", RESAVE, model, pixels, answers]
    subprocess.run(command, env=os.environ | {"KERAS_BACKEND": backend}, check=True, capture_output=True)
    predictions = Predictions.read_csv(spoilt.folder / "predictions.csv")
    assert predictions.probabilities is not None
    predictions.probabilities[predictions.split == "tune"] = np.load(answers)
    predictions.write_csv(spoilt.folder / "predictions.csv")
    change_json(spoilt.folder / "run.json", backend=backend, model_sha256=sha256_file(model))
    assert export(spoilt.folder, tmp_path / "x").parity.largest_difference < 1e-4


@pytest.mark.parametrize(
    ("backbone", "head", "outputs"),
    [("tiny", "published", 5), ("MobileNet-0.25", "referral", 1)],
)
def test_every_head_exports_to_every_format(tmp_path: Path, backbone: str, head: str, outputs: int) -> None:
    pixels = blotches(10)
    with keras_warnings_are_its_own():
        network = telling_network(backbone, head, pixels)
        expected = network.predict_on_batch(pixels)
        assert expected.std(axis=0).min() > 0.05
        for format, to_format in EXPORTERS.items():
            to_format(network, tmp_path / format)
            answers = RUNTIMES[format](tmp_path / format, 0).probabilities(pixels)
            assert answers.shape == (10, outputs)
            np.testing.assert_allclose(answers, expected, atol=1e-4)


@pytest.mark.parametrize(("mode", "keras_mode"), [("symmetric", "tf"), ("caffe", "caffe"), ("torch", "torch")])
def test_input_scaling_survives_the_export(tmp_path: Path, mode: str, keras_mode: str) -> None:
    """The expected values are Keras's own preprocess_input, what its weights were trained under."""
    import keras

    from fundoscope.model.layers import InputScaling

    inputs = keras.Input((64, 64, 3), dtype="uint8", name="pixels")
    network = keras.Model(inputs, keras.layers.GlobalAveragePooling2D()(InputScaling(mode)(inputs)))
    pixels = blotches(3)
    preprocessed = keras.applications.imagenet_utils.preprocess_input(pixels.astype(np.float64), mode=keras_mode)
    with keras_warnings_are_its_own():
        EXPORTERS["onnx"](network, tmp_path / "model.onnx")
    answers = RUNTIMES["onnx"](tmp_path / "model.onnx", 1).probabilities(pixels)
    np.testing.assert_allclose(answers, preprocessed.mean(axis=(1, 2)), rtol=1e-4, atol=1e-4)


def test_what_the_converter_lacks_is_written_rightly(tmp_path: Path) -> None:
    """Grouped convolutions, GELU by erfc and a Normalization layer's constants: ConvNeXt has them all."""
    import keras

    x = inputs = keras.Input((64, 64, 3), dtype="uint8", name="pixels")
    x = keras.layers.Normalization(mean=[100.0, 110.0, 120.0], variance=[900.0, 1600.0, 2500.0])(x)
    x = keras.layers.Conv2D(6, 3, groups=3)(x)
    x = keras.layers.Activation("gelu")(x)
    network = keras.Model(inputs, keras.layers.GlobalAveragePooling2D()(x))
    pixels = blotches(3)
    with keras_warnings_are_its_own():
        EXPORTERS["onnx"](network, tmp_path / "model.onnx")
        expected = network.predict_on_batch(pixels)
    answers = RUNTIMES["onnx"](tmp_path / "model.onnx", 1).probabilities(pixels)
    assert expected.std() > 0.05
    np.testing.assert_allclose(answers, expected, atol=1e-5)
