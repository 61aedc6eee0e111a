"""Advice: dollars that can be checked by hand, what may not be advised, and how sure it is."""

import json
from dataclasses import replace
from math import inf

import numpy as np
import pytest

from fundoscope.analysis.advise import Advice, ArtefactGuard, Certainty, Objective, advise, parse_objective
from fundoscope.analysis.amounts import dollars, percent, seconds
from fundoscope.analysis.break_even import curves
from fundoscope.analysis.country import country_plan
from fundoscope.analysis.month import Estimate, ProvisionedPrice, Tariff, statistics_of
from fundoscope.analysis.options import Autoscaling, Batch, Latency, Option, RealTime, Serverless
from fundoscope.analysis.prices import GB, open_prices
from fundoscope.analysis.simulate import simulate
from fundoscope.analysis.traffic import COUNTRIES, MONTH_S, Traffic, constant, monthly, working_hours
from fundoscope.deploy import endpoint
from fundoscope.errors import FundoscopeError
from fundoscope.report.advice_words import headline, how_sure, told_break_evens, what_would_change

PRICES = open_prices("aws-sagemaker-us-east-1-2025-01-26")
HALF = Latency((0.5,) * 100, (5.0,) * 100)  # always half a second, cold five
LONG_IDLE = 1e6  # containers that are kept as good as for ever


def advice(traffic: Traffic, ways: dict[Option, Latency], objective: str = "p95<2s", **more: object) -> Advice:
    latencies = {option.name: latency for option, latency in ways.items()}
    return advise(traffic, list(ways), latencies, PRICES, parse_objective(objective), resamples=20, **more)  # type: ignore[arg-type]


def row(found: Advice, option: Option) -> Estimate:
    return next(each for each in found.estimates if each.name == option.name)


@pytest.mark.parametrize(
    ("text", "statistic", "seconds"),
    [("p95<2s", "p95", 2.0), (" p99 < 750 ms ", "p99", 0.75), ("mean<0.3s", "mean", 0.3), ("p50<1s", "p50", 1.0)],
)
def test_an_objective_is_read_as_written(text: str, statistic: str, seconds: float) -> None:
    assert parse_objective(text) == Objective(statistic, seconds)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "p95", "p95<2", "p96<2s", "p95>2s", "p95<=2s", "p95<-2s", "p95<0s", "p95<2s!"])
def test_anything_else_is_no_objective(text: str) -> None:
    with pytest.raises(FundoscopeError, match="is no objective"):
        parse_objective(text)


def test_a_month_costs_what_a_hand_reckons() -> None:
    pool, instance = Serverless(2048, 200, idle_s=LONG_IDLE), RealTime("ml.m5.xlarge", 2)
    latency = Latency((0.5,) * 100, (5.0,) * 100, 300_000, 700)
    found = advice(monthly(100_000), {pool: latency, instance: latency})
    requests, cold = row(found, pool).requests, row(found, pool).cold_share
    moved = 0.016 * requests * 300_700 / GB
    busy_ms = requests * ((1 - cold) * 500 + cold * 5000)
    assert row(found, pool).usd == pytest.approx(2 * 0.00002 * busy_ms / 1000 + moved)
    assert row(found, instance).usd == pytest.approx(2 * 0.23 * 720 + moved)
    assert requests == pytest.approx(100_000, rel=0.02)
    assert found.advised == pool.name
    assert found.estimates[0].usd_per_thousand == pytest.approx(1000 * (row(found, pool).usd or 0) / requests)


@pytest.mark.parametrize(
    ("memory_mb", "instance", "busy"),
    [  # the busy fraction from which an instance is cheaper: prices.md, "break-even in one line"
        (3072, "ml.c7g.xlarge", 0.81),
        (3072, "ml.m6g.xlarge", 0.86),
        (4096, "ml.c7g.xlarge", 0.60),
        (4096, "ml.m5.xlarge", 0.80),
        (6144, "ml.m6g.xlarge", 0.43),
        (6144, "ml.m5.xlarge", 0.53),
    ],
)
def test_break_even_rates_are_those_of_the_published_table(memory_mb: int, instance: str, busy: float) -> None:
    for idle_s, how in ((LONG_IDLE, "closed form"), (600.0, "search")):
        pool, rented = Serverless(memory_mb, 200, idle_s=idle_s), RealTime(instance)
        (found,) = advice(monthly(10_000), {pool: HALF, rented: HALF}).break_evens
        assert (found.below, found.above, found.how) == (pool.name, rented.name, how)
        # With containers given back after ten minutes a few requests are cold, and the pool a little dearer.
        assert found.rate_per_s * 0.5 == pytest.approx(busy, abs=0.005 if how == "closed form" else 0.03)
        assert found.keeps_up
        assert found.requests_per_month == pytest.approx(found.rate_per_s * MONTH_S)


