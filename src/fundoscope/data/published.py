"""The published preparations, call for call with OpenCV as their authors made them; for comparison, not for use.

OpenCV is imported when one is asked for: nothing else needs it.
"""

from types import ModuleType

import numpy as np

from fundoscope.data.circle import Circle
from fundoscope.data.decode import Pixels, UnreadablePhoto, decode
from fundoscope.data.photo import Preparation, Prepared
from fundoscope.errors import FundoscopeError


def prepare_as_published(photo: bytes, preparation: Preparation) -> Prepared:
    """Decode every pixel, then prepare them the published way; what that fails on is unreadable, as it was for them."""
    cv2 = _opencv()
    # The photographs they had carry no EXIF orientation; ours may, and are turned upright first.
    decoded = decode(photo, max_pixels=preparation.max_pixels)
    picture = np.ascontiguousarray(decoded.pixels[..., ::-1])  # OpenCV's order: blue, green, red
    prepared, circle = WAYS[preparation.way](cv2, picture, preparation.size)
    pixels = np.ascontiguousarray(prepared[..., ::-1])
    return Prepared(pixels, circle, decoded.width, decoded.height)


def _opencv() -> ModuleType:
    try:
        import cv2
    except ImportError:
        hint = "pip install 'fundoscope[published]'"
        raise FundoscopeError("the published preparations need OpenCV", hint) from None
    return cv2


def voets(cv2: ModuleType, picture: Pixels, diameter: int) -> tuple[Pixels, Circle]:
    """Voets et al. (2019), lib/preprocess.py of mikevoets/jama16-retina-replication (15f2af3): 299 pixels."""
    found = _largest_contour(cv2, picture)
    if found is None:
        raise UnreadablePhoto("the published search finds no retina in it", "prepare it the recommended way")
    (x, y), radius = found
    left, top, side = max(0, int(x - radius)), max(0, int(y - radius)), int(radius * 2)  # clamped: a cut-off one shifts
    crop = picture[top : top + side, left : left + side]
    scale = (diameter / 2) / radius
    scaled = cv2.resize(crop, (0, 0), fx=scale, fy=scale)
    return _padded(cv2, scaled, diameter), Circle(x, y, radius)


def _largest_contour(cv2: ModuleType, picture: Pixels) -> tuple[tuple[int, int], float] | None:
    """Centroid, in whole pixels, and enclosing radius of the largest contour of what survives a darkening."""
    # Published as floating point over the whole picture and a cast to 8 bits, which overflows from 195 on.
    # There are only 256 values: a table gives the same.
    value = np.arange(256)
    table = ((255.0 / 1.3) * (value / (255.0 / 1.5)) ** 2).astype(np.int64).astype(np.uint8)
    grey = cv2.cvtColor(cv2.LUT(picture, table), cv2.COLOR_BGR2GRAY)
    contours = cv2.findContours(grey, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)[-2]
    if len(contours) == 0:
        return None
    contour = max(contours, key=cv2.contourArea)
    _, radius = cv2.minEnclosingCircle(contour)
    if radius <= 100:
        return None
    moments = cv2.moments(contour)
    if moments["m00"] == 0:  # a line: their division by zero ended the run
        return None
    return (int(moments["m10"] / moments["m00"]), int(moments["m01"] / moments["m00"])), float(radius)


def _padded(cv2: ModuleType, picture: Pixels, side: int) -> Pixels:
    """Black on all sides up to the full square, one row or column more above and to the left where odd."""
    height, width = picture.shape[:2]
    rows, columns = side - height, side - width
    border = (rows - rows // 2, rows // 2, columns - columns // 2, columns // 2)
    return np.asarray(cv2.copyMakeBorder(picture, *border, cv2.BORDER_CONSTANT, value=(0, 0, 0)), np.uint8)


def gaussian(cv2: ModuleType, picture: Pixels, size: int) -> tuple[Pixels, Circle]:
    """The "Gaussian filtered" APTOS pictures of 224 pixels (sovitrath on Kaggle) that the thesis trained on.

    How they were made is not written down. Ben Graham's filter of 2015, four times the difference from a blurred
    copy plus 128, is evident; the rest is read off the one picture of the set that the thesis's repository holds
    (feat/load-testing, NO_DR.png), and agrees with the notebooks of that competition: crop to what is brighter
    than 7, filter with a sigma of 10 at full size (at 224 pixels its halo would be four times as wide as it is),
    then scale to a square without averaging (its noise is that of single pixels), whatever the crop's shape.
    """
    bright = cv2.cvtColor(picture, cv2.COLOR_BGR2GRAY) > 7
    if not bright.any():
        raise UnreadablePhoto("the published crop leaves nothing of it", "prepare it the recommended way")
    rows, columns = np.flatnonzero(bright.any(axis=1)), np.flatnonzero(bright.any(axis=0))
    crop = picture[np.ix_(rows, columns)]
    filtered = cv2.addWeighted(crop, 4, cv2.GaussianBlur(crop, (0, 0), 10), -4, 128)
    around = Circle(float(columns.mean()), float(rows.mean()), max(columns.size, rows.size) / 2)
    return np.asarray(cv2.resize(filtered, (size, size)), np.uint8), around


WAYS = {"voets": voets, "gaussian": gaussian}
