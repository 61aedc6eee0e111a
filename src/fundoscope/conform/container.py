"""Images, run by docker or podman, whichever is there and answers."""

import json
import shutil
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar

from fundoscope.conform import processes
from fundoscope.conform.contract import LABELS
from fundoscope.conform.target import LOOPBACK, MODEL_AT, MODELS_AT, CannotStart, Setting, Started, last_line
from fundoscope.errors import FundoscopeError

ENGINES = ("docker", "podman")
PATIENCE_S = 60  # for the engine's own commands
# Some hosts may not raise limits, or mix two generations of control groups: plainer ways, tried in turn.
WAYS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    ((), ()),
    ((), ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096")),
    (("--runtime", "runc"), ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096")),
)
_plainest: dict[str, int] = {}  # the way that worked before, so that no later start has to look for it
HOST_REFUSED = ("rlimit", "cgroup")  # in the engine's complaint: it is the host, not the image


@dataclass(frozen=True)
class Image:
    engine: str
    config: Mapping[str, Any]

    @property
    def labels(self) -> dict[str, str]:
        return dict(self.config.get("Labels") or {})

    @property
    def entrypoint(self) -> list[str]:
        return list(self.config.get("Entrypoint") or [])

    @property
    def user(self) -> str:
        return str(self.config.get("User") or "")


def find_image(name: str) -> Image:
    engines = [engine for engine in ENGINES if _answers(engine)]
    if not engines:
        raise FundoscopeError(
            f"neither docker nor podman runs here, to start the image {name}",
            "install one, or give a command line or an address",
        )
    for engine in engines:
        found = _engine(engine, "image", "inspect", name)
        if found.returncode == 0:
            return Image(engine, json.loads(found.stdout)[0]["Config"])
    raise FundoscopeError(f"there is no image {name}", "build or pull it, or say --kind command or --kind address")


@cache
def _answers(engine: str) -> bool:
    return shutil.which(engine) is not None and _engine(engine, "info").returncode == 0


def _engine(engine: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([engine, *words], capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@dataclass(frozen=True)
class ImageTarget:
    name: str
    image: Image
    model: Path | None = None
    host: str = LOOPBACK
    kind: ClassVar[str] = "image"
    takes_port: ClassVar[bool] = False

    @property
    def models_url(self) -> str | None:
        return MODELS_AT if self.model else None

    def labels(self) -> Mapping[str, str] | None:
        """The ones that the platform reads, without their common beginning."""
        own = self.image.labels
        return {name.removeprefix(LABELS): value for name, value in own.items() if name.startswith(LABELS)}

    def start(self, setting: Setting) -> Started:
        words = ["--network=host"]
        for name, value in setting.environment().items():
            words += ["--env", f"{name}={value}"]
        if self.model:
            place = MODELS_AT if setting.many_models else MODEL_AT
            words += ["--volume", f"{self.model.resolve()}:{place}:ro"]
        if setting.unwritable:
            words += ["--read-only", *(["--read-only-tmpfs=false"] if self.image.engine == "podman" else [])]
        return run_container(self.image.engine, self.name, words)


def run_container(
    engine: str, image: str, words: list[str], arguments: Sequence[str] = ("serve",)
) -> "RunningContainer":
    """`words` are for the engine, `arguments` for the image. It runs until it is ended."""
    said = ""
    for before, after in WAYS[_plainest.get(engine, 0) :]:
        name = f"fundoscope-conform-{uuid.uuid4().hex[:12]}"
        began = perf_counter()
        done = _engine(engine, *before, "run", "--detach", "--name", name, *after, *words, image, *arguments)
        if done.returncode == 0:
            _plainest[engine] = WAYS.index((before, after))
            return RunningContainer(engine, done.stdout.split()[-1], began)
        _engine(engine, "rm", "--force", name)
        said = last_line(done.stderr)
        if not any(word in said.lower() for word in HOST_REFUSED):
            break
    raise CannotStart(f"{engine} could not start it: {said}")


class RunningContainer:
    def __init__(self, engine: str, id: str, began: float) -> None:
        self._engine, self._id, self.began = engine, id, began
        pid = self._state().get("Pid") or 0
        self.pid: int | None = pid if pid and processes.visible(pid) else None

    def running(self) -> bool:
        if self.pid is not None:
            return processes.alive(self.pid)
        return bool(self._state().get("Running"))

    def terminate(self) -> None:
        _engine(self._engine, "kill", "--signal", "TERM", self._id)

    def exit_status(self) -> int | None:
        return None if self.running() else self._state().get("ExitCode")

    def ending(self) -> str:
        return f"exit status {self._state().get('ExitCode')}"

    def killed_for_memory(self) -> bool:
        return bool(self._state().get("OOMKilled"))

    def last_words(self) -> str:
        said = _engine(self._engine, "logs", "--tail", "20", self._id)
        return last_line(said.stdout + said.stderr)

    def end(self) -> None:
        with suppress(subprocess.TimeoutExpired):
            at_once = ("--time", "0") if self._engine == "podman" else ()
            _engine(self._engine, "rm", "--force", *at_once, self._id)

    def _state(self) -> dict[str, Any]:
        found = _engine(self._engine, "inspect", self._id)
        return dict(json.loads(found.stdout)[0]["State"]) if found.returncode == 0 else {}
