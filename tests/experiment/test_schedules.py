"""When requests are sent."""

import pytest

from fundoscope.errors import FundoscopeError
from fundoscope.experiment.requests import cold, real_time, warm


def test_the_thesis_s_schedules_are_its_own() -> None:
    assert (len(warm().at_s), warm().uncounted, warm().at_s[:3], warm().duration_s) == (25, 1, (0.0, 5.0, 10.0), 120.0)
    assert (len(cold().at_s), cold().cold, cold().duration_s) == (10, True, 8100.0)
    assert (len(real_time().at_s), real_time().uncounted) == (25, 0)


def test_schedules_that_cannot_be_sent_are_refused() -> None:
    for wrong in (lambda: warm(0), lambda: cold(every_s=float("inf"))):
        with pytest.raises(FundoscopeError) as refused:
            wrong()
        assert refused.value.hint
