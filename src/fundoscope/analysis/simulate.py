"""One month of arrivals under one way to serve: how long each request took, and what the month is billed for.

Latency runs from the moment a request was due, so that a queue is the caller's time. A million requests take a fraction
of a second because hardly anything is done request by request in Python:

pools      A container that was idle shortest is taken first. The k-th container then works exactly while k or more
           requests are in progress, and the whole month falls apart into levels: two sorts say when each level was
           left and when it is entered again. This is exact as long as no request is cold. Around each request that
           is, until the containers in use are again those that would be in use without it, requests are followed one
           by one (`_around_cold_starts`); a month with throttling, or mostly cold, is followed so from end to end.
one server Lindley's recursion, as a running maximum.
servers    Requests are sent, in order, to the server that is free first, where they stay: a small heap.

A request that waits for longer than a provider lets it (60 s behind SageMaker) is not given up here: it is late.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace
from math import ceil, inf

import numpy as np
from numpy.typing import NDArray

from fundoscope.analysis.options import Autoscaling, Batch, Billed, Latency, Option, RealTime, Serverless
from fundoscope.analysis.traffic import DAY_S, HOUR_S, MONTH_S
from fundoscope.errors import FundoscopeError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

SPARSE = 20  # one in so many may be cold before following all of them is the shorter way


@dataclass(frozen=True)
class Simulated:
    requests: int
    latency_s: Floats  # in order of arrival; infinite: refused
    cold: int
    refused: int  # throttled, or sent while there was no instance
    unfinished: int  # accepted, but not answered within the time simulated
    billed: Billed
    by_ready: int = 0  # answered by containers that are kept ready

    @property
    def answered(self) -> int:
        return self.requests - self.refused - self.unfinished


@dataclass(frozen=True)
class Fleet:
    """Instances over time: when some start or stop answering, and the seconds that all are billed for."""

    changes: tuple[tuple[float, int], ...]  # at that moment, so many more or less
    instance_s: float


def simulate(
    option: Option,
    latency: Latency,
    arrivals: Floats,
    *,
    seed: int = 0,
    horizon_s: float = MONTH_S,
    fleet: Fleet | None = None,
) -> Simulated:
    """The same seed gives every option the same luck, so that differences between options are theirs.

    `fleet`: that of a real-time option, where it is known already.
    """
    draw = np.random.default_rng([seed, 7])
    which = (draw.random(len(arrivals)) * len(latency.warm_s)).astype(np.int64)
    if isinstance(option, Serverless):
        return _serverless(option, latency, arrivals, which, draw, horizon_s)
    service_s = np.asarray(latency.warm_s)[which]
    if isinstance(option, RealTime):
        fleet = fleet or fleet_of(option, latency, arrivals, horizon_s)
        servers = [(at, option.workers * more) for at, more in fleet.changes]
        done_s, instance_s = _fifo(arrivals, service_s, servers), fleet.instance_s
    else:
        done_s, instance_s = _batch(option, arrivals, service_s)
    refused = int(np.isinf(done_s).sum())
    late = int((done_s > horizon_s).sum()) - refused
    through = 0 if isinstance(option, Batch) else len(arrivals) - refused  # a night's work is read from storage
    moved_bytes = through * (latency.bytes_in + latency.bytes_out)
    billed = Billed(moved_bytes=moved_bytes, instance_s=instance_s)
    return Simulated(len(arrivals), done_s - arrivals, 0, refused, late, billed)


def _serverless(
    option: Serverless, latency: Latency, arrivals: Floats, which: Ints, draw: np.random.Generator, horizon_s: float
) -> Simulated:
    if not latency.cold_s:
        raise FundoscopeError(f"no cold starts were measured for {option.name}", "measure some, with a schedule 'cold'")
    which_cold = (draw.random(len(arrivals)) * len(latency.cold_s)).astype(np.int64)
    warm_s, cold_s = np.asarray(latency.warm_s)[which], np.asarray(latency.cold_s)[which_cold]
    found = _around_cold_starts(option, arrivals, warm_s, cold_s) or _one_by_one(option, arrivals, warm_s, cold_s)
    cold, level = found
    warm_ms, cold_ms = latency.billed_ms
    billed_ms = np.where(cold, cold_ms[which_cold], warm_ms[which])
    took_s = np.where(cold, cold_s, warm_s)
    answered, by_ready = level > 0, (level > 0) & (level <= option.provisioned_concurrency)
    refused = len(arrivals) - int(answered.sum())
    billed = Billed(
        processing_ms=float(billed_ms[answered & ~by_ready].sum()),
        moved_bytes=(len(arrivals) - refused) * (latency.bytes_in + latency.bytes_out),
        ready_s=option.provisioned_concurrency * horizon_s,
        provisioned_ms=float(billed_ms[by_ready].sum()),
    )
    late = int((arrivals + took_s > horizon_s)[answered].sum())
    latency_s = np.where(answered, took_s, inf)
    return Simulated(len(arrivals), latency_s, int(cold.sum()), refused, late, billed, int(by_ready.sum()))


def _one_by_one(option: Serverless, arrivals: Floats, warm_s: Floats, cold_s: Floats) -> tuple[Bools, Ints]:
    """Which requests were cold, and each one's container, counted from 1; 0: refused."""
    most, ready, idle_s = option.max_concurrency, option.provisioned_concurrency, option.idle_s
    busy: list[float] = []  # when each request in progress will end
    freed = [-inf] * (most + 1)  # when each container last became idle
    cold, level = bytearray(len(arrivals)), [0] * len(arrivals)
    full_until = -inf  # while all are busy: when the first of them will not be
    for i, (at, warm, cold_one) in enumerate(zip(arrivals.tolist(), warm_s.tolist(), cold_s.tolist(), strict=True)):
        if at < full_until:
            continue
        while busy and busy[0] <= at:
            freed[len(busy)] = busy[0]
            heappop(busy)
        k = len(busy) + 1
        level[i] = k
        if k > ready and at - freed[k] > idle_s:
            cold[i] = 1
            heappush(busy, at + cold_one)
        else:
            heappush(busy, at + warm)
        if k == most:
            full_until = busy[0]
    return np.frombuffer(cold, np.bool_), np.asarray(level, np.int64)


