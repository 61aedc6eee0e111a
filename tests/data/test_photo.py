"""From the bytes of a photograph to the square a network sees."""

import dataclasses
import io
import subprocess
import sys
import tarfile

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fundoscope.config import build
from fundoscope.data.draw import draw_eye
from fundoscope.data.photo import (
    Preparation,
    UnreadablePhoto,
    decode_png,
    encode_png,
    prepare,
)


def saved(pixels, file_format="PNG", **options):
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, file_format, **options)
    return out.getvalue()


def eye(width, height, x, y, radius, seed=0):
    """A soft-coloured disc with a bright spot and dark lines, on black."""
    rows, columns = np.mgrid[:height, :width]
    from_centre = np.hypot(columns - x, rows - y)
    wave = np.sin(columns / 9 + seed) * np.cos(rows / 13)
    picture = np.stack([170 + 20 * wave, 90 + 15 * wave, 40 + 10 * wave], axis=2)
    picture[np.hypot(columns - x - radius / 2, rows - y) < radius / 6] = (240, 210, 120)
    return np.where((from_centre <= radius)[..., None], picture, 0).astype(np.uint8)


def difference(one, other):
    return float(np.abs(one.astype(int) - other).mean())


def members(archive):
    with tarfile.open(archive) as tar:
        for member in tar:
            if member.name.startswith("images/"):
                yield member.name, tar.extractfile(member).read()


def test_the_retina_fills_the_square():
    prepared = prepare(saved(eye(900, 600, 400, 320, 250)), Preparation(size=224))
    assert prepared.pixels.shape == (224, 224, 3)
    assert prepared.pixels.dtype == np.uint8
    assert (prepared.width, prepared.height) == (900, 600)
    assert prepared.circle.x == pytest.approx(400, abs=3)
    assert prepared.circle.y == pytest.approx(320, abs=3)
    assert prepared.circle.radius == pytest.approx(250, abs=3)
    lit = prepared.pixels.max(axis=2) > 40
    rows, columns = np.mgrid[:224, :224]
    inside = np.hypot(columns - 111.5, rows - 111.5) <= 112
    assert (lit == inside).mean() > 0.98


def test_what_sticks_out_of_the_frame_is_black_and_the_rest_in_its_place():
    picture = eye(900, 600, 450, 300, 250)
    whole = prepare(saved(picture), Preparation(size=250)).pixels
    clipped = prepare(saved(picture[100:500]), Preparation(size=250)).pixels
    assert clipped[:25].max() == clipped[-25:].max() == 0  # 50 of 500 pixels above and below are missing
    assert clipped[28:222, 125].min(axis=0).max() > 0
    assert difference(clipped[30:220], whole[30:220]) < 2


def test_a_photograph_without_a_retina_is_kept_whole():
    dim = np.full((200, 400, 3), 4, np.uint8)
    prepared = prepare(saved(dim), Preparation(size=100))
    assert prepared.circle is None
    assert np.unique(prepared.pixels[25:75]).tolist() == [4]
    assert prepared.pixels[:25].max() == prepared.pixels[75:].max() == 0


def test_a_small_retina_in_a_large_frame_is_taken_from_more_pixels():
    picture = eye(3200, 2400, 1600, 1200, 400)
    photo = saved(picture, "JPEG", quality=95, subsampling=0)
    prepared = prepare(photo, Preparation(size=512))
    x, y, radius = (round(value) for value in (prepared.circle.x, prepared.circle.y, prepared.circle.radius))
    assert radius == pytest.approx(400, abs=8)
    crop = Image.fromarray(picture[y - radius : y + radius, x - radius : x + radius])
    every_pixel = np.asarray(crop.resize((512, 512), Image.Resampling.BICUBIC))
    assert difference(prepared.pixels, every_pixel) < 1
    # An eighth of the pixels, which finding it took, would have left 100 of the 512 across.
    from_an_eighth = np.asarray(crop.reduce(8).resize((512, 512), Image.Resampling.BICUBIC))
    assert difference(from_an_eighth, every_pixel) > 1


