"""The retina is found where OpenCV finds it, and where the published search does not."""

import cv2
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import ndimage

from fundoscope.data.circle import Circle, find_circle, largest_patch, smallest_circle, survivors

RETINA = (150, 70, 30)


def disc(width, height, x, y, radius, *, colour=RETINA, background=(0, 0, 0)):
    """A plain retina, one colour on another, with vessels as thin dark lines across it."""
    picture = np.empty((height, width, 3), np.uint8)
    picture[:] = background
    rows, columns = np.mgrid[:height, :width]
    inside = np.hypot(columns - x, rows - y) <= radius
    picture[inside] = colour
    picture[inside & ((rows + columns) % 40 == 0)] = (0, 0, 0)
    return picture


def close(found, expected, within=1.5):
    assert found is not None
    assert abs(found.x - expected.x) <= within
    assert abs(found.y - expected.y) <= within
    assert abs(found.radius - expected.radius) <= within
    return True


@settings(max_examples=60, deadline=None)
@given(st.integers(60, 300), st.integers(60, 300), st.floats(0.25, 0.45), st.floats(-0.4, 0.4), st.floats(-0.4, 0.4))
def test_a_disc_anywhere_in_the_frame_is_found(width, height, part, right, down):
    radius = part * min(width, height)
    x = width / 2 + right * (width / 2 - radius)
    y = height / 2 + down * (height / 2 - radius)
    assert close(find_circle(disc(width, height, x, y, radius)), Circle(x, y, radius))


def test_a_disc_cut_off_above_and_below_is_found_whole():
    assert close(find_circle(disc(300, 200, 150, 100, 120)), Circle(150, 100, 120))