def test_at_a_break_even_rate_both_do_cost_the_same() -> None:
    pool, night = Serverless(2048, 200), Batch("ml.c5.large")
    ways: dict[Option, Latency] = {pool: HALF, night: HALF}
    (found,) = advice(working_hours("clinic", 20_000), ways, "p95<90000s").break_evens
    there = advice(working_hours("clinic", found.requests_per_month), ways, "p95<90000s")
    assert row(there, pool).usd == pytest.approx(row(there, night).usd, rel=0.03)


def test_who_fails_the_guard_is_listed_and_never_advised() -> None:
    good, bad = Serverless(1024, artefact="float32"), Serverless(1024, artefact="int8")
    fast = Latency((0.1,) * 100, (1.0,) * 100)
    guard = {"float32": ArtefactGuard(True), "int8": ArtefactGuard(False, "sensitivity 0.031 lower, margin 0.02")}
    found = advice(monthly(50_000), {good: HALF, bad: fast}, "mean<9s", guard=guard)
    assert found.advised == good.name
    refused = row(found, bad)
    assert refused.why_not == "its artefact failed its guard: sensitivity 0.031 lower, margin 0.02"
    assert (refused.usd or inf) < (row(found, good).usd or 0)  # cheaper, and still not advised
    assert bad.name not in found.pareto
    assert found.flip is None or bad.name not in (found.flip.of, found.flip.to)
    alone = advice(monthly(50_000), {bad: fast}, "mean<9s", guard=guard)
    assert (alone.advised, alone.certainty, alone.flip, alone.break_evens) == (None, None, None, ())


def test_an_artefact_that_nobody_judged_is_an_error() -> None:
    with pytest.raises(FundoscopeError, match="nothing says whether the artefact 'int8' passed its guard"):
        advice(monthly(1000), {Serverless(1024, artefact="int8"): HALF})


def test_a_percentile_beyond_the_readings_is_withheld() -> None:
    few = Latency(tuple(np.linspace(0.4, 0.6, 25)), (5.0,) * 10)
    instance = RealTime("ml.m5.xlarge")
    found = row(advice(constant(0.01), {instance: few}, "p99<2s"), instance)
    assert found.latency_s["p95"] is not None
    assert found.latency_s["p99"] is None
    assert found.why_not == "25 warm readings cannot say its p99"
    assert row(advice(constant(0.01), {instance: HALF}, "p99<2s"), instance).why_not == ""


def test_a_percentile_among_cold_starts_needs_cold_readings() -> None:
    """One in ten is cold: p95 is the middle of the cold readings, p99 the last of them, p90 the last warm one."""
    latency = Latency(tuple(np.linspace(0.4, 0.6, 20)), tuple(np.linspace(5, 6, 5)))
    arrivals = (1000.0 * np.arange(100)[:, None] + 10.0 * np.arange(10)).ravel()
    run = simulate(Serverless(1024, idle_s=30), latency, arrivals)
    assert (run.requests, run.cold) == (1000, 100)
    known = statistics_of(Serverless(1024), latency, run)
    assert known["p50"] == pytest.approx(np.linspace(0.4, 0.6, 20)[11])
    assert known["p90"] is None  # nothing warm lies beyond
    assert known["p95"] == pytest.approx(5.5)
    assert known["p99"] is None
    assert known["mean"] == pytest.approx(0.9 * 0.5 + 0.1 * 5.5)


def test_refused_requests_are_never_answered_and_too_many_are_no_service() -> None:
    narrow, wide = Serverless(1024, 1), Serverless(1024, 50)
    found = advice(constant(1.0), {narrow: HALF, wide: HALF})
    # Erlang B for one server and half an erlang: a third; a little more with cold starts.
    assert row(found, narrow).refused_share == pytest.approx(1 / 3, abs=0.01)
    assert row(found, narrow).latency_s["p95"] == inf
    assert row(found, narrow).why_not.startswith("it refuses 33")
    assert found.advised == wide.name
    assert json.loads(json.dumps(found.to_json()))["estimates"][1]["latency_s"]["p95"] == "never"


