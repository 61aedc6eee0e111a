"""Every kind of picture file gives the right pixels, and what is not one gives a sentence and little work."""

import io
import struct
import subprocess
import sys
import zlib
from contextlib import suppress
from pathlib import Path

import cv2
import numpy as np
import pytest
import simplejpeg
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from fundoscope.data.decode import MAX_SCANS, UnreadablePhoto, _scans, decode

ROWS, COLUMNS = np.mgrid[:120, :160]
COLOURS = np.stack([COLUMNS * 255 // 159, ROWS * 255 // 119, (COLUMNS + ROWS) * 255 // 278], 2).astype(np.uint8)
GREY = np.repeat(COLOURS[..., :1], 3, axis=2)
PICTURE = Image.fromarray(COLOURS)
SIXTEEN_BITS = np.random.default_rng(1).integers(0, 65536, (120, 160, 4)).astype(np.uint16)
SIXTEEN_BITS[..., 3] = 65535  # opaque


def saved(picture, file_format, **options):
    out = io.BytesIO()
    picture.save(out, file_format, **options)
    return out.getvalue()


def by_opencv(extension, pixels, *options):
    return cv2.imencode(extension, pixels, options)[1].tobytes()


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def black_png(width, height, *, bits, colour_type):
    channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour_type]
    row, deflate = bytes(1 + width * channels * bits // 8), zlib.compressobj(1)
    data = b"".join(deflate.compress(row) for _ in range(height)) + deflate.flush()
    header = struct.pack(">IIBBBBB", width, height, bits, colour_type, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def off_by(photo, expected):
    """The largest difference of any channel of any pixel from the expected ones."""
    pixels = decode(photo).pixels
    assert pixels.shape == expected.shape
    assert pixels.dtype == np.uint8
    return int(np.abs(pixels.astype(int) - expected).max())


@pytest.mark.parametrize("file_format", ["PNG", "TIFF", "BMP", "PPM"])
def test_lossless_files_give_their_very_pixels(file_format):
    assert off_by(saved(PICTURE, file_format), COLOURS) == 0


@pytest.mark.parametrize("compression", ["tiff_lzw", "tiff_adobe_deflate", "packbits"])
def test_compressed_tiffs_give_their_very_pixels(compression):
    assert off_by(saved(PICTURE, "TIFF", compression=compression), COLOURS) == 0


def test_lossless_webp_gives_its_very_pixels():
    assert off_by(saved(PICTURE, "WEBP", lossless=True), COLOURS) == 0


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 2}], ids=str)
def test_a_jpeg_gives_its_pixels(options):
    assert off_by(saved(PICTURE, "JPEG", **{"quality": 98, "subsampling": 0, **options}), COLOURS) <= 6


def test_a_jpeg_is_decoded_bit_for_bit_as_opencv_does():
    photo = saved(PICTURE, "JPEG", quality=90)
    expected = cv2.imdecode(np.frombuffer(photo, np.uint8), cv2.IMREAD_COLOR)[..., ::-1]
    assert off_by(photo, expected) == 0


def test_a_grey_jpeg_becomes_three_equal_channels():
    assert off_by(saved(PICTURE.getchannel(0), "JPEG", quality=98), GREY) <= 3


def test_cmyk_files_come_back_to_the_colours_they_were_made_from():
    cmyk = PICTURE.convert("CMYK")
    assert off_by(saved(cmyk, "JPEG", quality=98), COLOURS) <= 6  # Pillow writes it inverted, as Adobe does
    assert off_by(saved(cmyk, "TIFF"), COLOURS) <= 1


def test_a_cmyk_jpeg_is_scaled_while_decoding_too():
    photo = saved(PICTURE.resize((1600, 1200)).convert("CMYK"), "JPEG", quality=95)
    decoded = decode(photo, at_least=150)
    assert (decoded.scale, decoded.pixels.shape) == (8, (150, 200, 3))
    small = np.asarray(PICTURE.resize((200, 150)))
    assert np.abs(decoded.pixels.astype(int) - small).mean() < 2


@pytest.mark.parametrize("make", [lambda p: p.getchannel(0), lambda p: p.getchannel(0).convert("1")], ids=["8", "1"])
def test_grey_pngs_become_three_equal_channels(make):
    picture = make(PICTURE)
    expected = np.repeat(np.asarray(picture.convert("L"))[..., None], 3, axis=2)
    assert off_by(saved(picture, "PNG"), expected) == 0


def test_palette_pictures_give_their_colours_and_transparent_ones_black():
    indexed = PICTURE.quantize(64)
    colours = np.asarray(indexed.convert("RGB"))
    assert off_by(saved(indexed, "PNG"), colours) == 0
    assert off_by(saved(indexed, "GIF"), colours) == 0
    without_five = np.where(np.asarray(indexed)[..., None] == 5, 0, colours)
    assert off_by(saved(indexed, "PNG", transparency=5), without_five) == 0
    without_half = np.where(np.asarray(indexed)[..., None] < 32, 0, colours)
    assert off_by(saved(indexed, "PNG", transparency=bytes(32) + b"\xff" * 32), without_half) == 0


