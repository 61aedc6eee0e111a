"""BACKBONES: the published networks, each with the input scaling its ImageNet weights were trained under.

The thesis's notebook names 27 networks; three of its names (EfficientNetB5 to B7) build EfficientNetB4, so that it
compared 24. All 24 are here, the three real ones too. It fed MobileNetV2's scaling ([-1, 1]) to every one of them:
that is `scaling="published"`, kept for comparison.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fundoscope.errors import FundoscopeError, pick

# What a network expects of its input. "own": the network rescales 0..255 itself.
Scaling = Literal["symmetric", "caffe", "torch", "own"]


@dataclass(frozen=True)
class Backbone:
    application: str  # the function's name in keras.applications, or "tiny"
    scaling: Scaling
    size: int = 224  # pixels a side, as its weights were trained
    options: Mapping[str, Any] = field(default_factory=dict)
    weights_name: str = ""  # how a file with its weights begins, in a folder of weights

    def file_in(self, folder: Path) -> Path | None:
        """Its weights without the classification layer, in a folder of such files."""
        found = sorted(folder.glob(f"{self.weights_name or self.application.lower()}*notop*.h5"))
        return found[0] if found else None


def _mobilenet(version: int, alpha: float) -> Backbone:
    name = "MobileNet" if version == 1 else "MobileNetV2"
    return Backbone(name, "symmetric", 224, {"alpha": alpha}, f"mobilenet_v{version}_{alpha:g}_")


BACKBONES: dict[str, Backbone] = {
    "DenseNet121": Backbone("DenseNet121", "torch"),
    "DenseNet169": Backbone("DenseNet169", "torch"),
    "DenseNet201": Backbone("DenseNet201", "torch"),
    "EfficientNetB0": Backbone("EfficientNetB0", "own", 224),
    "EfficientNetB1": Backbone("EfficientNetB1", "own", 240),
    "EfficientNetB2": Backbone("EfficientNetB2", "own", 260),
    "EfficientNetB3": Backbone("EfficientNetB3", "own", 300),
    "EfficientNetB4": Backbone("EfficientNetB4", "own", 380),
    "EfficientNetB5": Backbone("EfficientNetB5", "own", 456),
    "EfficientNetB6": Backbone("EfficientNetB6", "own", 528),
    "EfficientNetB7": Backbone("EfficientNetB7", "own", 600),
    "InceptionResNetV2": Backbone("InceptionResNetV2", "symmetric", 299),
    "InceptionV3": Backbone("InceptionV3", "symmetric", 299),
    "MobileNet": Backbone("MobileNet", "symmetric", 224, {}, "mobilenet_1_0_"),
    "MobileNet-0.75": _mobilenet(1, 0.75),
    "MobileNet-0.25": _mobilenet(1, 0.25),
    "MobileNetV2": Backbone("MobileNetV2", "symmetric", 224, {}, "mobilenet_v2_*1.0_"),
    "MobileNetV2-0.35": _mobilenet(2, 0.35),
    "MobileNetV3Large": Backbone("MobileNetV3Large", "own", 224, {}, "weights_mobilenet_v3_large"),
    "MobileNetV3Small": Backbone("MobileNetV3Small", "own", 224, {}, "weights_mobilenet_v3_small"),
    "NASNetMobile": Backbone("NASNetMobile", "symmetric", 224),
    "ResNet50": Backbone("ResNet50", "caffe"),
    "ResNet101": Backbone("ResNet101", "caffe"),
    "ResNet152": Backbone("ResNet152", "caffe"),
    "ResNet50V2": Backbone("ResNet50V2", "symmetric"),
    "ResNet101V2": Backbone("ResNet101V2", "symmetric"),
    "ResNet152V2": Backbone("ResNet152V2", "symmetric"),
    "VGG16": Backbone("VGG16", "caffe"),
    "VGG19": Backbone("VGG19", "caffe"),
    "Xception": Backbone("Xception", "symmetric", 299),
    "EfficientNetV2B0": Backbone("EfficientNetV2B0", "own", 224),
    "ConvNeXtTiny": Backbone("ConvNeXtTiny", "own", 224),
    "tiny": Backbone("tiny", "symmetric", 160),  # ours: learns drawn eyes from nothing in minutes
}

# The notebook's 24 distinct ones (its 27 less the three that build EfficientNetB4 under other names).
PUBLISHED_24 = tuple(
    name
    for name in BACKBONES
    if "-0." not in name
    and name not in ("EfficientNetB5", "EfficientNetB6", "EfficientNetB7", "EfficientNetV2B0", "ConvNeXtTiny", "tiny")
)


def build_backbone(name: str, *, size: int, weights: str) -> Any:
    """The Keras network from scaled pixels to a feature map. `weights`: imagenet, random, or a file."""
    backbone = pick(BACKBONES, name, kind="backbone")
    if backbone.application == "tiny":
        return _tiny(size, weights)
    import keras

    source: str | None = {"random": None}.get(weights, weights)
    try:
        network = getattr(keras.applications, backbone.application)(
            include_top=False, weights=source, input_shape=(size, size, 3), **backbone.options
        )
    except Exception as problem:  # a download or a file of another network: Keras raises a dozen kinds
        raise _no_weights(name, weights, problem) from problem
    network.name = "backbone"
    return network


def resolve_weights(name: str, weights: str) -> str:
    """`weights` as Keras takes it: imagenet, random, or a file found, also in a folder of them."""
    path = Path(weights)
    if weights in ("imagenet", "random"):
        return weights
    if path.is_dir():
        found = pick(BACKBONES, name, kind="backbone").file_in(path)
        if found is None:
            raise FundoscopeError(f"{path} holds no weights of {name}", "give the file itself, or --weights random")
        return str(found)
    if not path.is_file():
        raise FundoscopeError(f"there is no weights file {path}", "give a file, a folder, imagenet or random")
    return str(path)


def _no_weights(name: str, weights: str, problem: Exception) -> FundoscopeError:
    first_line = (str(problem).strip().splitlines() or ["no reason given"])[0][:200]
    if weights == "imagenet":
        hint = "give them with --weights FILE, or start from nothing with --weights random"
        return FundoscopeError(f"the ImageNet weights of {name} cannot be had here: {first_line}", hint)
    return FundoscopeError(f"{weights} does not hold the weights of {name}: {first_line}", "give its own file")


def _tiny(size: int, weights: str) -> Any:
    """Five strided stages of two convolutions: 0.25 million weights, few enough to learn from a thousand eyes.

    It is given each photograph twice: as it is, and less its own surroundings (an eighth of the resolution, scaled
    back up), where lesions stand out whatever the camera's colours. Without that it does not learn drawn eyes in the
    minutes a demo has: it stayed near chance for some 12 epochs and reached AUC 0.91 after 24.
    """
    import keras
    from keras import layers

    if weights != "random":
        raise FundoscopeError("the tiny network has no trained weights", 'use weights = "random" with it')
    if size % 8:
        raise FundoscopeError(f"the tiny network takes sizes divisible by 8, not {size}", "use 160")
    inputs = keras.Input((size, size, 3))
    surroundings = layers.UpSampling2D(8, interpolation="bilinear")(layers.AveragePooling2D(8)(inputs))
    details = layers.Rescaling(4.0)(layers.Subtract()([inputs, surroundings]))
    x = layers.Concatenate()([details, inputs])
    for stage, width in enumerate((16, 32, 48, 64, 96)):
        x = layers.Conv2D(width, 3, strides=2, padding="same", use_bias=False, name=f"down{stage}")(x)
        x = layers.BatchNormalization(momentum=0.9, name=f"down{stage}_norm")(x)
        x = layers.ReLU()(x)
        if stage > 0:
            y = layers.Conv2D(width, 3, padding="same", use_bias=False, name=f"conv{stage}")(x)
            y = layers.BatchNormalization(momentum=0.9, name=f"conv{stage}_norm")(y)
            x = layers.ReLU()(layers.Add()([x, y]))
    return keras.Model(inputs, x, name="backbone")