def test_containers_kept_ready_have_no_price_unless_it_is_given() -> None:
    ready = Serverless(1024, 20, 1)
    found = advice(constant(0.001), {ready: HALF, Serverless(1024): HALF})
    assert row(found, ready).usd is None
    assert row(found, ready).why_not == "the price of provisioned concurrency is not known"
    priced = advice(constant(0.001), {ready: HALF}, provisioned=ProvisionedPrice(5e-6, 1.5e-5))
    requests = row(priced, ready).requests
    kept = 5e-6 * MONTH_S + 1.5e-5 * 0.5 * requests
    assert row(priced, ready).usd == pytest.approx(kept, rel=0.01)
    assert row(priced, ready).cold_share < 0.002


def test_a_price_that_the_list_lacks_is_an_error() -> None:
    with pytest.raises(FundoscopeError, match="has no price for 'ml.m9.xlarge'"):
        advice(monthly(1000), {RealTime("ml.m9.xlarge"): HALF})
    small = replace(PRICES, serverless=replace(PRICES.serverless, memory_gb=(1, 2)))  # type: ignore[type-var]
    with pytest.raises(FundoscopeError, match="has no price for 3072 MB"):
        advise(monthly(1000), [Serverless(3072)], {Serverless(3072).name: HALF}, small, parse_objective("p95<2s"))


def test_rare_requests_are_cold_and_miss_an_objective_that_warm_ones_meet() -> None:
    pool, instance = Serverless(2048), RealTime("ml.c5.large")
    rare = advice(constant(1 / 3600), {pool: HALF, instance: HALF})
    assert row(rare, pool).cold_share == pytest.approx(np.exp(-1 / 6), abs=0.05)  # ten minutes of an hour
    assert row(rare, pool).why_not == "its p95 is 5 s"
    assert rare.advised == instance.name
    often = advice(constant(0.1), {pool: HALF, instance: HALF})
    assert often.advised == pool.name
    assert often.pareto == (pool.name,)


def test_who_costs_less_or_answers_sooner_is_on_the_front() -> None:
    cheap, quick, worse = Serverless(1024), RealTime("ml.c5.large"), RealTime("ml.p3.2xlarge")
    latencies: dict[Option, Latency] = {cheap: HALF.times(3), quick: HALF.times(0.2), worse: HALF}
    assert advice(constant(0.05), latencies).pareto == (cheap.name, quick.name)


def test_a_clear_winner_is_certain_and_a_close_one_is_not() -> None:
    draw = np.random.default_rng(1)

    def readings(mean: float, n: int) -> tuple[float, ...]:
        return tuple((mean * draw.lognormal(0, 0.2, n)).tolist())

    one, two, far = Serverless(1024), Serverless(2048), RealTime("ml.p3.2xlarge")
    even: dict[Option, Latency] = {
        one: Latency(readings(0.6, 30), readings(5, 30)),
        two: Latency(readings(0.3, 30), readings(2.5, 30)),
    }
    close = advice(constant(0.3), {**even, far: HALF}).certainty
    clear = advice(constant(0.3), {one: even[one], far: HALF}).certainty
    assert clear is not None
    assert close is not None
    assert (clear.cheapest, clear.meets, clear.both) == (1.0, 1.0, 1.0)
    assert 0.3 < close.both < 1.0


def test_an_objective_at_the_edge_is_met_in_some_resamples_only() -> None:
    latency = Latency(tuple(np.linspace(0.5, 1.5, 40)), (2.0,) * 10)
    found = advice(constant(1.0), {RealTime("ml.c5.large", 8): latency}, "p50<1.0s")
    assert found.certainty is not None
    assert 0.1 < found.certainty.meets < 0.95


def test_the_smallest_change_is_the_price_where_the_second_is_near() -> None:
    first, second = RealTime("ml.c7g.xlarge"), RealTime("ml.m6g.xlarge")
    flip = advice(constant(0.05), {first: HALF, second: HALF}, "p95<60s").flip
    assert flip is not None
    assert (flip.what, flip.of, flip.to) == ("price", "ml.c7g.xlarge", second.name)
    assert flip.factor == pytest.approx(0.1848 / 0.174)


def test_the_smallest_change_is_the_latency_where_the_objective_is_near() -> None:
    pool, other = Serverless(1024, idle_s=LONG_IDLE), RealTime("ml.p3.2xlarge")
    flip = advice(constant(0.1), {pool: HALF, other: HALF}, "p95<0.6s").flip
    assert flip is not None
    assert (flip.what, flip.of, flip.to) == ("latency", pool.name, other.name)
    assert flip.factor == pytest.approx(0.6 / 0.5, rel=0.001)


