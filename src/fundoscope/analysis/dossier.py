"""One question put to all that was measured: the advice, and everything that it rests on.

What `fundoscope advise` prints, writes as a page and says as JSON.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from functools import cached_property
from typing import Any

from fundoscope.analysis.advise import REFUSED_AT_MOST, Advice, ArtefactGuard, Objective, advise
from fundoscope.analysis.break_even import Curve, curves
from fundoscope.analysis.country import CountryPlan, country_plan
from fundoscope.analysis.measured_ways import MeasuredWays, read_measured
from fundoscope.analysis.month import ProvisionedPrice, Tariff
from fundoscope.analysis.options import Option, RealTime
from fundoscope.analysis.prices import PriceList
from fundoscope.analysis.traffic import DAYS, Screening, Traffic
from fundoscope.analysis.ways import Assumed, Ways, kind_of, ways_to_serve
from fundoscope.experiment.study import Study

Progress = Callable[[str, int], None]


@dataclass(frozen=True)
class Question:
    traffic: Traffic
    objective: Objective
    prices: PriceList
    assumed: Assumed = field(default_factory=Assumed)
    screening: Screening | None = None  # where the traffic is a country's
    provisioned: ProvisionedPrice | None = None
    machine: str = ""  # what servers are billed as that were measured without limits
    network_s: float = 0.0
    refused_at_most: float = REFUSED_AT_MOST
    region: str = ""  # where it will run; empty: not said
    seed: int = 0


@dataclass(frozen=True)
class Assumption:
    what: str
    value: str
    why: str
    option: str  # of `fundoscope advise`, to change it


@dataclass(frozen=True)
class Dossier:
    question: Question
    measured: MeasuredWays
    ways: Ways
    advice: Advice
    plan: CountryPlan | None
    warnings: tuple[str, ...]

    @property
    def advised(self) -> Option | None:
        return self.advice.estimates[0].option if self.advice.advised else None

    @cached_property
    def curves(self) -> tuple[Curve, ...]:
        """Of the cheapest of each kind that could be advised, or would be if it were quicker."""
        best: dict[str, Option] = {}
        for each in self.advice.estimates:  # by dollars, those that may be advised first
            if each.usd is not None and not self.measured.refused.get(each.option.artefact):
                best.setdefault(kind_of(each.option), each.option)
        tariff = Tariff(self.question.prices, self.question.provisioned)
        return curves(list(best.values()), self.ways.latencies, tariff, self.question.traffic)

    def to_json(self) -> dict[str, Any]:
        asked = self.question
        return {
            **self.advice.to_json(),
            "requests_per_month": asked.traffic.expected(),
            "traffic_sha256": asked.traffic.sha256,
            "cannot_be_had": [asdict(each) for each in self.ways.cannot],
            "warnings": list(self.warnings),
            "notes": list(self.measured.notes),
            "assumptions": [asdict(each) for each in assumptions(asked)],
            "country": asdict(self.plan) if self.plan else None,
            "cost_by_rate": [asdict(each) for each in self.curves],
            "studies": [asdict(each) for each in self.measured.sources],
            "prices_as_of": asked.prices.as_of.isoformat(),
            "region": asked.prices.region,
            "seed": asked.seed,
        }


def consult(
    question: Question, studies: Sequence[Study], *, today: date, progress: Progress = lambda _, __: None
) -> Dossier:
    """`progress` hears what is begun, and of how many steps."""
    asked = question
    measured = read_measured(studies, machine=asked.machine, network_s=asked.network_s)
    ways = ways_to_serve(measured, asked.traffic, asked.prices, asked.assumed)
    guard = {artefact: ArtefactGuard(not why, why) for artefact, why in measured.refused.items()}
    advice = advise(
        asked.traffic,
        ways.options,
        ways.latencies,
        asked.prices,
        asked.objective,
        guard,
        provisioned=asked.provisioned,
        seed=asked.seed,
        refused_at_most=asked.refused_at_most,
        progress=lambda name: progress(name, len(ways.options)),
    )
    plan = country_plan(asked.screening, advice, ways.latencies) if asked.screening else None
    return Dossier(asked, measured, ways, advice, plan, tuple(_warnings(asked, advice, today)))


def _warnings(asked: Question, advice: Advice, today: date) -> list[str]:
    prices, found = asked.prices, []
    if stale := prices.stale(today):
        found.append(stale)
    if asked.region and asked.region != prices.region:
        found.append(f"the prices are of {prices.region}, not of {asked.region}")
    elif asked.screening and asked.screening.region not in ("", prices.region):
        found.append(f"the prices are of {prices.region}; {asked.screening.name} has {asked.screening.region}")
    if any(each.usd is None for each in advice.estimates):
        found.append(f"{prices.name} has no price of containers kept ready: --provisioned-usd gives one")
    best = advice.estimates[0].option
    if advice.advised and isinstance(best, RealTime) and best.scale_to_zero:
        found.append("`fundoscope deploy` does not scale to zero, only to one: that needs an inference component")
    if advice.simulated_days < DAYS:
        day = "a day was" if advice.simulated_days == 1 else f"{advice.simulated_days} days were"
        found.append(f"so many requests that {day} simulated for a month")
    return found


def assumptions(asked: Question) -> tuple[Assumption, ...]:
    """Everything that was neither measured nor read in a price list."""
    assumed, ready = asked.assumed, asked.provisioned
    sized = "what the busiest time needs"
    return (
        Assumption(
            "a serverless container is given back after",
            f"{assumed.idle_s:g} s without a request",
            "SageMaker does not say (sagemaker-python-sdk#3446); in the thesis requests 15 minutes apart were cold",
            "--idle",
        ),
        Assumption(
            "an ordered machine answers after",
            f"{assumed.start_s:g} s",
            '"several minutes": SageMaker, on scaling to zero',
            "--start",
        ),
        Assumption(
            "the last machine is given up after",
            f"{assumed.zero_after_s:g} s without a request",
            "ours, as a policy would be written",
            "--zero-after",
        ),
        Assumption("the night's work begins at", f"{assumed.night_hour:g} h", "ours", "--night"),
        Assumption(
            "the network adds",
            f"{1000 * asked.network_s:g} ms",
            "servers that were measured here were asked from where they ran",
            "--network-ms",
        ),
        Assumption(
            "a machine answers at once",
            f"{assumed.workers}",
            "requests were measured one after another",
            "--workers",
        ),
        Assumption(
            "a serverless endpoint takes at once",
            f"{assumed.max_concurrency or sized}",
            "Erlang B, one in a thousand turned away at the busiest time if all were cold; SageMaker allows 200",
            "--max-concurrency",
        ),
        Assumption(
            "containers kept ready",
            f"{assumed.ready or 'those busy at the busiest time'}",
            "ours",
            "--provisioned",
        ),
        Assumption(
            "a container kept ready costs",
            f"{ready.usd_per_gb_second_ready:g} and {ready.usd_per_gb_second_busy:g} USD a GB-second, idle and busy"
            if ready
            else "not known",
            "in no dated public source that we found",
            "--provisioned-usd",
        ),
        Assumption(
            "autoscaling reaches at most",
            f"{assumed.most or sized}",
            "twice as many as keep machines half busy, which is their target as AWS advises",
            "--most",
        ),
        Assumption(
            "a way may refuse",
            f"{100 * asked.refused_at_most:g} % of the requests",
            "ours; a refused request counts as never answered",
            "--refused",
        ),
        Assumption(
            "a serverless container's share of the processor",
            "as in the study (mb_per_cpu)",
            "AWS Lambda gives one processor for 1,769 MB; SageMaker does not say",
            "measure again",
        ),
    )
