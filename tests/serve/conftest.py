from collections.abc import Iterator
from pathlib import Path

import pytest
import simplejpeg
from running import Running, serving

from fundoscope.artefact.export import Exported
from fundoscope.data.draw import draw_eye


@pytest.fixture(scope="session")
def artefact_folder(exported: dict[str, Exported]) -> Path:
    """A small ONNX artefact; not to be written into."""
    return exported["onnx"].artefact.folder


@pytest.fixture(scope="session")
def server(artefact_folder: Path) -> Iterator[Running]:
    """A lean server, shared by the tests that leave it as they found it."""
    with serving(artefact_folder, "--log-requests") as running:
        yield running


@pytest.fixture(scope="session")
def jpeg() -> bytes:
    """A drawn eye."""
    return bytes(simplejpeg.encode_jpeg(draw_eye(5, 0, size=320).pixels, quality=90))
