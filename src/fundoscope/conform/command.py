"""A command line, run as a container's entry point would be: told by its environment, watched, ended."""

import ctypes
import os
import shlex
import signal
import subprocess
import sys
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from time import perf_counter, sleep
from typing import ClassVar

from fundoscope.conform import processes
from fundoscope.conform.target import LOOPBACK, MODEL_AT, MODELS_AT, CannotStart, Setting, Started, last_line

PR_SET_PDEATHSIG = 1
MARK = "FUNDOSCOPE_CONFORM"
DYING_S = 5.0


class RunningCommand:
    """A process group of ours. Its output goes to a file without a name, of which the end can be quoted."""

    def __init__(self, arguments: list[str], environment: dict[str, str], folder: Path | None = None) -> None:
        self._log = TemporaryFile()  # noqa: SIM115  # closed by end()
        self._mark = f"{MARK}={uuid.uuid4().hex}"
        name, _, value = self._mark.partition("=")
        self.began = perf_counter()
        try:
            self._process = subprocess.Popen(
                arguments,
                cwd=folder,
                env=environment | {name: value},
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,
                preexec_fn=_die_with_parent,  # even if we are killed outright
            )
        except OSError as problem:
            self._log.close()
            raise CannotStart(f"cannot start {arguments[0]}: {problem.strerror}") from None
        self.pid: int | None = self._process.pid

    def running(self) -> bool:
        return self._process.poll() is None

    def terminate(self) -> None:
        """SIGTERM to the first process alone, as a container's runtime does."""
        self._process.send_signal(signal.SIGTERM)

    def exit_status(self) -> int | None:
        return self._process.poll()

    def ending(self) -> str:
        status = self.exit_status()
        if status is None:
            return "still running"
        return f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"

    def last_words(self) -> str:
        self._log.seek(0)
        return last_line(self._log.read().decode(errors="replace"))

    def end(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        deadline = perf_counter() + DYING_S
        while (left := processes.marked(self._mark)) and perf_counter() < deadline:
            processes.kill(left)  # what has left the group, or takes a moment to die
            sleep(0.005)
        self._log.close()


@dataclass(frozen=True)
class CommandTarget:
    line: str
    model: Path | None = None
    host: str = LOOPBACK
    kind: ClassVar[str] = "command"

    @property
    def name(self) -> str:
        return self.line

    @property
    def takes_port(self) -> bool:
        """Whether the command line, and not the environment, says which port."""
        return "{port}" in self.line

    @property
    def models_url(self) -> str | None:
        return MODELS_AT if self.model else None

    def labels(self) -> Mapping[str, str] | None:
        return None

    def _mounts(self, setting: Setting) -> list[str]:
        """What the command must find elsewhere than it lies: as the platform mounts it, read-only."""
        found = ["--read-only"] if setting.unwritable else []
        if self.model and setting.many_models:
            found += ["--bind", str(self.model.resolve()), MODELS_AT]
        elif self.model and "{model}" not in self.line:
            found += ["--bind", str(self.model.resolve()), MODEL_AT]
        return found

    def start(self, setting: Setting) -> Started:
        places = {"{port}": str(setting.port), "{model}": str(self.model)}
        arguments = [_filled(word, places) for word in shlex.split(self.line)]
        if mounts := self._mounts(setting):
            launcher = Path(__file__).with_name("private.py")
            arguments = [sys.executable, "-I", "-S", str(launcher), *mounts, "--", *arguments]
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("SAGEMAKER_")}
        return RunningCommand(arguments, inherited | setting.environment())


def _filled(word: str, places: dict[str, str]) -> str:
    for place, value in places.items():
        word = word.replace(place, value)
    return word


def _die_with_parent() -> None:
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
