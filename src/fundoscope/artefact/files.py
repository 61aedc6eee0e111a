"""The files of an artefact, and the digest of its artefact.json. No NumPy: the published stack's parent imports it.

What is listed is what is loaded. Every file of the model is in `files`, and nothing else is: a SavedModel is all that
lies in its folder, an ONNX model is one file. ONNX Runtime would also read the files that a model names as its
external data; nobody hashed those, so a model that names any is refused.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fundoscope.errors import FundoscopeError
from fundoscope.provenance import sha256_file, sha256_of

VERSION = 1  # of artefact.json: raised when an older Fundoscope would misread it
NOT_DIGESTED = ("digest", "parity", "export")
MODEL_PATHS: dict[str, str] = {"onnx": "model.onnx", "savedmodel": "saved_model"}
TABLE, SIGNATURE = "artefact.json", "signature.json"
EXTERNAL_DATA = b"\n\x08location"  # ONNX's entry for a tensor in another file, as every protobuf library writes it

AGAIN = "export it again, or copy it again from where it was whole"


@dataclass(frozen=True)
class ModelFile:
    path: str  # relative to the artefact's folder, with forward slashes
    size_bytes: int
    sha256: str


def read_artefact_json(folder: Path) -> dict[str, Any]:
    """What artefact.json holds, if it is of a version that we read; nothing in it has been checked."""
    path = folder / TABLE
    if not path.is_file():
        hint = f"make one: fundoscope export runs/x --format onnx --out {folder}"
        raise FundoscopeError(f"{folder} is not an artefact: it has no artefact.json", hint)
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        version = table["version"]
    except (ValueError, KeyError, TypeError):
        raise FundoscopeError(f"{path} is damaged: it is not the JSON of an artefact", AGAIN) from None
    if version != VERSION:
        message = f"{path} is of version {version} and this Fundoscope reads version {VERSION}"
        raise FundoscopeError(message, "install the Fundoscope that made it, or export it again")
    return dict(table)


def digest_of(table: dict[str, Any]) -> str:
    content = {name: value for name, value in table.items() if name not in NOT_DIGESTED}
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return sha256_of(canonical.encode())


def check_digest(folder: Path, table: dict[str, Any]) -> str:
    """The digest that artefact.json says it has, if it has it."""
    stated, computed = str(table.get("digest")), digest_of(table)
    if stated != computed:
        message = f"{folder}/{TABLE} was changed after the export: its digest should be {computed[:12]}…"
        raise FundoscopeError(f"{message} and it says {stated[:12]}…", AGAIN)
    return computed


def describe_files(folder: Path, format: str) -> tuple[ModelFile, ...]:
    """The list for artefact.json, from what lies there."""
    names = _model_names(folder, format)
    for name in names:
        _check_self_contained(folder / name)
    return tuple(ModelFile(name, (folder / name).stat().st_size, sha256_file(folder / name)) for name in names)


def check_files(folder: Path, format: str, files: Sequence[ModelFile], *, contents: bool = True) -> None:
    """Raise FundoscopeError unless `files` are the model's, all of them and no others, and each is there, whole.

    With `contents` they are also read: byte for byte as exported.
    """
    _check_names(folder, format, [file.path for file in files])
    for file in files:
        _check(folder / file.path, file, contents=contents)


def _check_names(folder: Path, format: str, listed: Sequence[str]) -> None:
    table, top = folder / TABLE, MODEL_PATHS[format]
    for name in listed:
        if not _is_plain(name):
            message = f"{table} lists '{name}', which is not a plain path inside the artefact"
            raise FundoscopeError(message, AGAIN)
        if name != top and not name.startswith(f"{top}/"):
            raise FundoscopeError(f"{table} lists '{name}', which is no part of the model", AGAIN)
        if listed.count(name) > 1:
            raise FundoscopeError(f"{table} lists '{name}' twice", AGAIN)
    for name in _model_names(folder, format) or [top]:
        if name not in listed:
            raise FundoscopeError(f"{table} does not list {name}, which is part of the model", AGAIN)


def _is_plain(name: str) -> bool:
    """Whether it stays inside the folder, read by anybody: no way up, no root, no backslash."""
    return not any(part in ("", ".", "..") for part in name.split("/")) and not set("\\\0") & set(name)


def _model_names(folder: Path, format: str) -> list[str]:
    """Every file of the model; a link among them would lead to bytes that do not travel with the artefact."""
    top = folder / MODEL_PATHS[format]
    paths: Iterable[Path] = [top, *sorted(top.rglob("*"))] if top.is_dir() else [top] if top.exists() else []
    names = []
    for path in paths:
        if path.is_symlink():
            raise FundoscopeError(
                f"{path} is a link, and an artefact holds its own files", "copy the file itself there"
            )
        if not path.is_dir():
            names.append(path.relative_to(folder).as_posix())
    return names


def _check(path: Path, file: ModelFile, *, contents: bool) -> None:
    if not path.is_file():
        raise FundoscopeError(f"{path} is missing", AGAIN)
    if (size_bytes := path.stat().st_size) != file.size_bytes:
        message = f"{path} is not the file that was exported: it has {size_bytes} bytes, not {file.size_bytes}"
        raise FundoscopeError(message, AGAIN)
    if not contents:
        return
    if (computed := sha256_file(path)) != file.sha256:
        message = f"{path} is not the file that was exported: its sha256 is {computed[:12]}…, not {file.sha256[:12]}…"
        raise FundoscopeError(message, AGAIN)
    _check_self_contained(path)


def _check_self_contained(path: Path) -> None:
    if path.suffix == ".onnx" and _holds(path, EXTERNAL_DATA):
        hint = "save it as one file, with its weights inside (onnx.save without external data)"
        raise FundoscopeError(f"{path} keeps weights in another file, which the artefact does not vouch for", hint)


def _holds(path: Path, pattern: bytes, block_bytes: int = 2**20) -> bool:
    """Read in blocks: mapped, the whole file would count as a small server's memory."""
    before, overlap = b"", len(pattern) - 1
    with path.open("rb", buffering=0) as file:
        while block := file.read(block_bytes):
            if pattern in block or pattern in before + block[:overlap]:
                return True
            before = (before + block[-overlap:])[-overlap:]
    return False
