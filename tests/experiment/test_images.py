import gzip
import hashlib
import os
import pickle
import struct
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fundoscope.errors import FundoscopeError
from fundoscope.experiment.images import Source, draw, fetch, is_there, load, resize

RANDOM = np.random.RandomState(0)


def write_mnist(folder: Path, train: int = 5, test: int = 3) -> np.ndarray:
    """The four files with random pictures; returns those of the training part."""
    folder.mkdir(parents=True)
    for prefix, n in (("t10k", test), ("train", train)):
        pixels = RANDOM.randint(0, 256, (n, 28, 28), dtype=np.uint8)
        header = struct.pack(">4I", 2051, n, 28, 28)
        (folder / f"{prefix}-images-idx3-ubyte.gz").write_bytes(gzip.compress(header + pixels.tobytes()))
        labels = struct.pack(">2I", 2049, n) + bytes(i % 10 for i in range(n))
        (folder / f"{prefix}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))
    return pixels


def cifar_batch(pixels: np.ndarray, labels: list[int]) -> bytes:
    """As in the original: a row per picture, all reds, then all greens, then all blues; keys are bytes."""
    rows = np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)).reshape(len(pixels), -1)
    return pickle.dumps({b"data": rows, b"labels": labels}, protocol=2)


def write_cifar_folder(folder: Path, each: int = 2) -> np.ndarray:
    folder.mkdir(parents=True)
    pixels = RANDOM.randint(0, 256, (6 * each, 32, 32, 3), dtype=np.uint8)
    for i, name in enumerate([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]):
        (folder / name).write_bytes(cifar_batch(pixels[i * each : (i + 1) * each], [i] * each))
    return pixels[: 5 * each]


def test_mnist_is_read_from_its_four_files(tmp_path):
    pixels = write_mnist(tmp_path / "mnist", train=5, test=3)
    found = load("mnist", 28, tmp_path)
    assert (found.train == pixels[..., None]).all()
    assert found.train_labels.tolist() == [0, 1, 2, 3, 4]
    assert found.test.shape == (3, 28, 28, 1)


def test_the_files_may_lie_in_the_folder_itself_and_be_unpacked(tmp_path):
    write_mnist(tmp_path / "here")
    for path in list((tmp_path / "here").iterdir()):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    assert load("mnist", 32, tmp_path / "here").train.shape == (5, 32, 32, 1)


def test_fewer_pictures_are_the_first_ones(tmp_path):
    pixels = write_mnist(tmp_path / "mnist", train=5, test=3)
    found = load("mnist", 28, tmp_path, train=2, most_test=1)
    assert (found.train[..., 0] == pixels[:2]).all()
    assert len(found.test) == 1


def test_more_pictures_than_there_are_is_refused(tmp_path):
    write_mnist(tmp_path / "mnist", train=5)
    with pytest.raises(FundoscopeError, match="has 5 pictures, not 6"):
        load("mnist", 32, tmp_path, train=6)


def test_a_missing_file_is_named(tmp_path):
    write_mnist(tmp_path / "mnist")
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    assert not is_there("mnist", tmp_path)
    with pytest.raises(FundoscopeError, match=r"there is no file .*t10k-labels-idx1-ubyte\.gz"):
        load("mnist", 32, tmp_path)


@pytest.mark.parametrize("damage", ["cut off", "other bytes", "another format"])
def test_a_damaged_file_is_named(tmp_path, damage):
    write_mnist(tmp_path / "mnist")
    path = tmp_path / "mnist" / "train-images-idx3-ubyte.gz"
    whole = path.read_bytes()
    other = {"cut off": whole[:-200], "other bytes": b"<html>", "another format": gzip.compress(b"\0" * 4000)}
    path.write_bytes(other[damage])
    with pytest.raises(FundoscopeError, match=r"train-images-idx3-ubyte\.gz is damaged"):
        load("mnist", 32, tmp_path)


def test_a_label_that_is_no_class_is_damage(tmp_path):
    write_mnist(tmp_path / "mnist", train=2)
    labels = gzip.compress(struct.pack(">2I", 2049, 2) + bytes([3, 10]))
    (tmp_path / "mnist" / "train-labels-idx1-ubyte.gz").write_bytes(labels)
    with pytest.raises(FundoscopeError, match="is damaged"):
        load("mnist", 32, tmp_path)