def test_a_cheaper_option_that_nearly_meets_the_objective_flips_by_being_faster() -> None:
    slow, quick = Serverless(1024, idle_s=LONG_IDLE), RealTime("ml.p3.2xlarge")
    flip = advice(constant(0.1), {slow: HALF, quick: HALF.times(0.2)}, "p95<0.45s").flip
    assert flip is not None
    assert (flip.what, flip.of, flip.to) == ("latency", slow.name, slow.name)
    assert flip.factor == pytest.approx(0.9, rel=0.001)


def test_options_that_cannot_be_told_apart_or_were_not_measured_are_refused() -> None:
    options = [Serverless(1024), Serverless(1024)]
    objective = parse_objective("p95<2s")
    with pytest.raises(FundoscopeError, match="is listed more than once"):
        advise(monthly(1000), options, {options[0].name: HALF}, PRICES, objective)
    with pytest.raises(FundoscopeError, match="nothing was measured of"):
        advise(monthly(1000), options[:1], {}, PRICES, objective)
    with pytest.raises(FundoscopeError, match="no way to serve"):
        advise(monthly(1000), [], {}, PRICES, objective)


def test_of_a_whole_country_a_week_is_simulated_and_a_month_is_billed() -> None:
    pool, instances = Serverless(2048), RealTime("ml.c7g.xlarge", 4, Autoscaling(16), workers=4)
    found = advice(COUNTRIES["brazil"].traffic(), {pool: HALF, instances: HALF})
    assert found.simulated_days == 7
    # 5.6 million photographs of half a second at 2 GB.
    assert row(found, pool).usd == pytest.approx(5_600_000 * 0.5 * 2 * 0.00002, rel=0.02)
    assert found.advised is not None


def test_the_same_seed_gives_the_same_advice() -> None:
    ways: dict[Option, Latency] = {Serverless(1024): HALF, RealTime("ml.c5.large", autoscaling=Autoscaling(3)): HALF}
    one, other = (advice(working_hours("clinic", 30_000), ways) for _ in range(2))
    assert one == other


def test_of_two_that_cost_the_same_the_one_listed_first_is_advised() -> None:
    fixed, scaled = RealTime("ml.c5.large"), RealTime("ml.c5.large", autoscaling=Autoscaling(4))
    assert advice(constant(0.01), {fixed: HALF, scaled: HALF}).advised == fixed.name
    assert advice(constant(0.01), {scaled: HALF, fixed: HALF}).advised == scaled.name


def test_a_break_even_that_an_instance_cannot_serve_is_said_to_be_so() -> None:
    """A pool of 1 GB costs less than the instance however busy it is (prices.md: never); beyond that only in theory."""
    pool, rented = Serverless(1024, 200), RealTime("ml.c7g.xlarge")
    (found,) = advice(constant(0.1), {pool: HALF, rented: HALF}).break_evens
    assert found.rate_per_s * 0.5 == pytest.approx(2.42, abs=0.03)
    assert not found.keeps_up


def test_a_dearer_pool_gets_the_room_it_needs_before_it_breaks_even() -> None:
    """A limit costs nothing, and is raised with the traffic: 5 at once or 200, the rate is the same."""
    rates = []
    for most in (5, 200):
        pool, rented = Serverless(6144, most), RealTime("ml.m5.xlarge", workers=50)
        (found,) = advice(monthly(10_000), {pool: HALF, rented: HALF}).break_evens
        assert found.keeps_up
        rates.append(found.rate_per_s)
    assert rates[0] == pytest.approx(rates[1])


def test_curves_meet_where_two_ways_break_even_and_end_where_they_no_longer_keep_up() -> None:
    pool, rented = Serverless(4096, 200), RealTime("ml.m5.xlarge")
    traffic = monthly(100_000)
    (found,) = advice(traffic, {pool: HALF, rented: HALF}).break_evens
    latencies = {pool.name: HALF, rented.name: HALF}
    one, other = curves([pool, rented], latencies, Tariff(PRICES), traffic)
    costs = [np.interp(found.requests_per_month, each.requests_per_month, each.usd) for each in (one, other)]
    assert costs[0] == pytest.approx(costs[1], rel=0.01)
    assert one.requests_per_month[-1] == pytest.approx(1e8)
    assert other.requests_per_month[-1] < 2 * MONTH_S < other.requests_per_month[-1] * 1.3  # two a second is all


