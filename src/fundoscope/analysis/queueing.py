"""Queues and pools in closed form, for requests that come independently of each other at a constant rate.

Rates are per second, times in seconds; `offered` is load in erlangs, rate by service time. The simulation is checked
against these, and where a rate has to be searched for (break-even) these are what is searched, since a simulation of a
month at every step would take minutes.

    Erlang B, C     A. K. Erlang 1917; Gross and Harris, Fundamentals of Queueing Theory, sections 2.3 and 2.5
    M/G/1           Pollaczek and Khinchine; M/D/1 is half of M/M/1
    M/D/c           Cosmetatos's approximation from M/M/c (1975; Tijms, A First Course in Stochastic Models), within
                    3 % of Crommelin's exact values in the tests
    cold starts     below
"""

from functools import lru_cache
from math import ceil, exp, inf, lgamma, log, sqrt

import numpy as np
from numpy.typing import NDArray

from fundoscope.analysis.options import Batch, Billed, Latency, Option, RealTime, Serverless
from fundoscope.analysis.traffic import Traffic

MANY = 5.0  # erlangs
NEVER = 1e-12  # a share of requests that need not be reckoned

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def erlang_b(servers: int, offered: float) -> float:
    """The share of requests that find all servers busy and are turned away."""
    blocked = 1.0
    for n in range(1, servers + 1):
        blocked = offered * blocked / (n + offered * blocked)
    return blocked


def erlang_c(servers: int, offered: float) -> float:
    """The share of requests that have to wait, where those that find all servers busy queue."""
    if offered >= servers:
        return 1.0
    blocked = erlang_b(servers, offered)
    return blocked / (1 - offered / servers * (1 - blocked))


def mmc_wait_s(rate: float, service_s: float, servers: int = 1) -> float:
    """Mean wait, exponential service; infinite where they cannot keep up."""
    offered = rate * service_s
    return erlang_c(servers, offered) * service_s / (servers - offered) if offered < servers else inf


def mmc_wait_quantile_s(p: float, rate: float, service_s: float, servers: int = 1) -> float:
    """The wait that a share `p` of requests does not exceed."""
    offered = rate * service_s
    if offered >= servers:
        return inf
    waits = erlang_c(servers, offered)
    return max(0.0, log(waits / (1 - p))) * service_s / (servers - offered)


def mg1_wait_s(rate: float, service_s: float, variation: float) -> float:
    """Mean wait behind one server; `variation` is the service time's standard deviation over its mean."""
    busy = rate * service_s
    return busy * service_s * (1 + variation**2) / (2 * (1 - busy)) if busy < 1 else inf


def md1_wait_s(rate: float, service_s: float) -> float:
    return mg1_wait_s(rate, service_s, 0.0)


def mdc_wait_s(rate: float, service_s: float, servers: int) -> float:
    """Mean wait behind several servers that always take the same time: Cosmetatos."""
    busy = rate * service_s / servers
    if not 0 < busy < 1:
        return inf if busy >= 1 else 0.0
    light = (1 - busy) * (servers - 1) * (sqrt(4 + 5 * servers) - 2) / (16 * busy * servers)
    return 0.5 * (1 + light) * mmc_wait_s(rate, service_s, servers)


def cold_share_of_one(rate: float, idle_s: float) -> float:
    """A pool of one container: cold when nothing came for `idle_s` after the last answer."""
    return exp(-rate * idle_s)


@lru_cache(maxsize=4096)
def cold_share(rate: float, service_s: float, idle_s: float, ready: int = 0) -> float:
    """A pool without limit, exponential service, the container that was idle shortest taken first.

    The k-th container then works exactly while k or more requests are in progress. It goes idle when their number
    falls to k-1 and is next needed when it climbs to k again: cold if that takes longer than `idle_s`. The number in
    progress is a birth-death process, so that this is a first-passage time; a request meets k-1 others with Poisson
    probability. `ready` containers are never given back. Above `MANY` erlangs a rule of thumb takes over, since the
    matrices grow: one container in `idle_s` is cold, whatever the load (0.8 to 2.1 up to about 17 erlangs).
    """
    if rate <= 0:
        return 0.0 if ready else 1.0
    offered = rate * service_s
    if offered > MANY:
        return min(1.0, 1 / (rate * idle_s)) if ready < offered + 4 * sqrt(offered) else 0.0
    met = np.arange(int(offered + 6 * sqrt(offered) + 10))  # others, by the request that is the k-th
    roots = np.exp(0.5 * np.array([i * log(offered) - lgamma(i + 1) - offered for i in met.tolist()]))
    levels = 1 + met[(met >= ready) & (roots**2 > NEVER)]
    return min(1.0, float(_cold_at(levels, offered, service_s, idle_s, roots).sum())) if len(levels) else 0.0


