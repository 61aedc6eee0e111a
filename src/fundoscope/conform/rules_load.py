"""Rules that matter when every slot is busy: the socket, the ping, the answer in time."""

from collections.abc import Iterator
from time import perf_counter, sleep

from fundoscope.conform.finding import Finding, broken, duration, judged, milliseconds, not_tried
from fundoscope.conform.live import Live
from fundoscope.conform.load import Heartbeat, Load, loaded
from fundoscope.conform.wire import SENTENCES, Answer, SilenceKind, connect_time

AT_REST = 20
BUSY_S = 8.0  # that a server with one slot may have queued before it; more would only make the run longer


def at_rest(live: Live) -> Iterator[Finding]:
    """The socket and the ping of a server that has nothing else to do."""
    pings = [live.ping() for _ in range(AT_REST)]
    bodies = {answer.body for answer in pings if answer.body and answer.status == 200}
    yield judged(
        not bodies, 7, "empty ping", "the ping's body is empty", f"the ping's body is {next(iter(bodies), b'')[:60]!r}"
    )
    yield _pings(live, "ping at rest", pings)
    if live.pings:
        yield _pings(live, "ping during the first invocation", live.pings)
    yield _connections(live, "connection at rest", [connect_time(live.address, within_s=2) for _ in range(AT_REST)])


def under_load(live: Live) -> Iterator[Finding]:
    """The same while more invocations run than the server has slots for."""
    limits, effort = live.plan.limits, live.plan.effort
    connections = max(2, min(effort.connections, int(BUSY_S / max(live.median_s, 1e-3))))
    pings: list[Answer] = []
    connects: list[tuple[float, SilenceKind | None]] = []
    tried = 0
    began = perf_counter()
    with (
        loaded(live.address, live.invocation(), connections=connections, within_s=limits.response_s) as load,
        Heartbeat() as heart,
    ):
        while perf_counter() - began < effort.load_s or min(len(pings), len(connects)) < 5:
            start = perf_counter()
            connect = connect_time(live.address, within_s=2)
            connected = perf_counter()
            ping = live.ping()
            # A time in which this very process got no processor is no evidence against the server.
            if heart.longest_stop_s(start, connected) < limits.connect_s / 2:
                connects.append(connect)
            if heart.longest_stop_s(connected, perf_counter()) < limits.ping_s / 2:
                pings.append(ping)
            tried += 1
            if tried > 100 + 2 * min(len(pings), len(connects)):
                break  # this machine does little but stand still
            if len(pings) >= 5 and sum(ping.status == 0 for ping in pings) >= 3:
                break  # it stalls, beyond doubt; each further ping would take as long
            sleep(0.02)
    void = 2 * tried - len(pings) - len(connects)
    about = f"{connections} connections busy" + (f", {void} void: this machine stood still" if void else "")
    if not pings or not connects:
        yield not_tried(7, "ping under load", "this machine was too busy to measure anything")
        return
    yield _connections(live, f"connection under load, {about}", connects)
    yield _pings(live, f"ping under load, {about}", pings)
    yield _answered(live, load, connections)


def _pings(live: Live, check: str, pings: list[Answer]) -> Finding:
    limit = live.plan.limits.ping_s
    late = [answer for answer in pings if answer.seconds > limit]
    wrong = [answer for answer in pings if answer.status != 200 and answer not in late]
    times = [answer.seconds for answer in pings]
    if late:
        reason = f"{check}: {len(late)} of {len(pings)} took longer than {limit:g} s"
    else:
        said = ", ".join(sorted({f"got {a}" if a.status else f"found that the server {a}" for a in wrong}))
        reason = f"{check}: {len(wrong)} of {len(pings)} {said}"
    good = f"{check.split(',')[0]}: 200"
    return judged(
        not late and not wrong, 7, check, good, reason, milliseconds(times), worst_s=max(times), pings=len(pings)
    )


def _connections(live: Live, check: str, connects: list[tuple[float, SilenceKind | None]]) -> Finding:
    limit_s = live.plan.limits.connect_s
    times = [seconds for seconds, _ in connects]
    failed = [SENTENCES[kind] for _, kind in connects if kind]
    slow = [seconds for seconds in times if seconds > limit_s]
    said = [f"{len(slow)} of {len(times)} took longer than {1000 * limit_s:g} ms"] if slow else []
    said += [f"the server {failed[0]} ({len(failed)} of {len(times)})"] if failed else []
    reason = f"{check}: {'; '.join(said)}"
    return judged(
        not slow and not failed, 5, check, check.split(",")[0], reason, milliseconds(times), worst_s=max(times)
    )


def _answered(live: Live, load: Load, connections: int) -> Finding:
    limit_s = live.plan.limits.response_s
    check = f"{connections} invocations at a time"
    silent = sum(tally.count for tally in load.answers if tally.status == 0)
    errors = sum(tally.count for tally in load.answers if tally.status >= 500 and tally.status != 503)
    measured = f"slowest {duration(load.slowest_s)}; {load}"
    if silent or load.slowest_s > limit_s:
        return broken(6, check, f"under load {silent} of {load.total} invocations got no answer", measured)
    return judged(
        not errors,
        6,
        check,
        "under load every invocation is answered, or refused with 503",
        f"under load {errors} of {load.total} invocations failed",
        measured,
        slowest_s=load.slowest_s,
    )


def in_time(live: Live) -> Iterator[Finding]:
    """Every invocation of the run so far, the largest and the oddest too."""
    limit_s = live.plan.limits.response_s
    late = [a for a in live.invocations if a.seconds > limit_s or a.kind == "late"]
    slowest = max((answer.seconds for answer in live.invocations), default=0.0)
    yield judged(
        not late,
        6,
        "one invocation at a time",
        "every invocation is answered",
        f"{len(late)} of {len(live.invocations)} invocations got no answer within {limit_s:g} s",
        f"slowest {duration(slowest)} of {len(live.invocations)}, median {duration(live.median_s)}",
        slowest_s=slowest,
        median_s=live.median_s,
    )
