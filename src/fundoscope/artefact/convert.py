"""EXPORTERS, and the process they run in: Keras on TensorFlow, whatever backend trained the model.

    python -m fundoscope.artefact.convert JOB.json      started by artefact/export.py, with ENVIRONMENT

Reads model.keras, writes it in another format, opens what it wrote with the runtime that will serve it, and lets that
answer photographs. TensorFlow is the one backend that exports every network to both formats, and this process keeps it,
its start-up time and its chatter away from the caller.

The same model gives the same bytes, for the same versions of TensorFlow and tf2onnx on the same kind of processor
(constants are folded by arithmetic). What it takes is said where it is done.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fundoscope.artefact.artefact import Format
from fundoscope.artefact.onnx_graph import HANDLERS, name_by_place
from fundoscope.artefact.runtime import RUNTIMES
from fundoscope.config import build

INPUT, OUTPUT = "pixels", "probabilities"
OPSET = 18  # the newest that tf2onnx 1.17 writes; ONNX Runtime 1.22 reads up to 23
BATCH = 32
ENVIRONMENT = {
    "KERAS_BACKEND": "tensorflow",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "-1",  # a GPU would fold constants by other arithmetic, and has no part in this
    "PYTHONHASHSEED": "0",  # tf2onnx walks over sets of names: their order becomes the order of the weights
}


@dataclass(frozen=True)
class Job:
    keras_model: str
    format: Format
    model: str  # the file or folder to write
    pixels: str  # .npy, (n, size, size, 3) uint8
    also_keras: bool  # whether the Keras model itself is to answer too
    answers: str  # .npz to write: deployed, and keras


def to_savedmodel(network: Any, model: Path) -> None:
    """Keras's own export() writes every weight twice, in an order that changes from run to run; this does neither."""
    import tensorflow as tf
    from tensorflow.core.protobuf.fingerprint_pb2 import FingerprintDef

    function = _serving_function(network).get_concrete_function()
    module = tf.Module(name="fundoscope")
    module.weights_in_order = [weight.value for weight in network.weights]
    tf.saved_model.save(module, str(model), signatures={"serving_default": function})
    path = model / "fingerprint.pb"
    fingerprint = FingerprintDef.FromString(path.read_bytes())
    fingerprint.uuid = ""  # drawn anew at every export; the checksums beside it say as much
    path.write_bytes(fingerprint.SerializeToString(deterministic=True))


def to_onnx(network: Any, model: Path) -> None:
    import onnx
    import tensorflow as tf
    import tf2onnx

    function = _serving_function(network)
    tf.config.run_functions_eagerly(True)  # inline the functions Keras wraps grouped convolutions in: tf2onnx cannot
    try:
        traced = function.get_concrete_function()
        proto, _ = tf2onnx.convert.from_function(
            function,
            input_signature=function.input_signature,
            opset=OPSET,
            custom_op_handlers={name: (handler, []) for name, handler in HANDLERS.items()},
        )
    finally:
        tf.config.run_functions_eagerly(False)
    for constant, place in traced.graph.captures:  # a Normalization layer's, which tf2onnx takes for inputs
        if constant.dtype != tf.resource:
            proto.graph.initializer.append(onnx.numpy_helper.from_array(constant.numpy(), place.name))
    name_by_place(proto.graph, keep=INPUT)
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "photographs"
    # tf2onnx leaves an operation it cannot convert as it is, and says so in a log only.
    onnx.checker.check_model(proto, full_check=True)
    model.write_bytes(proto.SerializeToString(deterministic=True))


EXPORTERS: dict[str, Callable[[Any, Path], None]] = {"onnx": to_onnx, "savedmodel": to_savedmodel}


def _serving_function(network: Any) -> Any:
    import tensorflow as tf

    signature = [tf.TensorSpec((None, *network.input_shape[1:]), tf.uint8, name=INPUT)]

    def serve(pixels: Any) -> Any:
        return {OUTPUT: network(pixels, training=False)}

    return tf.function(serve, input_signature=signature, autograph=False)


def steps(photographs: int, *, also_keras: bool) -> int:
    """How many lines of progress a job writes: the model read, the model written, then one per batch."""
    return 2 + -(-photographs // BATCH) * (1 + also_keras)


def _convert(job: Job) -> Iterator[None]:
    from fundoscope.model.network import open_network

    network = open_network(Path(job.keras_model)).whole
    yield
    EXPORTERS[job.format](network, Path(job.model))
    yield
    pixels = np.load(job.pixels, mmap_mode="r")
    answers: dict[str, list[NDArray[np.float32]]] = {"deployed": []}
    predictor = RUNTIMES[job.format](Path(job.model), 0)
    for batch in _batches(pixels):
        answers["deployed"].append(predictor.probabilities(batch))
        yield
    if job.also_keras:
        answers["keras"] = []
        for batch in _batches(pixels):
            answers["keras"].append(network.predict_on_batch(batch))
            yield
    whole: dict[str, Any] = {who: np.concatenate(parts) for who, parts in answers.items()}
    np.savez(job.answers, **whole)


def _batches(pixels: NDArray[np.uint8]) -> Iterator[NDArray[np.uint8]]:
    for start in range(0, len(pixels), BATCH):
        yield np.array(pixels[start : start + BATCH])


def main(job_file: str) -> None:
    job = build(Job, json.loads(Path(job_file).read_text(encoding="utf-8")), where=job_file)
    # Standard output tells the caller how far we are; what the frameworks print there goes where their errors go.
    progress = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for _ in _convert(job):
        progress.write("\n")
        progress.flush()


if __name__ == "__main__":
    main(sys.argv[1])