@pytest.mark.parametrize("size", [16, 64, 224, 299, 512])
def test_every_size_can_be_asked_for(size):
    assert prepare(saved(eye(300, 260, 150, 130, 120)), Preparation(size=size)).pixels.shape == (size, size, 3)


@pytest.mark.parametrize("size", [15, 2049, 0, -1])
def test_an_odd_size_is_refused(size):
    with pytest.raises(ValueError, match="size is"):
        Preparation(size=size)


def test_a_preparation_travels_as_a_table():
    preparation = Preparation(size=299, way="voets")
    assert build(Preparation, dataclasses.asdict(preparation), where="index.json") == preparation


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 200), st.integers(0, 200), st.integers(0, 200), st.integers(0, 200))
def test_a_wider_black_border_does_not_change_the_crop(left, right, top, bottom):
    plain = np.pad(eye(420, 400, 210, 200, 180), ((20, 20), (20, 20), (0, 0)))
    wider = np.pad(plain, ((top, bottom), (left, right), (0, 0)))
    one, other = (prepare(saved(picture), Preparation(size=128)) for picture in (plain, wider))
    assert other.circle.radius == pytest.approx(one.circle.radius, abs=3)
    assert other.circle.x - left == pytest.approx(one.circle.x, abs=2)
    assert difference(one.pixels, other.pixels) < 3


@settings(max_examples=25, deadline=None)
@given(st.integers(150, 260), st.integers(120, 240), st.integers(80, 200))
def test_a_mirrored_photograph_gives_the_mirrored_crop(x, y, radius):
    picture = eye(420, 360, x, y, radius)
    crop = prepare(saved(picture), Preparation(size=128)).pixels
    mirrored = prepare(saved(picture[:, ::-1]), Preparation(size=128)).pixels
    assert difference(crop[:, ::-1], mirrored) < 2


@settings(max_examples=25, deadline=None)
@given(st.integers(180, 240), st.integers(160, 200), st.integers(80, 180))
def test_preparing_again_changes_nothing_more(x, y, radius):
    once = prepare(saved(eye(420, 360, x, y, radius)), Preparation(size=224)).pixels
    twice = prepare(saved(once), Preparation(size=224)).pixels
    assert difference(once, twice) < 1


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 90), st.integers(1, 90), st.integers(0, 2**32 - 1), st.sampled_from(["PNG", "JPEG"]))
def test_any_picture_is_prepared(width, height, seed, file_format):
    noise = np.random.default_rng(seed).integers(0, 256, (height, width, 3)).astype(np.uint8)
    prepared = prepare(saved(noise, file_format), Preparation(size=32))
    assert prepared.pixels.shape == (32, 32, 3)
    assert (prepared.width, prepared.height) == (width, height)


def test_bytes_that_are_no_picture_are_an_error():
    with pytest.raises(UnreadablePhoto, match="empty"):
        prepare(b"", Preparation())


def test_a_limit_on_pixels_is_kept():
    photo = saved(eye(420, 360, 200, 180, 150))
    assert prepare(photo, Preparation(max_pixels=400_000)).circle is not None
    with pytest.raises(UnreadablePhoto, match="million pixels"):
        prepare(photo, Preparation(max_pixels=100_000))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_our_png_is_lossless_and_read_by_pillow_and_opencv(width, height, seed):
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3)).astype(np.uint8)
    encoded = encode_png(pixels)
    assert np.array_equal(decode_png(encoded), pixels)
    with Image.open(io.BytesIO(encoded)) as picture:
        picture.verify()
        assert picture.info == {}
    assert np.array_equal(cv2.imdecode(np.frombuffer(encoded, np.uint8), cv2.IMREAD_COLOR)[..., ::-1], pixels)


