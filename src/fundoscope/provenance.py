"""Where a file came from: digests, versions, the command that made it. Part of everything we write."""

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

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


def write_whole(path: Path, data: bytes) -> None:
    """All of the file or none of it, whatever kills us meanwhile."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(data)
        part.replace(path)
    except OSError as problem:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        hint = "make room, or choose a place that you may write to"
        raise FundoscopeError(f"{path} cannot be written: {problem.strerror}", hint) from None


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A folder beside `out`, to be renamed to it once all is written; gone on every other way out."""
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
