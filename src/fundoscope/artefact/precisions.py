"""PRECISIONS: the ways to write a float32 ONNX model smaller. Bytes in and float32 out stay as they are.

What was measured, MobileNet and VGG19 at 224, ONNX Runtime 1.31 on two cores with AVX512-VNNI, one photograph:

* **int8** MobileNet 2.2 to 2.8 times faster, VGG19 3.6; a quarter of the size. QDQ and QOperator, signed and unsigned
  activations are equally fast; unsigned weights are not (1.2, 1.3).
* **int8-dynamic** three times *slower*: every activation's range is found anew, and ONNX Runtime has no fast kernel.
  A quarter of the size.
* **float16, bfloat16** half the size, no faster. The x86 kernels know neither, so the weights are kept small and turned
  into float32 when the model is opened; that is the same everywhere.

What INT8 needs to be right, not only fast:

* Seven bits for weights. Without VNNI, ONNX Runtime multiplies u8 by s8 and adds pairs in 16 bits (VPMADDUBSW), which
  overflow, silently: 2 x 255 x 127 > 32767, but 2 x 255 x 64 is not. With eight bits, a machine without VNNI would run
  another model than the guard judged. Depthwise convolutions widen to 32 bits first (mlas, ConvSymKernelAvx2.S) and
  keep eight.
* The input's scaling and all that follows the last convolution stay float32: they cost nothing, and matter most.
* Bias correction. Rounding weights moves the mean of every channel, and the moves add up along the network: a trained
  MobileNet's referral probabilities were off by 0.016 on average. With what rounding did to the means taken back from
  the biases (Nagel et al. 2019, ICCV, section 4.2) it is 0.008, and flips at two thresholds fell from 27 to 10 of 645.
* Matched features. Rounding activations makes large ones smaller and small ones vanish, which biases cannot mend: a
  trained VGG19 lost 25 of 844 referrals at its high threshold and gained 3. A line fitted for each feature, from what
  the small network computes to what the exact one does, is folded into the first layer of the head.
* Ranges by their least and greatest value. Percentiles were no better there, and histograms need far more memory.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
BATCH = 4


def to_int8(model: Path, out: Path, photographs: Iterable[Pixels]) -> None:
    import onnx
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

    seen = list(photographs)
    with _fused(model) as fused, _quiet():
        network = _with_biases(onnx.load(fused))
        fused.write_bytes(network.SerializeToString())  # by name: the quantiser empties what it is handed
        eight_bits = {"quant_type": QuantType.QInt8, "symmetric": True, "reduce_range": False, "axis": 0}
        quantize_static(
            fused,
            out,
            _reader(seen, network.graph.input[0].name),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            reduce_range=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            nodes_to_exclude=_ends(network.graph),
            extra_options={"TensorQuantOverrides": {node.input[1]: [eight_bits] for node in _depthwise(network)}},
        )
        small = onnx.load(out)
        _correct_biases(network, small, seen)
        _match_features(network, small, seen)
        out.write_bytes(small.SerializeToString(deterministic=True))


def to_int8_dynamic(model: Path, out: Path, photographs: Iterable[Pixels]) -> None:  # noqa: ARG001  # needs none
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with _fused(model) as fused, _quiet():
        network = onnx.load(fused)
        # One scale for all channels is all there is for these, and depthwise ones do not survive it.
        alone = [*_ends(network.graph), *(node.name for node in _depthwise(network))]
        quantize_dynamic(fused, out, reduce_range=True, weight_type=QuantType.QInt8, nodes_to_exclude=alone)


def to_float16(model: Path, out: Path, photographs: Iterable[Pixels]) -> None:  # noqa: ARG001
    from onnx import TensorProto

    _store_weights(model, out, TensorProto.FLOAT16, lambda weights: weights.astype(np.float16))


def to_bfloat16(model: Path, out: Path, photographs: Iterable[Pixels]) -> None:  # noqa: ARG001
    from onnx import TensorProto

    def upper_half(weights: NDArray[np.float32]) -> NDArray[np.uint16]:
        """To the nearest, ties to even; numpy has no bfloat16."""
        bits = weights.view(np.uint32)
        return np.asarray((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16, dtype=np.uint16)

    _store_weights(model, out, TensorProto.BFLOAT16, upper_half)


PRECISIONS: dict[str, Callable[[Path, Path, Iterable[Pixels]], None]] = {
    "int8": to_int8,
    "int8-dynamic": to_int8_dynamic,
    "float16": to_float16,
    "bfloat16": to_bfloat16,
}


@contextmanager
def _fused(model: Path) -> Iterator[Path]:
    """The model with normalisations folded into convolutions, as ONNX Runtime does it, and every shape known."""
    from onnxruntime.quantization.shape_inference import quant_pre_process

    with TemporaryDirectory(prefix="fundoscope-") as folder, _quiet():
        fused = Path(folder) / "fused.onnx"
        quant_pre_process(model, fused, skip_symbolic_shape=True)  # which would take another dependency
        yield fused


@contextmanager
def _quiet() -> Iterator[None]:
    """The quantiser's advice on how to call it."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


