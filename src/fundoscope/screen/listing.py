"""What there is to screen: the photographs of a folder, of a manifest or of a tar archive, each named once.

Every file of a folder is accounted for. Hidden ones and those that are tables or texts by their ending are counted, by
reason; all others are opened, whatever their ending: a photograph that lost its ending must not be lost with it, and a
DICOM file among them is to be seen in the result.
"""

import os
from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fundoscope.data.archive import members, split_address
from fundoscope.data.manifest import Manifest, read_photo_bytes
from fundoscope.data.sources import PICTURES
from fundoscope.errors import FundoscopeError

# What lies beside photographs and is none; our own results are among them.
TABLES = {
    ".csv",
    ".tsv",
    ".json",
    ".jsonl",
    ".parquet",
    ".xls",
    ".xlsx",
    ".db",
    ".xml",
    ".toml",
    ".yaml",
    ".yml",
    ".ini",
}
TABLES_AND_TEXTS = TABLES | {".txt", ".md", ".html", ".htm", ".log", ".py", ".sh"}
HIDDEN, LINK = "hidden file or folder", "link to a folder, not followed"
TWICE = "listed a second time"
ABSENT = -1


@dataclass(frozen=True)
class Listing:
    """Columns rather than objects: a million photographs take some 150 MB."""

    root: Path  # the folder that names are relative to; of a tar archive, the archive itself
    is_archive: bool = False
    names: list[str] = field(default_factory=list)
    sizes: "array[int]" = field(default_factory=lambda: array("q"))  # bytes; ABSENT: there is no such file
    stamps: "array[int]" = field(default_factory=lambda: array("q"))  # when it was last changed, in ns
    offsets: "array[int]" = field(default_factory=lambda: array("q"))  # into the archive
    passed_over: Counter[str] = field(default_factory=Counter)  # files that were not opened, by reason
    patients: list[str] = field(default_factory=list)  # "" where unknown
    eyes: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.names)

    def add(self, name: str, size: int, stamp: int, *, offset: int = 0, patient: str = "", eye: str = "") -> None:
        self.names.append(name)
        self.sizes.append(size)
        self.stamps.append(stamp)
        self.offsets.append(offset)
        self.patients.append(patient)
        self.eyes.append(eye)

    @property
    def has_patients(self) -> bool:
        return any(self.patients)


def list_photographs(source: Path) -> Listing:
    """Everything to be screened in `source`, in an order that is always the same."""
    if source.is_dir():
        listing = _list_folder(source)
    elif not source.exists():
        raise FundoscopeError(f"there is nothing at {source}", "give a folder, a manifest.csv or a .tar archive")
    elif source.suffix.lower() == ".tar":
        listing = _list_archive(source)
    elif source.suffix.lower() == ".csv":
        listing = _list_manifest(source)
    else:
        hint = f"give its folder: {source.parent}" if source.suffix.lower() in PICTURES else "give one of these"
        raise FundoscopeError(f"{source} is not a folder, a manifest.csv or a .tar archive", hint)
    if not len(listing):
        others = sum(listing.passed_over.values())
        found = f"; {others} other file{'s are' if others > 1 else ' is'} in it" if others else ""
        raise FundoscopeError(f"there is no photograph in {source}{found}", "is it the right folder?")
    return listing


def read_listed(root: Path, name: str, size: int, offset: int, *, is_archive: bool) -> bytes:
    """The bytes of one of them, or UnreadablePhoto. Called in workers, which do not have the listing."""
    if not is_archive:
        return read_photo_bytes(root, name)
    with root.open("rb") as file:  # `members` has looked at every entry; its table need not be in every process
        file.seek(offset)
        return file.read(size)


def _list_folder(folder: Path) -> Listing:
    listing = Listing(folder.resolve())
    for name in _walk(str(listing.root), "", listing.passed_over):
        listing.add(name, *_size_and_stamp(listing.root, name))
    return listing


def _walk(folder: str, prefix: str, passed_over: Counter[str]) -> Iterator[str]:
    """The files of a folder by name, then those of the folders in it."""
    try:
        files, folders = _split(folder, passed_over)
    except OSError as problem:  # photographs may be in there: leaving it out silently would lose patients
        hint = "make it readable, or take it out of there"
        raise FundoscopeError(f"the folder {folder} cannot be listed: {problem.strerror}", hint) from None
    for name in sorted(files):
        yield prefix + name
    for name in sorted(folders):
        yield from _walk(f"{folder}/{name}", f"{prefix}{name}/", passed_over)


def _split(folder: str, passed_over: Counter[str]) -> tuple[list[str], list[str]]:
    files, folders = [], []
    with os.scandir(folder) as entries:
        for entry in entries:
            ending = os.path.splitext(entry.name)[1].lower()  # noqa: PTH122  (a Path for each of a million)
            if entry.name.startswith("."):
                passed_over[HIDDEN] += 1
            elif entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            elif entry.is_dir():
                passed_over[LINK] += 1
            elif ending in TABLES_AND_TEXTS:
                passed_over[_not_a_picture(ending)] += 1
            else:
                files.append(entry.name)
    return files, folders


def _not_a_picture(ending: str) -> str:
    return f"not a picture by its name: {ending}"


def _size_and_stamp(folder: Path, name: str) -> tuple[int, int]:
    try:
        found = os.stat(f"{folder}/{name}" if not name.startswith("/") else name)  # noqa: PTH116  (as above)
    except OSError:
        return ABSENT, 0
    return found.st_size, found.st_mtime_ns


def _list_archive(archive: Path) -> Listing:
    listing = Listing(archive.resolve(), is_archive=True)
    stamp = archive.stat().st_mtime_ns
    for name, (offset, size) in sorted(members(listing.root).items()):
        ending = Path(name).suffix.lower()
        if any(part.startswith(".") for part in Path(name).parts):
            listing.passed_over[HIDDEN] += 1
        elif ending in TABLES_AND_TEXTS:
            listing.passed_over[_not_a_picture(ending)] += 1
        else:
            listing.add(name, size, stamp, offset=offset)
    return listing


def _list_manifest(path: Path) -> Listing:
    """All its photographs: what is left out of a training for want of a grade is screened like any other."""
    manifest = Manifest.read(path)
    listing, whose = Listing(manifest.folder), dict[str, tuple[str, str]]()
    for photograph in manifest.photographs:
        owner = (photograph.patient, photograph.eye)
        if (before := whose.get(photograph.path)) is not None:
            if before != owner:
                message = f"{path.name} lists {photograph.path} twice, as of {_said(*before)} and of {_said(*owner)}"
                raise FundoscopeError(message, "correct the manifest")
            listing.passed_over[TWICE] += 1
            continue
        whose[photograph.path] = owner
        size, stamp = _of_address(manifest.folder, photograph.path)
        listing.add(photograph.path, size, stamp, patient=photograph.patient, eye=photograph.eye)
    return listing


def _of_address(folder: Path, address: str) -> tuple[int, int]:
    file, member = split_address(address)
    size, stamp = _size_and_stamp(folder, file)
    if member and size != ABSENT:
        size = members(folder / file).get(member, (0, ABSENT))[1]
    return size, stamp


def _said(patient: str, eye: str) -> str:
    return f"patient '{patient}'" + (f", {eye} eye" if eye else "") if patient else "nobody"
