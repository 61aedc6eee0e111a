"""Our own rules, beyond SageMaker's: what one hostile request may cost a server in memory and in attention.

Every attack is bounded in bytes and in time, and whatever it opened is closed however it ends.
"""

from collections.abc import Callable, Iterator
from threading import Thread
from time import perf_counter, sleep

from fundoscope.conform.contract import MIB
from fundoscope.conform.finding import Finding, broken, duration, held, judged, milliseconds, not_tried
from fundoscope.conform.hostile import JSON, json_bodies
from fundoscope.conform.live import Live
from fundoscope.conform.load import Heartbeat, loaded
from fundoscope.conform.memory import Watch, megabytes, resident
from fundoscope.conform.photographs import Payload
from fundoscope.conform.wire import Answer, ask, chunked, message

EARLY_S = 0.3  # for a refusal that comes before the body it is about
LINE = b"X-Conform-%07d: " + b"a" * 1000 + b"\r\n"
ORDINARY_S = 1.0  # of ordinary load before memory is looked at
EVEN_BYTES = MIB  # between two looks: memory has settled


def memory_before(live: Live) -> Iterator[Finding]:
    """What the attacks are compared with: a server that has had ordinary work, and is done with it."""
    pid = live.started.pid
    if pid is not None:
        request, limits = live.invocation(), live.plan.limits
        with loaded(
            live.address, request, connections=live.plan.effort.connections, within_s=limits.response_s
        ) as load:
            sleep(ORDINARY_S)
        assert load.total
        before, deadline = resident(pid), perf_counter() + live.plan.limits.ping_s
        while perf_counter() < deadline:
            sleep(0.25)
            before, earlier = resident(pid), before
            if abs(before - earlier) < EVEN_BYTES:
                break
        live.resident_before = before
    yield from ()


