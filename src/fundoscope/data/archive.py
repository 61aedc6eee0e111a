"""Photographs inside an uncompressed tar archive, read from where they lie: nothing is unpacked.

A member is addressed as "archive.tar::images/x.jpg". In a tar file every member is stored whole, so that its
offset and size are all one needs.
"""

import tarfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path, PurePosixPath

from fundoscope.errors import FundoscopeError

MARK = "::"
COMPRESSED = {b"\x1f\x8b": "gunzip", b"BZh": "bunzip2", b"\xfd7zXZ": "unxz", b"\x28\xb5\x2f\xfd": "unzstd"}

Place = tuple[int, int]  # offset and size, in bytes


def split_address(address: str) -> tuple[str, str]:
    """The file, and the member in it: "" where the file itself is the photograph."""
    file, mark, member = address.partition(".tar" + MARK)
    return (file + ".tar", member) if mark else (address, "")


def members(archive: Path) -> Mapping[str, Place]:
    """Where each file of the archive lies."""
    try:
        state = archive.stat()
    except FileNotFoundError:
        raise FundoscopeError(f"there is no file {archive}", "check the path") from None
    return _members(archive, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=16)
def _members(archive: Path, _changed_ns: int, _size: int) -> Mapping[str, Place]:
    _refuse_compressed(archive)
    try:
        with tarfile.open(archive, "r:") as tar:
            files = [member for member in tar if member.isreg()]
    except (tarfile.TarError, OSError) as problem:
        raise FundoscopeError(f"{archive} is not a whole tar archive: {problem}", "copy or pack it again") from None
    for member in files:
        # We only ever read, but whoever unpacks such an archive writes outside its folder: it is not to be trusted.
        if member.name.startswith("/") or ".." in PurePosixPath(member.name).parts:
            raise FundoscopeError(
                f"{archive} has a member outside itself: '{member.name}'",
                "do not unpack it; get it from a trusted place",
            )
    return {member.name.removeprefix("./"): (member.offset_data, member.size) for member in files}


def read_member(archive: Path, name: str) -> bytes | None:
    """Its bytes, or None where the archive has no such member."""
    place = members(archive).get(name)
    if place is None:
        return None
    offset, size = place
    with archive.open("rb") as file:
        file.seek(offset)
        return file.read(size)


def _refuse_compressed(archive: Path) -> None:
    with archive.open("rb") as file:
        head = file.read(8)
    for magic, unpack in COMPRESSED.items():
        if head.startswith(magic):
            raise FundoscopeError(
                f"{archive} is compressed, so photographs cannot be read from the middle of it",
                f"uncompress it first (photographs hardly shrink): {unpack} --keep {archive}",
            )
