"""Our own rules, beyond SageMaker's: nobody is shut out because others stall, or send more than they should."""

from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter, sleep

from fundoscope.conform.crowd import Crowd
from fundoscope.conform.finding import Finding, duration, judged, not_tried
from fundoscope.conform.hostile import MOST, SIDE, alone, plain_picture, several, wide_png
from fundoscope.conform.live import Live
from fundoscope.conform.memory import Watch, megabytes
from fundoscope.conform.photographs import Payload, padded
from fundoscope.conform.rules_hostile import beside
from fundoscope.conform.wire import ask, message

TRIES = 3  # photographs of another caller, while callers stall
UPLOAD_S = 10.0  # for all of the stalled ones to send what they send
MISSING = 1024  # bytes that an upload which stalls at its end never sends
NUDGE_S = 0.5  # between two bytes of a slow sender
HEAD_START_S = 0.5  # of the hostile request, so that it is not refused for the sake of the plain one


def stalled_uploads(live: Live) -> Iterator[Finding]:
    if not live.works:
        yield not_tried(19, "stalled uploads", "the plain photograph is not taken, so nobody can be shut out")
        return
    n, limit = live.plan.bounds.stalled, live.plan.limits.payload_bytes
    whole = live.invocation(Payload("stalled", padded(live.plan.payload.data, limit), live.plan.payload.content_type))
    head = len(whole) - limit
    for check, begun in (
        (f"{n} uploads that stop after one byte of {megabytes(limit)}", whole[: head + 1]),
        (f"{n} uploads that stop a kilobyte short of {megabytes(limit)}", whole[:-MISSING]),
    ):
        with Crowd(live.address, n) as crowd:
            crowd.send(begun, within_s=UPLOAD_S)
            waits = _waits(live)
            crowd.look()
            yield _shut_out(live, 19, check, waits, f"{crowd.cut} of {n} cut")
    yield _slow_senders(live, whole[: head + 1])


def _slow_senders(live: Live, begun: bytes) -> Finding:
    """A byte now and then, in the headers and in the body: cut in time, or borne."""
    n, watch_s = live.plan.bounds.stalled, live.plan.effort.watch_s
    check = f"{n} slow with the headers and {n} with the body"
    with Crowd(live.address, n) as heads, Crowd(live.address, n) as bodies:
        began = perf_counter()
        heads.send(message("GET", live.plan.routes.ping)[:-2] + b"X-Conform: ", within_s=1)
        bodies.send(begun, within_s=1)
        waits = _waits(live)
        cut_s: dict[str, float | None] = {"headers": None, "body": None}
        while True:
            watched_s = perf_counter() - began
            for name, crowd in (("headers", heads), ("body", bodies)):
                crowd.send(b"a", within_s=NUDGE_S)
                if not crowd.members and cut_s[name] is None:
                    cut_s[name] = watched_s
            if watched_s > watch_s or None not in cut_s.values():
                break
            sleep(NUDGE_S)
    said = ", ".join(
        f"slow {name} cut after {duration(seconds)}" if seconds else f"slow {name} not cut within {duration(watched_s)}"
        for name, seconds in cut_s.items()
    )
    return _shut_out(live, 19, check, waits, said, headers_cut_s=cut_s["headers"], body_cut_s=cut_s["body"])


@dataclass(frozen=True)
class Wait:
    """Of a caller with a plain photograph, who tries again when refused."""

    seconds: float
    answered: bool
    refusals: int


def _waits(live: Live) -> list[Wait]:
    """Of several photographs, or until one is not answered: each further one would take as long."""
    waits = [_wait(live)]
    while waits[-1].answered and len(waits) < TRIES:
        waits.append(_wait(live))
    return waits


def _wait(live: Live, within_s: float | None = None) -> Wait:
    patience_s = within_s or live.plan.bounds.wait_s
    began, refusals = perf_counter(), 0
    while (left_s := began + patience_s - perf_counter()) > 0:
        answer = ask(live.address, live.invocation(), within_s=left_s)
        if answer.ok:
            return Wait(perf_counter() - began, True, refusals)
        refusals += 1
        sleep(0.05)
    return Wait(perf_counter() - began, False, refusals)


def _shut_out(live: Live, rule: int, check: str, waits: list[Wait], more: str, **values: float | None) -> Finding:
    limit_s = live.plan.bounds.wait_s
    good = all(wait.answered and wait.seconds <= limit_s for wait in waits)
    worst_s, refusals = max(wait.seconds for wait in waits), sum(wait.refusals for wait in waits)
    unanswered = "" if all(wait.answered for wait in waits) else " and more"
    said = f"photographs of another caller waited at most {duration(worst_s)}{unanswered}, {refusals} refusals; {more}"
    return judged(
        good,
        rule,
        check,
        f"{check}: others are answered",
        f"{check}: another caller's photograph is not answered within {limit_s:g} s",
        said,
        worst_s=worst_s,
        refusals=refusals,
        **values,
    )


def many_pixels(live: Live) -> Iterator[Finding]:
    payload, size = live.plan.payload, f"{SIDE:,} × {SIDE:,} pixels"
    plain, wide = plain_picture(payload), alone(payload, wide_png())
    if plain is None or wide is None or not live.works:
        why = "the plain photograph is not taken" if wide else "no photograph to replace is seen in what is sent"
        yield not_tried(20, size, why)
        return
    yield _held_up(live, f"a photograph of {size}", wide)
    forms = [number for number, two in enumerate(several(payload, plain, 2)) if _is_taken(live, two)]
    if not forms:
        check = f"several photographs of {size} in one request"
        yield not_tried(20, check, "as far as can be told it takes one photograph at a time")
        return
    each_bytes = len(several(payload, wide_png(), 2)[forms[0]].data) // 2
    n = min(MOST, live.plan.limits.payload_bytes // each_bytes - 1)
    many = several(payload, wide_png(), n)[forms[0]]
    yield _held_up(live, f"{n} photographs of {size} in one request", many)


def _is_taken(live: Live, payload: Payload) -> bool:
    return ask(live.address, live.invocation(payload), within_s=live.plan.limits.response_s).ok


def _held_up(live: Live, check: str, payload: Payload) -> Finding:
    """While one caller's request is in hand, another sends plain photographs."""
    waits: list[Wait] = []
    limit_s, request = live.plan.limits.response_s, live.invocation(payload)
    with Watch(live.started.pid) as watch:
        answer = beside(
            lambda: ask(live.address, request, within_s=limit_s),
            lambda: waits.append(_wait(live, limit_s)),
            pause_s=0.02,
            head_start_s=HEAD_START_S,
        )
    ending = f"the server {answer}" if answer.status == 0 else f"{answer}"
    said = f"the request itself: {ending} after {duration(answer.seconds)}, {watch}"
    return _shut_out(live, 20, check, waits, said, grown_bytes=watch.grown_bytes)
