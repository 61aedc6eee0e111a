"""The camera a drawn eye is taken with: framing, light, colour, focus, noise; and the photographs it spoils."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from PIL import Image, ImageChops, ImageDraw, ImageFilter

from fundoscope.data.drawn_frame import NOTCH, Canvas, Floats, Frame

NOISE_LEVELS = (0.5, 1.0, 1.5, 2.0)  # standard deviations, grey levels
NOISE_REACH = 12**0.5  # standard deviations from the middle to the end of the sum of four dice
NOISE_TILE_PX = 576


@dataclass(frozen=True)
class Framing:
    """How a make of camera cuts the lit circle: photograph height over width, radius over height."""

    aspect: float
    radius: float
    share: float  # of all photographs


FRAMINGS = (
    Framing(aspect=0.664, radius=0.595, share=0.3),  # cut off above and below, as in IDRiD
    Framing(aspect=0.667, radius=0.485, share=0.2),  # whole, wide black margins
    Framing(aspect=0.75, radius=0.52, share=0.2),
    Framing(aspect=0.87, radius=0.57, share=0.15),  # cropped to the circle's width
    Framing(aspect=1.0, radius=0.492, share=0.15),
)


@dataclass(frozen=True)
class Camera:
    framing: Framing
    degrees: float
    notch: float | None
    balance: tuple[float, float, float]  # gains of red, green, blue
    gamma: float
    exposure: float
    vignetting: float  # light lost at the rim
    vignette_middle: tuple[float, float]  # in field radii from the middle
    haze: float  # grey veil towards the rim, 0..1
    glare: float | None  # where light leaks in at the rim, radians
    defocus: float  # field radii
    noise_level: int
    black_border: bool  # exactly black, or with the sensor's noise
    jpeg_quality: int


def camera_of(rng: Generator) -> Camera:
    framing = FRAMINGS[rng.choice(len(FRAMINGS), p=[framing.share for framing in FRAMINGS])]
    balance = rng.normal(1, (0.03, 0.05, 0.1))
    return Camera(
        framing=framing,
        degrees=float(rng.uniform(42, 52)),
        notch=float(rng.choice([-0.6, 0.6, -0.65, 2.4])) if rng.uniform() < 0.4 else None,
        balance=(float(balance[0]), float(balance[1]), float(balance[2])),
        gamma=float(rng.uniform(0.9, 1.15)),
        exposure=float(rng.uniform(0.85, 1.3)),
        vignetting=float(rng.uniform(0.1, 0.5)),
        vignette_middle=(float(rng.normal(0, 0.15)), float(rng.normal(0, 0.15))),
        haze=float(max(rng.uniform(-1, 0.8), 0)),
        glare=float(rng.uniform(0, 6.28)) if rng.uniform() < 0.07 else None,
        defocus=float(max(rng.uniform(-0.003, 0.004), 0)),
        noise_level=int(rng.integers(len(NOISE_LEVELS))),
        black_border=bool(rng.uniform() < 0.6),
        jpeg_quality=int(rng.integers(84, 96)),
    )


def frame_of(rng: Generator, camera: Camera, eye: str) -> Frame:
    framing = camera.framing
    x, y = rng.normal(0.5, 0.012), framing.aspect * rng.normal(0.5, 0.008)
    centred_on_disc = rng.uniform() < 0.08
    look = (0.2, 0.02) if centred_on_disc else (rng.uniform(0.45, 0.78), rng.normal(0.05, 0.05))
    return Frame(
        aspect=framing.aspect,
        x=float(x),
        y=float(y),
        radius=framing.radius * framing.aspect,
        degrees=camera.degrees,
        look=(float(look[0]), float(look[1])),
        turn=float(rng.normal(0, 0.05)),
        temple=1 if eye == "left" else -1,
        notch=camera.notch,
    )


def lit(colours: Floats, camera: Camera, x: Floats, y: Floats) -> Floats:
    """Colours of the ground under the camera's light; x and y in field radii from the middle of the photograph."""
    r2 = (x - camera.vignette_middle[0]) ** 2 + (y - camera.vignette_middle[1]) ** 2
    colours = colours * (1 - camera.vignetting * np.minimum(r2, 1.6) ** 1.3 * 0.8)[..., None]
    if camera.haze:
        veil = (camera.haze * np.minimum(np.hypot(x, y), 1.1) ** 5)[..., None] * 0.6
        colours = colours + (np.array([128, 122, 118]) - colours) * veil
    if camera.glare is not None:
        towards = x * np.cos(camera.glare) + y * np.sin(camera.glare)
        leak = np.clip((towards - 0.55) / 0.45, 0, 1)[..., None] ** 2
        colours = colours + leak * np.array([255, 170, 80])
    return np.asarray(colours)


