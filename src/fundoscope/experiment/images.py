"""MNIST and CIFAR-10 from their original files, or drawn pictures in the same shapes, at the size a network takes.

NumPy and the standard library only, NumPy 1.23 as well as 2: this is imported in every framework's environment.
A folder holds `mnist/` and `cifar10/`, or the files themselves:

    mnist     train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, t10k-images-…, t10k-labels-… (unpacked, too)
    cifar10   cifar-10-python.tar.gz, or the folder cifar-10-batches-py in it, or an .npz with x_train, y_train,
              x_test, y_test
"""

import gzip
import hashlib
import os
import pickle
import shutil
import struct
import tarfile
import urllib.request
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import NDArray

from fundoscope.errors import FundoscopeError, pick

Dataset = Literal["mnist", "cifar10"]
Pixels = NDArray[np.uint8]  # (pictures, height, width, channels)
Labels = NDArray[np.int64]
SHAPES: dict[str, tuple[int, int, int]] = {"mnist": (28, 28, 1), "cifar10": (32, 32, 3)}
FULL: dict[str, tuple[int, int]] = {"mnist": (60_000, 10_000), "cifar10": (50_000, 10_000)}
CHUNK = 1024  # pictures resized at a time
DOWNLOAD_TIMEOUT_S = 60
# What a reader of compressed, pickled or packed bytes says of bytes that are something else.
DAMAGE = (
    *(OSError, EOFError, ValueError, TypeError, LookupError, struct.error),
    *(zlib.error, zipfile.BadZipFile, tarfile.TarError, pickle.UnpicklingError),
)


@dataclass(frozen=True)
class Pictures:
    train: Pixels
    train_labels: Labels
    test: Pixels
    test_labels: Labels

    def with_channels_first(self) -> "Pictures":
        """(pictures, channels, height, width), as some frameworks want them."""
        train, test = (np.ascontiguousarray(some.transpose(0, 3, 1, 2)) for some in (self.train, self.test))
        return Pictures(train, self.train_labels, test, self.test_labels)


@dataclass(frozen=True)
class Source:
    """One original file, and where it can be had."""

    name: str
    address: str
    digest: str  # "sha256:…" or "md5:…", as it is published


