"""A real server process on a port of its own, and a plain client for it."""

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DEADLINE_S = 180.0  # for what would otherwise hang; nothing is timed by it


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Running:
    process: subprocess.Popen[bytes]
    lines: list[str] = field(default_factory=list)
    ready: threading.Event = field(default_factory=threading.Event)

    @property
    def port(self) -> int:
        return int(next(event["port"] for event in self.events("ready")))

    @property
    def worker(self) -> int:
        """The newest worker's process id."""
        return int(self.events("ready")[-1]["worker"])

    def events(self, kind: str) -> list[dict[str, Any]]:
        told = [json.loads(line) for line in list(self.lines) if line.startswith("{")]
        return [event for event in told if event["event"] == kind]

    def wait_for(self, kind: str, count: int = 1) -> dict[str, Any]:
        return until(lambda: (found := self.events(kind)) and len(found) >= count and found[count - 1])  # type: ignore[no-any-return]

    def send(self, method: str, path: str, body: bytes | None = None, /, **headers: str) -> Reply:
        return send(self.port, method, path, body, **headers)

    def grade(self, photo: bytes, /, **headers: str) -> Reply:
        return self.send("POST", "/invocations", photo, **{"content-type": "image/jpeg"} | headers)

    def metrics(self) -> dict[str, float]:
        """Samples by name and labels, as written."""
        text = self.send("GET", "/metrics").body.decode()
        return {key: float(v) for key, v in (line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")}


def send(port: int, method: str, path: str, body: bytes | None = None, /, **headers: str) -> Reply:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
    try:
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return Reply(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
    finally:
        connection.close()


def until(condition: Any, *, seconds: float = DEADLINE_S) -> Any:
    """What `condition` gives once it gives something."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)  # between two looks; the condition, not the clock, ends the wait
    return found


@contextmanager
def serving(*arguments: str | Path, program: list[str] | None = None, **environment: str) -> Iterator[Running]:
    """`fundoscope serve ARGUMENTS --port 0`, ready; ended on the way out."""
    command = program or [sys.executable, "-m", "fundoscope.cli.main", "serve", "--port", "0"]
    process = subprocess.Popen(
        [*command, *map(str, arguments)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=os.environ | environment,
        start_new_session=True,
    )
    running = Running(process)
    assert process.stderr is not None
    reader = threading.Thread(target=_collect, args=(process.stderr, running), daemon=True)
    reader.start()
    try:
        until(lambda: running.events("ready") or process.poll() is not None)
        yield running
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        reader.join()
        process.stderr.close()


def _collect(stream: Any, running: Running) -> None:
    for line in stream:
        running.lines.append(line.decode().rstrip("\n"))
