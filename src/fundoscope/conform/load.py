"""Invocations without pause, from a process of their own, so that whoever measures meanwhile has a clock to itself.

`python -m fundoscope.conform.load HOST PORT CONNECTIONS WITHIN_S LENGTH` reads the request, of LENGTH bytes, from
standard input, says "busy" once every connection has sent one, and goes on until standard input ends; then it prints
the answers, counted, as JSON.
"""

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from time import perf_counter, sleep
from typing import Any

from fundoscope.conform.wire import Address, Answer, ask

BEAT_S = 0.005


@dataclass(frozen=True)
class Tally:
    """How many answers were alike."""

    status: int  # 0: silence
    text: str  # the status, or why there was none
    count: int


@dataclass
class Load:
    """What the load came to, once it has ended."""

    answers: list[Tally] = field(default_factory=list)
    slowest_s: float = 0.0
    median_s: float = 0.0

    @property
    def total(self) -> int:
        return sum(tally.count for tally in self.answers)

    def __str__(self) -> str:
        parts = ", ".join(f"{tally.count} × {tally.text}" for tally in self.answers)
        return f"{self.total} invocations answered: {parts}" if parts else "no invocation answered"


@contextmanager
def loaded(address: Address, request: bytes, *, connections: int, within_s: float) -> Iterator[Load]:
    """Every connection busy while the block runs."""
    host, port = address
    words = [host, str(port), str(connections), str(within_s), str(len(request))]
    process = subprocess.Popen(
        [sys.executable, "-m", "fundoscope.conform.load", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    load = Load()
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(request)
        process.stdin.flush()
        process.stdout.readline()
        yield load
        process.stdin.close()
        found = json.loads(process.stdout.read() or b"{}")
        load.answers = [Tally(**tally) for tally in found["answers"]]
        load.slowest_s, load.median_s = found["slowest_s"], found["median_s"]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        if not process.stdin.closed:
            process.stdin.close()


class Heartbeat:
    """Notices when this process itself stood still: a time measured across such a moment says nothing of the server."""

    def __enter__(self) -> "Heartbeat":
        self._beats: list[float] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._over.wait(BEAT_S):
            self._beats.append(perf_counter())

    def longest_stop_s(self, began: float, ended: float) -> float:
        """The longest time without a beat within these moments, beyond what is usual."""
        sleep(2 * BEAT_S)  # so that a beat after `ended` is there
        beats = [began, *(beat for beat in self._beats if began < beat < ended), ended]
        return max((after - before for before, after in pairwise(beats)), default=0) - BEAT_S


def keep_busy(address: Address, request: bytes, *, connections: int, within_s: float) -> dict[str, Any]:
    """Until standard input ends."""
    over, ready = threading.Event(), threading.Barrier(connections + 1)
    answers: list[Answer] = []

    def send() -> None:
        ready.wait()
        while not over.is_set():
            answer = ask(address, request, within_s=within_s)
            answers.append(answer)
            if not answer.ok:  # refused: a client that hammers would measure itself
                sleep(0.02)

    threads = [threading.Thread(target=send) for _ in range(connections)]
    for thread in threads:
        thread.start()
    ready.wait()
    sleep(0.05)  # connect and send take about a millisecond each
    print("busy", flush=True)  # noqa: T201  # to the process that started us
    sys.stdin.buffer.read()
    over.set()
    for thread in threads:
        thread.join()
    times = sorted(answer.seconds for answer in answers)
    counts = Counter((answer.status, str(answer)) for answer in answers)
    tallies = [{"status": status, "text": text, "count": n} for (status, text), n in sorted(counts.items())]
    return {"answers": tallies, "slowest_s": times[-1], "median_s": times[len(times) // 2]}


def main(arguments: list[str]) -> None:
    host, port, connections, within_s, length = arguments
    request = sys.stdin.buffer.read(int(length))
    found = keep_busy((host, int(port)), request, connections=int(connections), within_s=float(within_s))
    print(json.dumps(found))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