def _reader(photographs: list[Pixels], name: str) -> Any:
    from onnxruntime.quantization import CalibrationDataReader

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = iter(photographs)

        def get_next(self) -> dict[str, Pixels] | None:
            photograph = next(self.left, None)
            return None if photograph is None else {name: photograph[np.newaxis]}

    return Reader()


def _ends(graph: Any) -> list[str]:
    """What comes before the first convolution, and after the last one and its activation: named, to be left alone."""
    places = [i for i, node in enumerate(graph.node) if node.op_type == "Conv"]
    body = {"Clip", "Relu", "MaxPool"}  # part of the convolution before them, once it is quantised
    after = (node.name for node in graph.node[places[-1] + 1 :] if node.op_type not in body)
    return [*(node.name for node in graph.node[: places[0]]), *after]


def _with_biases(network: Any) -> Any:
    """Give every convolution a bias, if only zeros, so that there is one to correct."""
    from onnx import numpy_helper

    weights = {tensor.name: tensor for tensor in network.graph.initializer}
    for node in network.graph.node:
        if node.op_type == "Conv" and len(node.input) == 2 and node.input[1] in weights:
            name = f"{node.name}/zeros"
            zeros = np.zeros(weights[node.input[1]].dims[0], np.float32)
            network.graph.initializer.append(numpy_helper.from_array(zeros, name))
            node.input.append(name)
    return network


def _group(node: Any) -> int:
    return next((int(attribute.i) for attribute in node.attribute if attribute.name == "group"), 1)


def _depthwise(network: Any) -> list[Any]:
    """Convolutions of each channel by itself."""
    shape = {tensor.name: tensor.dims for tensor in network.graph.initializer}
    convolutions = [node for node in network.graph.node if node.op_type == "Conv" and node.input[1] in shape]
    return [node for node in convolutions if _group(node) == shape[node.input[1]][0] and shape[node.input[1]][1] == 1]


