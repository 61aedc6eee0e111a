"""Backbone and head into one network: bytes of a prepared photograph in, probabilities out."""

from dataclasses import dataclass
from typing import Any, Literal

import keras
from keras import layers, ops

from fundoscope.errors import pick
from fundoscope.model.backbones import BACKBONES, build_backbone
from fundoscope.model.layers import InputScaling, OrdinalProbabilities


@dataclass(frozen=True)
class Head:
    """What follows the pooled features, and the loss its answers are trained under."""

    hidden: tuple[int, ...]
    outputs: int
    activation: Literal["softmax", "sigmoid", "ordinal"]


HEADS = {
    "published": Head((128, 128), 5, "softmax"),  # the thesis's: VGG19 then has 20,107,205 weights
    "referral": Head((), 1, "sigmoid"),  # the first paper's: refer or not
    "ordinal": Head((), 4, "ordinal"),  # recommended: grades in their order, and referral, from one network
}


@dataclass(frozen=True)
class Network:
    """The parts of one network; `whole` is what is trained, saved and exported."""

    whole: Any  # uint8 pixels (n, size, size, 3) -> probabilities (n, 5), or (n, 1) for a referral head
    features: Any  # the same pixels -> pooled features: all there is to compute once when the backbone is frozen
    head: Any  # pooled features -> probabilities
    backbone: Any


def build_network(
    backbone: str, head: str, *, size: int, weights: str, scaling: str = "own", dropout: float = 0.0
) -> Network:
    """`scaling`: "own" is each family's; "published" gives MobileNetV2's to all, as the thesis did."""
    mode = "symmetric" if scaling == "published" else pick(BACKBONES, backbone, kind="backbone").scaling
    base = build_backbone(backbone, size=size, weights=weights)
    pixels = keras.Input((size, size, 3), dtype="uint8", name="pixels")
    feature_map = base(InputScaling(mode, name="scaling")(pixels))
    pooled = layers.GlobalAveragePooling2D(name="pooled", dtype="float32")(feature_map)
    top = _build_head(pick(HEADS, head, kind="head"), width=pooled.shape[-1], dropout=dropout)
    whole = keras.Model(pixels, top(pooled), name="fundoscope")
    return Network(whole, keras.Model(pixels, pooled, name="features"), top, base)


def open_network(path: Any) -> Network:
    """A saved network, taken apart again."""
    whole = keras.models.load_model(path, compile=False)
    features = keras.Model(whole.input, whole.get_layer("pooled").output, name="features")
    return Network(whole, features, whole.get_layer("head"), whole.get_layer("backbone"))


def _build_head(head: Head, *, width: int, dropout: float) -> Any:
    # float32 throughout: a probability in bfloat16 has two decimal places.
    x = inputs = keras.Input((width,), name="features")
    if dropout:
        x = layers.Dropout(dropout, dtype="float32")(x)
    for i, units in enumerate(head.hidden):
        x = layers.Dense(units, activation="relu", dtype="float32", name=f"hidden{i}")(x)
    if head.activation == "ordinal":
        x = layers.Dense(head.outputs, dtype="float32", name="logits")(x)
        x = OrdinalProbabilities(dtype="float32", name="probabilities")(x)
    else:
        x = layers.Dense(head.outputs, dtype="float32", name="logits")(x)
        x = layers.Activation(head.activation, dtype="float32", name="probabilities")(x)
    return keras.Model(inputs, x, name="head")


def loss_of(head: str, *, referral_from: int) -> Any:
    """The loss of a head's probabilities against grades 0..4, one value per photograph."""
    kind = pick(HEADS, head, kind="head").activation

    def loss(grades: Any, probabilities: Any) -> Any:
        grade = ops.cast(ops.reshape(grades, (-1, 1)), "int32")
        p = ops.cast(probabilities, "float32")
        if kind == "softmax":
            return ops.reshape(keras.losses.sparse_categorical_crossentropy(grade, p), (-1,))
        if kind == "sigmoid":
            return keras.losses.binary_crossentropy(ops.cast(grade >= referral_from, "float32"), p)
        # Every threshold between two grades is a yes-or-no question; referral is one of the four.
        at_least = ops.flip(ops.cumsum(ops.flip(p, axis=-1), axis=-1), axis=-1)[:, 1:]
        is_at_least = ops.cast(grade >= ops.reshape(ops.arange(1, 5, dtype="int32"), (1, 4)), "float32")
        return keras.losses.binary_crossentropy(is_at_least, ops.clip(at_least, 1e-6, 1 - 1e-6))

    return loss
