"""Find the retina in a photograph: a circle, from a thumbnail, with numpy alone.

The circle is the one that Voets et al. (2019) find with OpenCV on every pixel: of the pixels that survive a
darkening take the largest connected patch; its centroid (holes filled) is the centre, the radius is that of the
smallest circle around it. On a thumbnail the same circle costs a hundredth, and lies within 1 % of the diameter.

Where that search finds nothing, or the whole frame (a dark photograph; a background that is not quite black),
the retina is looked for above the level of the frame's corners instead. A photograph without any background
is taken whole.
"""

from dataclasses import dataclass
from itertools import combinations
from math import hypot
from typing import Any

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
Mask = NDArray[np.bool_]
Whole = NDArray[np.intp]
Points = NDArray[np.float64]
Point = tuple[float, float]


@dataclass(frozen=True)
class Circle:
    """Where the retina lies, in pixels; a pixel's centre has whole coordinates."""

    x: float
    y: float
    radius: float

    def scaled(self, factor: float) -> "Circle":
        """The same circle in a picture with `factor` times as many pixels each way."""
        # Pixel centres are whole numbers, so the picture's corner lies at (-0.5, -0.5) in both.
        x, y = ((value + 0.5) * factor - 0.5 for value in (self.x, self.y))
        return Circle(x, y, self.radius * factor)

    def within(self, distance: float, *, of: "Circle") -> bool:
        """Whether neither centre nor radius lies farther than that from the other's."""
        return max(hypot(self.x - of.x, self.y - of.y), abs(self.radius - of.radius)) <= distance


@dataclass(frozen=True)
class Patch:
    """A connected set of pixels: its area and centroid with holes filled, and the circle around it."""

    area: float
    x: float
    y: float
    around: Circle


SMALLEST = 0.1  # radius of a retina, in short sides of the frame; less is dust or lettering
FULL = 0.98  # of the frame; a patch that covers more leaves no background to tell it from
ROUND = 0.85  # of its circle, as far as that lies in the frame: what a patch above the corners' level must cover
# A square photograph may be cropped to the retina already: if the circle is the frame's own, within these parts of the
# side, or if the patch just fits into that, whatever of it is in shadow.
SAME, FITS = 0.008, 0.0045
BACKGROUND = 0.3  # of the corners' pixels may survive the darkening; if more do, it cannot tell the background
DARK = 0.35  # of the bright part: a background is darker
CONTRAST = 8  # grey levels between the corners and the bright part, below which there is nothing to be seen


def find_circle(pixels: Pixels) -> Circle | None:
    """The retina in a small picture (up to some 600 pixels wide), or None."""
    height, width = pixels.shape[:2]
    surviving = survivors(pixels)
    patch = largest_patch(surviving)
    is_small = patch is None or patch.around.radius < SMALLEST * min(width, height)
    if is_small or _corners(surviving).mean() > BACKGROUND:
        patch = _above_the_corners(pixels) or patch
    if patch is None or patch.around.radius < SMALLEST * min(width, height):
        return None
    if patch.area >= FULL * width * height:
        return Circle((width - 1) / 2, (height - 1) / 2, max(width, height) / 2)
    circle, frame = Circle(patch.x, patch.y, patch.around.radius), Circle((width - 1) / 2, (height - 1) / 2, width / 2)
    is_cropped = circle.within(SAME * width, of=frame) or patch.around.within(FITS * width, of=frame)
    return frame if width == height and is_cropped else circle


def survivors(pixels: Pixels) -> Mask:
    """Pixels that are not black once darkened as published, that is whose grey then rounds to 1 or more."""
    red, green, blue = (np.take(_DARKENED[channel], pixels[..., channel]) for channel in range(3))
    survive: Mask = red + green + blue >= 500
    return survive


def _darkened() -> NDArray[np.uint16]:
    """The published darkening of each channel's values, times its weight in grey, in thousandths."""
    value = np.arange(256)
    # In 8 bits, as published, values from 195 on overflow; that costs a pixel its life only if it is all but pure blue.
    dark = ((255 / 1.3) * (value / (255 / 1.5)) ** 2).astype(int) % 256
    return np.minimum(np.outer([299, 587, 114], dark), 10_000).astype(np.uint16)


