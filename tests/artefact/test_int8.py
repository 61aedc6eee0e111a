"""Channels of unequal range, made equal before they share eight bits."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from fundoscope.artefact.int8 import to_int8
from fundoscope.artefact.runtime import OnnxPredictor

CHANNELS, SIDE = 8, 16
UNEVEN = np.geomspace(1, 300, CHANNELS)  # what one channel exceeds the next by


def photographs(n: int, seed: int) -> list[NDArray[np.uint8]]:
    return list(np.random.default_rng(seed).integers(0, 256, (n, SIDE, SIDE, 3), dtype=np.uint8))


def two_convolutions(between: str, folder: Path, *, group: int = 1) -> Path:
    """Channels far apart in range, and weights after them that count them alike: bytes in, channel means out."""
    rng = np.random.default_rng(1)
    first = rng.normal(0, 1, (CHANNELS, 3, 3, 3)) * UNEVEN[:, None, None, None] / 30
    second = rng.normal(0, 1, (CHANNELS, CHANNELS // group, 3, 3))
    second /= UNEVEN[:, None, None] if group == 1 else UNEVEN[:, None, None, None]
    nodes = [
        helper.make_node("Cast", ["pixels"], ["wide"], "cast", to=TensorProto.FLOAT),
        helper.make_node("Mul", ["wide", "scale"], ["scaled"], "scaling"),
        helper.make_node("Transpose", ["scaled"], ["planes"], "transpose", perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["planes", "first"], ["features"], "conv1"),
        *(
            [helper.make_node("Relu", ["features"], ["lit"], "relu")]
            if between == "Relu"
            else [helper.make_node("Clip", ["features", "zero", "six"], ["lit"], "relu6")]
        ),
        helper.make_node("MaxPool", ["lit"], ["pooled"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["pooled", "second"], ["more"], "conv2", group=group),
        helper.make_node("Relu", ["more"], ["answers"], "relu2"),
        helper.make_node("ReduceMean", ["answers", "places"], ["probabilities"], "mean", keepdims=0),
    ]
    values: dict[str, np.ndarray] = {
        "scale": np.array(1 / 255, np.float32),
        "first": first.astype(np.float32),
        "second": second.astype(np.float32),
        "places": np.array([2, 3], np.int64),
    }
    if between == "Clip":
        values |= {"zero": np.array(0, np.float32), "six": np.array(6, np.float32)}
    graph = helper.make_graph(
        nodes,
        "two",
        [helper.make_tensor_value_info("pixels", TensorProto.UINT8, ["n", SIDE, SIDE, 3])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["n", CHANNELS])],
        [numpy_helper.from_array(value, name) for name, value in values.items()],
    )
    path = folder / f"{between}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    return path


def error(between: str, folder: Path, *, group: int) -> float:
    """The quantised network's, relative to how the answers differ from photograph to photograph."""
    model, small = two_convolutions(between, folder, group=group), folder / "small.onnx"
    to_int8(model, small, photographs(16, seed=2))
    asked = np.stack(photographs(32, seed=3))
    exact, rounded = (OnnxPredictor(path, 1).probabilities(asked) for path in (model, small))
    return float(np.sqrt(((rounded - exact) ** 2).mean() / exact.var(axis=0).mean()))


@pytest.mark.parametrize("group", [1, CHANNELS])  # all channels together, and each by itself
def test_channels_of_unequal_range_are_equalised_before_they_are_rounded(group: int, tmp_path: Path) -> None:
    assert error("Relu", tmp_path, group=group) < 0.1


def test_channels_that_end_at_six_stay_as_they_are(tmp_path: Path) -> None:
    """Scaled, they would be cut off elsewhere."""
    model, small = two_convolutions("Clip", tmp_path), tmp_path / "small.onnx"
    to_int8(model, small, photographs(16, seed=2))
    graph = onnx.load(small).graph
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    scales = stored["first_scale"].reshape(-1, 1, 1, 1)
    exact = next(numpy_helper.to_array(one) for one in onnx.load(model).graph.initializer if one.name == "first")
    assert np.abs(stored["first_quantized"] * scales - exact).max() <= 0.51 * scales.max()
    assert scales.max() / scales.min() > 100
