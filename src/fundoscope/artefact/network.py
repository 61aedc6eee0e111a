"""Reading an ONNX network: fused as the runtime would, its parts named, its tensors watched on photographs."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
BATCH = 4


@contextmanager
def fused(model: Path) -> Iterator[Path]:
    """The model with normalisations folded into convolutions, as ONNX Runtime does it, and every shape known."""
    from onnxruntime.quantization.shape_inference import quant_pre_process

    with TemporaryDirectory(prefix="fundoscope-") as folder, quiet():
        fused = Path(folder) / "fused.onnx"
        quant_pre_process(model, fused, skip_symbolic_shape=True)  # which would take another dependency
        yield fused


@contextmanager
def quiet() -> Iterator[None]:
    """The quantiser's advice on how to call it."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


def ends(graph: Any) -> list[str]:
    """What comes before the first convolution, and after the last one and its activation: named, to be left alone."""
    places = [i for i, node in enumerate(graph.node) if node.op_type == "Conv"]
    body = {"Clip", "Relu", "MaxPool"}  # part of the convolution before them, once it is quantised
    after = (node.name for node in graph.node[places[-1] + 1 :] if node.op_type not in body)
    return [*(node.name for node in graph.node[: places[0]]), *after]


def group(node: Any) -> int:
    return next((int(attribute.i) for attribute in node.attribute if attribute.name == "group"), 1)


def depthwise(network: Any) -> list[Any]:
    """Convolutions of each channel by itself."""
    shape = {tensor.name: tensor.dims for tensor in network.graph.initializer}
    convolutions = [node for node in network.graph.node if node.op_type == "Conv" and node.input[1] in shape]
    return [node for node in convolutions if group(node) == shape[node.input[1]][0] and shape[node.input[1]][1] == 1]


def by_channel(
    network: Any, names: list[str], reduce: str, photographs: list[Pixels]
) -> dict[str, NDArray[np.float64]]:
    """What an operator (ReduceMean, ReduceMax) makes of every channel of these tensors, for each photograph."""
    import onnx

    names = sorted(set(names))
    watched = onnx.ModelProto()
    watched.CopyFrom(network)
    watched.graph.initializer.append(onnx.numpy_helper.from_array(np.array([2, 3], np.int64), "places"))
    for name in names:
        watched.graph.node.append(onnx.helper.make_node(reduce, [name, "places"], [f"{name}/{reduce}"], keepdims=0))
    found = watch(watched, [f"{name}/{reduce}" for name in names], photographs)
    return {name: found[f"{name}/{reduce}"] for name in names}


def watch(network: Any, names: list[str], photographs: list[Pixels]) -> dict[str, NDArray[np.float64]]:
    """What these tensors are for each photograph."""
    import onnx
    import onnxruntime

    watched = onnx.ModelProto()
    watched.CopyFrom(network)
    for name in names:
        watched.graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(watched.SerializeToString(), options, providers=["CPUExecutionProvider"])
    parts = []
    for start in range(0, len(photographs), BATCH):
        pixels = np.stack(photographs[start : start + BATCH])
        parts.append(session.run(names, {watched.graph.input[0].name: pixels}))
    return {
        name: np.concatenate(part).astype(np.float64)
        for name, part in zip(names, zip(*parts, strict=True), strict=True)
    }
