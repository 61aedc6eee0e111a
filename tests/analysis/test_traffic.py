"""Arrivals: as many as were asked for, when they were asked for, the same for the same seed; files read strictly."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fundoscope.analysis.traffic import (
    COUNTRIES,
    DAY_S,
    HOUR_S,
    MONTH_S,
    Traffic,
    constant,
    monthly,
    open_traffic,
    read_traffic,
    working_hours,
)
from fundoscope.errors import FundoscopeError


def test_a_constant_rate_is_a_poisson_process() -> None:
    arrivals = constant(0.5).arrivals(3)
    assert len(arrivals) == pytest.approx(0.5 * MONTH_S, abs=4 * np.sqrt(0.5 * MONTH_S))
    gaps = np.diff(arrivals)
    assert gaps.min() >= 0
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.01)  # exponential: deviation and mean are the same
    assert np.exp(-1) == pytest.approx((gaps > 2.0).mean(), abs=0.003)


def test_the_same_seed_gives_the_same_month_and_another_another() -> None:
    traffic = monthly(20_000)
    assert np.array_equal(traffic.arrivals(1), traffic.arrivals(1))
    assert not np.array_equal(traffic.arrivals(1)[:10], traffic.arrivals(2)[:10])


def test_a_country_is_67_million_photographs_a_year_in_working_hours() -> None:
    brazil = COUNTRIES["brazil"]
    assert brazil.photographs_per_year == 67_200_000  # 16.8 million x two eyes x two photographs
    traffic = brazil.traffic()
    assert traffic.expected() * 12 == pytest.approx(67_200_000)
    assert traffic.peak_per_s == pytest.approx(5_600_000 / (22 * 8 * 3600))
    assert traffic.mean_per_s == pytest.approx(5_600_000 / 2_592_000)
    assert traffic.open_days == 22
    twice = replace(brazil, eyes=1, photographs=1, per_year=2.0, opens=7.0, closes=19.0).traffic()
    assert twice.peak_per_s == pytest.approx(2 * 16.8e6 / 12 / (22 * 12 * 3600))
    assert twice.name == "Brazil: 16.8 million people, 2 times a year"


@pytest.mark.parametrize("wrong", [{"people": 0}, {"eyes": 0}, {"per_year": 0.0}, {"opens": 16.0, "closes": 8.0}])
def test_a_screening_of_nobody_is_no_traffic(wrong: dict[str, Any]) -> None:
    with pytest.raises(FundoscopeError):
        replace(COUNTRIES["brazil"], **wrong)


def test_working_hours_leave_nights_and_weekends_empty() -> None:
    arrivals = working_hours("clinic", 50_000).arrivals(5)
    hour, day = arrivals % DAY_S / HOUR_S, arrivals // DAY_S
    assert hour.min() >= 8
    assert hour.max() < 16
    assert set((day % 7).tolist()) == {0, 1, 2, 3, 4}


def test_a_clinic_day_is_read_span_by_span(tmp_path: Path) -> None:
    path = tmp_path / "clinic-day.csv"
    path.write_text("time,requests\n08:00,120\n10:00,60\n10:30,0\n14:00,30\n")
    traffic = read_traffic(path)
    assert traffic.name == "clinic-day"
    assert traffic.starts_s == (0, 8 * HOUR_S, 10 * HOUR_S, 10.5 * HOUR_S, 14 * HOUR_S, 17.5 * HOUR_S)
    # The last span lasts as long as the one before it: 14:00 to 17:30.
    assert traffic.rates_per_s == pytest.approx((0, 120 / 7200, 60 / 1800, 0, 30 / 12600, 0))
    assert traffic.expected() == pytest.approx(30 * 210)
    assert read_traffic(path, working_days_only=True).expected() == pytest.approx(22 * 210)
    hours = traffic.arrivals(1) % DAY_S / HOUR_S
    assert not ((hours < 8) | ((hours >= 10.5) & (hours < 14)) | (hours >= 17.5)).any()


def test_a_trace_is_replayed_as_it_was_until_the_month_is_full(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("time\n2026-03-02T08:00:00\n2026-03-02T08:00:01.5\n2026-03-03T23:59:59\n")
    traffic = read_traffic(path)
    arrivals = traffic.arrivals(99)
    assert len(arrivals) == 45  # two days, fifteen times
    assert arrivals[:4].tolist() == [28800, 28801.5, DAY_S + 86399, 2 * DAY_S + 28800]
    assert traffic.peak_per_s == pytest.approx(2 / 60)
    assert traffic.open_days == 30


def test_a_row_of_a_trace_may_be_several_requests_at_once(tmp_path: Path) -> None:
    path = tmp_path / "eyes.csv"
    path.write_text("time,requests\n2026-03-02T09:00:00,4\n2026-03-02T09:10:00,0\n2026-03-02T09:20:00,2\n")
    assert read_traffic(path).arrivals(0, days=1).tolist() == [32400.0] * 4 + [33600.0] * 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the first line of FILE is empty, not time,requests"),
        ("hour,requests\n08:00,1\n", "the first line of FILE is hour,requests, not time,requests"),
        ("time,requests\n", "FILE has no rows below its first line"),
        ("time,requests\n08:00\n", "line 2 of FILE has 1 values, not 2"),
        ("time,requests\n08:00,1\n09:00,many\n", "line 3 of FILE says 'many' requests"),
        ("time,requests\n08:00,-1\n", "line 2 of FILE says '-1' requests"),
        ("time,requests\n08:00,nan\n", "line 2 of FILE says 'nan' requests"),
        ("time,requests\n08:00,1\n08:00,1\n", "line 3 of FILE is not later than the line before"),
        ("time,requests\n08:00,1\n24:00,1\n", "line 3 of FILE says '24:00', not a time of day"),
        ("time,requests\n08:00,0\n", "FILE has no requests"),
        ("time\nyesterday\n", "line 2 of FILE says 'yesterday', not a time"),
        ("time\n2026-03-02T08:00\n2026-03-01T08:00\n", "line 3 of FILE is earlier than the line before"),
        ("time\n2026-03-02T08:00\n2026-03-02T09:00Z\n", "line 3 of FILE has a time zone where others have none"),
        ("time,requests\n2026-03-02T08:00,1.5\n", "FILE has parts of requests at single moments"),
    ],
)
def test_a_file_that_is_not_traffic_is_refused_in_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "traffic.csv"
    path.write_text(text)
    with pytest.raises(FundoscopeError) as problem:
        read_traffic(path)
    assert problem.value.message.startswith(said.replace("FILE", str(path)))
    assert problem.value.hint


@pytest.mark.parametrize(
    ("said", "per_s", "name"),
    [
        ("0.4", 0.4, "0.4 requests a second"),
        ("0.2/s", 0.2, "0.2 requests a second"),
        ("300/hour", 300 / 3600, "300 requests an hour"),
        (" 300 / h ", 300 / 3600, "300 requests an hour"),
        ("5,000/day", 5000 / 86400, "5,000 requests a day"),
        ("1e6/month", 1e6 / MONTH_S, "1,000,000 requests a month"),
        ("67_200_000/year", 67.2e6 / (12 * MONTH_S), "67,200,000 requests a year"),
    ],
)
def test_a_rate_is_read_as_people_say_it(said: str, per_s: float, name: str) -> None:
    found = open_traffic(said)
    assert found.mean_per_s == pytest.approx(per_s)
    assert found.name == name


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("0", "0 is no traffic"),
        ("-3/hour", "-3/hour is no traffic"),
        ("1e999/s", "1e999/s is no traffic"),
        ("5/fortnight", "'5/fortnight' is no rate: 'fortnight' is no time we know"),
        ("fast", "'fast' is neither a rate nor a file"),
        ("0.2 a second", "'0.2 a second' is neither a rate nor a file"),
    ],
)
def test_what_is_no_rate_is_said_in_a_sentence_with_what_to_write(said: str, problem: str) -> None:
    with pytest.raises(FundoscopeError) as found:
        open_traffic(said)
    assert found.value.message == problem
    assert found.value.hint


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(0, 0.01), min_size=1, max_size=24), st.booleans(), st.floats(0.1, 10))
def test_pieces_add_up_to_the_month_and_its_requests(rates: list[float], working: bool, factor: float) -> None:
    starts = tuple(np.linspace(0, DAY_S, len(rates), endpoint=False).tolist())
    traffic = Traffic("any", starts, tuple(rates), working).scaled(factor)
    assert sum(seconds for seconds, _ in traffic.pieces()) == pytest.approx(MONTH_S)
    assert sum(seconds * rate for seconds, rate in traffic.pieces()) == pytest.approx(traffic.expected())
