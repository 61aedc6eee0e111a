"""A copy of the checkout in which a module may be spoilt, and its tests run there."""

import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "fundoscope"
INSIDE = Path(__file__).with_name("inside")
OPTIONS = ("-p", "mutant_watch", "-p", "no:cacheprovider", "-n", "0", "--hypothesis-seed=0", "-rfE")
REWRITE = "ignore::pytest.PytestAssertRewriteWarning"  # plugins imported before the fork: their asserts are plain ones
MARK = "FUNDOSCOPE_MUTANTS"  # in the environment of all that a run of tests starts

Stall = Callable[[str], float]


@dataclass(frozen=True)
class Ran:
    status: int | None  # None: it was ended at the limit
    seconds: float
    output: str


@dataclass(frozen=True)
class Tree:
    folder: Path  # the copy is folder/tree; folder/shared is the checkout's
    python: str

    @property
    def root(self) -> Path:
        return self.folder / "tree"

    @property
    def source(self) -> Path:
        return self.root / "src" / "fundoscope"

    def copy(self) -> "Tree":
        """What git would take from the checkout, as it lies there."""
        listed = _files()
        self.root.mkdir(parents=True, exist_ok=True)
        for path in {file.relative_to(self.root).as_posix() for file in self.root.rglob("*.py")} - set(listed):
            (self.root / path).unlink()
        for path in filter(None, listed):
            if (ROOT / path).is_file() and not _same(ROOT / path, self.root / path):
                (self.root / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / path, self.root / path)
        if (ROOT.parent / "shared").is_dir() and not (self.folder / "shared").exists():
            (self.folder / "shared").symlink_to(ROOT.parent / "shared")
        return self

    def spoil(self, path: str, code: str, turn: int) -> None:
        """Each with a time of its own: Python tells a stale .pyc by a file's size and second."""
        (self.source / path).write_text(code)
        os.utime(self.source / path, (turn, turn))

    def mend(self, path: str) -> None:
        shutil.copy2(SOURCE / path, self.source / path)

    def test(
        self, tests: Sequence[str], *options: str, limit_s: float, stall_s: Stall = lambda _: inf, **environment: str
    ) -> Ran:
        """pytest on `tests`, all of its processes ended when it returns. `stall_s`: how long one test may take."""
        arguments = self.folder / "arguments"
        arguments.write_text("\n".join(tests))
        mark = f"{os.getpid()}-{self.folder.name}"
        paths = [str(self.root / "src"), str(INSIDE)]
        order = {
            "folder": str(self.root),
            "arguments": [*OPTIONS, "-W", REWRITE, *options, f"@{arguments}"],
            "environment": {
                "PYTHONPATH": os.pathsep.join(paths),
                MARK: mark,
                "WATCH_NOW": str(self.folder / "now"),
                **environment,
            },
            "paths": paths,
            "output": str(self.folder / "output"),
        }
        began = time.monotonic()
        status = self._forked(order, limit_s, stall_s)
        _end(f"{MARK}={mark}")
        return Ran(status, time.monotonic() - began, (self.folder / "output").read_text(errors="replace"))

    def _forked(self, order: dict[str, Any], limit_s: float, stall_s: Stall) -> int | None:
        """From a process that has imported pytest and much else before."""
        forks = self._forks
        assert forks.stdin is not None
        assert forks.stdout is not None
        forks.stdin.write(json.dumps(order) + "\n")
        forks.stdin.flush()
        pid = json.loads(forks.stdout.readline())["pid"]
        until, now, since = time.monotonic() + limit_s, "", time.monotonic()
        while not (ended := select.select([forks.stdout], [], [], 1.0)[0]):
            if self.now != now:
                now, since = self.now, time.monotonic()
            if time.monotonic() > until or time.monotonic() - since > stall_s(now):
                os.kill(pid, signal.SIGKILL)
                break
        status = json.loads(forks.stdout.readline())["status"]
        return status if ended else None

    @property
    def now(self) -> str:
        """The test that runs, or that ran last."""
        path = self.folder / "now"
        return path.read_text() if path.is_file() else ""

    @cached_property
    def _forks(self) -> subprocess.Popen[str]:
        command = [self.python, str(INSIDE / "forks.py")]
        environment = os.environ | {"PYTHONPATH": str(INSIDE)}
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def _files() -> list[str]:
    if not (ROOT / ".git").exists():  # a copy of one
        return [file.relative_to(ROOT).as_posix() for file in ROOT.rglob("*") if file.suffix != ".pyc"]
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")


def _same(one: Path, other: Path) -> bool:
    return other.is_file() and one.read_bytes() == other.read_bytes()


def _end(mark: str) -> None:
    """Tests start servers in sessions of their own; each carries our mark."""
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark.encode() in environment.read_bytes().split(b"\0"):
                os.kill(int(environment.parent.name), signal.SIGKILL)
