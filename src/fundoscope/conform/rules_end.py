"""Rules of ending: a worker that dies, and SIGTERM with and without work in hand."""

import os
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import ExitStack
from math import ceil
from time import perf_counter, sleep

from fundoscope.conform import processes
from fundoscope.conform.finding import Finding, broken, duration, held, not_applicable, not_tried
from fundoscope.conform.live import Live
from fundoscope.conform.target import wait_for_end
from fundoscope.conform.wire import Answer, ask, message

IN_A_ROW = 5  # invocations that must work before a server counts as recovered
BUSY_S = 0.6  # work to have in hand when SIGTERM comes
TAKEN_S = 0.1  # a request sent this long before SIGTERM has been taken from the socket
BURST = (4, 64)


def worker_killed(live: Live) -> Iterator[Finding]:
    """After SIGKILL to a worker: work again, or end, or at least do not say 200."""
    check = "worker killed"
    if live.target.kind == "address":
        yield not_applicable(8, check, "an address's processes are not ours to kill")
        return
    if live.started.pid is None:
        yield not_tried(8, check, "the container's processes cannot be seen from here")
        return
    found = processes.workers(live.started.pid)
    if not found:
        yield not_applicable(8, check, "it is one process: if that dies, the platform starts another")
        return
    name = " ".join(" ".join(processes.command_of(found[0])).split())[:60] or f"process {found[0]}"
    os.kill(found[0], signal.SIGKILL)
    yield _recovery(live, check, name)


def _recovery(live: Live, check: str, name: str) -> Finding:
    limit_s = live.plan.limits.stop_s + 2 * live.ready_s + 2 * IN_A_ROW * live.median_s
    began, in_a_row, lies = perf_counter(), 0, 0
    ping = answer = live.ping()
    while perf_counter() - began < limit_s:
        if not live.started.running():
            return held(8, check, f"a worker killed ({name}), the server ends, and the platform starts another")
        ping = live.ping()
        if ping.status == 200:
            answer = ask(live.address, live.invocation(), within_s=live.plan.limits.response_s)
            in_a_row, lies = (in_a_row + 1, lies) if answer.ok else (0, lies + 1)
            if in_a_row == IN_A_ROW:
                seconds = perf_counter() - began
                return held(8, check, "a killed worker is replaced", f"after {duration(seconds)}", recovered_s=seconds)
            if lies > 3 and perf_counter() - began > limit_s / 2:
                break
        sleep(0.05)
    if ping.status == 200 and not answer.ok:
        return broken(8, check, f"a worker killed ({name}), /ping says 200 but invocations get: {answer}")
    return held(8, check, f"a worker killed ({name}) is not replaced for {limit_s:.0f} s, but /ping says so: {ping}")


def stop_under_load(live: Live) -> Iterator[Finding]:
    check = "SIGTERM under load"
    if live.target.kind == "address":
        yield not_applicable(9, check, "an address is not ours to stop")
        return
    limits = live.plan.limits
    low, high = BURST
    n = max(low, min(high, ceil(BUSY_S / max(live.median_s, 1e-3))))
    if live.median_s > BUSY_S:
        n = 3
    request = live.invocation()
    with ThreadPoolExecutor(n) as pool:
        jobs = [pool.submit(ask, live.address, request, within_s=limits.response_s) for _ in range(n)]
        # Work is in hand when the first is done; where predictions are slow, well before that.
        wait(jobs, timeout=max(0.3, live.median_s / 2), return_when=FIRST_COMPLETED)
        sleep(TAKEN_S)
        told = perf_counter()
        live.started.terminate()
        took_s = wait_for_end(live.started, limits.stop_s)
        ending = live.started.ending()
        if took_s is None:
            live.started.end()  # as the platform would, and it ends the waiting of those who got no answer
        answers = [job.result() for job in jobs]
    in_hand = [a for a in answers if a.sent is not None and a.sent < told - TAKEN_S / 2 and told < a.ended]
    yield _stopped(check, took_s, limits.stop_s, ending)
    yield _answered(in_hand, took_s)


def _stopped(check: str, took_s: float | None, limit_s: float, ending: str) -> Finding:
    if took_s is None:
        return broken(9, check, f"{check}: still running {limit_s:g} s after it, when SIGKILL comes")
    return held(9, check, f"{check.split(',')[0]} ends it", f"{duration(took_s)}, {ending}", took_s=took_s)


def _answered(in_hand: list[Answer], took_s: float | None) -> Finding:
    check = "requests in flight at SIGTERM"
    if not in_hand:
        return not_tried(9, check, "the server was too fast: nothing was in flight when SIGTERM came")
    lost = [answer for answer in in_hand if answer.status == 0]
    failed = [answer for answer in in_hand if answer.status >= 500 and answer.status != 503]
    refused = sum(answer.status == 503 for answer in in_hand)
    said = f"{len(in_hand)} in flight" + (f", {refused} of them refused with 503" if refused else "")
    if lost:
        why = f"the server {lost[0]}" if took_s is not None else "it was killed with them in hand"
        return broken(9, check, f"{len(lost)} of {len(in_hand)} requests in flight were not answered: {why}", said)
    if failed:
        return broken(9, check, f"{len(failed)} of {len(in_hand)} requests in flight got {failed[0]}", said)
    return held(9, check, "requests in flight are answered", said)


def stop_at_rest(live: Live) -> Finding:
    """Nothing in hand, but callers there: the platform keeps connections open, and some callers never finish."""
    request = live.invocation()
    idle = message("GET", live.plan.routes.ping).replace(b"Connection: close", b"Connection: keep-alive")
    with ExitStack() as stack:
        for begun in (idle, request[: -len(live.plan.payload.data) // 2]):
            connection = stack.enter_context(socket.create_connection(live.address, timeout=live.plan.limits.ping_s))
            connection.sendall(begun)
        sleep(TAKEN_S)
        live.started.terminate()
        took_s = wait_for_end(live.started, live.plan.limits.stop_s)
        check = "SIGTERM at rest, a connection idle and a request half sent"
        return _stopped(check, took_s, live.plan.limits.stop_s, live.started.ending())
