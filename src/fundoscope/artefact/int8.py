"""An ONNX model in eight bits: what that needs to be right, and not only fast.

* Seven bits for weights. Without VNNI, ONNX Runtime multiplies u8 by s8 and adds pairs in 16 bits (VPMADDUBSW), which
  overflow, silently: 2 x 255 x 127 > 32767, but 2 x 255 x 64 is not. With eight bits, a machine without VNNI would run
  another model than the guard judged. Depthwise convolutions widen to 32 bits first (mlas, ConvSymKernelAvx2.S) and
  keep eight.
* The input's scaling and all that follows the last convolution stay float32: they cost nothing, and matter most.
* Equalised channels (Nagel et al. 2019, ICCV, section 4.1). A tensor has one scale, and the channels of a VGG19 differ
  in range; where only ReLUs and pools lie between two convolutions, a channel can be made smaller in one and larger in
  the next. Its referral probabilities' error fell from 0.016 to 0.005. A MobileNet's ReLU6 allows none of it.
* Bias correction. Rounding weights moves the mean of every channel, and the moves add up along the network: a trained
  MobileNet's referral probabilities were off by 0.016 on average. With what rounding did to the means taken back from
  the biases (Nagel et al. 2019, ICCV, section 4.2) it is 0.008, and flips at two thresholds fell from 27 to 10 of 645.
* Matched features. Rounding activations makes large ones smaller and small ones vanish, which biases cannot mend: a
  trained VGG19 lost 25 of 844 referrals at its high threshold and gained 3. A line fitted for each feature, from what
  the small network computes to what the exact one does, is folded into the first layer of the head.
* Ranges by their least and greatest value. Percentiles were no better for a MobileNet, and ranges of the least squared
  error worse for a VGG19: its largest activations carry the answer.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fundoscope.artefact.network import Pixels, by_channel, depthwise, ends, fused, group, quiet, watch


def to_int8(model: Path, out: Path, photographs: Iterable[Pixels]) -> None:
    import onnx
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

    seen = list(photographs)
    with fused(model) as path, quiet():
        network = _equalised(_with_biases(onnx.load(path)), seen)
        path.write_bytes(network.SerializeToString())  # by name: the quantiser empties what it is handed
        eight_bits = {"quant_type": QuantType.QInt8, "symmetric": True, "reduce_range": False, "axis": 0}
        quantize_static(
            path,
            out,
            _reader(seen, network.graph.input[0].name),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            reduce_range=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            nodes_to_exclude=ends(network.graph),
            extra_options={"TensorQuantOverrides": {node.input[1]: [eight_bits] for node in depthwise(network)}},
        )
        small = onnx.load(out)
        _correct_biases(network, small, seen)
        _match_features(network, small, seen)
        out.write_bytes(small.SerializeToString(deterministic=True))


def _reader(photographs: list[Pixels], name: str) -> Any:
    from onnxruntime.quantization import CalibrationDataReader

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = iter(photographs)

        def get_next(self) -> dict[str, Pixels] | None:
            photograph = next(self.left, None)
            return None if photograph is None else {name: photograph[np.newaxis]}

    return Reader()


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


def _equalised(network: Any, photographs: list[Pixels]) -> Any:
    """The same function with the channels between two convolutions scaled to be more alike in range."""
    from onnx import numpy_helper

    pairs = list(_neighbours(network))
    if not pairs:
        return network
    highest = by_channel(network, [second.input[0] for _, second in pairs], "ReduceMax", photographs)
    tensors = {tensor.name: tensor for tensor in network.graph.initializer}

    def scale(name: str, factor: NDArray[np.float64]) -> None:
        value = numpy_helper.to_array(tensors[name]) * factor
        tensors[name].CopyFrom(numpy_helper.from_array(value.astype(np.float32), name))

    for first, second in pairs:
        reach = highest[second.input[0]].max(axis=0)
        outward = np.moveaxis(numpy_helper.to_array(tensors[second.input[1]]), _fed_by(second), 0)
        weight = np.abs(outward.reshape(len(reach), -1)).max(axis=1)
        telling = (reach > 1e-6) & (weight > 1e-6)  # a channel that is never lit, or not looked at, stays as it is
        if not telling.any():
            continue
        factor = np.ones(len(reach))
        factor[telling] = np.sqrt(reach[telling] / weight[telling])
        factor[telling] /= np.exp(np.log(factor[telling]).mean())
        scale(first.input[1], 1 / factor.reshape(-1, 1, 1, 1))
        scale(first.input[2], 1 / factor)
        scale(second.input[1], factor.reshape((-1, 1, 1, 1) if _fed_by(second) == 0 else (1, -1, 1, 1)))
    return network


def _fed_by(node: Any) -> int:
    """The axis of a convolution's weights along which its input's channels lie."""
    return 0 if group(node) > 1 else 1


def _neighbours(network: Any) -> Iterator[tuple[Any, Any]]:
    """Convolutions with nothing between them that minds a scale (a ReLU6 does), and nobody else looking on."""
    alone = {node.name for node in depthwise(network)}
    weights = {tensor.name for tensor in network.graph.initializer}
    users: dict[str, list[Any]] = {}
    for node in network.graph.node:
        for name in node.input:
            users.setdefault(name, []).append(node)

    def is_plain(node: Any) -> bool:
        own = all(name in weights and len(users[name]) == 1 for name in node.input[1:])
        return node.op_type == "Conv" and own and (group(node) == 1 or node.name in alone)

    plain = [node for node in network.graph.node if is_plain(node)]
    for first in plain:
        node = first
        while len(following := users.get(node.output[0], [])) == 1:
            node = following[0]
            if node.op_type not in ("Relu", "MaxPool", "AveragePool"):
                break
        if node is not first and any(node is other for other in plain):
            yield first, node


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
    coming = by_channel(network, [before[node.name].input[0] for node in quantised], "ReduceMean", photographs)

    def value(tensors: dict[str, Any], name: str) -> NDArray[Any]:
        return np.asarray(numpy_helper.to_array(tensors[name]))

    for node in quantised:
        weight, bias = restored[node.input[1]], restored[node.input[2]]
        scale = value(stored, weight.input[1]).reshape(-1, 1, 1, 1)
        rounding = value(stored, weight.input[0]) * scale - value(exact, before[node.name].input[1])
        groups, coming_in = group(node), coming[before[node.name].input[0]].mean(axis=0)
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
    found, wanted = (watch(model, [dense.input[0]], photographs)[dense.input[0]] for model in (small, network))
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
