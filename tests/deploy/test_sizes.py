import hashlib
import subprocess
from pathlib import Path

import pytest
from saved_image import save_image

from fundoscope.deploy.sizes import PUBLISHED, measure

LAYERS = [
    {"usr/lib/large.so": bytes(range(256)) * 400, "etc/passwd": b"root"},
    {"opt/a.py": b"print(1)\n" * 50},
]


@pytest.mark.parametrize("zipped", [False, True], ids=["as podman saves", "as docker with containerd saves"])
def test_a_layer_is_as_large_as_gzip_makes_it(tmp_path: Path, zipped: bool) -> None:
    tars = save_image(tmp_path / "image.tar", LAYERS, zipped=zipped)
    found = measure(tmp_path / "image.tar")
    for layer, tar in zip(found.layers, tars, strict=True):
        gzipped = subprocess.run(["gzip", "-6", "-c"], input=tar, capture_output=True, check=True).stdout
        assert layer.compressed_bytes == pytest.approx(len(gzipped), abs=2)
        assert layer.digest == "sha256:" + hashlib.sha256(tar).hexdigest()
    assert [layer.disk_bytes for layer in found.layers] == [102404, 450]
    assert [layer.files for layer in found.layers] == [2, 1]
    assert [layer.largest for layer in found.layers] == ["usr/lib/large.so", "opt/a.py"]
    assert [layer.made_by for layer in found.layers] == ["COPY dir:0123 in /", "step 1"]
    assert found.disk_bytes == 102854
    assert found.compressed_bytes == sum(layer.compressed_bytes for layer in found.layers)


def test_the_digest_is_the_one_that_engines_call_an_images_id(tmp_path: Path) -> None:
    save_image(tmp_path / "image.tar", LAYERS)
    found = measure(tmp_path / "image.tar")
    assert found.digest.startswith("sha256:")
    assert found.config["architecture"] == "amd64"
    save_image(tmp_path / "other.tar", [*LAYERS, {"a": b""}])
    assert measure(tmp_path / "other.tar").digest != found.digest


def test_the_published_sizes_are_those_of_table_5_2() -> None:
    """Camargo's thesis: Nenhuma, Two-step build, Redução dependências."""
    printed = {name: (size.compressed_mb, size.disk_gb) for name, size in PUBLISHED.items()}
    assert printed == {"one-stage": (1798.27, 4.97), "two-stage": (923.99, 3.32), "reduced": (517.23, 2.06)}
