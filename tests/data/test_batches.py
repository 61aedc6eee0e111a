import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx

from fundoscope.data.batches import AUGMENTATIONS, batches, grade_weights, steps

ROWS = np.arange(100, 200)


def epoch(number=1, *, batch=16, augment="fundus", seed=5):
    return list(batches(ROWS, batch=batch, size=64, augmentation=AUGMENTATIONS[augment], seed=seed, epoch=number))


@given(st.integers(1, 130), st.integers(0, 50), st.integers(0, 9))
def test_an_epoch_shows_no_photograph_twice_and_only_whole_batches(batch, number, seed):
    drawn = list(batches(ROWS, batch=batch, size=64, augmentation=AUGMENTATIONS["fundus"], seed=seed, epoch=number))
    shown = np.concatenate([b.rows for b in drawn])
    assert len(drawn) == steps(len(ROWS), batch)
    assert len(set(shown)) == len(shown) == len(drawn) * min(batch, len(ROWS))
    assert set(shown) <= set(ROWS)


def test_epoch_seven_is_the_same_without_the_six_before_it():
    first, again, other = epoch(7), epoch(7), epoch(8)
    for a, b in zip(first, again, strict=True):
        assert (a.rows == b.rows).all()
        assert (a.transform == b.transform).all()
        assert (a.colour == b.colour).all()
    assert (first[0].rows != other[0].rows).any()


def test_no_augmentation_is_the_identity():
    for b in epoch(augment="none"):
        assert b.transform == approx(np.tile([1, 0, 0, 0, 1, 0, 0, 0], (16, 1)), abs=1e-5)
        assert b.colour == approx(np.ones((16, 4)))


def test_turning_and_mirroring_leave_the_middle_within_the_shift():
    transform = np.concatenate([b.transform for b in epoch()])
    middle = np.array([31.5, 31.5, 1.0])
    x, y = transform[:, :3] @ middle, transform[:, 3:6] @ middle
    assert np.abs(x - 31.5).max() <= 0.03 * 64 + 1e-3
    assert np.abs(y - 31.5).max() <= 0.03 * 64 + 1e-3
    determinant = transform[:, 0] * transform[:, 4] - transform[:, 1] * transform[:, 3]
    assert (determinant > 0).any()
    assert (determinant < 0).any(), "some are mirrored"
    assert np.abs(determinant).max() <= 1 / 0.88**2 + 1e-3


def test_full_balance_gives_every_grade_the_same_say():
    grades = np.array([0] * 90 + [1] * 30 + [2] * 60 + [3] * 5 + [4] * 15)
    weights = grade_weights(grades, 1.0)
    assert [weights[grades == g].sum() for g in range(5)] == approx([40.0] * 5)
    assert grade_weights(grades, 0.0) == approx(np.ones(200))
