import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fundoscope.experiment.networks import (
    NETWORKS,
    Conv,
    Dense,
    Pool,
    channels_first,
    initial_weights,
    multiply_adds,
    parameter_count,
)

VGG16 = (
    *(Conv(64), Conv(64), Pool()),
    *(Conv(128), Conv(128), Pool()),
    *(Conv(256), Conv(256), Conv(256), Pool()),
    *(Conv(512), Conv(512), Conv(512), Pool()),
    *(Conv(512), Conv(512), Conv(512), Pool()),
    *(Dense(4096), Dense(4096), Dense(1000)),
)


def test_vgg16_has_the_parameters_and_the_arithmetic_that_torchvision_gives_for_it():
    # torchvision 0.20, VGG16_Weights.IMAGENET1K_V1: num_params 138357544, _ops 15.47 (thousand million multiply-adds).
    assert parameter_count(VGG16, 224, 3) == 138_357_544
    assert multiply_adds(VGG16, 224, 3) / 1e9 == pytest.approx(15.47, abs=0.005)


def test_the_parameters_of_rede1_counted_by_hand():
    by_hand = (9 * 1 * 32 + 32) + (9 * 32 * 64 + 64) + (8 * 8 * 64 * 128 + 128) + (128 * 10 + 10)
    assert parameter_count(NETWORKS["rede1"], 32, 1) == by_hand


def test_rede2_is_the_more_work_at_every_size():
    for image in (32, 64):
        assert multiply_adds(NETWORKS["rede2"], image, 3) > 5 * multiply_adds(NETWORKS["rede1"], image, 3)


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_ends_in_ten_classes(name):
    assert NETWORKS[name][-1] == Dense(10)


def test_kernels_are_uniform_within_glorots_limit_and_biases_are_zero():
    weights = initial_weights(NETWORKS["rede1"], 32, 3, seed=5)
    limits = [(6 / (9 * 3 + 9 * 32)) ** 0.5, (6 / (9 * 32 + 9 * 64)) ** 0.5, (6 / (4096 + 128)) ** 0.5]
    for kernel, limit in zip(weights[::2], limits, strict=False):
        assert np.abs(kernel).max() <= np.float32(limit)
        assert kernel.std() == pytest.approx(limit / 3**0.5, rel=0.05)  # of a uniform distribution
    assert all(not bias.any() for bias in weights[1::2])
    assert {weight.dtype for weight in weights} == {np.dtype("float32")}


def test_weights_follow_from_the_seed():
    first, again, other = (initial_weights(NETWORKS["rede1"], 32, 1, seed) for seed in (1, 1, 2))
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
    assert (first[0] != other[0]).any()


def test_the_first_weight_is_the_one_every_numpy_draws():
    # RandomState(0).uniform() begins with 0.5488135039273248 (NumPy's manual, numpy.random.rand with seed 0).
    limit = (6 / (9 * 1 + 9 * 32)) ** 0.5
    drawn = initial_weights(NETWORKS["rede1"], 32, 1, seed=0)[0][0, 0, 0, 0]
    assert drawn == pytest.approx(limit * (2 * 0.5488135039273248 - 1), rel=1e-6)


@given(st.integers(0, 1000), st.sampled_from([1, 3]))
@settings(deadline=None, max_examples=10)
def test_turned_for_channels_first_a_dense_layer_gives_the_same_answer(seed, channels):
    network = (Conv(4), Pool(), Dense(6), Dense(3))
    weights = initial_weights(network, 8, channels, seed)
    turned = channels_first(network, 8, channels, weights)
    grid = np.random.RandomState(seed).uniform(size=(4, 4, 4))  # height, width, channel
    assert turned[2] @ grid.transpose(2, 0, 1).ravel() == pytest.approx(grid.ravel() @ weights[2], rel=1e-5)
    assert (turned[4] == weights[4].T).all()  # the second one has no picture to turn


def test_turned_for_channels_first_a_kernel_is_out_in_height_width():
    network = (Conv(4), Pool(), Dense(2))
    weights = initial_weights(network, 4, 3, seed=0)
    turned = channels_first(network, 4, 3, weights)
    assert turned[0].shape == (4, 3, 3, 3)
    assert turned[0][1, 2, 0, 1] == weights[0][0, 1, 2, 1]