@pytest.mark.parametrize("level", [9, 12, 14])
def test_a_retina_too_dark_for_the_published_search_is_found(level):
    dark = disc(300, 200, 140, 100, 80, colour=(level, level // 2, 0))
    assert not survivors(dark).any()
    assert close(find_circle(dark), Circle(140, 100, 80))


def test_a_background_that_is_not_quite_black_is_still_background():
    grey = disc(300, 200, 140, 100, 80, background=(25, 24, 26))
    assert survivors(grey).mean() > 0.95
    assert close(find_circle(grey), Circle(140, 100, 80))


def test_a_noisy_background_brighter_than_the_published_limit_is_still_background():
    picture = disc(300, 200, 140, 100, 80, colour=(250, 240, 200)).astype(int)
    noisy = picture + np.random.default_rng(4).integers(8, 34, (200, 300, 1))
    assert close(find_circle(np.minimum(noisy, 255).astype(np.uint8)), Circle(140, 100, 80), within=3)


def test_a_photograph_that_is_only_darker_in_its_corners_is_taken_whole():
    rows, columns = np.mgrid[:200, :200]
    shade = 1 - 0.5 * np.hypot(rows - 99.5, columns - 99.5) / 141
    picture = (shade[..., None] * RETINA).astype(np.uint8)
    assert find_circle(picture) == Circle(99.5, 99.5, 100)


def test_lettering_and_stamps_in_the_corners_are_left_out():
    picture = disc(300, 200, 150, 100, 85)
    cv2.putText(picture, "R 2026-11-15", (2, 12), cv2.FONT_HERSHEY_SIMPLEX, 0.4, (255, 255, 255), 1)
    picture[170:195, 255:295] = 200
    assert close(find_circle(picture), Circle(150, 100, 85))


def test_noise_in_the_background_is_left_out():
    picture = disc(300, 200, 150, 100, 85)
    speckle = np.random.default_rng(3).random((200, 300)) < 0.02
    picture[speckle & (picture.max(axis=2) == 0)] = 90
    found = find_circle(picture)
    assert close(found, Circle(150, 100, 85), within=4)  # a speck beside the rim belongs to it


@pytest.mark.parametrize(("width", "height"), [(300, 200), (200, 300), (150, 150)])
def test_a_photograph_without_background_is_taken_whole(width, height):
    picture = np.full((height, width, 3), RETINA, np.uint8)
    assert find_circle(picture) == Circle((width - 1) / 2, (height - 1) / 2, max(width, height) / 2)


def test_a_square_cut_to_the_retina_keeps_its_own_circle_whatever_is_dark_in_it():
    picture = disc(224, 224, 111.5, 111.5, 112)
    picture[30:180, 150:215] = 0  # half of it in shadow moves the centroid far to the left
    assert find_circle(picture) == Circle(111.5, 111.5, 112)


@pytest.mark.parametrize("picture", [np.zeros((50, 70, 3), np.uint8), np.full((50, 70, 3), 5, np.uint8)])
def test_nothing_is_found_in_the_dark(picture):
    assert find_circle(picture) is None


def test_a_speck_of_dust_is_no_retina():
    assert find_circle(disc(300, 200, 150, 100, 12)) is None


@settings(max_examples=200, deadline=None)
@given(arrays(np.uint8, st.tuples(st.integers(1, 12), st.integers(1, 12), st.just(3))))
def test_any_picture_has_a_circle_or_none(picture):
    found = find_circle(picture)
    assert found is None or (found.radius > 0 and np.isfinite([found.x, found.y]).all())


@settings(max_examples=300, deadline=None)
@given(arrays(np.uint8, (40, 3)))
@example(
    np.array([[0, 0, 195], [195, 0, 0], [0, 195, 0], [18, 0, 0], [17, 0, 0], [12, 12, 12], [13, 13, 13]], np.uint8)
)
def test_survivors_are_what_opencv_leaves_above_zero(colours):
    darkened = np.array((255 / 1.3) * (colours[None] / (255 / 1.5)) ** 2).astype(np.int64).astype(np.uint8)
    grey = cv2.cvtColor(darkened[..., ::-1].copy(), cv2.COLOR_BGR2GRAY)
    assert np.array_equal(survivors(colours[None]), grey > 0)


@settings(max_examples=300, deadline=None)
@given(arrays(np.bool_, st.tuples(st.integers(1, 30), st.integers(1, 30))))
def test_the_largest_patch_is_the_one_scipy_labels(mask):
    patch = largest_patch(mask)
    labels, n = ndimage.label(mask, np.ones((3, 3)))
    if n == 0:
        assert patch is None
        return
    candidates = []
    sizes = np.bincount(labels.ravel())[1:]
    for label in np.flatnonzero(sizes == sizes.max()) + 1:
        one = labels == label
        # Filled: the patch lies on all four sides.
        sides = [np.logical_or.accumulate(one, axis=axis) for axis in (0, 1)]
        sides += [np.flip(np.logical_or.accumulate(np.flip(one, axis), axis=axis), axis) for axis in (0, 1)]
        filled = np.logical_and.reduce(sides)
        y, x = ndimage.center_of_mass(filled)
        candidates.append((filled.sum(), round(x, 6), round(y, 6)))
    assert (patch.area, round(patch.x, 6), round(patch.y, 6)) in candidates


@settings(max_examples=200, deadline=None)
@given(arrays(np.int32, st.tuples(st.integers(1, 60), st.just(2)), elements=st.integers(0, 300)))
def test_the_smallest_circle_is_opencvs(points):
    circle = smallest_circle(points.astype(float))
    distances = np.hypot(points[:, 0] - circle.x, points[:, 1] - circle.y)
    assert distances.max() <= circle.radius + 1e-5
    _, radius = cv2.minEnclosingCircle(points)
    assert circle.radius <= radius + 1e-3
    assert circle.radius == pytest.approx(radius, abs=0.05)  # OpenCV's is rounded up a little


def test_circles_are_compared_by_centre_and_radius():
    circle = Circle(10, 20, 30)
    assert circle.within(5, of=Circle(13, 24, 35))
    assert not circle.within(4.9, of=Circle(13, 24, 30))
    assert not circle.within(4.9, of=Circle(10, 20, 35))


def test_scaling_a_circle_keeps_its_place_between_the_edges():
    whole = Circle(99.5, 49.5, 50)  # the middle of 200 × 100 pixels
    assert whole.scaled(0.5) == Circle(49.5, 24.5, 25)
    assert whole.scaled(0.125).scaled(8) == whole
