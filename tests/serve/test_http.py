import pytest
from hypothesis import given
from hypothesis import strategies as st

from fundoscope.serve.http import accepted
from fundoscope.serve.metrics import SECONDS, Board, Metrics

OFFERED = ("application/json", "application/jsonlines", "text/csv")


@pytest.mark.parametrize(
    ("header", "chosen"),
    [
        ("", "application/json"),
        ("*/*", "application/json"),
        ("text/*", "text/csv"),
        ("application/json;q=0.2, text/csv", "text/csv"),
        ("text/csv;q=0", None),
        ("*/*, application/json;q=0", "application/jsonlines"),  # the more specific range decides
        ("image/png", None),
        ("text/csv;q=oops", None),
    ],
)
def test_the_answer_is_of_the_kind_preferred(header: str, chosen: str | None) -> None:
    assert accepted(header, OFFERED) == chosen


@given(st.text(max_size=200))
def test_any_accept_header_leads_to_a_kind_we_have_or_none(header: str) -> None:
    assert accepted(header, OFFERED) in (*OFFERED, None)


@given(st.lists(st.floats(0, 100, allow_nan=False), max_size=30))
def test_a_histograms_buckets_count_what_is_not_above_them(seconds: list[float]) -> None:
    metrics = Metrics(Board(1))
    for value in seconds:
        metrics.phase("predict", value)
    lines = dict(line.rsplit(" ", 1) for line in metrics.text([]).splitlines() if line[0] != "#")
    for bound in SECONDS:
        counted = float(lines[f'fundoscope_seconds_bucket{{phase="predict",le="{bound:g}"}}'])
        assert counted == sum(value <= bound for value in seconds)
    assert float(lines['fundoscope_seconds_count{phase="predict"}']) == len(seconds)


def test_workers_counts_add_up_and_a_crashed_ones_stay() -> None:
    board = Board(2)
    for worker, photographs in enumerate((2, 3)):
        for _ in range(photographs):
            Metrics(board, worker).photograph("graded")
        Metrics(board, worker).gauge("fundoscope_in_flight", 1)
    board.reset_gauges(0)
    board.replaced()
    lines = dict(line.rsplit(" ", 1) for line in Metrics(board).text([]).splitlines() if line[0] != "#")
    assert lines['fundoscope_photographs_total{outcome="graded"}'] == "5"
    assert lines["fundoscope_in_flight"] == "1"
    assert lines["fundoscope_workers_replaced_total"] == "1"