def develop(rng: Generator, picture: Image.Image, camera: Camera, canvas: Canvas, spoilt: str) -> NDArray[np.uint8]:
    """What the camera makes of the retina before it: pixels, with black around the lit circle."""
    if spoilt:
        picture = SPOILS[spoilt](rng, picture, canvas)
    picture = picture.point(_tones(camera))
    noise = _noise(rng, canvas.photograph, camera.noise_level)
    photograph = (
        Image.new("RGB", canvas.photograph) if camera.black_border else noise.point([i // 2 for i in range(256)] * 3)
    )
    box = (canvas.left, canvas.top, canvas.left + canvas.size[0], canvas.top + canvas.size[1])
    # Noise is never negative and the tones leave room for it, so that bytes can be added as they are.
    photograph.paste(ImageChops.add_modulo(picture, noise.crop(box)), box, _field(canvas))
    return np.asarray(photograph)


def _tones(camera: Camera) -> list[int]:
    level = np.arange(256) / 255
    top = 255 - 2 * NOISE_REACH * NOISE_LEVELS[camera.noise_level]  # room for the noise
    curves = [np.minimum(level * gain * camera.exposure, 1) ** camera.gamma * top for gain in camera.balance]
    return np.concatenate(curves).astype(np.uint8).tolist()  # type: ignore[no-any-return]


def _field(canvas: Canvas) -> Image.Image:
    """The lit circle and the camera's mark on its rim."""
    frame, brush = canvas.frame, canvas.sharp("field")
    brush.dots(np.array([frame.look]), np.array([frame.radius / frame.unit]), np.array([255]))
    if frame.notch is not None:
        out = np.array([np.cos(frame.notch), np.sin(frame.notch)])
        across = np.array([-out[1], out[0]])
        corners = np.array([[0.9, -0.035], [1 + 0.6 * NOTCH, -0.035], [1 + 0.9 * NOTCH, 0.03], [0.9, 0.04]])
        mark = np.array([frame.x, frame.y]) + frame.radius * (corners[:, :1] * out + corners[:, 1:] * across)
        brush.draw.polygon((mark * brush.px_per_width - brush.corner).ravel().tolist(), fill=255)
    field = canvas.layer("field")
    assert field is not None  # drawn three lines above
    return field


@cache
def _noise_tile(level: int) -> Image.Image:
    """A square of sensor noise, the same for all; every photograph begins it at another place."""
    rng = np.random.default_rng(20_190_627)
    # The sum of four dice is near enough to a bell curve, has an end, and is quickly thrown.
    # Two of them are common to the three colours.
    dice = rng.integers(0, 256, (8, NOISE_TILE_PX, NOISE_TILE_PX), np.uint8).astype(np.float32)
    sums = np.stack([dice[0] + dice[1] + dice[2 * k] + dice[2 * k + 1] for k in (1, 2, 3)], axis=-1)
    return Image.fromarray((sums * (2 * NOISE_REACH * NOISE_LEVELS[level] / (4 * 255))).astype(np.uint8))


def _noise(rng: Generator, size: tuple[int, int], level: int) -> Image.Image:
    tile, side = _noise_tile(level), NOISE_TILE_PX
    left, top = (int(start) for start in rng.integers(0, side, 2))
    noise = Image.new("RGB", size)
    for x in range(-left, size[0], side):
        for y in range(-top, size[1], side):
            noise.paste(tile, (x, y))
    return noise


def _blurred(picture: Image.Image, radius_px: float) -> Image.Image:
    """A wide blur at the price of a narrow one: on a smaller copy."""
    factor = max(int(radius_px / 2), 1)
    small = picture.reduce(factor).filter(ImageFilter.GaussianBlur(radius_px / factor))
    return small.resize(picture.size, Image.Resampling.BICUBIC)


def out_of_focus(rng: Generator, picture: Image.Image, canvas: Canvas) -> Image.Image:
    return _blurred(picture, rng.uniform(0.025, 0.06) * canvas.px_per_unit)


def too_dark(rng: Generator, picture: Image.Image, canvas: Canvas) -> Image.Image:  # noqa: ARG001
    gain = rng.uniform(0.06, 0.18)
    return picture.point([int(level * gain) for level in range(256)] * 3)


def hazy(rng: Generator, picture: Image.Image, canvas: Canvas) -> Image.Image:
    """Over-exposed through a cloudy lens: pale, and nothing sharp."""
    soft = _blurred(picture, rng.uniform(0.012, 0.03) * canvas.px_per_unit)
    veil = Image.new("RGB", picture.size, (250, int(rng.uniform(180, 225)), int(rng.uniform(130, 190))))
    return Image.blend(soft, veil, rng.uniform(0.72, 0.88))


def lid_in_the_way(rng: Generator, picture: Image.Image, canvas: Canvas) -> Image.Image:  # noqa: ARG001
    """Eyelid and lashes over more than half of the field."""
    width, height = 96, max(round(96 * picture.height / picture.width), 1)
    cover = Image.new("L", (width, height))
    draw = ImageDraw.Draw(cover)
    edge = height * rng.uniform(0.55, 0.75)
    draw.pieslice((-width, edge - 4 * height, 2 * width, edge), 0, 360, fill=245)
    for x in rng.uniform(0, width, 14):
        draw.line((x, edge - 8, x + rng.normal(0, 9), edge + rng.uniform(2, 16)), fill=190, width=2)
    cover = cover.filter(ImageFilter.GaussianBlur(2.5))
    if rng.uniform() < 0.5:
        cover = cover.transpose(Image.Transpose.FLIP_TOP_BOTTOM)
    skin = tuple(int(level * rng.uniform(0.7, 1.1)) for level in (70, 38, 26))
    mask = cover.resize(picture.size, Image.Resampling.BICUBIC)
    return Image.composite(Image.new("RGB", picture.size, skin), picture, mask)


SPOILS: dict[str, Callable[[Generator, Image.Image, Canvas], Image.Image]] = {
    "out of focus": out_of_focus,
    "too dark": too_dark,
    "hazy": hazy,
    "lid in the way": lid_in_the_way,
}