MNIST_ADDRESS = "https://storage.googleapis.com/cvdf-datasets/mnist/"
SOURCES: dict[str, tuple[Source, ...]] = {
    "mnist": tuple(
        Source(name, MNIST_ADDRESS + name, f"md5:{md5}")
        for name, md5 in (
            ("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
            ("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432"),
            ("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3"),
            ("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c"),
        )
    ),
    "cifar10": (
        Source(
            "cifar-10-python.tar.gz",
            "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
            "md5:c58f30108f718f92721af3b95e74349a",
        ),
    ),
}


def load(dataset: Dataset, image: int, folder: Path | None, *, train: int = 0, most_test: int = 0) -> Pictures:
    """The first `train` pictures (0: all) and up to `most_test` of the test part (0: all), at image × image; drawn
    ones where no folder is given."""
    if folder is None:
        pixels, labels = draw(dataset, train or FULL[dataset][0], seed=0)
        test_pixels, test_labels = draw(dataset, most_test or FULL[dataset][1], seed=1)
    else:
        home, read = _home(dataset, folder), READERS[dataset]
        pixels, labels = read(home, "train", train)
        test_pixels, test_labels = read(home, "test", most_test)
        if len(pixels) < train:
            hint = f"use images = {len(pixels)} or fewer, or 0 for all"
            raise FundoscopeError(f"{dataset} in {folder} has {len(pixels):,} pictures, not {train:,}", hint)
    return Pictures(resize(pixels, image), labels, resize(test_pixels, image), test_labels)


def resize(pixels: Pixels, size: int) -> Pixels:
    """Bilinear, the pixels' centres aligned; each picture is multiplied by one small matrix on either side."""
    if pixels.shape[1:3] == (size, size):
        return pixels
    rows, columns = _interpolation(pixels.shape[1], size), _interpolation(pixels.shape[2], size)
    out = np.empty((len(pixels), size, size, pixels.shape[3]), np.uint8)
    for start in range(0, len(pixels), CHUNK):
        some = pixels[start : start + CHUNK].astype(np.float32)
        tall = np.matmul(rows, some.reshape(len(some), some.shape[1], -1))
        wide = np.matmul(columns, tall.reshape(len(some) * size, some.shape[2], -1))
        out[start : start + CHUNK] = np.rint(wide).reshape(len(some), size, size, -1)
    return out


def _interpolation(given: int, wanted: int) -> NDArray[np.float32]:
    """(wanted, given): how much of each given pixel is in each wanted one. Beyond the border is the border."""
    centres = np.clip((np.arange(wanted) + 0.5) * given / wanted - 0.5, 0, given - 1)
    distance = np.abs(centres[:, None] - np.arange(given)[None, :])
    share: NDArray[np.float32] = np.maximum(0, 1 - distance).astype(np.float32)
    return share


def draw(dataset: Dataset, n: int, seed: int) -> tuple[Pixels, Labels]:
    """Pictures that can be learnt, for trying a study without files: each class three blobs at places of its own, a
    little moved, in noise."""
    height, width, channels = SHAPES[dataset]
    # The old generator: its numbers are the same in every NumPy.
    of_class, random = np.random.RandomState(0), np.random.RandomState([seed, height])
    y, x = np.mgrid[0:height, 0:width]
    patterns = np.zeros((10, height, width, channels))
    for blobs in patterns:
        for _ in range(3):
            at_y, at_x = of_class.uniform(0.25, 0.75, 2) * (height, width)
            blob = np.exp(-((y - at_y) ** 2 + (x - at_x) ** 2) / (2 * (height / 10) ** 2))
            blobs += blob[:, :, None] * of_class.uniform(40, 200, channels)
    moves = [(down, right) for down in range(-2, 3) for right in range(-2, 3)]
    moved = np.stack([np.roll(patterns, move, axis=(1, 2)) for move in moves], axis=1).clip(0, 207).astype(np.uint8)
    labels, which = random.randint(0, 10, n), random.randint(0, len(moves), n)
    noise = random.randint(0, 48, (n, height, width, channels), dtype=np.uint8)
    return moved[labels, which] + noise, labels.astype(np.int64)


def read_mnist(folder: Path, part: str, n: int) -> tuple[Pixels, Labels]:
    prefix = "train" if part == "train" else "t10k"
    pixels = _read_idx(folder, f"{prefix}-images-idx3-ubyte", (28, 28), n)[..., None]
    labels = _read_idx(folder, f"{prefix}-labels-idx1-ubyte", (), n)
    return _checked(pixels, labels, folder, "mnist")


def _read_idx(folder: Path, name: str, shape: tuple[int, ...], n: int) -> NDArray[np.uint8]:
    """The first n items (0: all) of a file in the format of MNIST's authors: a magic number, sizes, bytes."""
    path = next((p for p in (folder / f"{name}.gz", folder / name) if p.is_file()), None)
    if path is None:
        raise _missing(folder / f"{name}.gz", "mnist")
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            magic, count, *sizes = struct.unpack(f">{2 + len(shape)}I", file.read(4 * (2 + len(shape))))
            if magic != 0x0801 + len(shape) or tuple(sizes) != shape:
                raise ValueError("another format")
            count = min(n or count, count)
            items = np.frombuffer(file.read(count * int(np.prod(shape))), np.uint8)
            return items.reshape(count, *shape)
    except DAMAGE:
        raise _damaged(path, "mnist") from None


def read_cifar10(folder: Path, part: str, n: int) -> tuple[Pixels, Labels]:
    """The original archive or its folder before an .npz, which may be a part of it."""
    archive, unpacked = folder / "cifar-10-python.tar.gz", folder / "cifar-10-batches-py"
    if not unpacked.is_dir() and (folder / "data_batch_1").is_file():
        unpacked = folder
    if not unpacked.is_dir() and not archive.is_file():
        if tables := sorted(folder.glob("*.npz")):
            return _read_npz(tables[0], part, n)
        raise _missing(archive, "cifar10")
    source = unpacked if unpacked.is_dir() else archive
    names = [f"data_batch_{i}" for i in range(1, 6)] if part == "train" else ["test_batch"]
    pixels, labels, have = [], [], 0
    for name in names:
        try:
            batch = _read_batch(source, name)
            rows = np.asarray(batch[b"data"], np.uint8).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
            pixels.append(rows)
            labels.append(np.asarray(batch[b"labels"]))
        except DAMAGE:
            raise _damaged(source / name if source.is_dir() else source, "cifar10") from None
        have += len(rows)
        if n and have >= n:
            break
    return _checked(np.concatenate(pixels)[: n or None], np.concatenate(labels)[: n or None], source, "cifar10")


def _read_batch(source: Path, name: str) -> Any:
    if source.is_dir():
        if not (source / name).is_file():
            raise _missing(source / name, "cifar10")
        with (source / name).open("rb") as file:
            return _Plain(file, encoding="bytes").load()
    with tarfile.open(source) as tar:
        member = tar.extractfile(f"cifar-10-batches-py/{name}")
        if member is None:
            raise KeyError(name)
        with member:
            return _Plain(member, encoding="bytes").load()


class _Plain(pickle.Unpickler):
    """A pickle can run any program; this one can make arrays, and nothing else."""

    ALLOWED: Mapping[tuple[str, str], Any] = {
        # NumPy moved this one; what an array says of itself has the place it is at now.
        ("numpy.core.multiarray", "_reconstruct"): np.zeros(0).__reduce__()[0],
        ("numpy._core.multiarray", "_reconstruct"): np.zeros(0).__reduce__()[0],
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("_codecs", "encode"):  # how Python 3 writes bytes for Python 2
            return lambda text, encoding: text.encode(encoding)
        if (module, name) not in self.ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} is no part of a picture")
        return self.ALLOWED[module, name]


def _read_npz(path: Path, part: str, n: int) -> tuple[Pixels, Labels]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as table:
            pixels, labels = table[f"x_{part}"][: n or None], table[f"y_{part}"][: n or None]
    except DAMAGE:
        raise _damaged(path, "cifar10") from None
    return _checked(pixels, labels, path, "cifar10")


def _checked(pixels: NDArray[Any], labels: NDArray[Any], path: Path, dataset: str) -> tuple[Pixels, Labels]:
    labels = labels.reshape(-1).astype(np.int64)
    right = pixels.dtype == np.uint8 and pixels.shape == (len(labels), *SHAPES[dataset]) and len(labels) > 0
    if not right or labels.min() < 0 or labels.max() > 9:
        raise _damaged(path, dataset)
    return pixels, labels


READERS = {"mnist": read_mnist, "cifar10": read_cifar10}


def is_there(dataset: Dataset, folder: Path) -> bool:
    """All files of it; whether they are whole is seen when they are read."""
    home = _home(dataset, folder)
    if dataset == "cifar10":
        known = ("cifar-10-python.tar.gz", "cifar-10-batches-py", "data_batch_1")
        return any((home / name).exists() for name in known) or any(home.glob("*.npz"))
    names = [source.name for source in SOURCES[dataset]]
    return all((home / name).is_file() or (home / name).with_suffix("").is_file() for name in names)


def fetch(dataset: Dataset, folder: Path, *, sources: Mapping[str, tuple[Source, ...]] = SOURCES) -> list[Path]:
    """Download the original files that are not there yet, each whole or not at all."""
    home = folder / dataset
    home.mkdir(parents=True, exist_ok=True)
    return [_fetch_one(source, home, dataset) for source in pick(sources, dataset, kind="dataset")]


def _fetch_one(source: Source, home: Path, dataset: str) -> Path:
    path, part = home / source.name, home / f".{source.name}.{os.getpid()}.part"
    if path.is_file() and _digest(path, source.digest) == source.digest:
        return path
    try:
        with urllib.request.urlopen(source.address, timeout=DOWNLOAD_TIMEOUT_S) as answer, part.open("wb") as file:
            _copy(answer, file)
        if (found := _digest(part, source.digest)) != source.digest:
            hint = f"try again; if it stays so, put the right file at {path} by hand"
            raise FundoscopeError(f"{source.address} sent another file than the published one ({found})", hint)
        part.replace(path)
    except (OSError, HTTPException) as problem:
        reason = getattr(problem, "reason", None) or problem
        hint = f'put {source.name} into {home} by hand, or use data = "drawn"'
        raise FundoscopeError(f"{dataset} could not be downloaded from {source.address}: {reason}", hint) from None
    finally:
        part.unlink(missing_ok=True)
    return path


def _copy(answer: Any, file: IO[bytes]) -> None:
    shutil.copyfileobj(answer, file, 1 << 20)


def _digest(path: Path, like: str) -> str:
    algorithm = like.partition(":")[0]
    with path.open("rb") as file:
        return f"{algorithm}:{hashlib.file_digest(file, algorithm).hexdigest()}"


def _home(dataset: str, folder: Path) -> Path:
    return folder / dataset if (folder / dataset).is_dir() else folder


def _missing(path: Path, dataset: str) -> FundoscopeError:
    hint = f'put the files of {dataset} there, have `study setup` download them, or use data = "drawn"'
    return FundoscopeError(f"there is no file {path}", hint)


def _damaged(path: Path, dataset: str) -> FundoscopeError:
    return FundoscopeError(f"{path} is damaged, or not a file of {dataset}", "take it away and download it again")