_DARKENED = _darkened()


def _corners(plane: NDArray[Any]) -> NDArray[Any]:
    """The pixels in the four corners of the frame, which are background if there is any."""
    corner = max(1, min(plane.shape) // 20)
    ends = (slice(0, corner), slice(-corner, None))
    return np.concatenate([plane[rows, columns].ravel() for rows in ends for columns in ends])


def _above_the_corners(pixels: Pixels) -> Patch | None:
    """The largest patch above the level of a dark background, if it is round."""
    height, width = pixels.shape[:2]
    brightest = pixels.max(axis=2)
    floor, ceiling = float(np.percentile(_corners(brightest), 90)), float(np.percentile(brightest, 95))
    if ceiling - floor < CONTRAST or floor > DARK * ceiling:
        return None
    patch = largest_patch(brightest > floor + max(3.0, 0.15 * (ceiling - floor)))
    if patch is None or patch.around.radius < SMALLEST * min(width, height):
        return None
    return patch if patch.area >= ROUND * _inside(patch.around, width, height) else None


def _inside(circle: Circle, width: int, height: int) -> float:
    """The area of the part of the circle that lies in the frame."""
    rows = np.arange(height)
    half = np.sqrt(np.maximum(circle.radius**2 - (rows - circle.y) ** 2, 0))
    chords = np.minimum(circle.x + half, width - 0.5) - np.maximum(circle.x - half, -0.5)
    return float(np.maximum(chords, 0).sum())


def largest_patch(mask: Mask) -> Patch | None:
    """The connected patch with the most pixels, diagonal neighbours included."""
    rows, starts, ends = _runs(mask)
    if rows.size == 0:
        return None
    labels = _connected(rows, starts, ends, mask.shape[1])
    mine = labels == np.bincount(labels, weights=ends - starts).argmax()
    return _measure(rows[mine], starts[mine], ends[mine], mask.shape[1])


def _runs(mask: Mask) -> tuple[Whole, Whole, Whole]:
    """Row, first column and column after the last of every horizontal run, in reading order."""
    padded = np.zeros((mask.shape[0], mask.shape[1] + 1), np.bool_)  # a gap after each row ends its last run
    padded[:, 1:] = mask
    flat = np.append(padded, False)
    changes = np.flatnonzero(flat[1:] != flat[:-1])
    rows, columns = np.divmod(changes, padded.shape[1])
    return rows[::2], columns[::2], changes[1::2] - rows[::2] * padded.shape[1]


def _connected(rows: Whole, starts: Whole, ends: Whole, width: int) -> Whole:
    """A label per run, equal for runs that touch, by union and find over the pairs in neighbouring rows."""
    row = width + 2  # longer than any column, so that one sorted key holds both row and column
    first = np.searchsorted(rows * row + ends, (rows + 1) * row + starts, "left")
    after = np.searchsorted(rows * row + starts, (rows + 1) * row + ends, "right")
    touching = np.maximum(after - first, 0)
    above = np.repeat(np.arange(rows.size), touching)
    below = np.arange(touching.sum()) - np.repeat(np.cumsum(touching) - touching, touching) + np.repeat(first, touching)
    parent = list(range(rows.size))
    for one, other in zip(above.tolist(), below.tolist(), strict=True):
        while parent[one] != one:
            parent[one] = one = parent[parent[one]]
        while parent[other] != other:
            parent[other] = other = parent[parent[other]]
        parent[max(one, other)] = min(one, other)
    labels = np.array(parent)  # parents come before their children: following twice as far each time ends
    while not np.array_equal(labels, labels[labels]):
        labels = labels[labels]
    return labels


def _measure(rows: Whole, starts: Whole, ends: Whole, width: int) -> Patch:
    """Area and centroid of the runs with what they enclose, and the smallest circle around them."""
    first = int(rows[0])
    mask = _drawn(rows - first, starts, ends, width)
    (left, right), (top, bottom) = _ends(mask), _ends(np.ascontiguousarray(mask.T))
    # Holes (vessels, a dark macula) count: a pixel with the patch on all four sides lies in it.
    lines, columns = (np.arange(length, dtype=np.int16) for length in mask.shape)
    filled = (columns >= left[:, None]) & (columns <= right[:, None])
    filled &= (lines[:, None] >= top) & (lines[:, None] <= bottom)
    across, down = (filled.sum(axis=axis, dtype=np.uint16).astype(np.intp) for axis in (0, 1))
    area = float(across.sum())
    used = np.flatnonzero(right >= 0)
    outline = np.concatenate([np.stack([side[used], used + first], axis=1) for side in (left, right)])
    x, y = float(across @ columns) / area, float(down @ (lines.astype(np.intp) + first)) / area
    return Patch(area, x, y, smallest_circle(outline.astype(float)))


def _drawn(rows: Whole, starts: Whole, ends: Whole, width: int) -> Mask:
    """The runs as pixels, down to the last of their rows."""
    edges = np.zeros(2 * rows.size + 2, np.intp)
    edges[1:-1:2], edges[2::2], edges[-1] = rows * width + starts, rows * width + ends, (rows[-1] + 1) * width
    inside = np.arange(2 * rows.size + 1) % 2 == 1  # a gap, a run, a gap, ...
    mask: Mask = np.repeat(inside, np.diff(edges)).reshape(-1, width)
    return mask


def _ends(mask: Mask) -> tuple[NDArray[np.int16], NDArray[np.int16]]:
    """The first and the last pixel of every row; of an empty row its length and -1, between which nothing lies."""
    length = mask.shape[1]
    first, last = mask.argmax(axis=1).astype(np.int16), (length - 1 - mask[:, ::-1].argmax(axis=1)).astype(np.int16)
    empty = ~mask[np.arange(len(mask)), first]
    first[empty], last[empty] = length, -1
    return first, last


def smallest_circle(points: Points) -> Circle:
    """The smallest circle around the points: while one lies outside, take it into the two or three that span it."""
    x, y = np.ascontiguousarray(points.T)
    span = [(float(x[0]), float(y[0]))]
    circle = Circle(*span[0], 0.0)
    for _ in range(len(points) + 10):  # each step enlarges the circle; a few suffice
        squared = (x - circle.x) ** 2 + (y - circle.y) ** 2
        farthest = int(squared.argmax())
        if squared[farthest] ** 0.5 <= circle.radius + 1e-6:
            break
        circle, span = _widened(span, (float(x[farthest]), float(y[farthest])))
    return circle


def _widened(span: list[Point], outside: Point) -> tuple[Circle, list[Point]]:
    """The smallest circle around up to three points and one outside theirs, which helps to span it; and who else does.

    In plain numbers: for so few, numpy takes longer to begin than to finish.
    """
    best, spanning = None, span
    for chosen in [*combinations(span, 1), *combinations(span, 2)]:
        circle = _through(outside, *chosen)
        if circle is None or (best is not None and circle.radius >= best.radius):
            continue
        if all(hypot(x - circle.x, y - circle.y) <= circle.radius + 1e-7 for x, y in span):
            best, spanning = circle, [*chosen, outside]
    assert best is not None, "two or three of any points span the smallest circle around them"
    return best, spanning


def _through(a: Point, b: Point, c: Point | None = None) -> Circle | None:
    """The circle with two points as its diameter, or through three; None if those lie on a line."""
    (ax, ay), (bx, by) = a, b
    if c is None:
        return Circle((ax + bx) / 2, (ay + by) / 2, hypot(ax - bx, ay - by) / 2)
    cx, cy = c
    bx, by, cx, cy = bx - ax, by - ay, cx - ax, cy - ay
    cross = 2 * (bx * cy - by * cx)
    if abs(cross) < 1e-9:
        return None
    b2, c2 = bx * bx + by * by, cx * cx + cy * cy
    x, y = (cy * b2 - by * c2) / cross, (bx * c2 - cx * b2) / cross
    return Circle(ax + x, ay + y, hypot(x, y))
