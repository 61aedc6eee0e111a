"""Servers to measure: how each is started, asked and ended, and what the whole of it holds in memory."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from serving_load import Reply, Target, request_bytes

POLL_S = 0.004
START_S = 120.0  # the longest any of them may take


@dataclass(frozen=True)
class Server:
    """A command that serves, and how it wants to be asked."""

    name: str
    command: Callable[[int], list[str]]  # given the port
    environment: Mapping[str, str] = field(default_factory=dict)
    path: str = "/invocations"
    pack: Callable[[bytes], tuple[bytes, str]] = lambda photo: (photo, "image/jpeg")  # -> body, content type
    predictions: Callable[[Any], list[float]] = lambda answer: list(answer["predictions"])
    settings: str = ""  # said in the report
    prepare: Callable[[int, Path], None] = lambda _port, _folder: None  # files it wants in its working folder

    def request(self, photo: bytes) -> bytes:
        return request_bytes(self.path, *self.pack(photo))


@dataclass(frozen=True)
class Running:
    server: Server
    process: "subprocess.Popen[bytes]"
    port: int
    started_at: float  # perf_counter

    def target(self, photos: list[bytes]) -> Target:
        return Target(self.port, tuple(self.server.request(photo) for photo in photos))

    def tree(self) -> list[int]:
        """Its process and all below it."""
        parents = {}
        for entry in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):  # it has ended meanwhile
                parents[int(entry.parent.name)] = int(entry.read_text().rpartition(")")[2].split()[1])
        found = [self.process.pid]
        for pid in found:
            found += [child for child, parent in parents.items() if parent == pid]
        return found


def lean(artefact: Path, *options: str, name: str = "lean") -> Server:
    return Server(name, lambda port: _fundoscope(artefact, port, *options), settings=" ".join(options) or "as it comes")


def published(artefact: Path, *options: str, call: str = "keras-predict", name: str = "published") -> Server:
    environment = {"FUNDOSCOPE_PUBLISHED_CALL": call}
    words = ("--stack", "published", *options)
    return Server(
        name, lambda port: _fundoscope(artefact, port, *words), environment, settings=" ".join((*words, call))
    )


def _fundoscope(artefact: Path, port: int, *options: str) -> list[str]:
    return [sys.executable, "-m", "fundoscope.cli.main", "serve", str(artefact), "--port", str(port), *options]


@contextmanager
def started(server: Server) -> Iterator[Running]:
    """The server's process, just started, in a folder of its own; ended on every way out."""
    with tempfile.TemporaryDirectory(prefix="serving-") as folder, Path(folder, "log").open("w+b") as log:
        port = free_port()
        server.prepare(port, Path(folder))
        began = time.perf_counter()
        process = subprocess.Popen(
            server.command(port),
            cwd=folder,
            env=os.environ | dict(server.environment),
            stdout=log,
            stderr=log,
            process_group=0,
        )
        try:
            yield Running(server, process, port, began)
        except BaseException:
            sys.stderr.write(f"--- last words of {server.name}\n{_tail(log)}\n---\n")
            raise
        finally:
            _end(process)


def _tail(log: IO[bytes]) -> str:
    log.seek(max(0, log.seek(0, os.SEEK_END) - 3000))
    return log.read().decode(errors="replace")


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(35)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # the group that we started, and what is left of it
    process.wait()


@contextmanager
def up(server: Server, photo: bytes) -> Iterator[Running]:
    """The server when it has answered."""
    with started(server) as running:
        first_answer(running, photo)
        yield running


def first_answer(running: Running, photo: bytes) -> tuple[float, list[float]]:
    """Seconds from the start of the process to the first answer, asked for again and again; and its predictions."""
    request = running.server.request(photo)
    deadline = running.started_at + START_S
    while time.perf_counter() < deadline:
        if (code := running.process.poll()) is not None:
            raise RuntimeError(f"{running.server.name} ended with status {code} before it answered")
        with suppress(OSError):
            line = Line(running.port)
            try:
                reply = line.ask(request)
                if reply.status == 200:
                    seconds = time.perf_counter() - running.started_at
                    return seconds, running.server.predictions(json.loads(reply.body))
            finally:
                line.close()
        time.sleep(POLL_S)
    raise RuntimeError(f"{running.server.name} did not answer within {START_S:g} s")


class Line:
    """One kept-alive connection, one request at a time, as plain as can be."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=START_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, request: bytes) -> Reply:
        self._socket.sendall(request)
        reply = Reply()
        while True:
            data = self._socket.recv(65536)
            if not data:
                raise ConnectionError("closed before the answer was whole")
            if reply.feed(data):
                return reply

    def time_ms(self, request: bytes) -> float:
        start = time.perf_counter()
        reply = self.ask(request)
        milliseconds = (time.perf_counter() - start) * 1000
        if reply.status != 200:
            raise RuntimeError(f"answered {reply.status}: {reply.body[:200]!r}")
        return milliseconds

    def close(self) -> None:
        self._socket.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def memory_mb(running: Running) -> dict[str, float]:
    """Of all its processes: RSS counts shared pages in each, PSS splits them among those that share."""
    found = {"Rss": 0.0, "Pss": 0.0}
    for pid in running.tree():
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
                name, value = line.split(":")
                if name in found:
                    found[name] += int(value.split()[0]) / 1024
    return {"rss": found["Rss"], "pss": found["Pss"]}