def test_trials_that_differ_make_advice_less_sure_than_readings_that_do() -> None:
    """The same readings: shuffled over the trials, or each trial its own level."""
    levels = np.repeat([0.35, 0.45, 0.55], 20)
    apart = Latency(tuple(levels.tolist()), (3.0,) * 9, warm_trials=(20, 20, 20))
    spread = {True: [], False: []}
    for trials, found in spread.items():
        draw = np.random.default_rng(3)
        latency = apart if trials else replace(apart, warm_trials=())
        found += [latency.resampled(draw).mean_warm_s for _ in range(400)]
    assert np.std(spread[False]) == pytest.approx(levels.std() / np.sqrt(60), rel=0.15)
    assert np.std(spread[True]) == pytest.approx(levels.std() / np.sqrt(3), rel=0.15)


def test_minutes_and_hours_are_objectives_too() -> None:
    assert parse_objective("p95<24h") == Objective("p95", 86400.0)
    assert parse_objective("mean < 5 min") == Objective("mean", 300.0)
    night = Batch("ml.c5.large")
    assert advice(working_hours("clinic", 20_000), {night: HALF}, "p95<24h").advised == night.name


def test_more_than_can_be_simulated_is_refused_before_it_is_drawn() -> None:
    with pytest.raises(FundoscopeError, match="86,400,000 requests a day are more than are simulated"):
        advice(constant(1000.0), {Serverless(1024): HALF})


def test_advice_in_words() -> None:
    pool, instance = Serverless(2048), RealTime("ml.c5.large")
    found = advice(constant(0.1), {pool: HALF, instance: HALF})
    assert headline(found).startswith(f"{pool.name}: 5.")
    assert "a thousand; p50 0.5 s, p95 0.5 s, p99 not known from so few readings; " in headline(found)
    assert headline(found).endswith("% cold, none throttled")
    assert how_sure(found) == "in all 20 resamples of the readings it is the cheapest that meets p95<2s"
    unsure = replace(found, certainty=Certainty(0.9, 0.85, 0.8, 200))
    assert how_sure(unsure) == (
        "in 80 % of 200 resamples of the readings it is the cheapest that meets p95<2s: it meets it in 85 %, and none "
        "that does is cheaper in 90 %"
    )
    assert what_would_change(found).startswith("if its requests took ")
    assert told_break_evens(found)[0].endswith(f"requests a month: {pool.name} below that, {instance.name} above")
    none = advice(constant(0.1), {pool: HALF}, "p95<100ms")
    assert headline(none) == (
        f"no way that was measured can be advised for p95<0.1s: {pool.name}, for one, will not do: its p95 is 0.5 s"
    )
    assert (how_sure(none), what_would_change(none), told_break_evens(none)) == ("", "", [])


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (seconds(None), "–"),
        (seconds(inf), "never"),
        (seconds(0.1234), "0.123 s"),
        (seconds(150.0), "2.5 min"),
        (seconds(50_000.0), "13.9 h"),
        (dollars(None), "not known"),
        (dollars(0.00123), "0.0012"),
        (dollars(1234.5), "1,234.50"),
        (dollars(0.0), "0.00"),
        (percent(0.0), "0 %"),
        (percent(0.00001), "< 0.01 %"),
        (percent(0.1234), "12.3 %"),
    ],
)
def test_amounts_are_said_for_people(said: str, words: str) -> None:
    assert said == words


def test_what_is_deployed_of_an_option_keeps_its_numbers() -> None:
    scaled = RealTime("ml.c5.large", 2, Autoscaling(6), workers=2)
    assert scaled.to_deploy(HALF) == endpoint.RealTime("ml.c5.large", 2, endpoint.Autoscaling(2, 6, 120))
    assert RealTime("ml.c5.large").to_deploy(HALF) == endpoint.RealTime("ml.c5.large")
    with pytest.raises(FundoscopeError, match="cannot have 300 requests at once"):
        Serverless(1024, 300)


def test_a_country_is_planned_by_the_year_with_what_each_way_takes() -> None:
    pool, night = Serverless(2048, 60), Batch("ml.c5.large")
    brazil = COUNTRIES["brazil"]
    found = advice(brazil.traffic(), {pool: HALF, night: HALF})
    plan = country_plan(brazil, found, {pool.name: HALF, night.name: HALF})
    assert plan.photographs_per_year == 67_200_000
    assert plan.peak_per_s == pytest.approx(8.84, abs=0.005)
    one, other = plan.rows
    assert one.usd_per_year == pytest.approx(67_200_000 * 0.5 * 2 * 0.00002, rel=0.02)
    assert (one.way, one.takes) == (pool.name, "60 at once")
    assert one.cannot == "more than 60 at once (200 is the most there is) are refused: about 120 a second"
    assert other.cannot.startswith("its p95 is ")
