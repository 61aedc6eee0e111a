"""PRECISIONS: the ways to write a float32 ONNX model smaller. Bytes in and float32 out stay as they are.

What was measured, MobileNet and VGG19 at 224, ONNX Runtime 1.31 on two cores with AVX512-VNNI, one photograph:

* **int8** MobileNet 2.2 to 2.8 times faster, VGG19 3.6; a quarter of the size. QDQ and QOperator, signed and unsigned
  activations are equally fast; unsigned weights are not (1.2, 1.3).
* **int8-dynamic** three times *slower*: every activation's range is found anew, and ONNX Runtime has no fast kernel.
  A quarter of the size.
* **float16, bfloat16** half the size, no faster. The x86 kernels know neither, so the weights are kept small and turned
  into float32 when the model is opened; that is the same everywhere.

What INT8 needs to be right, not only fast, is in artefact/int8.py.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fundoscope.artefact.int8 import to_int8
from fundoscope.artefact.network import Pixels, depthwise, ends, fused, quiet


def to_int8_dynamic(model: Path, out: Path, photographs: Iterable[Pixels]) -> None:  # noqa: ARG001  # needs none
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with fused(model) as path, quiet():
        network = onnx.load(path)
        # One scale for all channels is all there is for these, and depthwise ones do not survive it.
        alone = [*ends(network.graph), *(node.name for node in depthwise(network))]
        quantize_dynamic(path, out, reduce_range=True, weight_type=QuantType.QInt8, nodes_to_exclude=alone)


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


def _store_weights(model: Path, out: Path, kind: int, smaller: Callable[[NDArray[np.float32]], NDArray[Any]]) -> None:
    """Weights as `kind`, each followed by a Cast to float32 that ONNX Runtime does once, when it opens the model."""
    import onnx

    with fused(model) as path:
        network = onnx.load(path)
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
