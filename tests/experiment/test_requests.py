"""When requests are sent."""

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from fundoscope.errors import FundoscopeError
from fundoscope.experiment.requests import cold, poisson, real_time, trace, warm


def test_the_thesis_s_schedules_are_its_own() -> None:
    assert (len(warm().at_s), warm().uncounted, warm().at_s[:3], warm().duration_s) == (25, 1, (0.0, 5.0, 10.0), 120.0)
    assert (len(cold().at_s), cold().cold, cold().duration_s) == (10, True, 8100.0)
    assert (len(real_time().at_s), real_time().uncounted) == (25, 0)


def test_open_loop_callers_come_as_a_poisson_process_does() -> None:
    found = poisson(20.0, 500.0, seed=3)
    assert abs(len(found.at_s) - 10_000) < 4 * 100  # four standard deviations
    assert found.at_s == poisson(20.0, 500.0, seed=3).at_s
    gaps = np.diff(found.at_s)
    assert stats.kstest(gaps, "expon", args=(0, 1 / 20)).pvalue > 0.001


def test_a_trace_begins_at_its_first_moment(tmp_path: Path) -> None:
    path = tmp_path / "clinic.txt"
    path.write_text("28800.5\n28801\n\n28900\n")
    assert trace(path).at_s == (0.0, 0.5, 99.5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has 0 moments"),
        ("one\n", "is no list of moments"),
        ("2\n1\n", "are not in order"),
        ("nan\n", "not in order"),
    ],
)
def test_what_is_no_trace_says_so(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text(text)
    with pytest.raises(FundoscopeError, match=message):
        trace(path)


def test_schedules_that_cannot_be_sent_are_refused(tmp_path: Path) -> None:
    for wrong in (
        lambda: warm(0),
        lambda: cold(every_s=float("inf")),
        lambda: poisson(0, 1, 0),
        lambda: poisson(1e6, 1e6, 0),
        lambda: trace(tmp_path / "none"),
    ):
        with pytest.raises(FundoscopeError) as refused:
            wrong()
        assert refused.value.hint
