"""Where a file came from: digests, versions, the command that made it. Part of everything we write."""

import errno
import hashlib
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from fundoscope.errors import FundoscopeError

NAMED_LIBRARIES = (
    "numpy",
    "pillow",
    "simplejpeg",
    "keras",
    "tensorflow-cpu",
    "tensorflow",
    "jax",
    "torch",
    "onnx",
    "onnxruntime",
)


def sha256_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def versions() -> dict[str, str]:
    """Fundoscope, Python and the libraries that decide a result, without importing them."""
    import platform  # here and below: a server starts without them

    found = {"fundoscope": _version("fundoscope") or "from source", "python": platform.python_version()}
    found |= {name: _version(name) for name in NAMED_LIBRARIES}
    return {name: version for name, version in found.items() if version}


def _version(name: str) -> str:
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def command() -> str:
    """The command line as typed, to be pasted into a shell."""
    import shlex

    program = Path(sys.argv[0])
    # `python -m fundoscope.cli.main` is how one of our processes starts another; people type the other name.
    name = "fundoscope" if program.parts[-2:] == ("cli", "main.py") else program.name
    return shlex.join([name, *sys.argv[1:]])


def write_json(path: Path, value: Any) -> None:
    write_whole(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


def write_whole(path: Path, data: bytes, *, lasting: bool = True) -> None:
    """All of the file or none of it, whatever kills us meanwhile; a FundoscopeError where it cannot be written.

    Once it returns, the file outlives a power cut too. Where thousands of files can be made again, `lasting=False` does
    not wait for the disk.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with writing(path, lasting=lasting) as file:
            file.write(data)
    except OSError as problem:
        hint = "make room, or choose a place that you may write to"
        raise FundoscopeError(f"{path} cannot be written: {problem.strerror}", hint) from None


@contextmanager
def writing(path: Path, *, lasting: bool = True) -> Iterator[IO[bytes]]:
    """A file that is there, on disk, when the block has ended well; else `path` is as it was before."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            yield file
            file.flush()
            if lasting:  # before it has its name: else a power cut leaves the name, and nothing under it
                os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise
    if lasting:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Names on disk too: a new or renamed file is otherwise lost with the power, whatever was synced of it."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as problem:
        if problem.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EACCES):  # not on every file system, nor allowed
            raise


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A folder beside `out`, to be put in its place (`install_folder`) once all is written; gone on every other way."""
    folder = out.resolve().with_name(f".{out.resolve().name}.{os.getpid()}.part")
    try:
        folder.mkdir(parents=True)
    except OSError as problem:
        raise FundoscopeError(f"{out} cannot be written: {problem.strerror}", "give --out another folder") from None
    try:
        yield folder
    finally:
        import shutil

        shutil.rmtree(folder, ignore_errors=True)


def install_folder(folder: Path, out: Path) -> None:
    """Give `folder` its name, everything in it on disk before that and the name after."""
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir():
            sync_folder(path)
        else:
            with path.open("rb") as file:
                os.fsync(file.fileno())
    folder.rename(out)
    sync_folder(out.parent)
