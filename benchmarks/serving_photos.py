"""Photographs to send: 224 × 224 as the thesis sent, and in full resolution as a camera writes them."""

import io
import tarfile
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from fundoscope.data.draw import draw_eye

SMALL, FULL = "aptos2019_224.tar", ("idrid_fullres.tar", "eyepacs2015_fullres.tar")
N = 24  # of either


@dataclass(frozen=True)
class Photos:
    small: list[bytes]
    full: list[bytes]
    source: str


def find_photos(folder: Path) -> Photos:
    """Real ones where they are, or drawn eyes; always the same ones."""
    if all((folder / name).is_file() for name in (SMALL, *FULL)):
        full = [photo for name in FULL for photo in _members(folder / name, N // len(FULL))]
        small = _members(folder / SMALL, N)
        return Photos(small, full, "APTOS 2019 at 224 × 224; IDRiD and EyePACS in full resolution (up to 4928 × 3264)")
    eyes = [Image.fromarray(draw_eye(4, index, size=1024).pixels) for index in range(N)]
    return Photos(
        [_jpeg(eye.resize((224, 224))) for eye in eyes], [_jpeg(eye) for eye in eyes], "drawn eyes at 224 and 1024 px"
    )


def _members(archive: Path, n: int) -> list[bytes]:
    with tarfile.open(archive) as tar:
        photos = sorted(member.name for member in tar.getmembers() if member.name.startswith("images/"))
        files = [tar.extractfile(name) for name in photos[:: max(1, len(photos) // n)][:n]]
        return [file.read() for file in files if file is not None]


def _jpeg(image: Image.Image) -> bytes:
    out = io.BytesIO()
    image.save(out, "JPEG", quality=92)
    return out.getvalue()
