"""Price lists, and what a machine or a request costs under one.

One TOML file per provider, service, region and day (`price_lists/`), never edited once a report has quoted it: prices
change in a new file. Every row says where it was read and how sure we are of it. Amounts are floats: estimates from
measured durations, not invoices.

    A  read in a dated public file
    B  quoted by one of the papers, and consistent with A rows
    C  from third parties only
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from difflib import get_close_matches
from math import ceil, isfinite
from pathlib import Path
from typing import Any, Literal

from fundoscope.config import build, read_toml
from fundoscope.errors import FundoscopeError, pick
from fundoscope.experiment.design import Design

GB = 2**30  # bytes, as cloud providers bill them
STALE_DAYS = 365
SAGEMAKER = "aws-sagemaker-us-east-1-2025-01-26"  # what is meant where no list is named
LISTS = Path(__file__).with_name("price_lists")

Grade = Literal["A", "B", "C"]


@dataclass(frozen=True)
class InstancePrice:
    """A machine billed for every second it is up, busy or idle."""

    usd_per_hour: float
    source: str  # a name among the list's sources
    grade: Grade
    spot_usd_per_hour: float | None = None  # None: not known
    vcpus: int | None = None  # None: not what is rented, as for a TPU
    memory_gb: float | None = None
    arch: Literal["x86-64", "arm64"] = "x86-64"
    accelerator: str | None = None

    def __post_init__(self) -> None:
        for name in ("usd_per_hour", "spot_usd_per_hour"):
            value = getattr(self, name)
            if value is not None and not (isfinite(value) and value > 0):
                raise ValueError(f"{name} is {value:g}, not above 0")

    def usd(self, *, up_s: float, spot: bool = False) -> float:
        price = self.spot_usd_per_hour if spot else self.usd_per_hour
        if price is None:
            raise FundoscopeError("its spot price is not known", "leave --spot out, or take another machine")
        return price * up_s / 3600


@dataclass(frozen=True)
class ServerlessPrice:
    """Memory billed while a request runs, and bytes billed as they move."""

    usd_per_gb_second: float
    usd_per_gb_moved: float
    memory_gb: tuple[int, ...]  # what can be asked for
    source: str
    grade: Grade

    def usd(self, *, memory_gb: int, request_ms: Iterable[float], moved_bytes: int) -> float:
        # Each request is rounded up to a whole millisecond; rounding their sum would bill less.
        busy_gb_s = memory_gb * sum(ceil(ms) for ms in request_ms) / 1000
        return self.usd_per_gb_second * busy_gb_s + self.usd_per_gb_moved * moved_bytes / GB


@dataclass(frozen=True)
class PriceList:
    provider: str
    service: str
    region: str
    as_of: date
    sources: Mapping[str, str]
    instances: Mapping[str, InstancePrice]
    serverless: ServerlessPrice | None = None
    as_published: bool = False  # a paper's own: never out of date
    name: str = ""  # the file's

    def instance(self, name: str) -> InstancePrice:
        """The price of `name`. A price we do not have is an error, never a default."""
        if name in self.instances:
            return self.instances[name]
        near = get_close_matches(name, self.instances, n=4, cutoff=0.4) or sorted(self.instances)
        raise FundoscopeError(f"{self.name} has no price for '{name}'", f"near it: {', '.join(near)}")

    def age_days(self, today: date) -> int:
        return (today - self.as_of).days

    def stale(self, today: date) -> str:
        """A sentence for the user where the list is old, or empty."""
        days = self.age_days(today)
        old = days > STALE_DAYS and not self.as_published
        return f"{self.name} is {days} days old: prices have changed since" if old else ""


def shipped() -> dict[str, Path]:
    """The lists that come with the product, by name."""
    return {path.stem: path for path in sorted(LISTS.glob("*.toml"))}


def open_prices(name: str) -> PriceList:
    """A shipped list by its name, or any list by its path."""
    path = Path(name)
    if path.suffix == ".toml" or path.exists():
        return load_prices(path)
    return load_prices(pick(shipped(), name, kind="price list"))


def prices_of(design: Design) -> PriceList | None:
    """The list a study names, which must have every machine that it names."""
    if design.prices is None:
        return None
    prices = open_prices(design.prices.list)
    for machine in (*filter(None, [design.prices.machine]), *design.prices.machines.values()):
        prices.instance(machine)
    return prices


def load_prices(path: Path) -> PriceList:
    table: dict[str, Any] = read_toml(path)
    for part in ("sources", "instances"):
        if not isinstance(table.get(part, {}), dict):
            raise FundoscopeError(f"'{part}' in {path} is not a table", f"write it as [{part}]")
    if type(table.get("as_of")) is not date:
        raise FundoscopeError(f"{path} does not say on which day its prices held", "add as_of = 2026-01-31")
    table["instances"] = {
        name: build(InstancePrice, row, where=f"'{name}' of {path}") for name, row in table.get("instances", {}).items()
    }
    found = build(PriceList, table | {"name": path.stem}, where=str(path))
    named = {row: price.source for row, price in found.instances.items()}
    if found.serverless is not None:
        named["serverless"] = found.serverless.source
    for row, source in named.items():
        if source not in found.sources:
            raise FundoscopeError(
                f"'{row}' of {path} names the source '{source}', which is not listed",
                f"add it under [sources], or use one of {', '.join(found.sources)}",
            )
    return found
