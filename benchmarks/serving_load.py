"""The load: requests sent at moments drawn beforehand, whatever the server does, and how long each took from then on.

Open loop: arrivals are Poisson (seeded), and a request that finds every connection busy opens another, so that a slow
server is not spared the requests it would have been sent meanwhile. Latency counts from the scheduled moment. What is
not answered 200 counts as infinitely late. Written on bare asyncio, for the client must not be what is measured;
`client_limit` says how much it can send.
"""

import asyncio
import multiprocessing
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from math import ceil, inf
from typing import Any

import numpy as np

SAMPLES_FOR_P99 = 473  # at 95 % confidence, one over the limit allowed; a percentile of fewer says nothing
MAX_CONNECTIONS = 900  # beyond, requests wait here; their clocks run all the same
MOST_WIDENINGS = 12  # of the rates looked at, by 1.3 each
GIVE_UP_S = 30.0  # after the last request was sent


@dataclass(frozen=True)
class Target:
    """Where requests go, and the bytes of each; taken in turn."""

    port: int
    requests: tuple[bytes, ...]


@dataclass(frozen=True)
class Step:
    """What came of one load."""

    per_s: float  # asked for
    n: int
    p50_ms: float
    p99_ms: float
    statuses: dict[str, int]
    seconds: float  # from the first scheduled moment to the last answer

    def sustained(self, limit_ms: float) -> bool:
        return self.p99_ms <= limit_ms


def request_bytes(
    path: str, body: bytes, content_type: str, *, host: str = "127.0.0.1", accept: str = "application/json"
) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: {content_type}\r\nAccept: {accept}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def percentile_ms(latencies_ms: Sequence[float], percent: float) -> float:
    """The smallest of them that this share of them does not exceed; inf stays inf, where interpolation makes nan."""
    ordered = sorted(latencies_ms)
    return ordered[max(0, ceil(len(ordered) * percent / 100) - 1)]


@dataclass
class Reply:
    """An HTTP answer as it comes in."""

    buffer: bytearray = field(default_factory=bytearray)
    end: int = -1  # of the whole answer; -1: not known yet
    chunked: bool = False
    closes: bool = False

    def feed(self, data: bytes) -> bool:
        """Whether it is whole now."""
        self.buffer += data
        if self.end < 0 and not self.chunked:
            head_end = self.buffer.find(b"\r\n\r\n")
            if head_end < 0:
                return False
            head = bytes(self.buffer[:head_end]).lower()
            self.closes = b"\r\nconnection: close" in head
            self.chunked = b"\r\ntransfer-encoding: chunked" in head
            length = head.partition(b"\r\ncontent-length:")[2].split(b"\r\n")[0]
            self.end = head_end + 4 + int(length or 0)
        return self.buffer.endswith(b"\r\n0\r\n\r\n") if self.chunked else len(self.buffer) >= self.end

    @property
    def status(self) -> int:
        return int(self.buffer[9:12])

    @property
    def body(self) -> bytes:
        return bytes(self.buffer[self.buffer.find(b"\r\n\r\n") + 4 :])


class _Line(asyncio.Protocol):
    """A connection that carries one request after another."""

    def __init__(self, load: "_Load") -> None:
        self.load, self.reply, self.number = load, Reply(), -1
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        with suppress(OSError):
            transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, number: int, request: bytes) -> None:
        self.number, self.reply = number, Reply()
        assert self.transport is not None
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        if self.number >= 0 and self.reply.feed(data):
            number, self.number = self.number, -1
            if self.reply.closes and self.transport:
                self.transport.close()
            self.load.done(self, number, str(self.reply.status), reusable=not self.reply.closes)

    def connection_lost(self, problem: Exception | None) -> None:
        if self.number >= 0:
            number, self.number = self.number, -1
            self.load.done(self, number, f"lost: {type(problem).__name__ if problem else 'closed'}", reusable=False)
        elif self in self.load.idle:
            self.load.idle.remove(self)
            self.load.connections -= 1


