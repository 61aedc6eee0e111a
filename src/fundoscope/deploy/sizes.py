"""How large an image is, layer by layer: as a registry stores it, and on disk. And how large the thesis's were."""

import gzip
import hashlib
import json
import tarfile
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

CHUNK = 1 << 20
LEVEL = 6  # gzip's, and that of the tools that push to a registry


@dataclass(frozen=True)
class PublishedSize:
    """Camargo's thesis, Table 5.2; megabytes and gigabytes as printed there."""

    compressed_mb: float
    disk_gb: float


PUBLISHED = {
    "one-stage": PublishedSize(1798.27, 4.97),
    "two-stage": PublishedSize(923.99, 3.32),
    "reduced": PublishedSize(517.23, 2.06),
}


@dataclass(frozen=True)
class Layer:
    digest: str  # sha256 of the tar before compression
    compressed_bytes: int  # gzip -6, as a registry stores it
    disk_bytes: int  # of its files
    files: int
    largest: str  # path of its largest file, which tells more of a layer than how it was made
    made_by: str


@dataclass(frozen=True)
class Measured:
    """An image as its archive holds it."""

    digest: str  # of its configuration: what docker and podman call the image's ID
    config: dict[str, Any]
    layers: tuple[Layer, ...]

    @property
    def compressed_bytes(self) -> int:
        return sum(layer.compressed_bytes for layer in self.layers)

    @property
    def disk_bytes(self) -> int:
        return sum(layer.disk_bytes for layer in self.layers)


def measure(archive: Path) -> Measured:
    """`archive` is what `docker save` writes."""
    manifest, config_bytes = _manifest(archive)
    config = json.loads(config_bytes)
    made_by = [line.get("created_by", "") for line in config.get("history", []) if not line.get("empty_layer")]
    made_by += [""] * (len(manifest["Layers"]) - len(made_by))
    with ThreadPoolExecutor(2) as pool:  # zlib works outside the interpreter's lock
        tasks = zip(manifest["Layers"], made_by, strict=False)
        layers = tuple(pool.map(lambda task: _measure_layer(archive, *task), tasks))
    return Measured(f"sha256:{hashlib.sha256(config_bytes).hexdigest()}", config, layers)


def layer_names(archive: Path) -> list[str]:
    return list(_manifest(archive)[0]["Layers"])


@contextmanager
def open_layer(archive: Path, name: str) -> Iterator[IO[bytes]]:
    """The layer's tar, uncompressed, whichever way the archive holds it."""
    with tarfile.open(archive) as tar:
        file = tar.extractfile(name)
        assert file is not None
        zipped = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        yield gzip.GzipFile(fileobj=file) if zipped else file  # type: ignore[misc]


def _manifest(archive: Path) -> tuple[dict[str, Any], bytes]:
    with tarfile.open(archive) as tar:
        (manifest,) = json.loads(_read(tar, "manifest.json"))
        return manifest, _read(tar, manifest["Config"])


def _read(tar: tarfile.TarFile, name: str) -> bytes:
    file = tar.extractfile(name)
    assert file is not None
    return file.read()


def _measure_layer(archive: Path, name: str, made_by: str) -> Layer:
    digest, packer, compressed_bytes = hashlib.sha256(), zlib.compressobj(LEVEL, wbits=31), 0
    with open_layer(archive, name) as tar:
        while chunk := tar.read(CHUNK):
            digest.update(chunk)
            compressed_bytes += len(packer.compress(chunk))
    compressed_bytes += len(packer.flush())
    with open_layer(archive, name) as tar, tarfile.open(fileobj=tar, mode="r|") as members:
        sizes = {member.name: member.size for member in members if member.isreg()}
    largest = max(sizes, key=sizes.__getitem__, default="")
    return Layer(
        f"sha256:{digest.hexdigest()}", compressed_bytes, sum(sizes.values()), len(sizes), largest, _brief(made_by)
    )


def _brief(made_by: str) -> str:
    """The instruction, without what engines put around it."""
    for wrapping in ("/bin/sh -c #(nop) ", "/bin/sh -c ", "RUN "):
        made_by = made_by.removeprefix(wrapping)
    return " ".join(made_by.removesuffix("# buildkit").split())[:160]
