"""Price lists: what is optional, what an unknown machine is told, and where a serverless price was read."""

from pathlib import Path

import pytest

from fundoscope.analysis.prices import InstancePrice, load_prices, open_prices
from fundoscope.errors import FundoscopeError

SERVERLESS_ONLY = """
provider = "p"
service = "s"
region = "r"
as_of = 2026-01-31
[sources]
page = "a page"
[serverless]
usd_per_gb_second = 2e-5
usd_per_gb_moved = 0.016
memory_gb = [1, 2]
source = "page"
grade = "A"
"""


def test_a_list_may_have_serverless_prices_alone(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(SERVERLESS_ONLY)
    prices = load_prices(path)
    assert (prices.name, prices.instances) == ("mine", {})
    assert prices.serverless is not None
    assert prices.serverless.memory_gb == (1, 2)


def test_a_serverless_price_names_a_source_of_the_list_too(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(SERVERLESS_ONLY.replace('source = "page"', 'source = "pgae"'))
    with pytest.raises(FundoscopeError) as caught:
        load_prices(path)
    assert caught.value.message == f"'serverless' of {path} names the source 'pgae', which is not listed"
    assert caught.value.hint == "add it under [sources], or use one of page"


def test_a_machines_size_and_accelerator_are_unknown_until_the_list_says_them() -> None:
    plain = InstancePrice(1.0, "page", "A")
    assert (plain.spot_usd_per_hour, plain.vcpus, plain.memory_gb, plain.accelerator) == (None, None, None, None)
    assert plain.arch == "x86-64"


def test_an_unknown_machine_is_told_four_near_ones_or_all_where_none_is_near() -> None:
    prices = open_prices("aws-sagemaker-us-east-1-2025-01-26")
    with pytest.raises(FundoscopeError) as caught:
        prices.instance("ml.m5.xlagre")
    near = caught.value.hint.removeprefix("near it: ").split(", ")
    assert (near[0], len(near)) == ("ml.m5.xlarge", 4)
    with pytest.raises(FundoscopeError) as caught:
        prices.instance("?")
    assert caught.value.hint == "near it: " + ", ".join(sorted(prices.instances))
