"""The published preparations give, pixel for pixel, what a plain reading of their description gives."""

import io
import subprocess
import sys
import tarfile

import cv2
import numpy as np
import pytest
from PIL import Image

from fundoscope.data.photo import Preparation, UnreadablePhoto, prepare


def saved(pixels, file_format="PNG", **options):
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, file_format, **options)
    return out.getvalue()


def voets_read_plainly(photo, diameter):
    """predecessors.md, part B, step by step; None where it rejects."""
    image = cv2.imdecode(np.frombuffer(photo, np.uint8), cv2.IMREAD_COLOR)
    with np.errstate(invalid="ignore"):
        darkened = ((255.0 / 1.3) * (1.5 * image / 255.0) ** 2).astype(np.int64).astype(np.uint8)
    grey = cv2.cvtColor(darkened, cv2.COLOR_BGR2GRAY)
    contours, _ = cv2.findContours(grey, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
    if not contours:
        return None
    largest = max(contours, key=cv2.contourArea)
    (_, _), radius = cv2.minEnclosingCircle(largest)
    if not radius > 100:
        return None
    moments = cv2.moments(largest)
    centre_x, centre_y = int(moments["m10"] / moments["m00"]), int(moments["m01"] / moments["m00"])
    left, top = max(0, int(centre_x - radius)), max(0, int(centre_y - radius))
    crop = image[top : top + int(2 * radius), left : left + int(2 * radius)]
    crop = cv2.resize(crop, (0, 0), fx=(diameter / 2) / radius, fy=(diameter / 2) / radius)
    square = np.zeros((diameter, diameter, 3), np.uint8)
    above, beside = -(-(diameter - crop.shape[0]) // 2), -(-(diameter - crop.shape[1]) // 2)
    square[above : above + crop.shape[0], beside : beside + crop.shape[1]] = crop
    return cv2.cvtColor(square, cv2.COLOR_BGR2RGB)


def eye(width, height, x, y, radius):
    rows, columns = np.mgrid[:height, :width]
    shade = 120 + 80 * np.sin(columns / 17) * np.cos(rows / 23)
    picture = np.stack([shade + 55, shade / 2, shade / 4], axis=2)
    return np.where((np.hypot(columns - x, rows - y) <= radius)[..., None], picture, 0).astype(np.uint8)


FRAMINGS = {
    "whole": (700, 600, 340, 300, 250),
    "cut off above and below": (700, 400, 350, 200, 250),
    "cut off at the left, so that the clamped crop shifts": (700, 600, 180, 300, 250),
    "odd": (701, 599, 351, 298, 233),
}


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("size", [299, 224, 300])
def test_voets_equals_a_plain_reading(framing, size):
    photo = saved(eye(*FRAMINGS[framing]))
    prepared = prepare(photo, Preparation(size=size, way="voets"))
    assert np.array_equal(prepared.pixels, voets_read_plainly(photo, size))
    assert (prepared.width, prepared.height) == FRAMINGS[framing][:2]


def test_voets_equals_a_plain_reading_on_real_photographs(shared_data):
    compared = 0
    for archive, every in (("eyepacs2015_fullres.tar", 1), ("idrid_fullres.tar", 8), ("idrid_640.tar", 27)):
        with tarfile.open(shared_data / "fundus" / archive) as tar:
            for member in [one for one in tar if one.name.startswith("images/")][::every]:
                photo = tar.extractfile(member).read()
                prepared = prepare(photo, Preparation(size=299, way="voets"))
                assert np.array_equal(prepared.pixels, voets_read_plainly(photo, 299)), member.name
                compared += 1
    assert compared == 8 + 5 + 15


def test_the_darkening_overflows_as_published():
    # 195 becomes (255/1.3)(1.5·195/255)² = 258, and 258 in eight bits is 2; both readings must see a retina there.
    bright = np.zeros((400, 400, 3), np.uint8)
    bright[20:380, 20:380] = 195
    photo = saved(bright)
    prepared = prepare(photo, Preparation(size=299, way="voets"))
    assert np.array_equal(prepared.pixels, voets_read_plainly(photo, 299))


@pytest.mark.parametrize("radius", [60, 99])
def test_voets_rejects_a_radius_of_up_to_a_hundred_pixels(radius):
    photo = saved(eye(400, 300, 200, 150, radius))
    assert voets_read_plainly(photo, 299) is None
    with pytest.raises(UnreadablePhoto, match="published search finds no retina"):
        prepare(photo, Preparation(size=299, way="voets"))
    assert prepare(photo, Preparation(size=299)).circle is not None  # the recommended way finds it


def test_voets_rejects_a_black_photograph():
    with pytest.raises(UnreadablePhoto, match="published search finds no retina"):
        prepare(saved(np.zeros((400, 400, 3), np.uint8)), Preparation(size=299, way="voets"))


def test_a_gaussian_filtered_photograph_is_its_detail_around_middle_grey():
    picture = eye(700, 600, 340, 300, 250)
    prepared = prepare(saved(picture), Preparation(size=224, way="gaussian"))
    bright = cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY) > 7
    rows, columns = np.flatnonzero(bright.any(axis=1)), np.flatnonzero(bright.any(axis=0))
    crop = picture[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].astype(float)
    detail = np.clip(np.rint(4 * crop - 4 * np.rint(cv2.GaussianBlur(crop, (0, 0), 10)) + 128), 0, 255)
    expected = cv2.resize(detail, (224, 224))
    assert np.abs(prepared.pixels - expected).mean() < 1.5
    assert prepared.pixels[0, 0].tolist() == [128, 128, 128]
    assert prepared.pixels[:, 112].max() > 200  # the rim's halo


def test_a_black_photograph_has_no_gaussian_form():
    with pytest.raises(UnreadablePhoto, match="published crop"):
        prepare(saved(np.zeros((300, 300, 3), np.uint8)), Preparation(way="gaussian"))


def test_without_opencv_the_error_says_what_to_install():
    script = """
import sys
sys.modules["cv2"] = None  # as if it were not installed
from fundoscope.data.photo import Preparation, encode_png, prepare
from fundoscope.errors import FundoscopeError
import numpy as np
try:
    prepare(encode_png(np.full((300, 300, 3), 99, np.uint8)), Preparation(way="voets"))
except FundoscopeError as problem:
    print(type(problem).__name__, "|", problem.message, "|", problem.hint)
"""
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert said.startswith("FundoscopeError | the published preparations need OpenCV |")
    assert "fundoscope[published]" in said
