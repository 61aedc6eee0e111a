"""Predictors: the same answers from every runtime, and nothing imported that is not needed for them."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from untrained_run import UntrainedRun

from fundoscope.artefact.export import Exported
from fundoscope.artefact.runtime import OnnxPredictor, open_predictor
from fundoscope.errors import FundoscopeError

IMPORTS = """
import json, sys
import fundoscope.artefact.runtime
print(json.dumps(sorted(name for name in sys.modules if name.startswith("fundoscope"))))
from pathlib import Path
from fundoscope.artefact.artefact import Artefact
from fundoscope.artefact.runtime import open_predictor
predictor = open_predictor(Artefact.open(Path(sys.argv[1])), threads=1)
predictor.warm_up()
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


@pytest.mark.parametrize("format", ["onnx", "savedmodel"])
def test_the_exported_model_agrees_with_keras(run: UntrainedRun, exported: dict[str, Exported], format: str) -> None:
    answers = open_predictor(exported[format].artefact, threads=0).probabilities(run.pixels)
    assert answers.dtype == np.float32
    assert answers.shape == (40, 5)
    assert run.answers.std(axis=0).min() > 0.05  # they differ, so that agreement means something
    np.testing.assert_allclose(answers, run.answers, atol=1e-4)
    np.testing.assert_allclose(answers.sum(axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("format", ["onnx", "savedmodel"])
def test_any_number_of_photographs_gives_each_its_own_answer(
    run: UntrainedRun, exported: dict[str, Exported], format: str
) -> None:
    predictor = open_predictor(exported[format].artefact, threads=0)
    predictor.warm_up()
    one_by_one = np.concatenate([predictor.probabilities(run.pixels[i : i + 1]) for i in range(3)])
    np.testing.assert_allclose(predictor.probabilities(run.pixels[:3]), one_by_one, atol=1e-5)


def test_the_number_of_threads_does_not_change_the_answer(run: UntrainedRun, exported: dict[str, Exported]) -> None:
    one, two = (
        open_predictor(exported["onnx"].artefact, threads=threads).probabilities(run.pixels) for threads in (1, 2)
    )
    np.testing.assert_allclose(one, two, atol=1e-6)


def test_an_onnx_artefact_is_served_without_a_training_framework(exported: dict[str, Exported]) -> None:
    folder = exported["onnx"].artefact.folder
    done = subprocess.run([sys.executable, "-c", IMPORTS, folder], capture_output=True, text=True, check=True)
    ours, everything = map(json.loads, done.stdout.splitlines())
    assert ours == [
        "fundoscope",
        "fundoscope.artefact",
        "fundoscope.artefact.runtime",
        "fundoscope.errors",
    ]
    assert "onnxruntime" in everything
    assert not {"tensorflow", "keras", "jax", "torch", "onnx", "scipy", "cv2"} & set(everything)
    assert done.stderr == ""


def test_pixels_of_another_kind_are_refused_with_both_shapes(exported: dict[str, Exported]) -> None:
    predictor = open_predictor(exported["onnx"].artefact, threads=1)
    with pytest.raises(ValueError, match=r"float64 \(1, 64, 64, 3\), not uint8 \(n, 64, 64, 3\)"):
        predictor.probabilities(np.zeros((1, 64, 64, 3)))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"uint8 \(1, 32, 32, 3\), not"):
        predictor.probabilities(np.zeros((1, 32, 32, 3), np.uint8))


def test_a_file_that_is_no_model_is_a_plain_error(exported: dict[str, Exported], tmp_path: Path) -> None:
    shutil.copy(exported["onnx"].artefact.folder / "artefact.json", tmp_path / "model.onnx")
    with pytest.raises(FundoscopeError, match=r"model\.onnx cannot be opened"):
        OnnxPredictor(tmp_path / "model.onnx", 1)
