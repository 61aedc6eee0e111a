"""What an inference costs, both ways, against the thesis's and the provider's own figures."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fundoscope.analysis.inference_cost import (
    as_billed,
    as_thesis,
    back_to_back,
    break_even_requests_per_hour,
    rented,
)
from fundoscope.analysis.prices import GB, open_prices
from fundoscope.analysis.thesis import INSTANCES, MEMORY, MOBILENET, REAL_TIME, VGG19, WARM, Cell, thesis_results
from fundoscope.errors import FundoscopeError

PRICES = open_prices("aws-sagemaker-us-east-1-2025-01-26")
SERVERLESS = PRICES.serverless


def seconds(model, level, metric, scenario=WARM, factor="memory"):
    return thesis_results()[Cell(scenario, model, factor, level, metric)].mean


@pytest.mark.parametrize(
    ("model", "printed_usd"),
    [  # Tables 6.1 and 6.2 of the thesis, which rounds or cuts off the third digit
        (VGG19, (0.0000376, 0.0000344, 0.0000408)),
        (MOBILENET, (0.0000095, 0.0000144, 0.0000206)),
    ],
)
def test_price_times_total_latency_gives_the_thesis_tables(model, printed_usd):
    found = [
        as_thesis(SERVERLESS, memory_gb=gb, total_latency_s=seconds(model, level, "total_latency")).usd
        for gb, level in enumerate(MEMORY, start=1)
    ]
    assert found == pytest.approx(printed_usd, rel=0.005)


@pytest.mark.parametrize(
    ("model", "usd"), [(VGG19, (3.19e-5, 2.34e-5, 2.36e-5)), (MOBILENET, (3.5e-6, 3.7e-6, 4.5e-6))]
)
def test_billed_by_processing_time_the_thesis_requests_cost_less(model, usd):
    """The reference's figures with the container's own time as proxy; whole milliseconds add up to 0.6 %."""
    found = [
        as_billed(SERVERLESS, memory_gb=gb, processing_ms=[1000 * seconds(model, level, "server_request_time")]).usd
        for gb, level in enumerate(MEMORY, start=1)
    ]
    assert found == pytest.approx(usd, rel=0.016)


def test_the_serverless_price_is_the_one_that_the_thesis_prints():
    for gb in SERVERLESS.memory_gb:
        row = thesis_results()[Cell("price", "any", "memory", f"{1024 * gb}MB", "price_per_second")]
        assert as_thesis(SERVERLESS, memory_gb=gb, total_latency_s=1).usd == pytest.approx(row.mean)


@pytest.mark.parametrize("model", [MOBILENET, VGG19])
@pytest.mark.parametrize("machine", INSTANCES)
def test_a_machine_that_is_never_idle_costs_what_the_reference_has(model, machine):
    total = seconds(model, machine, "total_latency", REAL_TIME, "instance_type")
    derived = seconds(model, machine, "cost_per_inference_if_back_to_back", REAL_TIME, "instance_type")
    assert back_to_back(PRICES.instance(machine), total_latency_s=total).usd == pytest.approx(derived, rel=1e-4)


def test_a_month_of_a_machine_is_the_provider_s_own_figure():
    """AWS Machine Learning Blog, "Use Serverless Inference to reduce testing costs": m5.xlarge, about $166 a month."""
    machine = rented(PRICES.instance("ml.m5.xlarge"))
    assert machine.per_month() == pytest.approx(166, abs=0.5)
    assert machine.per_month(1000) == machine.per_month()
    assert rented(PRICES.instance("ml.m5.xlarge"), count=2).per_month() == 2 * machine.per_month()
    assert machine.per_thousand(1000) == pytest.approx(0.23)


def test_a_thousand_calls_of_one_billed_second_at_3_gb_cost_six_cents():
    """0.00006 USD a second for USE1-ServerlessInf:Mem-3GB, in AWS's own price list of 2026-09."""
    second = as_billed(SERVERLESS, memory_gb=3, processing_ms=[1000])
    assert second.per_thousand == pytest.approx(0.06)
    assert as_billed(SERVERLESS, memory_gb=3, processing_ms=[10_000]).per_thousand == pytest.approx(0.60)
    assert second.per_month(100) == pytest.approx(0.06 * 100 * 720 / 1000)


@pytest.mark.parametrize(("model", "gb", "per_hour"), [(VGG19, 2, 5045), (MOBILENET, 1, 18286)])
def test_the_break_even_against_c7g_is_the_reference_s(model, gb, per_hour):
    total = seconds(model, f"{1024 * gb}MB", "total_latency")
    metered = as_thesis(SERVERLESS, memory_gb=gb, total_latency_s=total)
    machine = rented(PRICES.instance("ml.c7g.xlarge"))
    found = break_even_requests_per_hour(metered, machine)
    assert found == pytest.approx(per_hour, abs=1)
    assert metered.per_month(found) == pytest.approx(machine.per_month())


def test_each_request_is_rounded_up_and_its_bytes_are_billed():
    bill = as_billed(SERVERLESS, memory_gb=2, processing_ms=[0.2, 1.0, 1.1], moved_bytes=GB)
    assert bill.usd == pytest.approx((1 + 1 + 2) / 3 / 1000 * 0.00004 + 0.016)


@settings(deadline=None)
@given(st.lists(st.floats(0, 60_000), min_size=1, max_size=30), st.integers(1, 6), st.integers(0, 4_000_000))
def test_the_bill_lies_between_the_times_themselves_and_a_millisecond_more(processing_ms, gb, moved_bytes):
    bill = as_billed(SERVERLESS, memory_gb=gb, processing_ms=processing_ms, moved_bytes=moved_bytes).usd
    data = 0.016 * moved_bytes / GB
    mean_s = sum(processing_ms) / len(processing_ms) / 1000
    least = as_thesis(SERVERLESS, memory_gb=gb, total_latency_s=mean_s).usd + data
    assert least * (1 - 1e-9) <= bill <= least + 0.001 * 0.00002 * gb + 1e-12


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (lambda: as_thesis(SERVERLESS, memory_gb=8, total_latency_s=1), "8 GB is not offered"),
        (lambda: as_billed(SERVERLESS, memory_gb=1, processing_ms=[]), "no requests to bill"),
        (lambda: as_billed(SERVERLESS, memory_gb=1, processing_ms=[-1.0]), "can not take -1 ms"),
        (lambda: as_thesis(SERVERLESS, memory_gb=1, total_latency_s=float("nan")), "can not take nan s"),
        (lambda: rented(PRICES.instance("ml.m5.xlarge"), count=0), "0 machines"),
        (lambda: rented(PRICES.instance("ml.m5.xlarge")).per_thousand(0), "without requests"),
        (lambda: as_billed(SERVERLESS, memory_gb=1, processing_ms=[1]).per_month(-3), "-3 requests an hour"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_sentence(asked, said):
    with pytest.raises(FundoscopeError, match=said) as refused:
        asked()
    assert refused.value.hint
