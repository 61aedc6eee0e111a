"""The serving benchmark's load generator, against servers whose delays are known, and against queueing theory."""

import asyncio
import socket
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from math import ceil, exp, factorial, inf
from pathlib import Path

import numpy as np
import pytest
from still_clock import still_clock

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import serving_load
from serving_load import Reply, Step, Target, find_sustainable, percentile_ms, request_bytes, send_at, send_load

REQUEST = request_bytes("/invocations", bytes(1000), "image/jpeg")


class OneSlot:
    """Serves one request at a time, each for exactly `service_s`; more than `room` at once are refused with 503.

    For `stall_s` from the first request on it serves nobody.
    """

    def __init__(self, service_s: float, room: int, stall_s: float) -> None:
        self._service_s, self._room, self._stall_s = service_s, room, stall_s
        self._free_at, self._inside = 0.0, 0

    async def listen(self, listening: socket.socket) -> None:
        async with await asyncio.start_server(self.serve, sock=listening) as server:
            await server.serve_forever()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        with closing(writer), suppress(asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                await reader.readexactly(int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]))
                if self._inside >= self._room:
                    writer.write(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")
                    continue
                self._inside += 1
                began = self._free_at or loop.time() + self._stall_s
                self._free_at = max(began, loop.time()) + self._service_s
                await asyncio.sleep(self._free_at - loop.time())
                self._inside -= 1
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")


@contextmanager
def serving(service_s: float, *, room: int = 10**6, stall_s: float = 0.0) -> Iterator[Target]:
    """A new server for every load that is sent, on the sender's own loop: they have one clock, which stands still."""
    tasks = []  # or they may be collected
    with socket.create_server(("127.0.0.1", 0), backlog=1000) as listening:

        def begin(loop: asyncio.AbstractEventLoop) -> None:
            tasks.append(loop.create_task(OneSlot(service_s, room, stall_s).listen(listening.dup())))

        with still_clock(begin):
            yield Target(listening.getsockname()[1], (REQUEST,))


def p_waits_no_longer(wait_s: float, per_s: float, service_s: float) -> float:
    """P(W <= t) in M/D/1 (Erlang, 1909; Iversen, Teletraffic Engineering, section 10.4.3)."""
    terms = (
        (per_s * (k * service_s - wait_s)) ** k / factorial(k) * exp(-per_s * (k * service_s - wait_s))
        for k in range(int(wait_s / service_s) + 1)
    )
    return (1 - per_s * service_s) * sum(terms)


def theoretical_rate(limit_s: float, service_s: float) -> float:
    """The highest rate whose p99 is within the limit."""
    rates = np.arange(0.3, 0.99, 0.001) / service_s
    return float(max(r for r in rates if p_waits_no_longer(limit_s - service_s, r, service_s) >= 0.99))


def simulated(per_s: float, *, n: int = 100_000, service_ms: float = 50.0) -> Step:
    """The same queue without a clock (Lindley's recursion)."""
    gaps_ms = np.random.default_rng(1).exponential(1000 / per_s, n)
    wait, latencies = 0.0, []
    for gap in gaps_ms:
        wait = max(0.0, wait + service_ms - gap)
        latencies.append(wait + service_ms)
    return Step(per_s, n, percentile_ms(latencies, 50), percentile_ms(latencies, 99), {"200": n}, 0.0)


def test_a_server_of_one_slot_and_50_ms_sustains_what_queueing_theory_says() -> None:
    expected = theoretical_rate(0.5, 0.05)
    assert 15 < expected < 17  # of the 20 per second it can serve at all
    found, steps = find_sustainable(simulated, low=5, high=25, limit_ms=500, within=0.01)
    assert found == pytest.approx(expected, rel=0.03)
    assert max(step.per_s for step in steps if step.sustained(500)) == found


def test_a_guess_that_is_far_too_low_is_looked_beyond() -> None:
    expected = theoretical_rate(0.5, 0.05)
    found, _ = find_sustainable(simulated, low=2, high=4, limit_ms=500, within=0.01)
    assert found == pytest.approx(expected, rel=0.03)


def test_a_real_server_of_one_slot_and_10_ms_is_found_to_sustain_just_under_100_per_second() -> None:
    with serving(0.01) as target:
        found, _ = find_sustainable(
            lambda per_s: send_load(target, per_s, 400, seed=2)[0], low=70, high=140, limit_ms=500, within=0.1
        )
    assert found == pytest.approx(99, rel=0.1)


def test_every_latency_is_what_the_queue_in_front_of_the_server_makes_it() -> None:
    service_s, per_s, n = 0.01, 70.0, 350
    with serving(service_s) as target:
        step, latencies = send_load(target, per_s, n, seed=5)
    assert step.statuses == {"200": n}
    expected, free_at = [], 0.0
    for moment in np.cumsum(np.random.default_rng(5).exponential(1 / per_s, n)):  # the moments it was sent at
        free_at = max(free_at, moment) + service_s
        expected.append(1000 * (free_at - moment))
    assert latencies == pytest.approx(expected)  # in milliseconds
    assert np.percentile(expected, 99) > 40  # there was a queue to speak of


def test_latency_counts_from_the_scheduled_moment_through_a_stall() -> None:
    """A client that waits for each answer would see the stall once; every request scheduled during it suffers."""
    moments = [0.05 * k for k in range(20)]
    with serving(0.001, stall_s=1.0) as target:
        step, latencies = send_at(target, moments, 20)
    assert step.statuses == {"200": 20}
    expected = [1000 * (1.0 + 0.001 * (k + 1) - moment) for k, moment in enumerate(moments)]
    assert latencies == pytest.approx(expected)


def test_the_refused_count_as_infinitely_late() -> None:
    with serving(0.2, room=1) as target:
        step, latencies = send_at(target, [0.0, 0.05, 0.06], 20)
    assert step.statuses == {"200": 1, "503": 2}
    assert latencies[1:] == [inf, inf]
    assert not step.sustained(1e9)


def test_a_server_that_is_not_there_is_an_outcome_and_not_an_error() -> None:
    with serving(0.001) as target:
        pass
    step, _ = send_at(target, [0.0, 0.01], 100)
    assert step.statuses == {"refused: ConnectionRefusedError": 2}


def test_a_rate_nobody_sustains_is_zero() -> None:
    found, steps = find_sustainable(
        lambda per_s: Step(per_s, 500, 900, inf, {"503": 500}, 1.0), low=64, high=100, limit_ms=500
    )
    assert found == 0.0
    assert len(steps) <= 10


@pytest.mark.parametrize("pieces", [1, 7])
@pytest.mark.parametrize(
    ("answer", "status", "body", "closes"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, b"hello", False),
        (b"HTTP/1.1 503 Busy\r\nconnection: close\r\ncontent-length: 0\r\n\r\n", 503, b"", True),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
            200,
            b"2\r\nab\r\n0\r\n\r\n",
            False,
        ),
    ],
)
def test_answers_are_read_whole_however_they_arrive(
    answer: bytes, status: int, body: bytes, closes: bool, pieces: int
) -> None:
    reply = Reply()
    size = ceil(len(answer) / pieces)
    whole = [reply.feed(answer[at : at + size]) for at in range(0, len(answer), size)]
    assert whole == [False] * (len(whole) - 1) + [True]
    assert (reply.status, reply.body, reply.closes) == (status, body, closes)


def test_a_p99_needs_its_samples() -> None:
    """Clopper-Pearson: at 95 % confidence, one of 473 over the limit still speaks for a p99 below it; of 472 not."""
    from scipy.stats import binom

    assert (
        binom.cdf(1, serving_load.SAMPLES_FOR_P99, 0.01) <= 0.05 < binom.cdf(1, serving_load.SAMPLES_FOR_P99 - 1, 0.01)
    )


def test_percentiles_are_of_the_nearest_rank() -> None:
    assert percentile_ms([*range(1, 101)], 99) == 99
    assert percentile_ms([5, 1, 3], 50) == 3
    assert percentile_ms([1.0] * 98 + [inf] * 2, 99) == inf
