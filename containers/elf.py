"""Programs and libraries on Linux: which files are any, what they are linked to, and what of them the loader reads."""

import os
import re
import struct
import subprocess
import sys
from pathlib import Path

MERGED = ("lib", "lib64", "bin", "sbin")  # folders of / that are links to those of /usr


def usr_path(path: Path) -> Path:
    """The same absolute path with /lib spelt /usr/lib, and so on: one file, one name."""
    return Path("/usr", *path.parts[1:]) if path.parts[1] in MERGED else path


def is_elf(path: Path) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def elf_files(folders: list[Path]) -> list[Path]:
    return sorted(path for folder in folders for path in folder.rglob("*") if is_elf(path))


def linked(path: Path) -> set[Path]:
    """Every library that the loader loads for `path`, and the loader."""
    said = subprocess.run(["ldd", str(path)], capture_output=True, text=True, check=False).stdout
    if "not found" in said:
        sys.exit(f"{path} needs a library that is not there:\n{said}")
    return {usr_path(Path(os.path.normpath(name))) for name in re.findall(r"(/\S+) \(0x", said)}


def loaded_part(elf: bytes) -> tuple[bytes, bytes]:
    """The file without its section table, with zeros wherever no segment lies; and what was there. 64 bits only."""
    if elf[4:6] != b"\x02\x01":  # nor big-endian
        return elf, b""
    (table_at,) = struct.unpack_from("<Q", elf, 32)
    entry_size, entries = struct.unpack_from("<HH", elf, 54)
    spans = [(0, 64), (table_at, table_at + entry_size * entries)]
    for index in range(entries):
        start, _, _, length = struct.unpack_from("<4Q", elf, table_at + index * entry_size + 8)
        spans.append((start, start + length))
    kept, rest, read = bytearray(max(end for _, end in spans)), bytearray(), 0
    for start, end in sorted(spans):
        kept[start:end] = elf[start:end]
        rest += elf[read:start]
        read = max(read, end)
    rest += elf[read:]
    struct.pack_into("<Q", kept, 40, 0)  # where the section table is …
    struct.pack_into("<HHH", kept, 58, 64, 0, 0)  # … the size and number of its entries, and which holds their names
    return bytes(kept), bytes(rest)
