"""When requests are sent."""

from pathlib import Path

import pytest

from fundoscope.errors import FundoscopeError
from fundoscope.experiment.schedules import cold, poisson, real_time, trace, warm


def test_the_thesis_s_schedules_are_its_own() -> None:
    assert (len(warm().at_s), warm().uncounted, warm().at_s[:3], warm().at_s[-1]) == (25, 1, (0.0, 5.0, 10.0), 120.0)
    assert (len(cold().at_s), cold().cold, cold().at_s[-1]) == (10, True, 8100.0)
    assert (len(real_time().at_s), real_time().at_s[-1], real_time().open) == (25, 120.0, False)


def test_schedules_that_cannot_be_sent_are_refused() -> None:
    for wrong in (
        lambda: warm(0),
        lambda: cold(every_s=float("inf")),
        lambda: poisson(10, 0.0, 1),
        lambda: poisson(200_000, 1.0, 1),
    ):
        with pytest.raises(FundoscopeError) as refused:
            wrong()
        assert refused.value.hint


def test_independent_callers_come_at_the_rate_and_as_unevenly_as_poisson_s() -> None:
    schedule = poisson(20_000, 50.0, seed=7)
    gaps = [later - sooner for sooner, later in zip((0.0, *schedule.at_s), schedule.at_s, strict=False)]
    mean = sum(gaps) / len(gaps)
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert mean == pytest.approx(1 / 50, rel=0.03)
    assert deviation / mean == pytest.approx(1.0, rel=0.03)  # of exponential gaps
    assert schedule.open
    assert poisson(20_000, 50.0, seed=7) == schedule != poisson(20_000, 50.0, seed=8)


def test_a_trace_is_sent_as_it_was_recorded_or_faster(tmp_path: Path) -> None:
    file = tmp_path / "clinic.csv"
    file.write_text("time\n2026-03-02T08:00:10\n2026-03-02T08:00:00\n2026-03-02T08:01:00\n")
    assert trace(file).at_s == (0.0, 10.0, 60.0)
    assert trace(file, faster=20).at_s == (0.0, 0.5, 3.0)
    file.write_text("time,who\n12.5,a\n10,b\n")
    assert trace(file).at_s == (0.0, 2.5)


@pytest.mark.parametrize("text", ["", "time\n", "when\n1\n", "time\nsoon\n", "time\nnan\n"])
def test_what_is_no_trace_is_said(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(FundoscopeError, match="is no trace of requests|has no requests"):
        trace(tmp_path / "x.csv")
    with pytest.raises(FundoscopeError, match="cannot be read"):
        trace(tmp_path / "nowhere.csv")