def _cold_at(levels: Ints, offered: float, service_s: float, idle_s: float, roots: Floats) -> Floats:
    """For each k: P(a request meets k-1 in progress) x P(k-1 does not climb to k within idle_s).

    The generator on 0..k-1, absorbing at k, made symmetric by the square roots of its stationary weights; all of them
    at once, the smaller ones in the corner of the largest.
    """
    n = np.arange(levels[-1])
    between = np.sqrt(offered * n[1:])
    generator = -np.diag(offered + n.astype(np.float64)) + np.diag(between, 1) + np.diag(between, -1)
    inside = n < levels[:, None]
    corners = np.where(inside[:, :, None] & inside[:, None, :], generator, -np.eye(len(n)))
    values, vectors = np.linalg.eigh(corners / service_s)
    start = np.einsum("kij,ki->kj", vectors, np.where(inside, roots[: len(n)], 0.0))
    end = np.take_along_axis(vectors, (levels - 1)[:, None, None], axis=1)[:, 0]
    stays = (end * np.exp(np.minimum(values, 0.0) * idle_s) * start).sum(axis=1)
    return np.asarray(roots[levels - 1] * np.maximum(0.0, stays))


def expected(option: Option, latency: Latency, traffic: Traffic) -> Billed:
    """What a month comes to on average, each span of the day as if its rate had always been so.

    Cold containers after a change of rate, and the minutes in which instances are added, are left to the simulation.
    """
    found = Billed()
    if isinstance(option, Batch):  # a night's work is the day's, whenever in it the photographs came
        return _nights(option, latency, traffic)
    for seconds, rate in traffic.pieces():
        found += (
            _pool(option, latency, rate, seconds)
            if isinstance(option, Serverless)
            else Billed(
                moved_bytes=rate * seconds * (latency.bytes_in + latency.bytes_out),
                instance_s=seconds * _instances(option, latency, rate),
            )
        )
    return found


def _pool(option: Serverless, latency: Latency, rate: float, seconds: float) -> Billed:
    warm_ms, cold_ms = (float(part.mean()) if len(part) else 0.0 for part in latency.billed_ms)
    cold_s = float(np.mean(latency.cold_s)) if latency.cold_s else latency.mean_warm_s
    cold, busy_s = 0.0, latency.mean_warm_s
    if latency.cold_s and rate > 0:
        for _ in range(2):  # cold requests are longer, and keep more containers
            cold = cold_share(rate, busy_s, option.idle_s, option.provisioned_concurrency)
            busy_s = (1 - cold) * latency.mean_warm_s + cold * cold_s
    offered = rate * busy_s
    answered = rate * seconds * (1 - erlang_b(option.max_concurrency, offered))
    by_ready = erlang_share(option.provisioned_concurrency, offered) if option.provisioned_concurrency else 0.0
    processing_ms = answered * ((1 - cold) * warm_ms + cold * cold_ms)
    return Billed(
        processing_ms=(1 - by_ready) * processing_ms,
        moved_bytes=answered * (latency.bytes_in + latency.bytes_out),
        ready_s=option.provisioned_concurrency * seconds,
        provisioned_ms=by_ready * processing_ms,
    )


def erlang_share(ready: int, offered: float) -> float:
    """The share of work done by the first `ready` of as many containers as are needed: requests that find one free."""
    terms, term = 0.0, exp(-offered)
    for n in range(ready):
        terms += term
        term *= offered / (n + 1)
    return min(1.0, terms)


def _instances(option: RealTime, latency: Latency, rate: float) -> float:
    """How many are paid for, on average."""
    wanted = ceil(60 * rate / option.target_per_minute(latency)) if option.autoscaling else option.count
    number = min(max(wanted, option.count), option.most)
    return number * _up_share(rate, option) if option.scale_to_zero else number


def _up_share(rate: float, option: RealTime) -> float:
    """Ordered by a request, up until `zero_after_s` pass without one: (e^(rate T) - 1)/rate on average; down 1/rate."""
    if rate * option.zero_after_s > 50:
        return 1.0
    if rate == 0:
        return 0.0
    up_s = option.start_s + (exp(rate * option.zero_after_s) - 1) / rate
    return up_s / (up_s + 1 / rate)


def _nights(option: Batch, latency: Latency, traffic: Traffic) -> Billed:
    requests, days = traffic.expected(), traffic.open_days
    nights = days if traffic.trace_s else days * (1 - exp(-requests / days))
    work_s = requests * latency.mean_warm_s / option.workers
    return Billed(instance_s=nights * option.count * option.start_s + work_s)