@dataclass(frozen=True)
class _Levels:
    """A month in which nothing is cold: each request's container, and when each container became idle."""

    level: Ints  # of each request, from 1
    freed_s: Floats  # by level, and within a level in order
    first: Ints  # where in `freed_s` a level begins
    gap_s: Floats  # of each request: how long its container had been idle; infinite: never used

    def freed_before(self, level: int, at_s: float) -> float:
        if level + 1 >= len(self.first):
            return -inf
        low, high = int(self.first[level]), int(self.first[level + 1])
        place = low + int(np.searchsorted(self.freed_s[low:high], at_s, "right")) - 1
        return float(self.freed_s[place]) if place >= low else -inf


def _levels(arrivals: Floats, warm_s: Floats, most: int) -> _Levels | None:
    """None where more than `most` containers would be needed."""
    number = np.arange(len(arrivals))
    ends = np.sort(arrivals + warm_s)
    entered = number - np.searchsorted(ends, arrivals, "right") + 1
    if len(entered) and entered.max() > most:
        return None
    left = np.searchsorted(arrivals, ends, "left") - number
    # Within a level, entering and leaving alternate: sorted by level, the i-th leaving follows the i-th entering.
    # Two bytes, which are sorted by counting, hold any limit of containers.
    by_entered, by_left = (np.argsort(part.astype(np.uint16), kind="stable") for part in (entered, left))
    freed_s, ordered = ends[by_left], entered[by_entered]
    gap_s = np.empty(len(arrivals))
    first = np.searchsorted(ordered, np.arange(int(ordered[-1]) + 2 if len(ordered) else 1))
    within = arrivals[by_entered]
    within[1:] -= freed_s[:-1]
    within[first[first < len(within)]] = inf
    gap_s[by_entered] = within
    return _Levels(entered, freed_s, first, gap_s)


