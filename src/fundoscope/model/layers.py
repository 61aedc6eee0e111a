"""The few layers Keras lacks. They are part of every saved model, so importing this module lets Keras read one."""

from typing import Any

import keras
from keras import ops

IMAGENET_BGR_MEAN = (103.939, 116.779, 123.68)
IMAGENET_RGB_MEAN, IMAGENET_RGB_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@keras.saving.register_keras_serializable("fundoscope")
class InputScaling(keras.layers.Layer):  # type: ignore[misc]
    """RGB bytes (0..255) to what a backbone expects. Inside the model, so that no caller can forget it."""

    def __init__(self, mode: str, **options: Any) -> None:
        super().__init__(**options)
        self.mode = mode

    def call(self, pixels: Any) -> Any:
        x = ops.cast(pixels, "float32")  # bfloat16 cannot hold 0..255 exactly
        if self.mode == "symmetric":
            x = x / 127.5 - 1.0
        elif self.mode == "caffe":
            x = ops.flip(x, axis=-1) - ops.convert_to_tensor(IMAGENET_BGR_MEAN, "float32")
        elif self.mode == "torch":
            mean, std = (ops.convert_to_tensor(v, "float32") for v in (IMAGENET_RGB_MEAN, IMAGENET_RGB_STD))
            x = (x / 255.0 - mean) / std
        elif self.mode != "own":
            raise ValueError(f"no input scaling called {self.mode}")
        return ops.cast(x, self.compute_dtype)

    def compute_output_shape(self, shape: Any) -> Any:
        return shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "mode": self.mode}


@keras.saving.register_keras_serializable("fundoscope")
class OrdinalProbabilities(keras.layers.Layer):  # type: ignore[misc]
    """Four logits to five grade probabilities, as a chain: at least mild, at least moderate if mild, and so on.

    P(grade >= k) is a product of k sigmoids, so it never rises with k: no photograph can be more likely severe than
    moderate-or-worse, which independent sigmoids allow.
    """

    def call(self, logits: Any) -> Any:
        steps = ops.sigmoid(ops.cast(logits, "float32"))
        at_least = ops.cumprod(steps, axis=-1)
        ones, zeros = ops.ones_like(at_least[:, :1]), ops.zeros_like(at_least[:, :1])
        return ops.concatenate([ones, at_least], axis=-1) - ops.concatenate([at_least, zeros], axis=-1)

    def compute_output_shape(self, shape: Any) -> Any:
        return (*shape[:-1], shape[-1] + 1)


@keras.saving.register_keras_serializable("fundoscope")
class Augment(keras.layers.Layer):  # type: ignore[misc]
    """Turn, flip, shift and recolour photographs on the device, by parameters that the host drew (data/batches.py).

    The parameters come in with the pixels: the same seed then gives the same photographs on every backend, and an
    interrupted training goes on with the very ones it would have seen.
    """

    def call(self, pixels: Any, transform: Any, colour: Any) -> Any:
        x = ops.cast(pixels, "float32")
        x = ops.image.affine_transform(x, transform, interpolation="bilinear", fill_mode="constant", fill_value=0)
        grey = ops.mean(x, axis=-1, keepdims=True)
        saturation, gain = colour[:, None, None, :1], colour[:, None, None, 1:]
        x = (grey + saturation * (x - grey)) * gain  # gains keep the black border black; offsets would not
        return ops.cast(ops.clip(ops.round(x), 0, 255), "uint8")

    def compute_output_shape(self, shape: Any, *_: Any) -> Any:
        return shape
