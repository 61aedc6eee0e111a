"""Workload `invoke`: an endpoint here, under a serverless worker's limits, asked when the thesis asked.

    warm       one request that does not count, then 25, five seconds apart
    cold       ten, each of a container that is started for it, its files not in memory
    real-time  25, five seconds apart, of a server that is always up

A cold request is counted from the start of its container to its answer. What the server says of its own start (when
its modules were imported, when it had answered a photograph) comes back with it, and proves that it was a fresh one.
How much processor time a serverless worker has is not published: memory_mb / mb_per_cpu processors is what AWS Lambda
gives (one at 1,769 MB), and is an assumption here.
"""

import http.client
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Literal

from fundoscope.errors import FundoscopeError
from fundoscope.experiment import requests
from fundoscope.experiment.limits import Group, Limits, forget_files, limited
from fundoscope.experiment.unavailable import Unavailable
from fundoscope.quota import cores

START_S = 180.0  # the longest a server may take: the platform's own limit
ANSWER_S = 60.0
POLL_S = 0.002
LAST_WORDS = 500
# What a server reads when it starts, and a host that never ran it has not in memory.
READ_AT_START = ("fundoscope", "onnxruntime", "numpy", "PIL", "uvicorn", "tensorflow", "keras")


@dataclass(frozen=True)
class InvokeJob:
    artefact: str  # a folder, or one in --data
    schedule: Literal["warm", "cold", "real-time"] = "warm"
    memory_mb: int = 0  # 0: no limits
    mb_per_cpu: float = 1769.0
    stack: Literal["lean", "published"] = "lean"
    requests: int = 0  # 0: as many as the thesis sent
    every_s: float | None = None  # None: as the thesis waited; a cold container is replaced and needs no waiting
    photograph: str = ""  # a file; empty: a drawn eye

    def __post_init__(self) -> None:
        if self.memory_mb < 0 or self.requests < 0:
            raise ValueError("memory_mb and requests cannot be below 0")
        if not self.mb_per_cpu > 0:
            raise ValueError(f"mb_per_cpu is {self.mb_per_cpu:g}, not above 0")

    def limits(self) -> Limits | None:
        return Limits(self.memory_mb, self.memory_mb / self.mb_per_cpu) if self.memory_mb else None


@dataclass(frozen=True)
class Reply:
    latency_s: float
    predict_s: float


@dataclass(frozen=True)
class Server:
    port: int
    started: float  # monotonic
    process: "subprocess.Popen[bytes]"
    group: Group | None


def run(job: InvokeJob, *, seed: int, data_folder: Path | None) -> dict[str, Any]:
    artefact = _artefact(job, data_folder)
    photo = _photograph(job, seed)
    limits = job.limits()
    if limits and limits.cpus > cores():
        raise Unavailable(f"{limits.cpus:.2f} processors are asked for, and this process may use {cores()}")
    replies, starts, used = (_cold if job.schedule == "cold" else _warm)(job, artefact, photo, limits)
    latencies = [reply.latency_s for reply in replies]
    return {
        "latency_s": statistics.median(latencies),
        "latency_mean_s": statistics.fmean(latencies),
        "predict_s": statistics.median(reply.predict_s for reply in replies),
        "latencies_s": latencies,
        "predicts_s": [reply.predict_s for reply in replies],
        "requests": len(replies),
        **{f"{phase}_s": statistics.median(start[phase] for start in starts) for phase in starts[0]},
        **used,
        "cpus": limits.cpus if limits else float(cores()),
        "photograph_bytes": len(photo),
    }


def _schedule(job: InvokeJob) -> requests.Schedule:
    make = {"warm": requests.warm, "cold": requests.cold, "real-time": requests.real_time}[job.schedule]
    given: dict[str, Any] = {"requests": job.requests} if job.requests else {}
    if job.schedule == "cold" or job.every_s is not None:
        given["every_s"] = job.every_s or 0.0
    return make(**given)


Found = tuple[list[Reply], list[dict[str, float]], dict[str, float]]


def _warm(job: InvokeJob, artefact: Path, photo: bytes, limits: Limits | None) -> Found:
    schedule = _schedule(job)
    with _serving(job, artefact, limits) as server:
        for _ in range(schedule.uncounted or 1):
            _ask(server, photo, time.monotonic())
        began, replies = time.monotonic(), []
        for at_s in schedule.at_s:
            due = began + at_s
            time.sleep(max(0.0, due - time.monotonic()))
            replies.append(_ask(server, photo, due))
        return replies, [_phases(server)], _used(server)


