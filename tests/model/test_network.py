import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pytest import approx

from fundoscope.model.layers import Augment, OrdinalProbabilities
from fundoscope.model.network import build_network, loss_of, open_network

LOGITS = arrays(np.float32, (3, 4), elements=st.floats(-12, 12, width=32))


@settings(deadline=None, max_examples=50)
@given(LOGITS)
def test_ordinal_probabilities_are_a_distribution_and_never_rise_with_the_grade(logits):
    p = keras.ops.convert_to_numpy(OrdinalProbabilities()(logits)).astype(np.float64)
    assert p.sum(axis=1) == approx(np.ones(3), abs=1e-5)
    assert p.min() >= -1e-6
    at_least = p[:, ::-1].cumsum(axis=1)[:, ::-1]
    assert (np.diff(at_least, axis=1) <= 1e-6).all()
    steps = 1 / (1 + np.exp(-logits.astype(np.float64)))
    assert at_least[:, 1:] == approx(np.cumprod(steps, axis=1), abs=1e-5)


def test_each_loss_is_the_textbook_one():
    grades = np.array([0, 2, 4])
    p = np.array([[0.7, 0.1, 0.1, 0.06, 0.04], [0.1, 0.2, 0.4, 0.2, 0.1], [0.05, 0.05, 0.1, 0.3, 0.5]], np.float32)
    softmax = keras.ops.convert_to_numpy(loss_of("published", referral_from=2)(grades, p))
    assert softmax == approx(-np.log([0.7, 0.4, 0.5]), rel=1e-5)
    referral = np.array([[0.2], [0.7], [0.9]], np.float32)
    sigmoid = keras.ops.convert_to_numpy(loss_of("referral", referral_from=2)(grades, referral))
    assert sigmoid == approx(-np.log([0.8, 0.7, 0.9]), rel=1e-5)
    ordinal = keras.ops.convert_to_numpy(loss_of("ordinal", referral_from=2)(grades, p))
    # P(>=1..4) of the second photograph: 0.9, 0.7, 0.3, 0.1; it is at least 1 and at least 2.
    assert ordinal[1] == approx(-np.mean(np.log([0.9, 0.7, 0.7, 0.9])), rel=1e-4)


@pytest.mark.parametrize(("head", "outputs"), [("published", 5), ("referral", 1), ("ordinal", 5)])
def test_a_saved_network_comes_back_whole(head, outputs, tmp_path):
    built = build_network("tiny", head, size=64, weights="random", dropout=0.2)
    pixels = np.random.default_rng(1).integers(0, 256, (3, 64, 64, 3)).astype(np.uint8)
    built.whole.save(tmp_path / "model.keras")
    opened = open_network(tmp_path / "model.keras")
    expected = built.whole.predict_on_batch(pixels)
    assert expected.shape == (3, outputs)
    assert opened.whole.predict_on_batch(pixels) == approx(expected, abs=1e-6)
    features = opened.features.predict_on_batch(pixels)
    assert opened.head.predict_on_batch(features) == approx(expected, abs=1e-5)


def test_augmentation_turns_a_photograph_by_the_drawn_angle_and_keeps_black_black():
    pixels = np.zeros((1, 33, 33, 3), np.uint8)
    pixels[0, 4:9, 15:18] = (200, 100, 50)  # a mark above the middle
    quarter_turn = np.array([[0, 1, 0, -1, 0, 32, 0, 0]], np.float32)  # output (x, y) looks at input (y, 32 - x)
    colour = np.array([[1, 1, 0.5, 1]], np.float32)
    turned = keras.ops.convert_to_numpy(Augment()(pixels, quarter_turn, colour))[0]
    assert turned.dtype == np.uint8
    assert turned[16, 26].tolist() == [200, 50, 50], "the mark at (16, 6), which is where output (26, 16) looks"
    assert (turned.any(axis=-1)).sum() == 15, "the mark and nothing else is not black"
