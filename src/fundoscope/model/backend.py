"""Which framework Keras runs on: decided once per process, before Keras is first imported."""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from tempfile import TemporaryFile

from fundoscope.errors import FundoscopeError, pick

PACKAGES = {"tensorflow": "tensorflow", "jax": "jax", "torch": "torch"}


def has_gpu() -> bool:
    """Whether an NVIDIA driver answers here; looks, and imports nothing."""
    return shutil.which("nvidia-smi") is not None and os.environ.get("CUDA_VISIBLE_DEVICES") != ""


def choose_backend(requested: str | None = None) -> str:
    """The requested backend, or the best installed for this device: JAX on a GPU, TensorFlow on a CPU."""
    if requested is not None:
        pick(PACKAGES, requested, kind="backend")
        if find_spec(PACKAGES[requested]) is None:
            extra = {"tensorflow": "train"}.get(requested, requested)
            raise FundoscopeError(f"{requested} is not installed here", f"pip install 'fundoscope[{extra}]'")
        return requested
    order = ("jax", "tensorflow", "torch") if has_gpu() else ("tensorflow", "torch", "jax")
    for name in order:
        if find_spec(PACKAGES[name]) is not None:
            return name
    raise FundoscopeError("no training framework is installed here", "pip install 'fundoscope[train]'")


def use_backend(name: str) -> None:
    """Make Keras run on `name` in this process, reproducibly and without its chatter."""
    if "keras" in sys.modules and sys.modules["keras"].config.backend() != name:
        raise FundoscopeError(f"Keras already runs on {sys.modules['keras'].config.backend()} in this process")
    os.environ["KERAS_BACKEND"] = name
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # leave room for others on the card
    with _hushed():
        if name == "tensorflow":
            import tensorflow

            tensorflow.config.experimental.enable_op_determinism()
            tensorflow.get_logger().setLevel("ERROR")  # its advice on retracing is for us, not for users
        import keras

        keras.config.disable_interactive_logging()  # what it prints would land in the middle of our answer


@contextmanager
def _hushed() -> Iterator[None]:
    """Keep what the C++ libraries print as they load off the user's screen; show it if loading fails."""
    sys.stderr.flush()
    kept = os.dup(2)
    with TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        try:
            yield
        except BaseException:
            said.seek(0)
            os.write(kept, said.read())
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def device_name() -> str:
    """What the chosen backend computes on, for the record."""
    import keras

    if keras.config.backend() == "jax":
        import jax

        return str(jax.devices()[0].device_kind)
    if keras.config.backend() == "torch":
        import torch

        return str(torch.cuda.get_device_name(0)) if torch.cuda.is_available() else "cpu"
    import tensorflow

    return "gpu" if tensorflow.config.list_physical_devices("GPU") else "cpu"


@contextmanager
def full_precision() -> Iterator[None]:
    """Inside, float32 is float32: graphics cards round it to 10 bits (TF32) for speed, and scores would follow."""
    import keras

    if keras.config.backend() == "jax":
        import jax

        with jax.default_matmul_precision("highest"):
            yield
    elif keras.config.backend() == "torch":
        import torch

        with torch.backends.cudnn.flags(allow_tf32=False):  # matrix products are exact by default, convolutions not
            yield
    else:
        import tensorflow

        before = tensorflow.config.experimental.tensor_float_32_execution_enabled()
        tensorflow.config.experimental.enable_tensor_float_32_execution(False)
        try:
            yield
        finally:
            tensorflow.config.experimental.enable_tensor_float_32_execution(before)
