"""The simulated month: against queueing theory, against months followed by hand, and every request accounted for."""

from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fundoscope.analysis.options import Autoscaling, Batch, Latency, Option, RealTime, Serverless
from fundoscope.analysis.queueing import (
    cold_share,
    cold_share_of_one,
    erlang_b,
    expected,
    mdc_wait_s,
    mg1_wait_s,
    mmc_wait_quantile_s,
    mmc_wait_s,
)
from fundoscope.analysis.simulate import Floats, _around_cold_starts, _one_by_one, fleet_of, simulate
from fundoscope.analysis.traffic import DAY_S, HOUR_S, MONTH_S, Traffic, constant, working_hours
from fundoscope.errors import FundoscopeError

# As many readings as make an exponential distribution, with its mean and deviation to a part in a thousand.
EXPONENTIAL = tuple((-np.log1p(-(np.arange(20_000) + 0.5) / 20_000)).tolist())
CONSTANT = (1.0,)
SEEDS = range(20)


def waits(option: Option, latency: Latency, rate: float) -> Floats:
    """Mean wait of a month, for each of twenty months."""
    found = []
    for seed in SEEDS:
        run = simulate(option, latency, constant(rate).arrivals(seed, days=2), seed=seed)
        found.append(run.latency_s.mean() - latency.mean_warm_s)
    return np.array(found)


def within_error(found: Floats, theory: float) -> bool:
    """Of independent months the mean lies within four standard errors, and the error is small enough to mean it."""
    error = float(found.std(ddof=1)) / np.sqrt(len(found))
    return bool(error < 0.02 * theory) and abs(float(found.mean()) - theory) < 4 * error


@pytest.mark.parametrize("busy", [0.3, 0.6, 0.8])
def test_one_instance_waits_as_m_m_1_says(busy: float) -> None:
    assert within_error(waits(RealTime("any"), Latency(EXPONENTIAL), busy), mmc_wait_s(busy, 1.0))


@pytest.mark.parametrize(("servers", "busy"), [(2, 0.7), (4, 0.8)])
def test_instances_wait_as_m_m_c_says(servers: int, busy: float) -> None:
    found = waits(RealTime("any", servers), Latency(EXPONENTIAL), busy * servers)
    assert within_error(found, mmc_wait_s(busy * servers, 1.0, servers))


def test_percentiles_of_waits_are_those_of_m_m_1() -> None:
    # Of the time in the system of M/M/1, which is exponential: mean 1 / (mu - lambda).
    run = simulate(RealTime("any"), Latency(EXPONENTIAL), constant(0.5).arrivals(4), seed=4)
    for p in (0.5, 0.95, 0.99):
        assert np.quantile(run.latency_s, p) == pytest.approx(-np.log(1 - p) / 0.5, rel=0.02)
    assert mmc_wait_quantile_s(0.95, 0.5, 1.0) == pytest.approx(np.log(0.5 / 0.05) / 0.5)


@pytest.mark.parametrize("busy", [0.5, 0.8])
def test_constant_service_waits_as_pollaczek_and_khinchine_say(busy: float) -> None:
    assert within_error(waits(RealTime("any"), Latency(CONSTANT), busy), mg1_wait_s(busy, 1.0, 0.0))


def test_workers_of_one_instance_wait_as_m_d_c_says() -> None:
    found = waits(RealTime("any", workers=3), Latency(CONSTANT), 0.8 * 3)
    assert float(found.mean()) == pytest.approx(mdc_wait_s(0.8 * 3, 1.0, 3), rel=0.03)


@pytest.mark.parametrize("service", [CONSTANT, EXPONENTIAL])
def test_throttling_is_erlang_b_whatever_the_service_times(service: tuple[float, ...]) -> None:
    option, latency = Serverless(1024, max_concurrency=5), Latency(service, service)
    shares = []
    for seed in SEEDS:
        run = simulate(option, latency, constant(3.0).arrivals(seed, days=1), seed=seed)
        shares.append(run.refused / run.requests)
    assert within_error(np.array(shares), erlang_b(5, 3.0))


def test_one_container_is_cold_as_often_as_nobody_comes_for_long() -> None:
    option, latency = Serverless(1024, 1, idle_s=60), Latency((0.5,), (5.0,))
    shares = []
    for seed in SEEDS:
        run = simulate(option, latency, constant(0.05).arrivals(seed), seed=seed)
        shares.append(run.cold / (run.requests - run.refused))
    assert within_error(np.array(shares), cold_share_of_one(0.05, 60))


