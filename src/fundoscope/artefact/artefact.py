"""Artefact: what is deployed. A folder with artefact.json and the model in one format and precision.

    artefact.json    what goes in, what comes out, where referral begins, how good it is and where it came from
    model.onnx       or saved_model/, its files listed in artefact.json with their sha256 (artefact/files.py)
    signature.json   where somebody signed it: whose key, over the digest (artefact/signature.py)
    model.tar.gz     the same for S3: SageMaker unpacks it to /opt/ml/model/artefact.json and so on

`digest` names an artefact: the sha256 of everything in artefact.json, so of the model's bytes too, except what the
export observed about itself (`parity`, `export`). The same model exported twice has the same digest.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fundoscope.artefact.files import (
    MODEL_PATHS,
    SIGNATURE,
    TABLE,
    ModelFile,
    check_digest,
    check_files,
    describe_files,
    digest_of,
    read_artefact_json,
)
from fundoscope.config import build
from fundoscope.data.gradability import GradabilityRule
from fundoscope.data.photo import Preparation
from fundoscope.errors import FundoscopeError
from fundoscope.provenance import write_json, writing

if TYPE_CHECKING:
    import tarfile

ARCHIVE = "model.tar.gz"
Format = Literal["onnx", "savedmodel"]
Precision = Literal["float32", "int8", "int8-dynamic", "float16", "bfloat16"]


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
        table = read_artefact_json(folder)
        artefact = build(cls, {**table, "folder": folder}, where=str(folder / TABLE))
        check_digest(folder, table)
        artefact.check_files(contents=verify)
        return artefact

    def check_files(self, *, contents: bool = True) -> None:
        """Raise FundoscopeError unless the model's files are there, whole, and with `contents` as exported."""
        check_files(self.folder, self.format, self.files, contents=contents)

    @property
    def refused(self) -> str | None:
        """Why it is not to be served, deployed or advised; None: it may be.

        A model that is not float32 has to show a guard that passed: without one, nobody knows what it lost.
        """
        if self.guard is None:
            return None if self.precision == "float32" else f"it is {self.precision} and was never judged"
        return None if self.guard.get("passed") is True else str(self.guard.get("why", "its guard does not say why"))

    def to_json(self) -> dict[str, Any]:
        """What artefact.json holds."""
        table: dict[str, Any] = json.loads(json.dumps(asdict(replace(self, folder=None))))  # type: ignore[arg-type]
        del table["folder"]
        if self.guard is None:  # artefacts from before there was a guard keep their digest
            del table["guard"]
        return table


def usable(artefact: Artefact, *, unsafe: bool, trusted_keys: Sequence[Path] = ()) -> Artefact:
    """The artefact, if it may be served and deployed. `unsafe` is a user's word that one that was refused may be; with
    `trusted_keys` it must be signed by one of them, whatever else is said."""
    if trusted_keys:
        from fundoscope.artefact.signature import check_signed

        check_signed(artefact.folder, artefact.digest, trusted_keys)
        artefact.check_files()  # the signature is over the digest, and the digest over these bytes
    if artefact.refused is not None and not unsafe:
        hint = "judge it against float32 with fundoscope quantise, serve the float32 artefact, or say --unsafe"
        if artefact.guard is not None:
            hint = "serve the float32 artefact, or say --unsafe"
        raise FundoscopeError(f"{artefact.folder} was refused: {artefact.refused}", hint)
    return artefact


def write(artefact: Artefact) -> Artefact:
    """List the model's files, compute the digest, write artefact.json; the artefact as it is now on disk."""
    listed = replace(artefact, files=describe_files(artefact.folder, artefact.format))
    whole = replace(listed, digest=digest_of(listed.to_json()))
    write_json(whole.folder / TABLE, whole.to_json())
    return whole


def pack(artefact: Artefact) -> Path:
    """Write model.tar.gz beside the model: the same bytes for the same artefact, whenever and by whomever packed."""
    import gzip  # not for a server
    import tarfile

    artefact.check_files(contents=False)  # nothing from elsewhere travels under its name
    names = [TABLE, *(file.path for file in artefact.files)]
    if (artefact.folder / SIGNATURE).is_file():
        names.append(SIGNATURE)
    with writing(artefact.folder / ARCHIVE) as file:
        zipped = gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=file, mtime=0)
        with zipped, tarfile.open(fileobj=zipped, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            for name in sorted(names):
                _add(tar, artefact.folder / name, name)
    return artefact.folder / ARCHIVE


def _add(tar: "tarfile.TarFile", path: Path, name: str) -> None:
    import tarfile

    entry = tarfile.TarInfo(name)  # regular file, mode 0644, nobody's, from 1970
    entry.size = path.stat().st_size
    with path.open("rb") as file:
        tar.addfile(entry, file)
