"""fundoscope advise: traffic, measurements and prices to the cheapest way to serve that is quick enough."""

import argparse
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fundoscope.cli.command import Answer, Commands, bar, verb
from fundoscope.errors import FundoscopeError, pick

if TYPE_CHECKING:
    from fundoscope.analysis.dossier import Question
    from fundoscope.analysis.month import ProvisionedPrice
    from fundoscope.analysis.traffic import Screening


def add_commands(commands: Commands) -> None:
    parser = verb(
        commands,
        "advise",
        _advise,
        help="the cheapest way to serve a traffic that meets an objective, by what was measured, and how sure that is",
        example='fundoscope advise --traffic 5000/day --objective "p95<2s" --study studies/serverless-memory',
    )
    add = parser.add_argument
    asked = parser.add_argument_group("what is asked")
    one = asked.add_mutually_exclusive_group(required=True)
    one.add_argument(
        "--traffic", metavar="FILE.csv|RATE", help="a clinic's day, a trace, or 300/hour, 5000/day, 1e6/month"
    )
    one.add_argument("--country", metavar="NAME", help="everybody with diabetes there: brazil")
    one.add_argument("--people", type=int, metavar="N", help="everybody of so many, as --country")
    asked.add_argument(
        "--objective", default="p95<2s", metavar='"p95<2s"', help="p50, p90, p95, p99 or mean (default: p95<2s)"
    )
    asked.add_argument(
        "--study",
        type=Path,
        action="append",
        required=True,
        metavar="STUDY",
        help="a folder of the workload invoke; may be repeated",
    )
    asked.add_argument("--prices", metavar="LIST", help="a list's name, or a file (default: SageMaker's, us-east-1)")
    add("--working-days", action="store_true", help="the clinic's day of the CSV file is not one of a weekend")
    add("--out", type=Path, metavar="FILE.html", help="write a page about it too")
    add("--region", default=os.environ.get("AWS_REGION", ""), help="where it will run, to compare with the prices'")
    add("--seed", type=int, default=0, metavar="N", help="of arrivals and resamples (default: 0)")
    _add_screening(parser.add_argument_group("with --country or --people"))
    _add_assumed(parser.add_argument_group("assumptions, which no measurement or provider says"))


def _add_screening(group: "argparse._ArgumentGroup") -> None:
    add = group.add_argument
    add("--eyes", type=int, metavar="N", help="of each person (default: 2)")
    add("--photographs", type=int, metavar="N", help="of each eye (default: 2)")
    add("--per-year", type=float, metavar="N", help="how often (default: 1)")
    add("--hours", metavar="FROM-TO", help="of working days, in which they come (default: 8-16)")


def _add_assumed(group: "argparse._ArgumentGroup") -> None:
    add = group.add_argument
    add(
        "--idle",
        type=float,
        default=600.0,
        metavar="S",
        help="after which a serverless container is given back (default: 600)",
    )
    add("--start", type=float, default=300.0, metavar="S", help="until an ordered machine answers (default: 300)")
    add(
        "--zero-after",
        type=float,
        default=900.0,
        metavar="S",
        help="without a request, until the last machine is given up (default: 900)",
    )
    add("--night", type=float, default=22.0, metavar="H", help="hour at which the night's work begins (default: 22)")
    add("--network-ms", type=float, default=0.0, metavar="MS", help="added to every latency and no bill (default: 0)")
    add(
        "--workers",
        type=int,
        default=1,
        metavar="N",
        help="requests that a machine answers at once as quickly as one (default: 1)",
    )
    add("--max-concurrency", type=int, metavar="N", help="serverless: at once (default: what the busiest time needs)")
    add("--provisioned", type=int, metavar="N", help="containers kept ready (default: those busy at the busiest time)")
    add(
        "--most",
        type=int,
        metavar="N",
        help="machines that autoscaling may reach (default: what the busiest time needs)",
    )
    add("--machine", default="", metavar="NAME", help="of the list: what servers measured without limits are billed as")
    add(
        "--provisioned-usd",
        metavar="READY:BUSY",
        help="price of a GB-second of containers kept ready, idle and busy; no list has it (default: not known)",
    )
    add("--refused", type=float, default=1.0, metavar="PERCENT", help="of requests, that may be (default: 1)")