def test_cifar10_is_the_same_from_its_folder_its_archive_and_an_npz(tmp_path):
    pixels = write_cifar_folder(tmp_path / "a" / "cifar-10-batches-py")
    (tmp_path / "b").mkdir()
    with tarfile.open(tmp_path / "b" / "cifar-10-python.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "a" / "cifar-10-batches-py", "cifar-10-batches-py")
    (tmp_path / "c" / "cifar10").mkdir(parents=True)
    unpacked = load("cifar10", 32, tmp_path / "a")
    arrays = {"x_train": unpacked.train, "y_train": unpacked.train_labels.astype(np.uint8)}
    arrays |= {"x_test": unpacked.test, "y_test": unpacked.test_labels.astype(np.uint8)}
    np.savez(tmp_path / "c" / "cifar10" / "part.npz", **arrays)
    for folder in "abc":
        assert is_there("cifar10", tmp_path / folder)
        found = load("cifar10", 32, tmp_path / folder)
        assert (found.train == pixels).all()
        assert found.train_labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
        assert found.test_labels.tolist() == [5, 5]
        assert (load("cifar10", 32, tmp_path / folder, train=3).train == pixels[:3]).all()


def test_a_batch_as_python_2_wrote_it_is_read(tmp_path):
    # The original files are of Python 2: their text is bytes, and NumPy's module had its old name.
    write_cifar_folder(tmp_path / "cifar-10-batches-py", each=1)
    path = tmp_path / "cifar-10-batches-py" / "test_batch"
    old = path.read_bytes().replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
    path.write_bytes(old)
    assert load("cifar10", 32, tmp_path).test_labels.tolist() == [5]


class Harm:
    def __reduce__(self):
        return os.mkdir, ("harm-was-done",)


def test_a_pickle_that_would_run_something_is_refused_and_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_cifar_folder(tmp_path / "cifar-10-batches-py")
    harm = pickle.dumps({b"data": Harm(), b"labels": [0]}, protocol=2)
    (tmp_path / "cifar-10-batches-py" / "data_batch_1").write_bytes(harm)
    with pytest.raises(FundoscopeError, match="data_batch_1 is damaged"):
        load("cifar10", 32, tmp_path)
    assert not (tmp_path / "harm-was-done").exists()


@pytest.mark.parametrize("name", ["cifar-10-python.tar.gz", "part.npz"])
def test_a_damaged_archive_is_named(tmp_path, name):
    (tmp_path / name).write_bytes(b"PK\3\4 but no more")
    with pytest.raises(FundoscopeError, match=f"{name} is damaged"):
        load("cifar10", 32, tmp_path)


def test_an_empty_folder_says_what_to_put_there(tmp_path):
    with pytest.raises(FundoscopeError, match=r"there is no file .*cifar-10-python\.tar\.gz") as caught:
        load("cifar10", 32, tmp_path)
    assert 'data = "drawn"' in caught.value.hint


def test_twice_the_size_lies_a_quarter_and_three_quarters_between_two_pixels():
    row = np.array([[0, 100], [0, 100]], np.uint8).reshape(1, 2, 2, 1)
    assert resize(row, 4)[0, 1, :, 0].tolist() == [0, 25, 75, 100]


@pytest.mark.parametrize(("given", "wanted"), [(28, 32), (28, 64), (32, 64)])
def test_resizing_agrees_with_pillow(given, wanted):
    pixels = np.random.RandomState(1).randint(0, 256, (3, given, given, 3), dtype=np.uint8)
    theirs = [np.asarray(Image.fromarray(p).resize((wanted, wanted), Image.Resampling.BILINEAR)) for p in pixels]
    assert np.abs(resize(pixels, wanted).astype(int) - np.stack(theirs).astype(int)).max() <= 1  # they round twice


@given(st.integers(0, 255), st.sampled_from([28, 32]), st.sampled_from([32, 64]))
@settings(deadline=None)
def test_a_plain_picture_stays_plain(level, given, wanted):
    assert (resize(np.full((1, given, given, 1), level, np.uint8), wanted) == level).all()


def test_a_chunk_more_than_one_is_resized_like_the_first():
    pixels = np.tile(RANDOM.randint(0, 256, (1, 28, 28, 1), dtype=np.uint8), (1030, 1, 1, 1))
    found = resize(pixels, 32)
    assert (found == found[0]).all()


@pytest.mark.parametrize(("dataset", "shape"), [("mnist", (28, 28, 1)), ("cifar10", (32, 32, 3))])
def test_drawn_pictures_have_the_shapes_of_the_real_ones_and_follow_from_the_seed(dataset, shape):
    pixels, labels = draw(dataset, 200, seed=0)
    again, other = draw(dataset, 200, seed=0)[0], draw(dataset, 200, seed=1)[0]
    assert pixels.shape == (200, *shape)
    assert pixels.dtype == np.uint8
    assert set(labels) == set(range(10))
    assert (pixels == again).all()
    assert (pixels != other).any()


def test_drawn_classes_can_be_told_apart_by_their_means():
    pixels, labels = draw("cifar10", 2000, seed=0)
    means = np.stack([pixels[labels == c].mean(axis=0) for c in range(10)])
    test, truth = draw("cifar10", 500, seed=1)
    nearest = ((test[:, None].astype(float) - means[None]) ** 2).sum(axis=(2, 3, 4)).argmin(axis=1)
    assert (nearest == truth).mean() > 0.8  # 0.1 by chance


def served(folder: Path, data: bytes, digest: str = "") -> dict[str, tuple[Source, ...]]:
    (folder / "original").write_bytes(data)
    digest = digest or "md5:" + hashlib.md5(data).hexdigest()
    return {"mnist": (Source("file.gz", (folder / "original").as_uri(), digest),)}


def test_files_are_fetched_once(tmp_path):
    sources = served(tmp_path, b"pictures")
    assert fetch("mnist", tmp_path / "data", sources=sources) == [tmp_path / "data" / "mnist" / "file.gz"]
    (tmp_path / "original").unlink()  # the second time it is not asked for
    (path,) = fetch("mnist", tmp_path / "data", sources=sources)
    assert path.read_bytes() == b"pictures"


def test_another_file_than_the_published_one_is_not_kept(tmp_path):
    sources = served(tmp_path, b"other pictures", "md5:" + hashlib.md5(b"pictures").hexdigest())
    with pytest.raises(FundoscopeError, match="sent another file than the published one"):
        fetch("mnist", tmp_path / "data", sources=sources)
    assert list((tmp_path / "data" / "mnist").iterdir()) == []


def test_without_a_network_one_sentence_says_what_to_do(tmp_path):
    nobody = {"mnist": (Source("file.gz", "http://127.0.0.1:1/file.gz", "md5:0"),)}
    with pytest.raises(FundoscopeError, match="mnist could not be downloaded from .*refused") as caught:
        fetch("mnist", tmp_path, sources=nobody)
    assert caught.value.hint == f'put file.gz into {tmp_path / "mnist"} by hand, or use data = "drawn"'
    assert list((tmp_path / "mnist").iterdir()) == []


def test_the_workload_imports_numpy_and_the_standard_library_alone():
    code = """
import sys
before = set(sys.modules)
import fundoscope.experiment.cnn, fundoscope.experiment.images, fundoscope.config
new = {name.partition(".")[0] for name in set(sys.modules) - before}
print(sorted(new - set(sys.stdlib_module_names)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['fundoscope', 'numpy']"


@pytest.mark.shared
def test_the_real_mnist_begins_with_the_digits_that_everyone_knows(shared_data):
    found = load("mnist", 64, shared_data, train=10, most_test=10)
    # The first labels of both parts, as in the tutorials of TensorFlow and PyTorch.
    assert found.train_labels.tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert found.test_labels.tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    assert found.train.shape == (10, 64, 64, 1)


@pytest.mark.shared
def test_the_real_part_of_cifar10_has_six_hundred_of_each_class(shared_data):
    found = load("cifar10", 32, shared_data)
    assert np.bincount(found.train_labels).tolist() == [600] * 10
    assert np.bincount(found.test_labels).tolist() == [120] * 10
    assert found.train.shape == (6000, 32, 32, 3)
