"""Price lists: that they say where they come from, and what they make of a duration."""

from datetime import date
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fundoscope.analysis.prices import InstancePrice, ServerlessPrice, load_prices, open_prices, shipped
from fundoscope.errors import FundoscopeError


@pytest.mark.parametrize("name", shipped())
def test_every_shipped_list_says_of_every_price_where_it_was_read(name: str) -> None:
    prices = open_prices(name)
    assert prices.instances
    assert name.endswith(str(prices.as_of)) or prices.as_published
    for price in prices.instances.values():
        assert len(prices.sources[price.source]) > 10
        assert 0 < (price.spot_usd_per_hour or 0.01) < price.usd_per_hour < 100


@pytest.mark.parametrize(
    ("prices", "machine", "usd_per_hour"),
    [  # as the papers print them, in three lists that were read elsewhere
        ("azure-eastus-2025-09-11", "F4s_v2", 0.169),
        ("azure-eastus-2025-09-11", "NC4as_T4_v3", 0.526),
        ("aws-sagemaker-us-east-1-2025-01-26", "ml.m5.xlarge", 0.23),
        ("aws-sagemaker-us-east-1-2025-01-26", "ml.c7g.xlarge", 0.174),
        ("gcp-us-central1-2026-08-21", "tpu-v3-8", 8.0),
    ],
)
def test_the_papers_machines_are_priced(prices: str, machine: str, usd_per_hour: float) -> None:
    assert open_prices(prices).instance(machine).usd_per_hour == usd_per_hour


def test_a_machine_is_billed_by_the_second_and_less_as_spot() -> None:
    gpu = open_prices("azure-eastus-2025-09-11").instance("NC4as_T4_v3")
    assert gpu.usd(up_s=1800) == pytest.approx(0.263)
    assert gpu.usd(up_s=1800, spot=True) == pytest.approx(0.0627 / 2)
    with pytest.raises(FundoscopeError, match="spot price is not known"):
        InstancePrice(1.0, "x", "A").usd(up_s=1, spot=True)


def test_serverless_requests_are_rounded_up_one_by_one() -> None:
    price = open_prices("aws-sagemaker-us-east-1-2025-01-26").serverless
    assert price is not None
    # The thesis's Table 6.1 way for 1,000 requests of 500.2 ms at 2 GB: 501 ms each, not 500,200 ms in all.
    assert price.usd(memory_gb=2, request_ms=[500.2] * 1000, moved_bytes=0) == pytest.approx(2 * 501 * 0.00002)


def test_a_gigabyte_moved_is_billed_as_two_to_the_thirtieth_bytes() -> None:
    price = open_prices("aws-sagemaker-us-east-1-2025-01-26").serverless
    assert price is not None
    # 0.016 USD a gigabyte. A thousand million bytes are less than what is billed as one: 0.0149 USD.
    assert price.usd(memory_gb=1, request_ms=[], moved_bytes=1_073_741_824) == pytest.approx(0.016, rel=1e-12)
    assert price.usd(memory_gb=1, request_ms=[], moved_bytes=1_000_000_000) == pytest.approx(0.0149011612, abs=1e-10)


@settings(deadline=None)
@given(st.lists(st.floats(0, 1e5), max_size=20), st.lists(st.floats(0, 1e5), max_size=20), st.integers(1, 6))
def test_two_batches_cost_what_each_of_them_costs(one: list[float], other: list[float], memory_gb: int) -> None:
    price = ServerlessPrice(2e-5, 0.016, (1, 2), "x", "A")
    both = price.usd(memory_gb=memory_gb, request_ms=[*one, *other], moved_bytes=3)
    parts = [price.usd(memory_gb=memory_gb, request_ms=some, moved_bytes=n) for some, n in ((one, 1), (other, 2))]
    assert both == pytest.approx(sum(parts))


def test_an_unknown_machine_is_an_error_that_lists_what_is_near() -> None:
    with pytest.raises(FundoscopeError) as caught:
        open_prices("azure-eastus-2025-09-11").instance("NC4as_T4")
    assert "no price for 'NC4as_T4'" in caught.value.message
    assert "NC4as_T4_v3" in caught.value.hint
    with pytest.raises(FundoscopeError, match="no price list called 'azure-eastus'"):
        open_prices("azure-eastus")


def test_an_old_list_says_so() -> None:
    prices = open_prices("azure-eastus-2025-09-11")
    assert prices.stale(date(2026, 9, 11)) == ""
    assert open_prices("moura-filho-souza-2024").stale(date(2099, 1, 1)) == ""
    assert prices.stale(date(2026, 9, 12)) == "azure-eastus-2025-09-11 is 366 days old: prices have changed since"


LIST = """
provider = "p"
service = "s"
region = "r"
as_of = 2026-01-31
[sources]
page = "a page"
[instances]
"m" = { usd_per_hour = 0.5, source = "page", grade = "A" }
"""


@pytest.mark.parametrize(
    ("change", "message", "hint"),
    [
        (('region = "r"', 'regoin = "r"'), "called 'regoin'", "use region"),
        (("usd_per_hour", "usd_per_huor"), "called 'usd_per_huor'", "usd_per_hour"),
        (("0.5", "-0.5"), "usd_per_hour is -0.5", "change that value"),
        (('"page", grade', '"pgae", grade'), "the source 'pgae'", "page"),
        (('grade = "A"', 'grade = "Z"'), "cannot be 'Z'", "A"),
        (("as_of = 2026-01-31", ""), "on which day", "as_of = "),
        (("as_of = 2026-01-31", 'as_of = "soon"'), "on which day", "as_of = "),
    ],
)
def test_a_list_that_is_wrong_says_where(change: tuple[str, str], message: str, hint: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(LIST)
    assert load_prices(path).instance("m").usd_per_hour == 0.5
    path.write_text(LIST.replace(*change, 1))
    with pytest.raises(FundoscopeError) as caught:
        load_prices(path)
    assert message in caught.value.message
    assert hint in caught.value.hint