def _cold(job: InvokeJob, artefact: Path, photo: bytes, limits: Limits | None) -> Found:
    replies, starts, used = [], [], []
    for _ in _schedule(job).at_s:
        forget_files(artefact, *_libraries())
        with _serving(job, artefact, limits) as server:
            replies.append(_ask(server, photo, server.started))
            starts.append(_phases(server))
            used.append(_used(server))
    return replies, starts, {name: max(each[name] for each in used) for name in used[0]}


@contextmanager
def _serving(job: InvokeJob, artefact: Path, limits: Limits | None) -> Iterator[Server]:
    port = _free_port()
    words = [sys.executable, "-m", "fundoscope.cli.main", "serve", str(artefact), "--port", str(port)]
    words += ["--platform", "serverless"] if job.schedule != "real-time" else []
    words += ["--stack", "published", "--load", "first-request"] if job.stack == "published" else []
    with limited(limits) if limits else nullcontext() as group, TemporaryFile() as said:
        command = group.words(words) if group else words
        started = time.monotonic()
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, start_new_session=True)
        server = Server(port, started, process, group)
        try:
            _wait_until_healthy(server)
            yield server
        except (OSError, http.client.HTTPException) as problem:
            said.seek(0)
            raise _what_happened(server, job, problem, said.read()[-LAST_WORDS:].decode(errors="replace")) from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _what_happened(server: Server, job: InvokeJob, problem: Exception, words: str) -> Exception:
    if server.group and server.group.killed_for_memory():
        return MemoryError(f"the server was ended for want of memory at {job.memory_mb} MB")
    return FundoscopeError(f"the server did not answer ({problem})", f"the last it said: {words.strip()}")


def _wait_until_healthy(server: Server) -> None:
    while time.monotonic() < server.started + START_S:
        if server.process.poll() is not None or (server.group and server.group.killed_for_memory()):
            raise ConnectionError("it has ended")
        with suppress(OSError, http.client.HTTPException):
            if _request(server, "GET", "/ping")[0] == 200:
                return
        time.sleep(POLL_S)
    raise ConnectionError(f"no answer after {START_S:g} s")


def _ask(server: Server, photo: bytes, due: float) -> Reply:
    status, body = _request(server, "POST", "/invocations", photo)
    latency_s = time.monotonic() - due
    if status != 200:
        raise ConnectionError(f"status {status}: {body[:200].decode(errors='replace')}")
    answer = json.loads(body)
    timings = answer.get("timings_ms", {})
    predict_ms = timings.get("predict", answer.get("prediction_time", 0.0))  # the second is the published stack's
    return Reply(latency_s, float(predict_ms) / 1000)


def _request(server: Server, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=ANSWER_S)
    try:
        connection.request(method, path, body, {"Content-Type": "image/jpeg"} if body else {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def _phases(server: Server) -> dict[str, float]:
    """Seconds from the start of the worker to the end of each phase, as it says itself; empty: it does not."""
    status, body = _request(server, "GET", "/metrics")
    if status != 200:
        return {}
    pattern = r'fundoscope_start_seconds\{[^}]*phase="(\w+)"[^}]*\} ([0-9.e+-]+)'
    return {phase: float(seconds) for phase, seconds in re.findall(pattern, body.decode())}


def _used(server: Server) -> dict[str, float]:
    if server.group is None:
        return {}
    peak = server.group.peak_bytes()
    found = {"throttled_s": server.group.throttled_s()}
    return found | ({"peak_mb": peak / 2**20} if peak is not None else {})


def _artefact(job: InvokeJob, data: Path | None) -> Path:
    for folder in (data / job.artefact if data else Path(job.artefact), Path(job.artefact)):
        if (folder / "artefact.json").is_file():
            return folder.resolve()
    hint = "give a folder that `fundoscope export` wrote, or --data, the folder that it is in"
    raise FundoscopeError(f"{job.artefact} is not an artefact", hint)


def _photograph(job: InvokeJob, seed: int) -> bytes:
    if job.photograph:
        try:
            return Path(job.photograph).read_bytes()
        except OSError as problem:
            raise FundoscopeError(f"{job.photograph} cannot be read: {problem.strerror}", "check the path") from None
    from fundoscope.data.draw import draw_eye

    return draw_eye(seed % 1000, 0).jpeg()


def _libraries() -> list[Path]:
    found = []
    for name in READ_AT_START:
        spec = find_spec(name)
        if spec is not None and spec.origin:
            found.append(Path(spec.origin).parent)
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
