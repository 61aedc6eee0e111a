"""The gate: what it lets through and what it refuses."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from untrained_run import UntrainedRun

from fundoscope.artefact.artefact import Artefact, OperatingPoint, write
from fundoscope.artefact.export import Exported
from fundoscope.artefact.parity import EDGE, LIMIT, Parity, compare
from fundoscope.artefact.runtime import open_predictor

HALF = OperatingPoint("half", 0.5, 0.95, "sensitivity")


def compare_referral(trained: list[float], deployed: list[float]) -> Parity:
    both = (np.array(values, dtype=np.float64)[:, None] for values in (trained, deployed))
    return compare(*both, points=[HALF], referral_from=2, against="the example")


def test_a_flip_is_refused_however_small_the_difference() -> None:
    parity = compare_referral([0.1, 0.49999, 0.9], [0.1, 0.50001, 0.9])
    assert parity.referral_flips == {"half": 1}
    assert parity.largest_difference == pytest.approx(2e-5)
    assert not parity.passed


def test_a_difference_above_the_limit_is_refused_without_a_flip() -> None:
    assert compare_referral([0.1, 0.9], [0.1 + 0.9 * LIMIT, 0.9]).passed
    parity = compare_referral([0.1, 0.9], [0.1 + 1.1 * LIMIT, 0.9])
    assert parity.referral_flips == {"half": 0}
    assert not parity.passed


def test_a_photograph_on_the_edge_is_counted_as_such_and_not_as_a_flip() -> None:
    parity = compare_referral([0.5 - EDGE / 2, 0.9], [0.5, 0.9])
    assert (parity.referral_flips, parity.on_the_edge, parity.passed) == ({"half": 0}, 1, True)
    assert not compare_referral([0.5 - 2 * EDGE, 0.9], [0.5, 0.9]).passed


def test_an_answer_that_is_not_a_number_is_refused() -> None:
    assert not compare_referral([0.1, 0.9], [0.1, float("nan")]).passed


def test_grades_that_change_are_counted() -> None:
    trained = np.array([[0.6, 0.4, 0, 0, 0], [0, 0.2, 0.8, 0, 0]])
    deployed = np.array([[0.4, 0.6, 0, 0, 0], [0, 0.2, 0.8, 0, 0]])
    parity = compare(trained, deployed, points=[HALF], referral_from=2, against="the example")
    assert (parity.grade_flips, parity.referral_flips) == (1, {"half": 0})
    assert parity.largest_difference == pytest.approx(0.2)


@given(arrays(np.float64, 20, elements=st.floats(0, 1)), arrays(np.float64, 20, elements=st.floats(-1, 1)))
def test_nothing_flips_that_moves_less_than_its_distance_from_the_threshold(
    trained: np.ndarray, shift: np.ndarray
) -> None:
    distance = np.abs(trained - HALF.threshold)
    parity = compare_referral(list(trained), list(trained + 0.99 * distance * shift))
    assert parity.referral_flips == {"half": 0}


def test_a_model_with_disturbed_weights_is_refused(
    run: UntrainedRun, exported: dict[str, Exported], tmp_path: Path
) -> None:
    """The file is sound and its digest right: only its answers tell."""
    artefact = exported["onnx"].artefact
    copy = replace(artefact, folder=Path(shutil.copytree(artefact.folder, tmp_path / "copy")))
    proto = onnx.load(copy.model)
    kernel = max(proto.graph.initializer, key=lambda tensor: len(tensor.raw_data))
    weights = np.frombuffer(kernel.raw_data, np.float32) * np.float32(1.02)
    kernel.raw_data = weights.tobytes()
    copy.model.write_bytes(proto.SerializeToString())
    disturbed = Artefact.open(write(copy).folder)
    assert disturbed.digest != artefact.digest

    def parity_of(candidate: Artefact) -> Parity:
        answers = open_predictor(candidate, threads=1).probabilities(run.pixels)
        points, referral_from = candidate.operating_points, candidate.referral_from
        return compare(run.answers, answers, points=points, referral_from=referral_from, against="Keras")

    assert parity_of(artefact).passed
    assert parity_of(disturbed).largest_difference > LIMIT
    assert not parity_of(disturbed).passed