def _advise(arguments: argparse.Namespace) -> Answer:
    from datetime import date

    from fundoscope.analysis.advise import LAST_STEPS
    from fundoscope.analysis.dossier import consult
    from fundoscope.cli.advise_text import advice_lines, next_command
    from fundoscope.experiment.study import open_study

    question = _question(arguments)
    studies = [open_study(folder) for folder in {folder.resolve(): folder for folder in arguments.study}.values()]
    steps: Iterator[int] | None = None

    def progress(_: str, options: int) -> None:
        nonlocal steps
        if steps is None:
            total = options + len(LAST_STEPS)
            steps = iter(bar(range(total), total=total, label="simulating"))
        next(steps, None)

    dossier = consult(question, studies, today=date.today(), progress=progress)
    next(steps or iter(()), None)  # past the last, so that the bar is closed
    values, lines = dossier.to_json() if arguments.json else {}, advice_lines(dossier)
    if arguments.out:
        from fundoscope.provenance import command
        from fundoscope.report.advice import write_advice_page

        lines += ["", f"the page: {write_advice_page(dossier, arguments.out, command=command()).resolve()}"]
        values["page"] = str(arguments.out)
    return Answer(values, lines, next_command(dossier), ok=dossier.advised is not None)


def _question(arguments: argparse.Namespace) -> "Question":
    from fundoscope.analysis.advise import parse_objective
    from fundoscope.analysis.dossier import Question
    from fundoscope.analysis.prices import SAGEMAKER, open_prices
    from fundoscope.analysis.traffic import open_traffic
    from fundoscope.analysis.ways import Assumed

    screening = _screening(arguments)
    if screening and arguments.working_days:
        raise FundoscopeError("a country is photographed on working days", "leave --working-days out")
    prices = open_prices(arguments.prices or SAGEMAKER)
    if arguments.machine:
        prices.instance(arguments.machine)
    for option, value in (("--network-ms", arguments.network_ms), ("--refused", arguments.refused)):
        if not 0 <= value < float("inf"):
            raise FundoscopeError(f"{option} cannot be {value:g}", "give 0 or more")
    return Question(
        screening.traffic() if screening else open_traffic(arguments.traffic, working_days_only=arguments.working_days),
        parse_objective(arguments.objective),
        prices,
        Assumed(
            arguments.idle,
            arguments.start,
            arguments.zero_after,
            arguments.night,
            arguments.workers,
            arguments.max_concurrency,
            arguments.provisioned,
            arguments.most,
        ),
        screening,
        _provisioned(arguments.provisioned_usd),
        arguments.machine,
        arguments.network_ms / 1000,
        arguments.refused / 100,
        arguments.region,
        arguments.seed,
    )


def _screening(arguments: argparse.Namespace) -> "Screening | None":
    from fundoscope.analysis.traffic import COUNTRIES, Screening

    given = {name: getattr(arguments, name) for name in ("eyes", "photographs", "per_year")}
    changed: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if arguments.hours is not None:
        changed |= _hours(arguments.hours)
    if arguments.country is not None:
        return replace(pick(COUNTRIES, arguments.country.lower(), kind="country"), **changed)
    if arguments.people is not None:
        return Screening("a country", arguments.people, **changed)
    if changed:
        name = next(iter(changed)).replace("_", "-").replace("opens", "hours")
        raise FundoscopeError(f"--{name} goes with --country or --people", "leave it out, or --traffic")
    return None


def _hours(text: str) -> dict[str, float]:
    opens, _, closes = text.partition("-")
    try:
        return {"opens": float(opens), "closes": float(closes)}
    except ValueError:
        raise FundoscopeError(f"'{text}' does not say from when to when", "write it as --hours 8-16") from None


def _provisioned(text: str | None) -> "ProvisionedPrice | None":
    from fundoscope.analysis.month import ProvisionedPrice

    if text is None:
        return None
    ready, _, busy = text.partition(":")
    try:
        found = ProvisionedPrice(float(ready), float(busy))
    except ValueError:
        raise FundoscopeError(f"'{text}' are not two prices", "write it as 0.000005:0.000015") from None
    if not all(0 <= value < float("inf") for value in vars(found).values()):
        raise FundoscopeError(f"'{text}' are not two prices", "give both as 0 or more")
    return found
