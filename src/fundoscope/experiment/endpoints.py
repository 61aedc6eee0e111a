"""What answers: a server process here, a container of an image here, or an endpoint of SageMaker's.

Those here run under the limits of a serverless worker, or on as many processors as an instance has. They are started
for a trial, or for each of its requests, and nothing of them is left afterwards.
"""

import http.client
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from fundoscope.conform.container import find_image, run_container
from fundoscope.conform.target import MODEL_AT, CannotStart, free_port
from fundoscope.errors import FundoscopeError
from fundoscope.experiment.callers import Caller, over_boto3, over_http, request
from fundoscope.experiment.limits import Group, Limits, limited
from fundoscope.experiment.unavailable import Unavailable
from fundoscope.quota import cores

START_S = 180.0  # the longest a server may take: the platform's own limit
POLL_S, LOOK_S = 0.002, 0.25
POLITE_S = 10.0
LAST_WORDS = 500


@dataclass(frozen=True)
class Worker:
    """What a server may use."""

    memory_mb: int = 0  # 0: whatever there is
    cpus: float = 0.0  # processors' worth of time under a limit of memory, else whole processors; 0: all

    def limits(self) -> Limits | None:
        return Limits(self.memory_mb, self.cpus) if self.memory_mb else None

    def check(self) -> None:
        if self.cpus > cores():
            raise Unavailable(f"{self.cpus:.3g} processors are asked for, and this process may use {cores()}")


@dataclass(frozen=True)
class Up:
    """An endpoint that answers."""

    ask: Caller
    began: float  # monotonic: when its container was started, or when we turned to it
    port: int = 0  # 0: elsewhere
    killed_for_memory: Callable[[], bool] = lambda: False
    used: Callable[[], dict[str, float]] = dict


@contextmanager
def process(
    artefact: Path,
    worker: Worker,
    *,
    platform: str,
    stack: str = "lean",
    client: str = "http",
    unsafe: bool = False,
    workers: int = 0,
) -> Iterator[Up]:
    """A server process, healthy as the platform would find it; ended on every way out."""
    port, limits = free_port(), worker.limits()
    ask = _caller(client, port)
    words = [sys.executable, "-m", "fundoscope.cli.main", "serve", str(artefact), "--port", str(port)]
    words += [*_arguments(platform, stack), *(["--stack", "published"] if stack == "published" else [])]
    words += ["--unsafe"] if unsafe else []
    words += ["--workers", str(workers)] if workers else []
    pinned = None if limits or not worker.cpus else partial(os.sched_setaffinity, 0, _some(round(worker.cpus)))
    with ExitStack() as held, TemporaryFile() as said:
        group = _group(held, limits)
        began = time.monotonic()
        started = subprocess.Popen(
            group.words(words) if group else words,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
            preexec_fn=pinned,
        )
        try:
            up = Up(ask, began, port, partial(_oom, group), partial(_used, group))
            _wait_until_healthy(up, lambda: started.poll() is None, lambda: _tail(said))
            yield up
        finally:
            _end(started)


def _group(held: ExitStack, limits: Limits | None) -> Group | None:
    try:
        return held.enter_context(limited(limits)) if limits else None
    except FundoscopeError as problem:  # of this machine, not of the trial
        raise Unavailable(f"{problem.message}: {problem.hint}") from None


def _end(started: "subprocess.Popen[bytes]") -> None:
    """Politely first: what a server's own children used is counted as ours only if it waits for them."""
    started.terminate()
    with suppress(subprocess.TimeoutExpired):
        started.wait(POLITE_S)
    with suppress(ProcessLookupError):
        os.killpg(started.pid, signal.SIGKILL)
    started.wait()


@contextmanager
def container(
    image: str, artefact: Path, worker: Worker, *, platform: str, stack: str = "lean", client: str = "http"
) -> Iterator[Up]:
    """Of docker's or podman's, which hold it to its limits. Counted from when the engine is asked for it."""
    port = free_port()
    ask = _caller(client, port)
    words = ["--network=host", "--env", "FUNDOSCOPE_HOST=127.0.0.1", "--volume", f"{artefact}:{MODEL_AT}:ro"]
    if worker.memory_mb:
        words += [f"--memory={worker.memory_mb}m", f"--memory-swap={worker.memory_mb}m"]
    words += [f"--cpus={worker.cpus:.3f}"] if worker.cpus else []
    arguments = ["serve", "--port", str(port), *_arguments(platform, stack)]
    engine, began = _engine_of(image), time.monotonic()
    try:
        started = run_container(engine, image, words, arguments)
    except CannotStart as problem:
        raise FundoscopeError(
            f"the container was not started ({problem})", "try it with the engine's own command"
        ) from None
    try:
        up = Up(ask, began, port, started.killed_for_memory)
        _wait_until_healthy(up, started.running, started.last_words)
        yield up
    finally:
        started.end()


def _engine_of(image: str) -> str:
    try:
        return find_image(image).engine
    except FundoscopeError as problem:
        raise Unavailable(f"{problem.message} (fundoscope image build makes it)") from None


def image_files(image: str) -> list[Path]:
    """Where podman keeps the image's files, to be forgotten before a cold start; docker does not let us look."""
    engine, fields = _engine_of(image), "{{range .GraphDriver.Data}}{{.}}:{{end}}"
    found = subprocess.run(
        [engine, "image", "inspect", "--format", fields, image], capture_output=True, text=True, check=False
    )
    return [Path(folder) for folder in found.stdout.strip().split(":") if folder and Path(folder).is_dir()]


def _arguments(platform: str, stack: str) -> list[str]:
    return ["--platform", platform, *(["--load", "first-request"] if stack == "published" else [])]


def _caller(client: str, port: int) -> Caller:
    return over_http(port) if client == "http" else over_boto3("here", port=port)


def _some(count: int) -> Sequence[int]:
    return sorted(os.sched_getaffinity(0))[: max(1, count)]


def _wait_until_healthy(up: Up, running: Callable[[], bool], last_words: Callable[[], str]) -> None:
    """As often as a process here can be asked; whether it still runs costs an engine's command, and is asked seldom."""
    looked = time.monotonic()
    while time.monotonic() < up.began + START_S:
        with suppress(OSError, http.client.HTTPException):
            if request(up.port, "GET", "/ping")[0] == 200:
                return
        if time.monotonic() > looked + LOOK_S:
            if up.killed_for_memory():
                raise MemoryError
            if not running():
                raise _did_not_start("it has ended", last_words())
            looked = time.monotonic()
        time.sleep(POLL_S)
    raise _did_not_start(f"no answer after {START_S:g} s", last_words())


def _did_not_start(why: str, words: str) -> FundoscopeError:
    return FundoscopeError(f"the server did not answer ({why})", f"the last it said: {words}")


def _tail(said: IO[bytes]) -> str:
    said.seek(0)
    return said.read()[-LAST_WORDS:].decode(errors="replace").strip()


def _oom(group: Group | None) -> bool:
    return bool(group and group.killed_for_memory())


def _used(group: Group | None) -> dict[str, float]:
    if group is None:
        return {}
    peak = group.peak_bytes()
    return {"throttled_s": group.throttled_s()} | ({"peak_mb": peak / 2**20} if peak is not None else {})


def sagemaker(name: str) -> Up:
    return Up(over_boto3(name), time.monotonic())
