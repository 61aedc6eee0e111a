"""What is put through the contract: an address, a command line, an image; how each is started, watched and ended."""

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from random import randrange
from time import monotonic, perf_counter, sleep
from typing import ClassVar, Literal, Protocol

LOOPBACK = "127.0.0.1"
MODEL_AT, MODELS_AT = "/opt/ml/model", "/opt/ml/models/conform/model"
TURN_S = 60.0
LAST_WORDS = 300  # characters of its log that go into a reason


class CannotStart(Exception):  # noqa: N818  # a finding, not a fault of the caller
    """The target did not come up; the message is the reason of a finding, `blame` says whose it is."""

    def __init__(self, reason: str, blame: Literal["target", "machine"] = "target") -> None:
        super().__init__(reason)
        self.blame = blame


@dataclass(frozen=True)
class Setting:
    """How the platform starts a container this time."""

    port: int | None = None  # told by SAGEMAKER_BIND_TO_PORT; None: told nothing
    many_models: bool = False
    unwritable: bool = False

    def environment(self) -> dict[str, str]:
        told = {}
        if self.port is not None:
            told["SAGEMAKER_BIND_TO_PORT"] = str(self.port)
            told["SAGEMAKER_SAFE_PORT_RANGE"] = f"{self.port + 1}-{self.port + 50}"
        if self.many_models:
            told["SAGEMAKER_MULTI_MODEL"] = "true"
        return told


class Started(Protocol):
    @property
    def began(self) -> float: ...  # perf_counter
    @property
    def pid(self) -> int | None: ...  # of its first process, where it can be seen from here
    def running(self) -> bool: ...
    def terminate(self) -> None: ...
    def exit_status(self) -> int | None: ...  # below 0: the signal that ended it; None: it runs, or nobody knows
    def ending(self) -> str: ...
    def last_words(self) -> str: ...
    def end(self) -> None: ...


class Target(Protocol):
    @property
    def kind(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def takes_port(self) -> bool: ...
    @property
    def models_url(self) -> str | None: ...
    def labels(self) -> Mapping[str, str] | None: ...
    def start(self, setting: Setting) -> Started: ...


@contextmanager
def running(target: Target, setting: Setting) -> Iterator[Started]:
    """The target, started; ended with everything it started itself, on every way out."""
    started = target.start(setting)
    try:
        yield started
    finally:
        started.end()


def wait_for_end(started: Started, within_s: float) -> float | None:
    """Seconds until it had ended, or None."""
    began = monotonic()
    while monotonic() - began < within_s:
        if not started.running():
            return monotonic() - began
        sleep(0.005)
    return None


def last_line(log: str) -> str:
    """What a server said before it ended: of a traceback, the line that matters."""
    written = [line.strip() for line in log.splitlines() if line.strip()]
    return written[-1][-LAST_WORDS:] if written else ""


def free_port() -> int:
    """A free one below those that the kernel gives to callers, who could take it before the server does."""
    return next(port for port in iter(lambda: randrange(20_000, 32_000), 0) if not port_taken(port))


@contextmanager
def alone_with(port: int) -> Iterator[None]:
    """Two runs at a time would find one another on the one port that cannot be chosen: the later one waits."""
    with socket.socket(socket.AF_UNIX) as turn:
        deadline = monotonic() + TURN_S
        while monotonic() < deadline:
            try:
                turn.bind(f"\0fundoscope-conform-{port}")  # a name without a file, gone with us however we end
                break
            except OSError:
                sleep(0.05)
        yield


def port_taken(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do: a port in TIME_WAIT is free for them.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return True
        return False


@dataclass(frozen=True)
class RunningElsewhere:
    """Something that we did not start and may not end."""

    began: float
    pid: int | None = None

    def running(self) -> bool:
        return True

    def terminate(self) -> None:
        raise CannotStart("an address cannot be sent a signal")

    def exit_status(self) -> int | None:
        return None

    def ending(self) -> str:
        return "still running"

    def last_words(self) -> str:
        return ""

    def end(self) -> None:
        return None


@dataclass(frozen=True)
class AddressTarget:
    name: str
    host: str
    port: int
    kind: ClassVar[str] = "address"
    takes_port: ClassVar[bool] = False
    models_url: ClassVar[str | None] = None

    def labels(self) -> Mapping[str, str] | None:
        return None

    def start(self, setting: Setting) -> Started:  # noqa: ARG002  # it runs as it runs
        return RunningElsewhere(perf_counter())
