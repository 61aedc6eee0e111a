"""Files that we write: whole or as they were, whatever goes wrong, and still there after a power cut."""

import errno
import os
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from lossy_disk import LossyDisk

from fundoscope.errors import FundoscopeError
from fundoscope.provenance import install_folder, new_folder, write_whole, writing

OLD, NEW = b"the old contents", b"the new contents, " * 1000


@contextmanager
def files_of_at_most(size_bytes: int) -> Iterator[None]:
    """As on a full disk, writing fails half-way. (Python ignores the signal that comes with it.)"""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_write_that_fails_half_way_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(OLD)
    with files_of_at_most(4096), pytest.raises(FundoscopeError, match="x.json cannot be written: File too large"):
        write_whole(path, NEW)
    assert path.read_bytes() == OLD
    assert os.listdir(tmp_path) == ["x.json"]  # noqa: PTH208


def interrupted(path: Path) -> None:
    with writing(path) as file:
        file.write(NEW)
        file.flush()
        assert path.read_bytes() == OLD  # a reader meanwhile sees the old one
        raise KeyboardInterrupt


def test_a_block_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(OLD)
    with pytest.raises(KeyboardInterrupt):
        interrupted(path)
    assert path.read_bytes() == OLD
    assert os.listdir(tmp_path) == ["x.csv"]  # noqa: PTH208


def test_killed_at_any_moment_the_file_is_the_old_one_or_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    write_whole(path, b"0" * 3_000_000)
    code = (
        "import sys; from itertools import cycle; from pathlib import Path\n"
        "from fundoscope.provenance import write_whole\n"
        "print('ready', flush=True)\n"
        "for digit in cycle(b'123456789'):\n"
        "    write_whole(Path(sys.argv[1]), bytes([digit]) * 3_000_000, lasting=False)\n"
        "    print(flush=True)\n"
    )
    for lines in (1, 2, 3, 5, 8):  # so many are read before it is killed: somewhere in the next file
        writer = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE)
        assert writer.stdout is not None
        with writer.stdout:
            for _ in range(lines):
                assert writer.stdout.readline()
            writer.send_signal(signal.SIGKILL)
        assert writer.wait() == -signal.SIGKILL
        data = path.read_bytes()
        assert (len(data), len(set(data))) == (3_000_000, 1)


def test_at_no_moment_does_a_power_cut_leave_less_than_the_old_file_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(OLD)
    disk = LossyDisk(monkeypatch, tmp_path)
    left: list[bytes | None] = []
    disk.watch = lambda: left.append(disk.after_a_power_cut(path))
    write_whole(path, NEW)
    assert left == [OLD, OLD, NEW]  # its bytes, then its name, then the folder that holds the name
    assert disk.moments == [f"fsync .x.json.{os.getpid()}.part", "replace x.json", f"fsync {tmp_path.name}"]


def test_what_can_be_made_again_does_not_wait_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = LossyDisk(monkeypatch, tmp_path)
    write_whole(tmp_path / "00001.jpg", NEW, lasting=False)
    assert disk.moments == ["replace 00001.jpg"]
    assert (tmp_path / "00001.jpg").read_bytes() == NEW


def test_a_new_folder_outlives_a_power_cut_with_all_that_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "artefact"
    with new_folder(out) as folder:
        disk = LossyDisk(monkeypatch, tmp_path)
        (folder / "saved_model").mkdir()
        (folder / "saved_model" / "weights").write_bytes(NEW)
        (folder / "artefact.json").write_bytes(OLD)
        before = folder
        install_folder(folder, out)
    assert disk.after_a_power_cut(out) is not None  # the name
    assert disk.after_a_power_cut(before / "artefact.json") == OLD  # and, under the name it had then, what is in it
    assert disk.after_a_power_cut(before / "saved_model" / "weights") == NEW
    assert disk.moments[-2:] == ["rename artefact", f"fsync {tmp_path.name}"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["artefact"]


@pytest.mark.parametrize(("number", "fails"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_a_file_system_that_cannot_sync_folders_is_forgiven_and_a_broken_disk_is_not(
    number: int, fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = os.fsync

    def fsync(file: int) -> None:
        if stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError(number, os.strerror(number))
        really(file)

    monkeypatch.setattr(os, "fsync", fsync)
    path = tmp_path / "x"
    if fails:
        with pytest.raises(FundoscopeError, match="x cannot be written: Input/output error"):
            write_whole(path, NEW)
    else:
        write_whole(path, NEW)
    assert path.read_bytes() == NEW
