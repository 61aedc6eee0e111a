"""A container of an image built here, run by podman as a platform would run it: everything read-only, no extras."""

import http.client
import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

DEADLINE_S = 180.0
# Not even /tmp can be written to. The limits: podman asks for more than a container that runs podman may grant.
STRICT = ("--read-only", "--read-only-tmpfs=false", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096")
RUNTIMES: list[tuple[str, ...]] = [(), ("--runtime", "runc")]  # runc where crun does not know the host's cgroups


@dataclass(frozen=True)
class Podman:
    runtime: tuple[str, ...]

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["podman", *self.runtime, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=DEADLINE_S)

    def run(self, image: str, *arguments: str, entrypoint: str = "") -> str:
        """What the container prints."""
        instead = ("--entrypoint", entrypoint) if entrypoint else ()
        ran = self("run", "--rm", *STRICT, "--network", "none", *instead, image, *arguments)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout


def working_podman(image: str) -> Podman | str:
    """A podman that runs the image, or why none does."""
    said = ""
    for runtime in RUNTIMES:
        podman = Podman(runtime)
        ran = podman("run", "--rm", *STRICT, "--network", "none", image, "--version")
        if ran.returncode == 0:
            return podman
        said = ran.stderr.strip()
    return said


@dataclass
class Container:
    podman: Podman
    name: str
    port: int

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        try:
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def grade(self, photo: bytes, content_type: str) -> Any:
        status, body = self.ask("POST", "/invocations", photo, content_type=content_type)
        assert status == 200, body
        return json.loads(body)

    def stop(self) -> int:
        """Its exit status after SIGTERM; SIGKILL, after the 30 s that the platform leaves it, would make it 137."""
        assert self.podman("stop", "--time", "30", self.name).returncode == 0
        return int(self.podman("inspect", "--format", "{{.State.ExitCode}}", self.name).stdout)


@contextmanager
def running(podman: Podman, image: str, artefact: Path, *options: str) -> Iterator[Container]:
    """Served until the block ends, however it ends."""
    name = f"fundoscope-test-{uuid4().hex[:12]}"
    mount = ("--volume", f"{artefact}:/opt/ml/model:ro")
    # On the host's network, and so on its loopback alone.
    network = ("--network", "host", "--env", "FUNDOSCOPE_HOST=127.0.0.1")
    began = time.monotonic()
    try:
        options = (*STRICT, *network, *mount, *options)
        started = podman("run", "--detach", "--name", name, *options, image, "serve", "--port", "0")
        assert started.returncode == 0, started.stderr
        port = _port(podman, name, began + DEADLINE_S)
        container = Container(podman, name, port)
        while container.ask("GET", "/ping")[0] != 200:
            assert time.monotonic() < began + DEADLINE_S, podman("logs", name).stderr
            time.sleep(0.02)
        yield container
    finally:
        podman("rm", "--force", "--time", "0", name)


def _port(podman: Podman, name: str, deadline: float) -> int:
    """From the server's own words."""
    while True:
        logs = podman("logs", name)
        for line in (logs.stderr + logs.stdout).splitlines():
            if line.startswith("{") and json.loads(line).get("event") == "ready":
                return int(json.loads(line)["port"])
        running = podman("inspect", "--format", "{{.State.Running}}", name).stdout.strip() == "true"
        assert running, f"the container ended: {logs.stderr}"
        assert time.monotonic() < deadline, f"the server did not become ready: {logs.stderr}"
        time.sleep(0.05)
