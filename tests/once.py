"""What takes seconds to make and nobody changes: made once for all processes that the tests run in."""

import fcntl
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

Made = TypeVar("Made")


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], Made]) -> Made:
    """What `make` returns, given an empty folder: called by whichever process comes first, while the others wait."""
    base = factory.getbasetemp()
    common = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    common = Path(os.environ.get("FUNDOSCOPE_TESTS_MADE") or common)  # for several sessions: see busy.py
    folder, kept = common / name, common / f"{name}.pickle"
    with (common / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # given back when it is closed, were it by kill -9
        if not kept.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of one that failed
            folder.mkdir()
            kept.write_bytes(pickle.dumps(make(folder)))
    made: Made = pickle.loads(kept.read_bytes())
    return made