@pytest.mark.parametrize("file_format", ["PNG", "TIFF"])
def test_transparent_pictures_are_laid_on_black(file_format):
    alpha = (COLUMNS * 255 // 159).astype(np.uint8)
    transparent = Image.fromarray(np.dstack([COLOURS, alpha]))
    expected = np.rint(COLOURS * (alpha[..., None] / 255)).astype(int)
    assert off_by(saved(transparent, file_format), expected) <= 1


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize(("extension", "compression"), [(".png", 1), (".tiff", 1), (".tiff", 5)])
def test_sixteen_bit_files_keep_the_high_byte(channels, extension, compression):
    options = (cv2.IMWRITE_TIFF_COMPRESSION, compression) if extension == ".tiff" else ()
    pixels = SIXTEEN_BITS[..., :channels]
    order = {1: [0], 3: [2, 1, 0], 4: [2, 1, 0, 3]}[channels]  # OpenCV writes blue first
    expected = np.broadcast_to(pixels[..., :3] >> 8, (120, 160, 3))
    assert off_by(by_opencv(extension, pixels[..., order], *options), expected) == 0


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "TIFF", "WEBP"])
def test_exif_orientation_is_applied_as_pillow_does(file_format, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    photo = saved(PICTURE, file_format, exif=exif, lossless=True)
    with Image.open(io.BytesIO(photo)) as picture:
        expected = np.asarray(ImageOps.exif_transpose(picture))
    assert off_by(photo, expected) == 0
    scaled = decode(photo, at_least=30)
    assert (scaled.height, scaled.width) == expected.shape[:2]
    assert scaled.pixels.shape[:2] == (scaled.height // 4, scaled.width // 4)


def test_the_first_frame_of_several_is_taken():
    frames = [PICTURE, Image.new("RGB", PICTURE.size), Image.new("RGB", PICTURE.size)]
    tiff = saved(frames[0], "TIFF", save_all=True, append_images=frames[1:])
    assert off_by(tiff, COLOURS) == 0
    animated = saved(frames[0], "PNG", save_all=True, append_images=frames[1:])
    assert off_by(animated, COLOURS) == 0


@pytest.mark.parametrize(("at_least", "scale"), [(0, 1), (1, 8), (150, 8), (151, 4), (301, 4), (302, 2), (603, 1)])
def test_both_sides_stay_at_least_as_long_as_asked(at_least, scale):
    large = PICTURE.resize((1603, 1205))
    for photo in (saved(large, "JPEG"), saved(large, "PNG")):
        decoded = decode(photo, at_least=at_least)
        assert (decoded.scale, decoded.width, decoded.height) == (scale, 1603, 1205)
        assert decoded.pixels.shape == (-(-1205 // scale), -(-1603 // scale), 3)


def test_a_scaled_jpeg_and_a_scaled_png_of_one_picture_are_alike():
    large = PICTURE.resize((1600, 1200), Image.Resampling.BICUBIC)
    jpeg = decode(saved(large, "JPEG", quality=97, subsampling=0), at_least=150).pixels
    png = decode(saved(large, "PNG"), at_least=150).pixels
    assert np.abs(jpeg.astype(int) - png).max() <= 3


@pytest.mark.parametrize("options", [{}, {"progressive": True}], ids=["baseline", "progressive"])
@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize("at_least", [0, 40])
def test_a_jpeg_cut_anywhere_is_called_truncated(options, mode, at_least):
    noise = np.random.default_rng(2).integers(0, 90, (240, 320, 3)).astype(np.uint8)
    photo = saved(Image.fromarray(noise + 80).convert(mode), "JPEG", **options)
    cuts = {2, 3, 20, 200, len(photo) - 1, len(photo) - 2, len(photo) - 3, *range(500, len(photo), len(photo) // 60)}
    for cut in cuts:
        with pytest.raises(UnreadablePhoto, match="truncated"):
            decode(photo[:cut], at_least=at_least)
        with pytest.raises(UnreadablePhoto):  # as a download leaves it that reserved its space first
            decode(photo[:cut] + bytes(len(photo) - cut), at_least=at_least)


@pytest.mark.parametrize(
    ("file_format", "options"), [("PNG", {}), ("TIFF", {}), ("BMP", {}), ("WEBP", {"quality": 90})]
)
def test_other_files_cut_anywhere_are_unreadable(file_format, options):
    photo = saved(PICTURE.resize((320, 240)), file_format, **options)
    # Past the last 12 bytes of a PNG there is nothing left but its end mark: every pixel is there.
    for cut in range(1, len(photo) - 12, len(photo) // 60):
        with pytest.raises(UnreadablePhoto):
            decode(photo[:cut])


@pytest.mark.parametrize(
    ("photo", "says"),
    [
        (b"", "empty"),
        (b"file,grade\nleft.jpg,2\n" * 50, "not a picture"),
        (b"%PDF-1.7\n" + bytes(200), "PDF"),
        (b"\xef\xbb\xbf <svg xmlns='http://www.w3.org/2000/svg'/>", "SVG"),
        (b"<?xml version='1.0'?><svg/>", "SVG"),
        (bytes(128) + b"DICM" + bytes(100), "DICOM"),
        (bytes(4000), "not a picture"),
        (saved(Image.new("F", (20, 20)), "TIFF"), "mode F"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_not_a_photograph_is_said_to_be_so_in_one_sentence(photo, says):
    with pytest.raises(UnreadablePhoto, match=says) as raised:
        decode(photo)
    assert raised.value.hint
    assert raised.value.message[0].islower()
    assert "\n" not in raised.value.message


def test_rubbish_behind_the_picture_does_not_matter():
    for file_format in ("PNG", "JPEG"):
        photo = saved(PICTURE, file_format)
        assert np.array_equal(decode(photo + b"rubbish" * 99).pixels, decode(photo).pixels)


def test_padding_before_the_end_mark_of_a_jpeg_does_not_matter():
    photo = saved(PICTURE, "JPEG")
    padded = photo[:-2] + bytes(4) + photo[-2:]
    with pytest.raises(ValueError, match="extraneous"):
        simplejpeg.decode_jpeg(padded)
    assert np.array_equal(decode(padded).pixels, decode(photo).pixels)


@given(st.lists(st.sampled_from([b"\xff", b"\xda", b"\0", b"\xff\xda"]), min_size=2, max_size=30).map(b"".join))
def test_every_mark_of_a_scan_is_counted_wherever_it_begins(data):
    assert _scans(data) == data.count(b"\xff\xda")


def test_a_jpeg_of_endless_scans_is_refused():
    photo = saved(PICTURE, "JPEG", progressive=True)
    last = photo.rindex(b"\xff\xda")
    bomb = photo[:-2] + photo[last:-2] * MAX_SCANS + photo[-2:]
    with pytest.raises(UnreadablePhoto, match="scans"):
        decode(bomb, at_least=50)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(["JPEG", "PNG", "TIFF", "BMP", "WEBP", "GIF"]), st.data())
def test_a_damaged_file_gives_pixels_or_a_sentence_never_another_error(file_format, data):
    photo = bytearray(saved(PICTURE.resize((40, 30)), file_format))
    for _ in range(data.draw(st.integers(1, 8))):
        photo[data.draw(st.integers(0, len(photo) - 1))] = data.draw(st.integers(0, 255))
    at_least = data.draw(st.sampled_from([0, 10]))
    with suppress(UnreadablePhoto):
        decoded = decode(bytes(photo), at_least=at_least)
        assert decoded.pixels.dtype == np.uint8
        assert decoded.pixels.shape[2] == 3


def peak_mb(photo: bytes, folder: Path, *, at_least: int) -> tuple[str, int]:
    """What a fresh process makes of the photograph, and the most memory it held."""
    (folder / "photo").write_bytes(photo)
    script = """
import sys
from pathlib import Path
from fundoscope.data.decode import UnreadablePhoto, decode
try:
    print(decode(Path(sys.argv[1]).read_bytes(), at_least=int(sys.argv[2])).pixels.shape)
except UnreadablePhoto as problem:
    print(problem)
# Not ru_maxrss, which counts what the process was forked from.
status = Path("/proc/self/status").read_text()
print(int(status.split("VmHWM:")[1].split()[0]) // 1024)
"""
    command = [sys.executable, "-W", "error", "-c", script, str(folder / "photo"), str(at_least)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return lines[0], int(lines[1])


needs_proc = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")


@needs_proc
@pytest.mark.parametrize("side", [50_000, 12_000])
def test_a_decompression_bomb_is_refused_before_it_goes_off(side, tmp_path):
    bomb = black_png(side, 1, bits=8, colour_type=2).replace(
        chunk(b"IHDR", struct.pack(">IIBBBBB", side, 1, 8, 2, 0, 0, 0)),
        chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)),
    )
    said, peak = peak_mb(bomb, tmp_path, at_least=224)
    assert "million pixels" in said
    assert peak < 100


@needs_proc
def test_the_largest_picture_we_read_takes_less_than_a_gigabyte(tmp_path):
    largest = black_png(7000, 7100, bits=16, colour_type=6)  # RGBA of 16 bits: the most there is per pixel
    shape, peak = peak_mb(largest, tmp_path, at_least=0)
    assert shape == "(7100, 7000, 3)"
    assert peak < 1000
    shape, peak = peak_mb(largest, tmp_path, at_least=224)
    assert shape == "(888, 875, 3)"
    assert peak < 600


@needs_proc
def test_a_huge_progressive_jpeg_takes_less_than_a_gigabyte(tmp_path):
    pixels = np.zeros((9500, 9500, 3), np.uint8)
    photo = saved(Image.fromarray(pixels), "JPEG", progressive=True, subsampling=0)
    shape, peak = peak_mb(photo, tmp_path, at_least=224)
    assert shape == "(1188, 1188, 3)"
    assert peak < 1000


def test_a_text_chunk_that_inflates_without_end_is_not_followed():
    bomb = chunk(b"zTXt", b"comment\0\0" + zlib.compress(bytes(80_000_000), 9))
    plain = saved(PICTURE, "PNG")
    with pytest.raises(UnreadablePhoto):
        decode(plain[:33] + bomb + plain[33:])
