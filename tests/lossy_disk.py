"""A disk that loses what was not synced: what would be left of a file if the power went now.

It stands between us and the operating system (os.fsync, os.replace, os.rename) and follows POSIX to the letter: bytes
are kept when their file was synced, and a name when its folder was.
"""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

Change = Callable[..., None]


class LossyDisk:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, *folders: Path) -> None:
        """`folders` are on disk as they are now, and what is in them."""
        self._bytes: dict[int, bytes] = {}  # by inode
        self._names: dict[Path, int] = {}
        self.moments: list[str] = []
        self.watch: Callable[[], None] = lambda: None  # called after every change that a power cut could follow
        for folder in folders:
            self._keep_names(folder)
            for path in folder.iterdir():
                if path.is_file():
                    self._bytes[path.stat().st_ino] = path.read_bytes()
        self._fsync, self._replace, self._rename = os.fsync, os.replace, os.rename
        monkeypatch.setattr(os, "fsync", self._on_fsync)
        monkeypatch.setattr(os, "replace", self._moved("replace", self._replace))
        monkeypatch.setattr(os, "rename", self._moved("rename", self._rename))

    def after_a_power_cut(self, path: Path) -> bytes | None:
        """What the file would hold; None: there would be none of that name; b"" where only the name had been kept."""
        inode = self._names.get(path.resolve())
        return None if inode is None else self._bytes.get(inode, b"")

    def _on_fsync(self, file: int) -> None:
        self._fsync(file)
        status = os.fstat(file)
        path = Path(f"/proc/self/fd/{file}").readlink()
        if stat.S_ISDIR(status.st_mode):
            self._keep_names(path)
        else:
            self._bytes[status.st_ino] = path.read_bytes()
        self._note(f"fsync {path.name}")

    def _moved(self, what: str, really: Change) -> Change:
        def move(source: Path, target: Path, **options: int) -> None:
            really(source, target, **options)
            self._note(f"{what} {Path(target).name}")

        return move

    def _keep_names(self, folder: Path) -> None:
        folder = folder.resolve()
        self._names = {path: inode for path, inode in self._names.items() if path.parent != folder}
        self._names |= {path: path.stat().st_ino for path in folder.iterdir()}

    def _note(self, moment: str) -> None:
        self.moments.append(moment)
        self.watch()