def _around_cold_starts(
    option: Serverless, arrivals: Floats, warm_s: Floats, cold_s: Floats
) -> tuple[Bools, Ints] | None:
    """As `_one_by_one`, or None where that has to be done after all.

    A cold request only keeps containers busy for longer, so that a request which finds its container warm in a month
    without cold starts finds it warm in truth, outside the stretches that are followed.
    """
    all_warm = _levels(arrivals, warm_s, option.max_concurrency)
    if all_warm is None:
        return None
    level = all_warm.level.copy()
    suspects = np.flatnonzero((all_warm.gap_s > option.idle_s) & (level > option.provisioned_concurrency))
    if len(suspects) * SPARSE > len(level) + 1000:
        return None
    cold = np.zeros(len(arrivals), np.bool_)
    freed: dict[int, float] = {}  # by container, of the stretches followed so far
    resume = 0
    for i in suspects.tolist():
        if i >= resume and arrivals[i] - freed.get(int(level[i]), -inf) > option.idle_s:
            end = _follow(i, option, (arrivals, warm_s, cold_s), all_warm, freed, cold, level)
            if end is None:
                return None
            resume = end
    return cold, level


def _follow(
    first: int,
    option: Serverless,
    times: tuple[Floats, Floats, Floats],
    all_warm: _Levels,
    freed: dict[int, float],
    cold: Bools,
    level: Ints,
) -> int | None:
    """From a cold request on, until what is in progress no longer differs from the month without cold starts.

    Fills in `cold` and `level`, updates `freed`, and returns the first request that is not followed; None: this way
    will not do, for a request is throttled, or cold and yet shorter than warm.
    """
    arrivals, warm_s, cold_s = times
    at = start = until = arrivals.item(first)
    busy = _in_progress(first, int(level[first]) - 1, arrivals, warm_s)
    left: dict[int, float] = {}
    j = first
    while j < len(arrivals):
        at, took_s = arrivals.item(j), warm_s.item(j)
        while busy and busy[0] <= at:
            left[len(busy)] = busy[0]
            heappop(busy)
        if at >= until and j > first:
            break
        k = len(busy) + 1
        if k > option.max_concurrency:
            return None
        if k > option.provisioned_concurrency:
            if k not in left:
                left[k] = max(all_warm.freed_before(k, start), freed.get(k, -inf))
            if at - left[k] > option.idle_s:
                if cold_s[j] < took_s:
                    return None
                took_s = cold_s.item(j)
                cold[j], until = True, max(until, at + took_s)
        level[j] = k
        heappush(busy, at + took_s)
        j += 1
    freed.update(left)
    return j


def _in_progress(i: int, number: int, arrivals: Floats, warm_s: Floats) -> list[float]:
    """When those requests end that are in progress as request `i` arrives."""
    found: list[float] = []
    j = i - 1
    while len(found) < number:
        end = arrivals.item(j) + warm_s.item(j)
        if end > arrivals[i]:
            found.append(end)
        j -= 1
    heapify(found)
    return found


