"""Artefact: what is deployed. A folder with artefact.json and the model in one format and precision.

    artefact.json    what goes in, what comes out, where referral begins, how good it is and where it came from
    model.onnx       or saved_model/, its files listed in artefact.json with their sha256
    model.tar.gz     the same for S3: SageMaker unpacks it to /opt/ml/model/artefact.json and so on

`digest` names an artefact: the sha256 of everything in artefact.json, so of the model's bytes too, except what the
export observed about itself (`parity`, `export`). The same model exported twice has the same digest.
"""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fundoscope.config import build
from fundoscope.data.gradability import GradabilityRule
from fundoscope.data.photo import Preparation
from fundoscope.errors import FundoscopeError
from fundoscope.provenance import sha256_file, sha256_of, write_json

if TYPE_CHECKING:
    import tarfile

VERSION = 1  # of artefact.json: raised when an older Fundoscope would misread it
NOT_DIGESTED = ("digest", "parity", "export")
Format = Literal["onnx", "savedmodel"]
Precision = Literal["float32", "int8", "int8-dynamic", "float16", "bfloat16"]
MODEL_PATHS: dict[str, str] = {"onnx": "model.onnx", "savedmodel": "saved_model"}
ARCHIVE = "model.tar.gz"


@dataclass(frozen=True)
class Name:
    """The same thing in the languages of those who read it: engineers and clinics."""

    en: str
    pt: str


GRADES = (
    Name("no diabetic retinopathy", "sem retinopatia diabética"),
    Name("mild", "leve"),
    Name("moderate", "moderada"),
    Name("severe", "grave"),
    Name("proliferative", "proliferativa"),
)
REFERRAL = Name("refer", "encaminhar")

NOTICE = Name(
    "Not a medical device: for research, and for trying and measuring services.",
    "Não é um dispositivo médico: para pesquisa, e para experimentar e medir serviços.",
)
DRAWN_NOTICE = Name(
    NOTICE.en + " Trained on drawn eyes, not photographs: nothing about medicine follows from its answers.",
    NOTICE.pt + " Treinado com olhos desenhados, não fotografias: nada de médico decorre das suas respostas.",
)


@dataclass(frozen=True)
class ModelFile:
    path: str  # relative to the artefact's folder, with forward slashes
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class Input:
    """Bytes of a prepared photograph, RGB, rows from the top: scaling them is part of the model."""

    name: str
    dtype: Literal["uint8"]
    shape: tuple[int | None, ...]  # (any number of photographs, size, size, 3)
    preparation: Preparation
    gradability: GradabilityRule


@dataclass(frozen=True)
class Output:
    """Probabilities: one per grade, or one alone, of referral."""

    name: str
    head: Literal["published", "referral", "ordinal"]
    shape: tuple[int | None, ...]
    classes: tuple[Name, ...]


@dataclass(frozen=True)
class OperatingPoint:
    """Refer where P(referral) >= threshold. Chosen in model/operating.py, which a server does not import."""

    name: str
    threshold: float
    target: float
    measure: Literal["sensitivity", "specificity"]


@dataclass(frozen=True)
class Artefact:
    folder: Path
    version: int
    digest: str
    format: Format
    precision: Precision
    files: tuple[ModelFile, ...]
    input: Input
    output: Output
    referral_from: int  # the grade from which a patient is referred
    operating_points: tuple[OperatingPoint, ...]
    scores: dict[str, Any]  # per part (tune, test): the few figures a model card needs, each with its interval
    drawn: bool  # trained on drawn eyes
    notice: Name
    origin: dict[str, Any]  # the training: what it was made from, with digests
    parity: dict[str, Any] | None  # agreement with the trained model (artefact/parity.py)
    export: dict[str, Any]  # command and versions
    guard: dict[str, Any] | None = None  # is it as good as the float32 model (artefact/guard.py): passed, why, …

    @property
    def model(self) -> Path:
        return self.folder / MODEL_PATHS[self.format]

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    @classmethod
    def open(cls, folder: Path, *, verify: bool = True) -> "Artefact":
        """The artefact in `folder`; every byte of it is the one exported, or there is an error that says which is not.

        `verify=False` trusts the contents of the model's files and only looks that they are there, whole: it saves a
        server the reading of a large model twice.
        """
        table = _read(folder)
        artefact = build(cls, {**table, "folder": folder}, where=str(folder / "artefact.json"))
        if artefact.digest != _digest(table):
            message = (
                f"{folder}/artefact.json was changed after the export: its digest should be {_digest(table)[:12]}…"
            )
            raise FundoscopeError(f"{message} and it says {artefact.digest[:12]}…", _ANEW)
        artefact.check_files(contents=verify)
        return artefact

    def check_files(self, *, contents: bool = True) -> None:
        """Raise FundoscopeError unless every file is there, whole, and with `contents` byte for byte as exported."""
        for file in self.files:
            _check(self.folder, file, contents=contents)

    def to_json(self) -> dict[str, Any]:
        """What artefact.json holds."""
        table: dict[str, Any] = json.loads(json.dumps(asdict(replace(self, folder=None))))  # type: ignore[arg-type]
        del table["folder"]
        if self.guard is None:  # artefacts from before there was a guard keep their digest
            del table["guard"]
        return table


