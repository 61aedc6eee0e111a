"""Which lines a process runs, for whom: written down line by line as they are first run, so that kill -9 loses nothing.

Python imports this module in every process that has its folder on PYTHONPATH. It does nothing without REACH_OUT, the
folder for what it writes. REACH_SOURCE is the folder whose files are watched, REACH_FOR the test (or fixture) that a
process works for; a process hands it to those it starts.
"""

import os
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

_source = os.environ.get("REACH_SOURCE", "")
_seen: set[tuple[str, int]] = set()
_file = -1


def work_for(whom: str) -> None:
    os.environ["REACH_FOR"] = whom
    if _file >= 0:
        _seen.clear()
        os.write(_file, f"for {whom}\n".encode())


def whom() -> str:
    return os.environ.get("REACH_FOR", "")


def _trace(frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:  # noqa: ARG001
    return _line if frame.f_code.co_filename.startswith(_source) else None


def _line(frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:  # noqa: ARG001
    place = (frame.f_code.co_filename, frame.f_lineno)
    if event == "line" and place not in _seen:
        _seen.add(place)
        os.write(_file, f"{place[1]} {place[0][len(_source) :]}\n".encode())
    return _line


if "REACH_OUT" in os.environ:
    _name = os.path.join(os.environ["REACH_OUT"], f"{os.getpid()}-{os.urandom(4).hex()}")  # noqa: PTH118
    _file = os.open(_name, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    work_for(whom())
    threading.settrace(_trace)
    sys.settrace(_trace)
