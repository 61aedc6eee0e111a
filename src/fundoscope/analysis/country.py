"""A plan for everybody with diabetes in a country: what a year costs by each way to serve, and what it takes."""

from collections.abc import Mapping
from dataclasses import dataclass

from fundoscope.analysis.advise import Advice
from fundoscope.analysis.options import Latency
from fundoscope.analysis.traffic import Screening
from fundoscope.analysis.ways import limit, takes

MONTHS = 12


@dataclass(frozen=True)
class CountryRow:
    way: str
    usd_per_year: float | None
    takes: str
    cannot: str  # why it is not advised, or where its limits are


@dataclass(frozen=True)
class CountryPlan:
    screening: Screening
    photographs_per_year: float
    peak_per_s: float  # in the hours of clinics
    rows: tuple[CountryRow, ...]  # in the order of the advice


def country_plan(screening: Screening, advice: Advice, latencies: Mapping[str, Latency]) -> CountryPlan:
    rows = (
        CountryRow(
            each.name,
            None if each.usd is None else MONTHS * each.usd,
            takes(each.option),
            each.why_not or limit(each.option, latencies[each.name]),
        )
        for each in advice.estimates
    )
    return CountryPlan(screening, screening.photographs_per_year, advice.peak_per_s, tuple(rows))