@pytest.mark.parametrize("ready", [0, 1])
@pytest.mark.parametrize(("rate", "idle_s", "days"), [(0.05, 60.0, 20), (0.3, 120.0, 5), (1.5, 30.0, 1)])
def test_a_pool_is_cold_as_often_as_its_first_passages_say(rate: float, idle_s: float, days: int, ready: int) -> None:
    option, latency = Serverless(1024, 200, ready, idle_s), Latency(EXPONENTIAL, EXPONENTIAL)
    shares = []
    for seed in SEEDS:
        run = simulate(option, latency, constant(rate).arrivals(seed, days=days), seed=seed)
        shares.append(run.cold / run.requests)
    assert within_error(np.array(shares), cold_share(rate, 1.0, idle_s, ready))


def test_under_load_about_one_container_in_an_idle_time_is_cold() -> None:
    option, latency = Serverless(1024, 200, idle_s=60), Latency(EXPONENTIAL, EXPONENTIAL)
    run = simulate(option, latency, constant(12.0).arrivals(1, days=1), seed=1)
    assert run.cold == pytest.approx(DAY_S / 60, rel=1.0)  # the rule of thumb, good to a factor of two
    assert run.cold > DAY_S / 120
    assert cold_share(12.0, 1.0, 60.0) == pytest.approx(1 / 720)


def test_scaling_to_zero_is_up_as_long_as_renewal_theory_says() -> None:
    rate = 1 / 3600
    option = RealTime("any", scale_to_zero=True, zero_after_s=3600, start_s=600)
    latency, traffic = Latency((0.2,)), constant(rate)
    up = [simulate(option, latency, traffic.arrivals(seed), seed=seed).billed.instance_s for seed in SEEDS]
    # Looked at once a minute, so that both the order and the removal come half a minute later on average.
    assert float(np.mean(up)) == pytest.approx(expected(option, latency, traffic).instance_s, rel=0.03)


@settings(deadline=None, max_examples=150)
@given(
    seed=st.integers(0, 2**32 - 1),
    rate=st.floats(0.01, 8),
    cold=st.floats(0.5, 20),
    idle_s=st.floats(1, 300),
    ready=st.integers(0, 3),
    most=st.integers(3, 40),
    digits=st.sampled_from([0, 1, 9]),
)
def test_following_cold_starts_alone_is_following_every_request(
    seed: int, rate: float, cold: float, idle_s: float, ready: int, most: int, digits: int
) -> None:
    draw = np.random.default_rng(seed)
    arrivals = np.cumsum(draw.exponential(1 / rate, 3000)).round(digits)  # many at the same moment, or none
    arrivals[1500:] += 1000  # a pause in which all are given back
    warm_s, cold_s = draw.uniform(0.1, 0.6, 3000), cold * draw.uniform(0.9, 1.2, 3000)
    option = Serverless(1024, most, ready, idle_s)
    fast = _around_cold_starts(option, arrivals, warm_s, cold_s)
    slow = _one_by_one(option, arrivals, warm_s, cold_s)
    if fast is not None:
        assert [np.array_equal(one, other) for one, other in zip(fast, slow, strict=True)] == [True, True]


def test_the_short_way_is_taken_for_an_ordinary_month() -> None:
    arrivals = constant(0.4).arrivals(1)
    warm_s, cold_s = np.full(len(arrivals), 0.3), np.full(len(arrivals), 6.0)
    assert _around_cold_starts(Serverless(2048, 20), arrivals, warm_s, cold_s) is not None


OPTIONS: list[Option] = [
    Serverless(1024, 3),
    Serverless(1024, 200),
    Serverless(1024, 10, 2),
    RealTime("any"),
    RealTime("any", 2, workers=2),
    RealTime("any", 1, Autoscaling(4)),
    RealTime("any", 1, Autoscaling(4), scale_to_zero=True),
    Batch("any"),
    Batch("any", hour=3, count=2),
]
MEASURED = Latency((0.2, 0.3, 0.25, 0.9), (4.0, 5.0), 300_000, 500)