def endless_heads(live: Live) -> Iterator[Finding]:
    lines = b"".join(LINE % number for number in range(live.plan.bounds.head_bytes // len(LINE % 0)))
    sent = live.plan.payload
    kinds = [("Content-Type", sent.content_type), ("Transfer-Encoding", "chunked")]
    post = message("POST", live.plan.routes.invocations, headers=kinds)
    get = message("GET", live.plan.routes.ping)[:-2]
    ask(live.address, post + chunked(sent.data)[:-2] + LINE % 0 + b"\r\n", within_s=live.plan.limits.response_s)
    yield _head(live, "endless trailers", post + chunked(sent.data)[:-2] + lines + b"\r\n")
    yield _head(live, "endless headers", get + lines + b"\r\n")
    yield _head(live, "one endless header", get + b"X-Conform: " + b"a" * live.plan.bounds.head_bytes + b"\r\n\r\n")


def _head(live: Live, check: str, request: bytes) -> Finding:
    bound = live.plan.bounds.head_growth_bytes
    with Watch(live.started.pid) as watch:
        answer = ask(live.address, request, within_s=live.plan.limits.response_s)
        there = live.is_there()
    ending = f"the server {answer}" if answer.status == 0 else f"answered {answer}"
    what = f"{check}, {megabytes(len(request))} offered"
    if not there:
        return broken(17, check, f"{what}: {ending}, and /ping is no longer answered with 200")
    if watch.grown_bytes is None:
        return not_tried(17, check, f"{what}: {ending}, but {_unseen(live)}", status=answer.status)
    return judged(
        watch.grown_bytes <= bound,
        17,
        check,
        f"{what}: {ending}",
        f"{what}: {ending}, and memory grew by more than {megabytes(bound)}",
        str(watch),
        grown_bytes=watch.grown_bytes,
        status=answer.status,
    )


def hostile_json(live: Live) -> Iterator[Finding]:
    for name, body in json_bodies(live.plan.limits.payload_bytes):
        request = live.invocation(Payload(name, body, JSON))
        with Watch(live.started.pid) as watch, Heartbeat() as heart:
            answer, pings = _answer_and_pings(live, request, len(request) - len(body), heart)
        size = f"{name}, {megabytes(len(body))} of JSON"
        yield _json_answer(live, size, answer)
        yield _json_pings(live, size, pings)
        yield _json_memory(live, size, len(body), watch)
        if not live.started.running():
            return  # the others would say nothing but that


def _answer_and_pings(live: Live, request: bytes, head: int, heart: Heartbeat) -> tuple[Answer, list[Answer]]:
    """The answer to `request`, and those to /ping all the while; where this process stood still, they say nothing."""
    pings: list[Answer] = []
    answer = beside(lambda: _sent_whole(live, request, head), lambda: pings.append(live.ping()), pause_s=0.02)
    limit_s = live.plan.limits.ping_s
    return answer, [ping for ping in pings if heart.longest_stop_s(ping.began, ping.ended) < limit_s / 2]


def _sent_whole(live: Live, request: bytes, head: int) -> Answer:
    """A refusal that comes before the body closes the connection, and may be lost with it: then once more."""
    for _ in range(3):
        answer = ask(live.address, request, within_s=live.plan.limits.response_s, pause_after=head, pause_s=EARLY_S)
        if not answer.hung_up:
            break
    return answer


def beside(
    attack: Callable[[], Answer], meanwhile: Callable[[], object], *, pause_s: float, head_start_s: float = 0
) -> Answer:
    """What the attack was answered; `meanwhile` is done again and again until then, and once at least."""
    answers: list[Answer] = []
    attacker = Thread(target=lambda: answers.append(attack()))
    attacker.start()
    try:
        attacker.join(head_start_s)
        meanwhile()
        while attacker.is_alive():
            attacker.join(pause_s)
            meanwhile()
    finally:
        attacker.join()  # it has a deadline of its own
    return answers[0]


def _json_answer(live: Live, size: str, answer: Answer) -> Finding:
    """That there is an answer is rule 18's; that it is no 5xx is the contract's fourth, as of every other bad input."""
    check, limit_s = f"answer to {size}", live.plan.limits.response_s
    if answer.status == 0:
        reason = f"no answer within {limit_s:g} s" if answer.kind == "late" else f"the server {answer}"
        return broken(18, check, f"{size}: {reason}", duration(answer.seconds), seconds=answer.seconds)
    if answer.status >= 500 and answer.status != 503:
        return broken(4, check, f"{size}: {answer}, where 4xx was due", duration(answer.seconds))
    return held(18, check, f"{size}: {answer}", duration(answer.seconds), seconds=answer.seconds)


def _json_pings(live: Live, size: str, pings: list[Answer]) -> Finding:
    check, limit_s, own_s = f"ping during {size}", live.plan.limits.ping_s, live.plan.bounds.ping_s
    if not pings:
        return not_tried(18, check, "this machine was too busy to measure anything")
    times = [ping.seconds for ping in pings]
    late = [ping for ping in pings if ping.seconds > limit_s or ping.status != 200]
    said = milliseconds(times) + ("" if max(times) <= own_s else f", where {1000 * own_s:g} ms would be good")
    reason = f"{size}: {len(late)} of {len(pings)} pings meanwhile took longer than {limit_s:g} s or got no 200"
    return judged(
        not late, 18, check, f"{size}: /ping is answered meanwhile", reason, said, worst_s=max(times), pings=len(times)
    )


def _json_memory(live: Live, size: str, body_bytes: int, watch: Watch) -> Finding:
    check, factor = f"memory during {size}", live.plan.bounds.json_factor
    if watch.grown_bytes is None:
        return not_tried(18, check, _unseen(live))
    bound = factor * body_bytes + live.plan.bounds.head_growth_bytes
    return judged(
        watch.grown_bytes <= bound,
        18,
        check,
        f"{size}: memory stays within {factor} times that",
        f"{size}: memory grew by more than {factor} times that",
        str(watch),
        grown_bytes=watch.grown_bytes,
    )


def memory_afterwards(live: Live) -> Iterator[Finding]:
    """Once everything hostile is over; a photograph now and then, since many servers tidy up when they are asked."""
    check, pid, bounds = "memory afterwards", live.started.pid, live.plan.bounds
    if pid is None:
        yield not_tried(21, check, _unseen(live))
        return
    if live.resident_before is None:
        yield not_tried(21, check, "it had to be started again after an attack, so there is no before to compare with")
        return
    began = perf_counter()
    while (left := resident(pid) - live.resident_before) > bounds.left_bytes:
        if perf_counter() - began > bounds.settle_s:
            break
        sleep(0.5)
        ask(live.address, live.invocation(), within_s=live.plan.limits.response_s)
    seconds = perf_counter() - began
    measured = f"{megabytes(live.resident_before)} before, {left / MIB:+,.0f} MB after {duration(seconds)}"
    yield judged(
        left <= bounds.left_bytes,
        21,
        check,
        "memory returns to what it was",
        f"memory does not return to within {megabytes(bounds.left_bytes)} of before",
        measured,
        before_bytes=live.resident_before,
        left_bytes=left,
        seconds=seconds,
    )


def _unseen(live: Live) -> str:
    what = "an address" if live.target.kind == "address" else "the container"
    return f"the memory of {what} cannot be seen from here"
