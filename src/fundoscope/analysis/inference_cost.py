"""What one inference costs, reckoned both ways, and what that makes for a thousand and for a month.

The thesis multiplies the price of a second by the *client's* total latency. AWS bills the milliseconds that a request
is processed, each request rounded up, and the bytes moved in and out; the way there and back costs nothing. The
difference is large where the network is most of the latency: in the thesis's own readings its way comes to 1.2 to 1.7
times the bill for VGG19 and to 2.7 to 4.6 times for MobileNet.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from fundoscope.analysis.prices import InstancePrice, ServerlessPrice
from fundoscope.errors import FundoscopeError

HOURS_PER_MONTH = 720  # thirty days, as AWS reckons: ml.m5.xlarge, 0.23 an hour, is "approximately $166 per month"


@dataclass(frozen=True)
class PerInference:
    """Paid for every inference, and for nothing between them."""

    usd: float

    @property
    def per_thousand(self) -> float:
        return 1000 * self.usd

    def per_month(self, requests_per_hour: float) -> float:
        return self.usd * _rate(requests_per_hour) * HOURS_PER_MONTH


@dataclass(frozen=True)
class PerHour:
    """Paid for every hour that machines are up, whatever they do; how much they can do is for a study to say."""

    usd: float

    def per_thousand(self, requests_per_hour: float) -> float:
        if not _rate(requests_per_hour):
            raise FundoscopeError(
                "a machine without requests has no cost per inference", "ask for its cost per month, or give a rate"
            )
        return 1000 * self.usd / requests_per_hour

    def per_month(self, requests_per_hour: float = 0.0) -> float:
        """The same at any rate; taken so that both kinds answer the same question."""
        _rate(requests_per_hour)
        return self.usd * HOURS_PER_MONTH


def as_thesis(price: ServerlessPrice, *, memory_gb: int, total_latency_s: float) -> PerInference:
    """Price × total latency as the client sees it, not rounded, data free: Tables 6.1 and 6.2."""
    _offered(price, memory_gb)
    return PerInference(price.usd_per_gb_second * memory_gb * _duration(total_latency_s, "s"))


def as_billed(
    price: ServerlessPrice, *, memory_gb: int, processing_ms: Sequence[float], moved_bytes: int = 0
) -> PerInference:
    """The mean over requests of what AWS bills: each one's processing milliseconds rounded up, and its bytes both ways.

    `moved_bytes` are those of one request: the photograph in, the answer out.
    """
    _offered(price, memory_gb)
    requests = len(processing_ms)
    if not requests:
        raise FundoscopeError("there are no requests to bill", "give the processing time of at least one")
    request_ms = [_duration(ms, "ms") for ms in processing_ms]
    return PerInference(
        price.usd(memory_gb=memory_gb, request_ms=request_ms, moved_bytes=moved_bytes * requests) / requests
    )


def back_to_back(price: InstancePrice, *, total_latency_s: float) -> PerInference:
    """The thesis's way for a machine: its hour shared by requests sent one after another, none waiting, never idle."""
    return PerInference(price.usd(up_s=_duration(total_latency_s, "s")))


def rented(price: InstancePrice, *, count: int = 1) -> PerHour:
    """As AWS bills a real-time endpoint: every hour of every machine."""
    if count < 1:
        raise FundoscopeError(f"an endpoint of {count} machines does not answer", "rent at least one")
    return PerHour(price.usd_per_hour * count)


def break_even_requests_per_hour(metered: PerInference, machine: PerHour) -> float:
    """From here on the machine is the cheaper one, if it can answer so many."""
    return machine.usd / metered.usd


def _offered(price: ServerlessPrice, memory_gb: int) -> None:
    if memory_gb not in price.memory_gb:
        sizes = ", ".join(map(str, price.memory_gb))
        raise FundoscopeError(f"serverless memory of {memory_gb} GB is not offered", f"use one of {sizes} GB")


def _duration(value: float, unit: str) -> float:
    if not (isfinite(value) and value >= 0):
        raise FundoscopeError(f"a request can not take {value:g} {unit}", "give a duration of 0 or more")
    return value


def _rate(requests_per_hour: float) -> float:
    if not (isfinite(requests_per_hour) and requests_per_hour >= 0):
        raise FundoscopeError(f"{requests_per_hour:g} requests an hour is not a rate", "give 0 or more")
    return requests_per_hour