@settings(deadline=None, max_examples=60)
@given(option=st.sampled_from(OPTIONS), rate=st.floats(1e-5, 0.4), seed=st.integers(0, 1000), working=st.booleans())
def test_every_request_is_answered_refused_or_unfinished(option: Option, rate: float, seed: int, working: bool) -> None:
    traffic = Traffic("any", (0.0, 9 * HOUR_S, 15 * HOUR_S), (rate / 9, rate, 0.0), working)
    arrivals = traffic.arrivals(seed, days=3)
    run = simulate(option, MEASURED, arrivals, seed=seed, horizon_s=3 * DAY_S)
    late = int((arrivals + run.latency_s > 3 * DAY_S)[np.isfinite(run.latency_s)].sum())
    assert run.requests == len(arrivals) == len(run.latency_s)
    assert run.refused == int(np.isinf(run.latency_s).sum())
    assert run.unfinished == late
    assert run.answered + run.refused + run.unfinished == run.requests
    assert (run.latency_s > 0.2 - 1e-6).all()
    if not isinstance(option, Batch):
        assert run.billed.moved_bytes == 300_500 * (run.requests - run.refused)


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_the_same_seed_is_the_same_month(option: Option) -> None:
    arrivals = working_hours("clinic", 20_000).arrivals(1, days=7)
    one, other = (simulate(option, MEASURED, arrivals, seed=5, horizon_s=7 * DAY_S) for _ in range(2))
    assert np.array_equal(one.latency_s, other.latency_s)
    assert (one.billed, one.cold, one.refused) == (other.billed, other.cold, other.refused)


def test_containers_by_hand() -> None:
    """At 0, 1, 2 cold; 8 finds the second's container; 100 none that is left; 101 is one too many."""
    arrivals = np.array([0.0, 1.0, 8.0, 100.0, 100.5, 101.0])
    run = simulate(Serverless(1024, 2, idle_s=30), Latency((0.5,), (5.0,), 10, 1), arrivals)
    assert run.latency_s.tolist() == [5, 5, 0.5, 5, 5, inf]
    assert (run.cold, run.refused, run.answered) == (4, 1, 5)
    assert run.billed.processing_ms == 4 * 5000 + 500
    assert run.billed.moved_bytes == 55
    kept = simulate(Serverless(1024, 2, 1, idle_s=30), Latency((0.5,), (5.0,)), arrivals)
    assert kept.latency_s.tolist() == [0.5, 0.5, 0.5, 0.5, 0.5, 0.5]
    assert kept.billed.ready_s == MONTH_S
    assert (kept.billed.processing_ms, kept.billed.provisioned_ms) == (0, 3000)


def test_each_request_is_rounded_up_to_a_millisecond_of_what_is_billed() -> None:
    latency = Latency((0.8,), (3.0,), warm_billed_s=(0.5002,), cold_billed_s=(1.0,))
    run = simulate(Serverless(1024, 1), latency, np.array([0.0, 10.0, 20.0]))
    assert run.latency_s.tolist() == [3.0, 0.8, 0.8]
    assert run.billed.processing_ms == 1000 + 2 * 501


def test_two_servers_by_hand() -> None:
    run = simulate(RealTime("any", 2), Latency((3.0,)), np.array([0.0, 1.0, 2.0, 2.5, 20.0]))
    assert run.latency_s.tolist() == [3, 3, 4, 4.5, 3]  # free at 3 and 4, then at 6 and 7
    assert run.billed.instance_s == 2 * MONTH_S


def test_instances_are_added_after_three_busy_minutes_and_removed_after_fifteen_quiet_ones() -> None:
    option = RealTime("any", 1, Autoscaling(most=6, per_minute=60), start_s=300)
    minutes = [200] * 30 + [30] * 40
    arrivals = np.concatenate([60 * m + 60 * np.arange(n) / n for m, n in enumerate(minutes)])
    fleet = fleet_of(option, MEASURED, arrivals, 70 * 60)
    # 200 a minute ask for ceil(200/60) = 4, ordered at 180 s and answering at 480 s. Four are more than 200 a minute
    # load (200 < 0.9 x 240), but three would not do. Fifteen minutes of 30 later one does.
    assert fleet.changes == ((0.0, 1), (480.0, 3), (2700.0, -3))
    assert fleet.instance_s == 180 + 4 * (2700 - 180) + (4200 - 2700)


