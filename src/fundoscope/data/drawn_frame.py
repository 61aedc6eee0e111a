"""Where a drawn retina lies in its photograph, and the layers it is painted on.

Anatomy is in field radii (half the width of a 45° photograph), from the middle of the optic disc: +x towards the
temple, +y down. Only the canvas knows pixels, so that one eye is the same eye at every size.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

Floats = NDArray[np.float64]

FOVEA = (0.74, 0.09)
DISC_RADIUS = 0.135
NOTCH = 0.05  # how far the camera's mark sticks out of the circle, in radii
LARGEST_SUPERSAMPLED = 2048  # pixels: beyond, edges are fine enough without drawing them at twice the size


@dataclass(frozen=True)
class Frame:
    """The field of view within the photograph. Lengths in photograph widths; the width is the longest side."""

    aspect: float  # height / width
    x: float  # middle of the lit circle
    y: float
    radius: float
    degrees: float  # of the field: a wider one shows the same eye smaller
    look: tuple[float, float]  # the point of the retina in the middle of the circle, in field radii
    turn: float  # of the head or the camera, radians
    temple: int  # +1: the temple is to the right in the photograph (a left eye); -1: to the left
    notch: float | None  # where the rim carries the camera's mark, radians

    @property
    def unit(self) -> float:
        """One field radius in photograph widths."""
        return self.radius * 45 / self.degrees

    def place(self, points: Floats) -> Floats:
        """Points of the retina (…, 2) in photograph widths."""
        p = np.asarray(points, dtype=float) - self.look
        cos, sin = np.cos(self.turn), np.sin(self.turn)
        x = (p[..., 0] * cos - p[..., 1] * sin) * self.temple
        y = p[..., 0] * sin + p[..., 1] * cos
        return np.stack([self.x + x * self.unit, self.y + y * self.unit], axis=-1)

    def shows(self, points: Floats, *, margin: float = 0.0) -> NDArray[np.bool_]:
        """Which points of the retina are in the picture, at least `margin` field radii from its edge."""
        p, edge = self.place(points), margin * self.unit
        lit = np.hypot(p[..., 0] - self.x, p[..., 1] - self.y) < self.radius - edge
        inside = (p > edge).all(axis=-1) & (p[..., 0] < 1 - edge) & (p[..., 1] < self.aspect - edge)
        return np.asarray(lit & inside)


@dataclass(frozen=True)
class Brush:
    """Draws shapes given in field radii on one grey layer, many at once; densities are 0 to 255."""

    frame: Frame
    px_per_width: float
    corner: tuple[float, float]  # of the layer in the photograph, pixels
    draw: ImageDraw.ImageDraw

    def px(self, points: Floats) -> Floats:
        return self.frame.place(points) * self.px_per_width - self.corner

    @property
    def px_per_unit(self) -> float:
        return self.frame.unit * self.px_per_width

    def dots(self, middles: Floats, radii: Floats, densities: Floats) -> None:
        """Discs; those smaller than a pixel are drawn as one pixel, but fainter."""
        radius = radii * self.px_per_unit
        densities = densities * np.minimum(2 * radius, 1) ** 2
        r = np.maximum(radius, 0.5)[:, None]
        at = self.px(middles)
        for box, density in zip(np.hstack([at - r, at + r]).tolist(), densities.tolist(), strict=True):
            self.draw.ellipse(box, fill=int(density))

    def shapes(self, outlines: Floats, densities: Floats) -> None:
        flat = self.px(outlines).reshape(len(outlines), -1).tolist()
        for outline, density in zip(flat, densities.tolist(), strict=True):
            self.draw.polygon(outline, fill=int(density))

    def lines(self, paths: Floats, widths: Floats, densities: Floats) -> None:
        """Lines of even width; those thinner than a pixel are drawn one pixel wide, but fainter."""
        width = widths * self.px_per_unit
        densities = densities * np.minimum(width, 1)
        flat = self.px(paths).reshape(len(paths), -1).tolist()
        for path, w, density in zip(flat, np.maximum(np.rint(width), 1).tolist(), densities.tolist(), strict=True):
            self.draw.line(path, fill=int(density), width=int(w))


class Canvas:
    """The grey layers of one eye. `sharp` ones are drawn at twice the size, which gives them smooth edges; `plain` ones
    at the photograph's size, `soft` ones at half of it, for what is blurred anyway. What nobody draws on costs nothing.

    Layers cover the box around the lit circle only: a third of some photographs is black.
    """

    def __init__(self, frame: Frame, size: int) -> None:
        self.frame = frame
        self.photograph = size, max(round(size * frame.aspect), 1)  # width, height in pixels
        reach = frame.radius * (1 if frame.notch is None else 1 + NOTCH)
        first = np.array([frame.x - reach, frame.y - reach]) * size - 1
        last = np.array([frame.x + reach, frame.y + reach]) * size + 1
        # Even, so that half of it is whole.
        self.left, self.top = (max(int(at), 0) // 2 * 2 for at in first)
        right, bottom = (min(int(at) + 1, end) for at, end in zip(last, self.photograph, strict=True))
        self.size = right - self.left, bottom - self.top
        self.half_size = (self.size[0] + 1) // 2, (self.size[1] + 1) // 2
        self._layers: dict[str, Image.Image] = {}
        self._scales: dict[str, float] = {}

    @property
    def px_per_unit(self) -> float:
        return self.frame.unit * self.photograph[0]

    def sharp(self, name: str) -> Brush:
        return self._brush(name, 2 if self.photograph[0] <= LARGEST_SUPERSAMPLED else 1, self.size)

    def plain(self, name: str) -> Brush:
        return self._brush(name, 1, self.size)

    def soft(self, name: str) -> Brush:
        return self._brush(name, 0.5, (2 * self.half_size[0], 2 * self.half_size[1]))

    def _brush(self, name: str, scale: float, size: tuple[int, int]) -> Brush:
        if name not in self._layers:
            self._layers[name] = Image.new("L", (int(size[0] * scale), int(size[1] * scale)))
            self._scales[name] = scale
        scale = self._scales[name]
        corner = self.left * scale, self.top * scale
        return Brush(self.frame, self.photograph[0] * scale, corner, ImageDraw.Draw(self._layers[name]))

    def layer(self, name: str, *, blur: float = 0.0) -> Image.Image | None:
        """A layer, blurred by so many field radii, soft ones at half the size; None where nothing was drawn."""
        if name not in self._layers:
            return None
        drawn, scale = self._layers[name], self._scales[name]
        if scale == 2:
            drawn, scale = drawn.reduce(2), 1
        blur_px = blur * self.px_per_unit * scale
        if blur_px < 0.3:
            return drawn
        # A box is enough where the blur is narrow, and costs a third.
        return drawn.filter(ImageFilter.BoxBlur(blur_px) if blur_px < 2.5 else ImageFilter.GaussianBlur(blur_px))


def shade(picture: Image.Image, layer: Image.Image | None, gains: tuple[float, float, float]) -> Image.Image:
    """Multiply red, green and blue by `gains` where the layer is dense, and by less where it is less so."""
    if layer is None:
        return picture
    levels = np.arange(256)
    table = np.concatenate([np.clip(levels * gain, 0, 255) for gain in gains]).astype(np.uint8).tolist()
    return Image.composite(picture.point(table), picture, _fitted(layer, picture))


def cover(picture: Image.Image, layer: Image.Image | None, colour: tuple[int, int, int]) -> None:
    """Lay `colour` over the picture where the layer is dense."""
    box = layer.getbbox() if layer is not None else None
    if layer is not None and box is not None:
        layer = _fitted(layer, picture)
        box = layer.getbbox() or box
        picture.paste(colour, box, layer.crop(box))


def _fitted(layer: Image.Image, picture: Image.Image) -> Image.Image:
    return layer if layer.size == picture.size else layer.resize(picture.size, Image.Resampling.BILINEAR)


def doubled(picture: Image.Image, size: tuple[int, int]) -> Image.Image:
    """The picture at twice its size (less a row or column where `size` is odd), interpolated between neighbours.

    The same as a bilinear resize but for a shift of a quarter pixel, in a third of the time: the largest single step of
    a drawing otherwise. Four bytes to a pixel, so that whole pixels move as one number.
    """
    width, height = picture.size
    small = np.frombuffer(picture.tobytes("raw", "RGBX"), np.uint8).reshape(height, width * 4)
    tall = np.empty((2 * height, width * 4), np.uint8)
    tall[0::2] = small
    tall[1:-1:2] = _mean(small[:-1], small[1:])
    tall[-1] = small[-1]
    wide = np.empty((2 * height, 2 * width), np.uint32)
    wide[:, 0::2] = tall.view(np.uint32)
    wide[:, 1:-1:2] = np.ascontiguousarray(_mean(tall[:, :-4], tall[:, 4:])).view(np.uint32)
    wide[:, -1] = wide[:, -2]
    return Image.frombytes("RGB", (2 * width, 2 * height), wide.tobytes(), "raw", "RGBX").crop((0, 0, *size))


def _mean(a: NDArray[np.uint8], b: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Of bytes, without widening them; rounded down."""
    return (a & b) + ((a ^ b) >> 1)