def _correct_biases(network: Any, small: Any, photographs: list[Pixels]) -> None:
    """Take from each quantised bias what rounding the weights added, given the mean of what comes in."""
    from onnx import numpy_helper

    before = {node.name: node for node in network.graph.node if node.op_type == "Conv"}
    exact = {tensor.name: tensor for tensor in network.graph.initializer}
    stored = {tensor.name: tensor for tensor in small.graph.initializer}
    restored = {node.output[0]: node for node in small.graph.node if node.op_type == "DequantizeLinear"}
    quantised = [
        node for node in small.graph.node if node.op_type == "Conv" and all(name in restored for name in node.input[1:])
    ]
    means = _channel_means(network, [before[node.name].input[0] for node in quantised], photographs)

    def value(tensors: dict[str, Any], name: str) -> NDArray[Any]:
        return np.asarray(numpy_helper.to_array(tensors[name]))

    for node in quantised:
        weight, bias = restored[node.input[1]], restored[node.input[2]]
        scale = value(stored, weight.input[1]).reshape(-1, 1, 1, 1)
        rounding = value(stored, weight.input[0]) * scale - value(exact, before[node.name].input[1])
        groups, coming_in = _group(node), means[before[node.name].input[0]]
        by_group = rounding.sum(axis=(2, 3)).reshape(groups, -1, len(coming_in) // groups)
        added = (by_group * coming_in.reshape(groups, 1, -1)).sum(axis=-1).reshape(-1)
        corrected = value(stored, bias.input[0]) - np.rint(added / value(stored, bias.input[1]))
        limits = np.iinfo(np.int32)
        corrected = np.clip(corrected, limits.min, limits.max).astype(np.int32)
        stored[bias.input[0]].CopyFrom(numpy_helper.from_array(corrected, bias.input[0]))


def _match_features(network: Any, small: Any, photographs: list[Pixels]) -> None:
    """Fold into the head's first layer the line, for each feature, from the small network's to the exact one's."""
    from onnx import numpy_helper

    dense = _first_dense(small.graph)
    if dense is None:
        return
    found, wanted = (_watch(model, [dense.input[0]], photographs)[dense.input[0]] for model in (small, network))
    off = found - found.mean(axis=0)
    spread = (off**2).mean(axis=0)
    slope = (off * wanted).mean(axis=0) / np.maximum(spread, 1e-12)
    slope = np.where(spread > 1e-8, np.clip(slope, 0.5, 2), 1.0)  # one that hardly varies says nothing about a slope
    offset = wanted.mean(axis=0) - slope * found.mean(axis=0)
    tensors = {tensor.name: tensor for tensor in small.graph.initializer}
    weights, bias = (numpy_helper.to_array(tensors[name]) for name in dense.input[1:])
    for name, value in zip(dense.input[1:], (slope[:, None] * weights, bias + offset @ weights), strict=True):
        tensors[name].CopyFrom(numpy_helper.from_array(value.astype(np.float32), name))


def _first_dense(graph: Any) -> Any | None:
    """The head's first dense layer (a Gemm, once it is fused), where that is what follows the convolutions."""
    weights = {tensor.name for tensor in graph.initializer}
    last = max(i for i, node in enumerate(graph.node) if node.op_type == "Conv")
    dense = next((node for node in graph.node[last:] if node.op_type in ("Gemm", "MatMul")), None)
    if dense is None or len(dense.input) != 3 or not set(dense.input[1:]) <= weights:
        return None
    turned = any(attribute.name in ("transA", "transB") and attribute.i for attribute in dense.attribute)
    return None if turned else dense


def _channel_means(network: Any, names: list[str], photographs: list[Pixels]) -> dict[str, NDArray[np.float64]]:
    """The mean of every channel of these tensors, over photographs and places."""
    import onnx

    names = sorted(set(names))
    watched = onnx.ModelProto()
    watched.CopyFrom(network)
    watched.graph.initializer.append(onnx.numpy_helper.from_array(np.array([2, 3], np.int64), "places"))
    for name in names:
        watched.graph.node.append(onnx.helper.make_node("ReduceMean", [name, "places"], [f"{name}/mean"], keepdims=0))
    found = _watch(watched, [f"{name}/mean" for name in names], photographs)
    return {name: found[f"{name}/mean"].mean(axis=0) for name in names}


def _watch(network: Any, names: list[str], photographs: list[Pixels]) -> dict[str, NDArray[np.float64]]:
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


def _store_weights(model: Path, out: Path, kind: int, smaller: Callable[[NDArray[np.float32]], NDArray[Any]]) -> None:
    """Weights as `kind`, each followed by a Cast to float32 that ONNX Runtime does once, when it opens the model."""
    import onnx

    with _fused(model) as fused:
        network = onnx.load(fused)
    graph, casts = network.graph, []
    for tensor in graph.initializer:
        if tensor.data_type != onnx.TensorProto.FLOAT or len(tensor.dims) < 2:
            continue  # biases are few, and rounding them moves whole channels
        name, weights = tensor.name, onnx.numpy_helper.to_array(tensor)
        small = onnx.TensorProto(
            name=f"{name}/small", data_type=kind, dims=tensor.dims, raw_data=smaller(weights).tobytes()
        )
        tensor.CopyFrom(small)
        casts.append(onnx.helper.make_node("Cast", [small.name], [name], to=onnx.TensorProto.FLOAT))
    nodes = [*casts, *(type(node).FromString(node.SerializeToString()) for node in graph.node)]
    del graph.node[:]
    graph.node.extend(nodes)
    out.write_bytes(network.SerializeToString(deterministic=True))