def fleet_of(option: RealTime, latency: Latency, arrivals: Floats, horizon_s: float) -> Fleet:
    """Billed from order to removal.

    The rule looks at invocations, not at queues, as SageMaker's does; so it can be followed minute by minute before
    any request is. Out to what the last minute needs, in to what the busiest of the quiet ones needed. To zero after
    `zero_after_s` without a request; from zero as soon as a minute had one.
    """
    if option.autoscaling is None and not option.scale_to_zero:
        return Fleet(((0.0, option.count),), option.count * horizon_s)
    rule = option.autoscaling or Autoscaling(most=option.count)
    target = option.target_per_minute(latency) * rule.period_s / 60
    periods = ceil(horizon_s / rule.period_s)
    calls = np.bincount((arrivals // rule.period_s).astype(np.int64), minlength=periods)[:periods].tolist()
    number = option.count  # also of what goes to zero: a month begins in the middle of things
    changes = [(0.0, number)]
    ordered = high = low = quiet = 0
    held_until = ready = 0.0  # no change before the one: cooling down, or still starting; none idle before the other
    for period, seen in enumerate(calls, 1):
        now = period * rule.period_s
        ordered += number
        if number == 0:
            if seen:
                number, high, low, quiet = option.count, 0, 0, 0
                ready = now + option.start_s
                changes.append((ready, number))
                held_until = max(ready, now + rule.cooldown_s)
            continue
        high = high + 1 if seen > target * number else 0
        low = low + 1 if seen < rule.in_below * target * number else 0
        quiet = 0 if seen or now <= ready else quiet + 1
        if now < held_until:
            continue
        if option.scale_to_zero and quiet * rule.period_s >= option.zero_after_s:
            changes.append((now, -number))
            number = 0
        elif high >= rule.out_after and number < rule.most:
            wanted = min(rule.most, max(number + 1, ceil(seen / target)))
            changes.append((now + option.start_s, wanted - number))
            number, high, held_until = wanted, 0, now + max(option.start_s, rule.cooldown_s)
        elif low >= rule.in_after and number > option.count:
            wanted = max(option.count, ceil(max(calls[period - rule.in_after : period]) / target))
            if wanted < number:
                changes.append((now, wanted - number))
                number, low, held_until = wanted, 0, now + rule.cooldown_s
    return Fleet(tuple(changes), ordered * rule.period_s)


def _fifo(arrivals: Floats, service_s: Floats, changes: Sequence[tuple[float, int]]) -> Floats:
    """When each request is answered; infinite where there was no server."""
    done_s = np.full(len(arrivals), inf)
    free: list[float] = []  # when each server will be
    bounds = [*np.searchsorted(arrivals, [at for at, _ in changes]).tolist(), len(arrivals)]
    for (at, more), low, high in zip(changes, bounds, bounds[1:], strict=False):
        for _ in range(more):
            heappush(free, at)
        if more < 0:  # those that are free, or will be first; what they were sent they still answer
            free = sorted(free)[-more:]
        if low < high and free:
            done_s[low:high] = _served(arrivals[low:high], service_s[low:high], free)
    return done_s


def _served(arrivals: Floats, service_s: Floats, free: list[float]) -> Floats:
    """`free` is changed to what it is after the last of them."""
    if len(free) == 1:
        total = np.cumsum(service_s)
        slack = arrivals - (total - service_s)
        slack[0] = max(slack[0], free[0])
        done_s: Floats = total + np.maximum.accumulate(slack)
        free[0] = float(done_s[-1])
        return done_s
    done: list[float] = []
    add, replace_first = done.append, heapreplace
    for at, took in zip(arrivals.tolist(), service_s.tolist(), strict=True):
        end = free[0]
        if end < at:
            end = at
        end += took
        replace_first(free, end)
        add(end)
    return np.asarray(done)


def _batch(option: Batch, arrivals: Floats, service_s: Floats) -> tuple[Floats, float]:
    """Each waits for the next night; a night that is not done when the next one begins goes on."""
    if not len(arrivals):
        return np.empty(0), 0.0
    night = np.floor((arrivals - option.hour * HOUR_S) / DAY_S) + 1
    due_s = night * DAY_S + option.hour * HOUR_S
    done_s = _fifo(due_s + option.start_s, service_s, [(0.0, option.count * option.workers)])
    first = np.flatnonzero(np.diff(night, prepend=-1))
    last_s = np.maximum.accumulate(np.maximum.reduceat(done_s, first))
    began_s = np.maximum(due_s[first], np.concatenate([[-inf], last_s[:-1]]))
    return done_s, option.count * float((last_s - began_s).sum())