class _Load:
    def __init__(self, target: Target, moments_s: Sequence[float]) -> None:
        self.target, self.moments_s = target, moments_s
        self.idle: list[_Line] = []
        self.connections = 0
        self.waiting: list[int] = []
        self.latencies_ms = [inf] * len(moments_s)
        self.outcomes = ["no answer"] * len(moments_s)
        self.left = len(moments_s)
        self.start = 0.0
        self.finished = asyncio.Event()
        self.tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> float:
        loop = asyncio.get_running_loop()
        self.start = loop.time() + 0.05
        for number, moment in enumerate(self.moments_s):
            if (ahead := self.start + moment - loop.time()) > 0:
                await asyncio.sleep(ahead)
            self.send(number)
        with suppress(TimeoutError):
            await asyncio.wait_for(self.finished.wait(), GIVE_UP_S)
        for line in self.idle:
            if line.transport:
                line.transport.close()
        return loop.time() - self.start

    def send(self, number: int) -> None:
        request = self.target.requests[number % len(self.target.requests)]
        if self.idle:
            self.idle.pop().send(number, request)
        elif self.connections < MAX_CONNECTIONS:
            self.connections += 1
            task = asyncio.get_running_loop().create_task(self.connect(number, request))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)
        else:
            self.waiting.append(number)

    async def connect(self, number: int, request: bytes) -> None:
        try:
            loop = asyncio.get_running_loop()
            _, line = await loop.create_connection(lambda: _Line(self), "127.0.0.1", self.target.port)
        except OSError as problem:
            self.done(None, number, f"refused: {type(problem).__name__}", reusable=False)
        else:
            line.send(number, request)

    def done(self, line: _Line | None, number: int, outcome: str, *, reusable: bool) -> None:
        late_s = asyncio.get_running_loop().time() - self.start - self.moments_s[number]
        self.outcomes[number] = outcome
        if outcome == "200":
            self.latencies_ms[number] = 1000 * late_s
        self.left -= 1
        if self.left == 0:
            self.finished.set()
        if reusable and line is not None:
            self.idle.append(line)
        else:
            self.connections -= 1
        if self.waiting:
            self.send(self.waiting.pop(0))


def send_load(target: Target, per_s: float, n: int, seed: int) -> tuple[Step, list[float]]:
    """`n` requests at Poisson moments; the second value is every latency in ms, in the order they were scheduled."""
    moments = np.cumsum(np.random.default_rng(seed).exponential(1 / per_s, n)).tolist()
    return send_at(target, moments, per_s)


def send_at(target: Target, moments_s: Sequence[float], per_s: float) -> tuple[Step, list[float]]:
    async def run() -> tuple[float, _Load]:
        load = _Load(target, moments_s)
        return await load.run(), load

    seconds, load = asyncio.run(run())
    p50, p99 = (percentile_ms(load.latencies_ms, percent) for percent in (50, 99))
    return Step(per_s, len(moments_s), p50, p99, dict(Counter(load.outcomes)), seconds), load.latencies_ms


def send_closed(target: Target, connections: int, seconds: float) -> float:
    """Requests per second with this many always under way: how much there is to be had, not how well."""

    async def keep_busy(line: Sequence[Any], until: float, count: Counter[str]) -> None:
        reader, writer = line
        while time.perf_counter() < until:
            writer.write(target.requests[count["sent"] % len(target.requests)])
            count["sent"] += 1
            reply = Reply()
            while not reply.feed(await reader.read(65536) or b"\r\n0\r\n\r\n"):
                pass
            count["answered"] += reply.status == 200
        writer.close()

    async def run() -> float:
        lines = [await asyncio.open_connection("127.0.0.1", target.port) for _ in range(connections)]
        count: Counter[str] = Counter()
        start = time.perf_counter()
        await asyncio.gather(*(keep_busy(line, start + seconds, count) for line in lines))
        return count["answered"] / (time.perf_counter() - start)

    return asyncio.run(run())


def find_sustainable(
    measure: Callable[[float], Step], *, low: float, high: float, limit_ms: float, within: float = 0.03
) -> tuple[float, list[Step]]:
    """The highest rate whose p99 is within the limit, by bisection, and every step on the way; 0: not even `low`."""
    steps = [measure(low)]
    while not steps[-1].sustained(limit_ms):
        low, high = low / 2, low
        if low < high / 64 or low < 0.2:
            return 0.0, steps
        steps.append(measure(low))
    for _ in range(MOST_WIDENINGS):  # where to look was a guess: what it calls too much must be seen to be
        steps.append(measure(high))
        if not steps[-1].sustained(limit_ms):
            break
        low, high = high, 1.3 * high
    while high / low > 1 + within:
        middle = (low * high) ** 0.5
        steps.append(measure(middle))
        low, high = (middle, high) if steps[-1].sustained(limit_ms) else (low, middle)
    return low, steps


@contextmanager
def load_process() -> Iterator[ProcessPoolExecutor]:
    """A process of its own for the client, kept between steps: its start is no part of any."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        pool.submit(time.sleep, 0).result()
        yield pool