def usable(artefact: Artefact, *, unsafe: bool) -> Artefact:
    """The artefact, if it may be served and deployed; `unsafe` is a user's word that one that was refused may be."""
    if artefact.guard is not None and artefact.guard.get("passed") is not True and not unsafe:
        why = artefact.guard.get("why", "its guard does not say why")
        raise FundoscopeError(f"{artefact.folder} was refused: {why}", "serve the float32 artefact, or say --unsafe")
    return artefact


_ANEW = "export it anew, or copy it again from where it was whole"


def write(artefact: Artefact) -> Artefact:
    """List the model's files, compute the digest, write artefact.json; the artefact as it is now on disk."""
    paths = [artefact.model] if artefact.model.is_file() else sorted(artefact.model.rglob("*"))
    files = tuple(_describe(artefact.folder, path) for path in paths if path.is_file())
    listed = replace(artefact, files=files)
    whole = replace(listed, digest=_digest(listed.to_json()))
    write_json(whole.folder / "artefact.json", whole.to_json())
    return whole


def pack(artefact: Artefact) -> Path:
    """Write model.tar.gz beside the model: the same bytes for the same artefact, whenever and by whomever packed."""
    import gzip  # not for a server
    import tarfile

    archive = artefact.folder / ARCHIVE
    part = archive.with_name(f".{ARCHIVE}.part")
    with part.open("wb") as file:
        zipped = gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=file, mtime=0)
        with zipped, tarfile.open(fileobj=zipped, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            for name in sorted(["artefact.json", *(file.path for file in artefact.files)]):
                _add(tar, artefact.folder / name, name)
    part.replace(archive)
    return archive


def _add(tar: "tarfile.TarFile", path: Path, name: str) -> None:
    import tarfile

    entry = tarfile.TarInfo(name)  # regular file, mode 0644, nobody's, from 1970
    entry.size = path.stat().st_size
    with path.open("rb") as file:
        tar.addfile(entry, file)


def _read(folder: Path) -> dict[str, Any]:
    path = folder / "artefact.json"
    if not path.is_file():
        hint = f"make one: fundoscope export runs/x --format onnx --out {folder}"
        raise FundoscopeError(f"{folder} is not an artefact: it has no artefact.json", hint)
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        version = table["version"]
    except (ValueError, KeyError, TypeError):
        raise FundoscopeError(f"{path} is damaged: it is not the JSON of an artefact", _ANEW) from None
    if version != VERSION:
        message = f"{path} is of version {version} and this Fundoscope reads version {VERSION}"
        raise FundoscopeError(message, "install the Fundoscope that made it, or export it anew")
    return dict(table)


def _digest(table: dict[str, Any]) -> str:
    content = {name: value for name, value in table.items() if name not in NOT_DIGESTED}
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return sha256_of(canonical.encode())


def _describe(folder: Path, path: Path) -> ModelFile:
    return ModelFile(path.relative_to(folder).as_posix(), path.stat().st_size, sha256_file(path))


def _check(folder: Path, file: ModelFile, *, contents: bool) -> None:
    path = folder / file.path
    if not path.is_file():
        raise FundoscopeError(f"{path} is missing", _ANEW)
    if (size_bytes := path.stat().st_size) != file.size_bytes:
        message = f"{path} is not the file that was exported: it has {size_bytes} bytes, not {file.size_bytes}"
        raise FundoscopeError(message, _ANEW)
    if contents and (found := sha256_file(path)) != file.sha256:
        message = f"{path} is not the file that was exported: its sha256 is {found[:12]}…, not {file.sha256[:12]}…"
        raise FundoscopeError(message, _ANEW)