def test_tensorflow_reads_our_png():
    script = """
import sys, numpy as np, tensorflow as tf
from fundoscope.data.photo import encode_png
pixels = np.random.default_rng(5).integers(0, 256, (48, 64, 3)).astype(np.uint8)
assert np.array_equal(tf.io.decode_image(encode_png(pixels)).numpy(), pixels)
print("same")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == "same\n", done.stderr[-500:]


def test_our_png_carries_nothing_but_pixels():
    exif = Image.Exif()
    exif[0x010E] = "Jane Doe"  # ImageDescription
    photo = saved(eye(300, 260, 150, 130, 120), "JPEG", exif=exif, comment=b"Jane Doe")
    assert b"Jane Doe" in photo
    encoded = encode_png(prepare(photo, Preparation()).pixels)
    assert b"Jane Doe" not in encoded
    names = [encoded[place - 4 : place] for place in _chunk_starts(encoded)]
    assert names == [b"IHDR", b"IDAT", b"IEND"]


def _chunk_starts(encoded):
    place = 8
    while place < len(encoded):
        yield place + 8
        place += 12 + int.from_bytes(encoded[place : place + 4], "big")


def test_our_png_is_no_larger_than_pillows_fastest(shared_data):
    pixels = [
        prepare(photo, Preparation()).pixels for _, photo in members(shared_data / "fundus/eyepacs2015_fullres.tar")
    ]
    ours = sum(len(encode_png(one)) for one in pixels)
    pillows = sum(len(saved(one, "PNG", compress_level=1)) for one in pixels)
    assert ours < 0.9 * pillows


@pytest.mark.parametrize("archive", ["eyepacs2015_fullres.tar", "idrid_fullres.tar", "idrid_640.tar"])
def test_the_circle_is_the_published_one_on_real_photographs(shared_data, archive):
    every = 10 if archive == "idrid_640.tar" else 1
    photos = list(members(shared_data / "fundus" / archive))[::every]
    assert len(photos) >= 8
    for name, photo in photos:
        ours = prepare(photo, Preparation(size=299)).circle
        published = prepare(photo, Preparation(size=299, way="voets")).circle
        assert ours.within(0.01 * 2 * published.radius, of=published), name


def test_the_circle_is_the_published_one_on_drawn_eyes():
    drawn = [draw_eye(3, index, size=1024) for index in range(16)]
    for eye in drawn:
        ours, published = (
            prepare(eye.jpeg(), Preparation(size=299, way=way)).circle for way in ("recommended", "voets")
        )
        assert ours.within(0.01 * 2 * published.radius, of=published)


def test_photographs_cut_to_the_retina_before_come_out_unchanged(shared_data):
    unchanged = 0
    photos = list(members(shared_data / "fundus/aptos2019_224.tar"))[::20]
    for _, photo in photos:
        prepared = prepare(photo, Preparation(size=224))
        with Image.open(io.BytesIO(photo)) as picture:
            unchanged += np.array_equal(prepared.pixels, np.asarray(picture))
        assert prepared.circle.radius == pytest.approx(112, abs=2.5)
    assert unchanged >= 0.99 * len(photos)


def test_scaled_decoding_costs_no_quality(shared_data):
    for name, photo in members(shared_data / "fundus/eyepacs2015_fullres.tar"):
        prepared = prepare(photo, Preparation(size=224))
        with Image.open(io.BytesIO(photo)) as picture:
            circle, middle = prepared.circle, 0.5 * prepared.circle.radius  # half of the square, clear of every edge
            box = (circle.x + 0.5 - middle, circle.y + 0.5 - middle, circle.x + 0.5 + middle, circle.y + 0.5 + middle)
            every_pixel = np.asarray(picture.resize((112, 112), Image.Resampling.LANCZOS, box=box))
        error = ((prepared.pixels.astype(float)[56:168, 56:168] - every_pixel) ** 2).mean()
        assert 10 * np.log10(255**2 / error) > 40, name  # dB


def test_the_server_imports_no_opencv_and_no_scipy():
    script = "import sys, fundoscope.data.gradability; print(sorted({'cv2', 'scipy', 'keras'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "[]\n"
