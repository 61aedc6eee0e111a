"""RUNTIMES: an Artefact's model, open and ready to answer. Imports numpy, and of the runtimes the one in use only."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from fundoscope.errors import FundoscopeError, pick

if TYPE_CHECKING:
    from fundoscope.artefact.artefact import Artefact

# ONNX Runtime 1.31 would tell its makers about every session unless this is said before it is imported.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

Pixels = NDArray[np.uint8]
Probabilities = NDArray[np.float32]


class Predictor(Protocol):
    """A model that answers. Calls from several threads at once are safe."""

    def probabilities(self, pixels: Pixels) -> Probabilities:
        """Prepared photographs (n, size, size, 3) to probabilities (n, 5), or (n, 1) for a referral head."""
        ...

    def warm_up(self) -> None:
        """Answer one black photograph, so that nobody's request pays for the first allocation."""
        ...


def open_predictor(artefact: "Artefact", *, threads: int) -> Predictor:
    """`threads` for one prediction. 0 leaves it to the runtime, which counts the host's cores, not a container's."""
    return pick(RUNTIMES, artefact.format, kind="runtime")(artefact.model, threads)


class OnnxPredictor:
    def __init__(self, model: Path, threads: int) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1  # these networks are chains: there is nothing to run side by side
        options.log_severity_level = 3  # errors only: they come as exceptions too
        # Its threads would go on spinning after an answer, on the processor that is to send it: 1.8 ms of a request.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        try:
            self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        except Exception as problem:  # onnxruntime's exceptions have no common class but this one
            raise _unusable(model, problem) from problem
        (self._input,), (self._output,) = self._session.get_inputs(), self._session.get_outputs()
        self._shape = tuple(self._input.shape[1:])

    def probabilities(self, pixels: Pixels) -> Probabilities:
        _check(pixels, self._shape)
        answers: list[Probabilities] = self._session.run([self._output.name], {self._input.name: pixels})
        return answers[0]

    def warm_up(self) -> None:
        self.probabilities(np.zeros((1, *self._shape), np.uint8))


class SavedModelPredictor:
    def __init__(self, model: Path, threads: int) -> None:
        import tensorflow as tf

        if tf.config.threading.get_intra_op_parallelism_threads() != threads:  # TensorFlow takes it once, at first
            tf.config.threading.set_intra_op_parallelism_threads(threads)
            tf.config.threading.set_inter_op_parallelism_threads(1)
        try:
            self._loaded = tf.saved_model.load(str(model))  # kept: without it its variables are deleted
            self._serve = self._loaded.signatures["serving_default"]
        except (OSError, KeyError, ValueError, tf.errors.OpError) as problem:
            raise _unusable(model, problem) from problem
        ((self._input, spec),) = self._serve.structured_input_signature[1].items()
        (self._output,) = self._serve.structured_outputs
        self._shape = tuple(spec.shape[1:])
        self._tensor = tf.constant

    def probabilities(self, pixels: Pixels) -> Probabilities:
        _check(pixels, self._shape)
        answer: Probabilities = self._serve(**{self._input: self._tensor(pixels)})[self._output].numpy()
        return answer

    def warm_up(self) -> None:
        self.probabilities(np.zeros((1, *self._shape), np.uint8))


RUNTIMES: dict[str, Callable[[Path, int], Predictor]] = {"onnx": OnnxPredictor, "savedmodel": SavedModelPredictor}


def give_back_memory() -> None:
    """To the system, what opening a model needed and has freed: of a small server's memory, a quarter and more."""
    from ctypes import CDLL

    trim = getattr(CDLL(None), "malloc_trim", None)  # glibc's; others have no such thing, or no need of it
    if trim is not None:
        trim(0)


def large_blocks_apart() -> None:
    """Bodies and pictures of 4 MB and more in blocks of their own, which go back to the system when they are freed.

    glibc would raise that limit to 32 MB as soon as one of them was freed, and keep what threads then free.
    """
    from ctypes import CDLL

    adjust = getattr(CDLL(None), "mallopt", None)
    if adjust is not None:
        adjust(-3, 4 * 2**20)  # M_MMAP_THRESHOLD


def _check(pixels: Pixels, shape: tuple[int, ...]) -> None:
    if pixels.dtype != np.uint8 or pixels.shape[1:] != shape:
        raise ValueError(f"pixels are {pixels.dtype} {pixels.shape}, not uint8 (n, {', '.join(map(str, shape))})")


def _unusable(model: Path, problem: Exception) -> FundoscopeError:
    first_line = (str(problem).strip().splitlines() or [type(problem).__name__])[0][:200]
    return FundoscopeError(f"{model} cannot be opened: {first_line}", "export it anew")
