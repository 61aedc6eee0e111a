"""Summaries and comparisons, against textbooks and scipy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fundoscope.analysis.summaries import holm, pareto, ratio, repetitions_for, summarise, summarise_cells

PAPER_GPU, PAPER_TPU = [51.0, 51.9, 50.8, 51.6], [33.1, 33.5, 33.2, 33.0]  # minutes, near the means of Araújo et al.


def test_a_mean_has_students_interval() -> None:
    """Jain 1991, example 13.2: 32 CPU times, mean 3.90, s 0.95; at 95 % (3.57, 4.23)."""
    times = [3.1, 4.2, 2.8, 5.1, 2.8, 4.4, 5.6, 3.9, 3.9, 2.7, 4.1, 3.6, 3.1, 4.5, 3.8, 2.9]
    times += [3.4, 3.3, 2.8, 4.5, 4.9, 5.3, 1.9, 3.7, 3.2, 4.1, 5.1, 3.2, 3.9, 4.8, 5.9, 4.2]
    found = summarise(times)
    assert (found.n, round(found.mean, 2), round(found.deviation or 0, 2)) == (32, 3.9, 0.95)
    low, high = stats.t.interval(0.95, 31, np.mean(times), stats.sem(times))
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))


def test_one_reading_has_no_interval() -> None:
    found = summarise([3.0])
    assert (found.mean, found.low, found.deviation, found.variation) == (3.0, None, None, None)


def test_a_ratio_is_welchs_test_on_logarithms() -> None:
    found = ratio(PAPER_GPU, PAPER_TPU)
    expected = stats.ttest_ind(np.log(PAPER_GPU), np.log(PAPER_TPU), equal_var=False)
    low, high = expected.confidence_interval()
    assert (found.p, found.low, found.high) == (
        pytest.approx(expected.pvalue),
        pytest.approx(np.exp(low)),
        pytest.approx(np.exp(high)),
    )
    value, *_ = found.percent_less()
    assert value == pytest.approx(100 * (1 - 1 / found.value))


@settings(deadline=None)
@given(st.lists(st.floats(0.1, 100), min_size=2, max_size=8), st.lists(st.floats(0.1, 100), min_size=2, max_size=8))
def test_three_times_as_fast_is_a_third_of_the_time(one: list[float], other: list[float]) -> None:
    there, back = ratio(one, other), ratio(other, one).inverse
    for name in ("value", "low", "high", "p"):
        assert getattr(there, name) == pytest.approx(getattr(back, name), rel=1e-9)


def test_holms_adjustment_is_the_one_of_his_paper() -> None:
    """Holm 1979, by hand: 0.01 x 4; max(0.04, 0.02 x 3); max(0.06, 0.03 x 2); max(0.06, 0.04)."""
    found = holm({"a": 0.03, "b": 0.01, "c": 0.04, "d": 0.02})
    assert found == pytest.approx({"b": 0.04, "d": 0.06, "a": 0.06, "c": 0.06})


@settings(deadline=None)
@given(st.floats(0.001, 0.8), st.floats(0.01, 0.5))
def test_so_many_repetitions_are_enough_and_one_fewer_is_not(variation: float, precision: float) -> None:
    n = repetitions_for(variation, precision)
    assert stats.t.ppf(0.975, n - 1) * variation / n**0.5 <= precision
    if n > 2:
        assert stats.t.ppf(0.975, n - 2) * variation / (n - 1) ** 0.5 > precision


def test_the_front_holds_what_nothing_beats() -> None:
    points = {"fast": (1.0, 9.0), "middle": (2.0, 5.0), "worse": (3.0, 5.0), "cheap": (9.0, 1.0), "bad": (9.0, 9.0)}
    assert pareto(points) == ["fast", "middle", "cheap"]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.floats(1e-3, 1e6)), max_size=40))
def test_all_cells_at_once_are_each_cell_by_itself(readings: list[tuple[int, float]]) -> None:
    cell = np.array([which for which, _ in readings], np.int64)
    values = np.array([value for _, value in readings], np.float64)
    found = summarise_cells(values, cell, 7)
    assert len(found) == 7
    for place, summary in enumerate(found):
        alone = values[cell == place]
        if not len(alone):
            assert summary is None
            continue
        assert summary is not None
        found_here = (summary.n, summary.mean, summary.median, summary.least, summary.greatest)
        assert found_here == pytest.approx(
            (len(alone), alone.mean(), np.median(alone), alone.min(), alone.max()), rel=1e-7, abs=1e-7
        )
        if len(alone) == 1:
            assert (summary.deviation, summary.low, summary.high) == (None, None, None)
            continue
        deviation = alone.std(ddof=1)
        half = stats.t.ppf(0.975, len(alone) - 1) * deviation / len(alone) ** 0.5
        assert (summary.deviation, summary.low, summary.high) == pytest.approx(
            (deviation, alone.mean() - half, alone.mean() + half), rel=1e-7, abs=1e-7
        )