def test_an_instance_that_was_given_up_refuses_until_it_is_back() -> None:
    option = RealTime("any", scale_to_zero=True, start_s=300, zero_after_s=900)
    arrivals = 3600 + np.array([10.0, 200.0, 359.0, 361.0, 1000.0, 5000.0])
    run = simulate(option, Latency((1.0,)), arrivals, horizon_s=10800)
    # There from the beginning, given up at 900 s. Of the next hour: seen at 60 s, there at 360 s; given up at 1920 s,
    # after fifteen minutes without a request; seen again at 5040 s.
    assert run.latency_s.tolist() == [inf, inf, inf, 1, 1, inf]
    assert run.billed.instance_s == pytest.approx(900 + (1920 - 60) + (6240 - 5040))


def test_a_night_by_hand() -> None:
    option, latency = Batch("any", hour=22, start_s=300), Latency((10.0,), (), 1000, 10)
    arrivals = np.array([9.0, 21.9, 22.5]) * HOUR_S
    run = simulate(option, latency, arrivals, horizon_s=DAY_S)
    due = np.array([22, 22, 46]) * HOUR_S + 300
    assert run.latency_s.tolist() == (due + np.array([10, 20, 10]) - arrivals).tolist()
    assert (run.answered, run.unfinished) == (2, 1)
    assert run.billed.instance_s == pytest.approx(320 + 310)
    assert run.billed.moved_bytes == 0


def test_a_night_that_is_not_over_when_the_next_begins_goes_on() -> None:
    option, latency = Batch("any", hour=0, start_s=0), Latency((30 * HOUR_S,))
    run = simulate(option, latency, np.array([1.0, DAY_S + 1]))
    assert run.billed.instance_s == pytest.approx(60 * HOUR_S)
    assert run.latency_s[1] == pytest.approx(84 * HOUR_S - DAY_S - 1)


@pytest.mark.parametrize(
    "option",
    [Serverless(1024, 200), RealTime("any", 1, Autoscaling(4)), Batch("any"), Serverless(1024, 200, 2)],
    ids=lambda option: option.name,
)
def test_the_closed_form_of_a_bill_is_near_the_simulated_one(option: Option) -> None:
    traffic = working_hours("clinic", 200_000)
    bill, simulated = (
        expected(option, MEASURED, traffic),
        simulate(option, MEASURED, traffic.arrivals(2), seed=2).billed,
    )
    assert simulated.instance_s == pytest.approx(bill.instance_s, rel=0.05)
    assert simulated.ready_s == bill.ready_s
    total = simulated.processing_ms + simulated.provisioned_ms
    assert total == pytest.approx(bill.processing_ms + bill.provisioned_ms, rel=0.05)


def test_without_cold_starts_measured_a_pool_cannot_be_simulated() -> None:
    with pytest.raises(FundoscopeError, match="no cold starts were measured for serverless 1024 MB"):
        simulate(Serverless(1024), Latency((0.1,)), np.array([1.0]))


def test_an_empty_month_costs_what_stands_ready() -> None:
    empty = np.empty(0)
    assert simulate(Serverless(1024), MEASURED, empty).billed.processing_ms == 0
    assert simulate(RealTime("any"), MEASURED, empty).billed.instance_s == MONTH_S
    assert simulate(Batch("any"), MEASURED, empty).billed.instance_s == 0


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    rate=st.floats(0.5, 30),
    most=st.integers(1, 8),
    ready=st.integers(0, 2),
    idle_s=st.floats(0.5, 20),
)
def test_a_crowded_pool_is_as_when_every_container_is_asked(
    seed: int, rate: float, most: int, ready: int, idle_s: float
) -> None:
    """The plainest way: containers are a list, those in use and those that are not, and each request looks at all."""
    option = Serverless(1024, most, min(ready, most), idle_s)
    draw = np.random.default_rng(seed)
    arrivals = np.cumsum(draw.exponential(1 / rate, 150))
    warm_s, cold_s = draw.uniform(0.2, 1.0, 150), draw.uniform(2.0, 5.0, 150)
    cold, level = _one_by_one(option, arrivals, warm_s, cold_s)
    in_use: list[float] = []
    left_at = dict.fromkeys(range(1, most + 1), -inf)
    for i, at in enumerate(arrivals.tolist()):
        for end in sorted(end for end in in_use if end <= at):
            left_at[len(in_use)] = end
            in_use.remove(end)
        k = len(in_use) + 1
        assert level[i] == (k if k <= most else 0)
        if k <= most:
            assert cold[i] == (k > option.provisioned_concurrency and at - left_at[k] > idle_s)
            in_use.append(at + (cold_s if cold[i] else warm_s)[i])
