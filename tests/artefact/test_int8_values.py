"""Which convolutions INT8 scales together and which it keeps apart; where a quantised artefact may be written."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from fundoscope.artefact.int8 import _neighbours
from fundoscope.artefact.network import depthwise
from fundoscope.artefact.quantise import _check_room
from fundoscope.errors import FundoscopeError

POOLED = {"kernel_shape": [2, 2]}


def network(*layers: tuple[str, str, tuple[int, ...] | None, dict[str, Any]]) -> Any:
    """Layers one after the other: name, operation, shape of a convolution's weights, attributes."""
    nodes, tensors, last = [], [], "photograph"
    for name, operation, shape, attributes in layers:
        inputs = [last]
        if shape is not None:
            for part, size in (("weights", shape), ("bias", shape[:1])):
                tensors.append(numpy_helper.from_array(np.ones(size, np.float32), f"{name}/{part}"))
                inputs.append(f"{name}/{part}")
        nodes.append(helper.make_node(operation, inputs, [f"{name}/out"], name, **attributes))
        last = f"{name}/out"
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("photograph", last)]
    return helper.make_model(helper.make_graph(nodes, "by-hand", ends[:1], ends[1:], tensors))


@pytest.mark.parametrize(
    ("between", "found"),
    [("Relu", True), ("MaxPool", True), ("AveragePool", True), ("Clip", False), ("Sigmoid", False)],
)
def test_convolutions_are_neighbours_where_what_is_between_does_not_mind_a_scale(between: str, found: bool) -> None:
    model = network(
        ("a", "Conv", (4, 3, 1, 1), {}),
        ("between", between, None, POOLED if between.endswith("Pool") else {}),
        ("b", "Conv", (5, 4, 1, 1), {}),
    )
    assert [(one.name, other.name) for one, other in _neighbours(model)] == ([("a", "b")] if found else [])


def test_a_convolution_is_depthwise_where_each_channel_has_one_filter_of_its_own() -> None:
    model = network(
        ("plain", "Conv", (4, 3, 3, 3), {}),
        ("each", "Conv", (4, 1, 3, 3), {"group": 4}),
        ("twice", "Conv", (8, 1, 3, 3), {"group": 4}),
        ("pairs", "Conv", (4, 2, 3, 3), {"group": 4}),
    )
    assert [node.name for node in depthwise(model)] == ["each"]


def test_a_new_or_empty_folder_is_written_to_and_nothing_else(tmp_path: Path) -> None:
    _check_room(tmp_path / "new")
    (tmp_path / "empty").mkdir()
    _check_room(tmp_path / "empty")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    for name in ("full", "full/file"):
        with pytest.raises(FundoscopeError) as caught:
            _check_room(tmp_path / name)
        assert caught.value.message == f"{tmp_path / name} is already there"
        assert caught.value.hint == "give --out a new folder"
