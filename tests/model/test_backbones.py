import importlib

import keras
import numpy as np
import pytest
from pytest import approx

from fundoscope.errors import FundoscopeError
from fundoscope.model.backbones import BACKBONES, PUBLISHED_24, build_backbone, resolve_weights
from fundoscope.model.layers import InputScaling
from fundoscope.model.network import build_network

# With global pooling and Dense 128, 128, 5. VGG19 and MobileNet: the thesis's own totals. The others were counted in
# Keras 3.15 by the field survey that this project's reference holds.
WEIGHTS = {
    "VGG19": 20_107_205,
    "MobileNet": 3_377_221,
    "MobileNetV2": 2_439_109,
    "ResNet50": 23_867_141,
    "DenseNet121": 7_185_861,
    "EfficientNetB0": 4_230_696,
}

# Where Keras keeps each family's own preprocess_input: the authority on what its weights were trained under.
MODULES = {
    "DenseNet": "densenet",
    "EfficientNetV2": "efficientnet_v2",
    "EfficientNet": "efficientnet",
    "InceptionResNetV2": "inception_resnet_v2",
    "InceptionV3": "inception_v3",
    "MobileNetV2": "mobilenet_v2",
    "MobileNetV3": "mobilenet_v3",
    "MobileNet": "mobilenet",
    "NASNet": "nasnet",
    "ResNet50V2": "resnet_v2",
    "ResNet101V2": "resnet_v2",
    "ResNet152V2": "resnet_v2",
    "ResNet": "resnet",
    "VGG16": "vgg16",
    "VGG19": "vgg19",
    "Xception": "xception",
    "ConvNeXt": "convnext",
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_with_the_published_head_the_weights_are_as_many_as_published(name):
    network = build_network(name, "published", size=224, weights="random")
    assert network.whole.count_params() == WEIGHTS[name]
    assert network.whole.output_shape == (None, 5)


def test_the_notebook_compared_24_networks_and_keras_has_them_all():
    assert len(PUBLISHED_24) == 24
    for name in PUBLISHED_24:
        assert callable(getattr(keras.applications, BACKBONES[name].application)), name


@pytest.mark.parametrize("name", [name for name in BACKBONES if name != "tiny"])
def test_each_network_gets_the_scaling_of_its_own_family(name):
    family = next(module for prefix, module in MODULES.items() if name.startswith(prefix))
    preprocess = importlib.import_module(f"keras.applications.{family}").preprocess_input
    pixels = np.random.default_rng(0).integers(0, 256, (2, 8, 8, 3)).astype(np.uint8)
    ours = keras.ops.convert_to_numpy(InputScaling(BACKBONES[name].scaling)(pixels))
    assert ours == approx(np.asarray(preprocess(pixels.astype(np.float32))), abs=1e-4)


def test_as_published_every_network_gets_mobilenet_v2_scaling():
    network = build_network("VGG16", "published", size=32, weights="random", scaling="published")
    assert network.whole.get_layer("scaling").mode == "symmetric"
    assert build_network("VGG16", "published", size=32, weights="random").whole.get_layer("scaling").mode == "caffe"


def test_real_weights_are_found_in_a_folder_and_loaded(shared_data):
    found = resolve_weights("MobileNet-0.75", str(shared_data / "weights"))
    assert found.endswith("mobilenet_v1_0.75_224_notop.weights.h5")
    base = build_backbone("MobileNet-0.75", size=224, weights=found)
    assert base.count_params() == 1_832_976  # as the data's own README counts them
    pixels = np.full((1, 224, 224, 3), 0.25, np.float32)
    blank = build_backbone("MobileNet-0.75", size=224, weights="random")
    assert np.abs(base.predict_on_batch(pixels)).mean() != approx(np.abs(blank.predict_on_batch(pixels)).mean())


def test_weights_of_another_network_are_refused_in_one_sentence(shared_data):
    other = shared_data / "weights" / "mobilenet_v2_0.35_224_notop.weights.h5"
    with pytest.raises(FundoscopeError, match="does not hold the weights of MobileNet-0.75"):
        build_backbone("MobileNet-0.75", size=224, weights=str(other))


def test_a_missing_weights_file_and_a_misspelt_backbone_say_what_to_do(tmp_path):
    with pytest.raises(FundoscopeError, match="no weights file") as missing:
        resolve_weights("VGG19", str(tmp_path / "nothing.h5"))
    assert "imagenet or random" in missing.value.hint
    with pytest.raises(FundoscopeError, match="holds no weights of VGG19"):
        resolve_weights("VGG19", str(tmp_path))
    with pytest.raises(FundoscopeError, match="no backbone called 'MobilNet'") as misspelt:
        build_backbone("MobilNet", size=64, weights="random")
    assert misspelt.value.hint == "use MobileNet"
