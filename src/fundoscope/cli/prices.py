"""fundoscope prices: what machines cost, where that was read, and how old it is."""

import argparse
from typing import TYPE_CHECKING

from fundoscope.cli.command import Answer, Commands, table, verb

if TYPE_CHECKING:
    from fundoscope.analysis.prices import PriceList


def add_commands(commands: Commands) -> None:
    group = commands.add_parser("prices", help="dated prices of machines and services, with their sources")
    verbs = group.add_subparsers(title="commands", metavar="COMMAND", required=True)
    parser = verb(
        verbs,
        "list",
        _list,
        help="show the shipped price lists, or the prices of one",
        example="fundoscope prices list azure-eastus-2025-09-11",
    )
    parser.add_argument("prices", nargs="?", metavar="LIST", help="a list's name, or a file (default: all lists)")
    parser = verb(
        verbs,
        "check",
        _check,
        help="read price lists and say which are old or rest on third parties alone",
        example="fundoscope prices check",
    )
    parser.add_argument("prices", nargs="*", metavar="LIST", help="names or files (default: all that are shipped)")


def _list(arguments: argparse.Namespace) -> Answer:
    from fundoscope.analysis.prices import open_prices, shipped

    if arguments.prices is None:
        lists = [open_prices(name) for name in shipped()]
        header = ["list", "provider", "service", "region", "as of", "machines"]
        rows = [[p.name, p.provider, p.service, p.region, p.as_of, len(p.instances)] for p in lists]
        return Answer({"lists": [_about(p) for p in lists]}, table(rows, header=header), "fundoscope prices list NAME")
    prices = open_prices(arguments.prices)
    header = ["machine", "USD/h", "spot", "vCPU", "GB", "architecture", "accelerator", "grade", "source"]
    rows = [
        [
            n,
            f"{p.usd_per_hour:g}",
            p.spot_usd_per_hour,
            p.vcpus,
            p.memory_gb and f"{p.memory_gb:g}",
            p.arch,
            p.accelerator,
            p.grade,
            p.source,
        ]
        for n, p in prices.instances.items()
    ]
    lines = [
        f"{prices.provider} {prices.service}, {prices.region}, {prices.as_of}",
        "",
        *table(rows, header=header),
        "",
    ]
    if serverless := prices.serverless:
        sizes = ", ".join(map(str, serverless.memory_gb))
        lines += [
            f"serverless: {serverless.usd_per_gb_second:g} USD per GB and second ({sizes} GB), "
            f"{serverless.usd_per_gb_moved:g} per GB moved; {serverless.grade}, {serverless.source}",
            "",
        ]
    lines += [f"{name}: {source}" for name, source in prices.sources.items()]
    return Answer(_about(prices) | {"instances": {n: vars(p) for n, p in prices.instances.items()}}, lines)


def _check(arguments: argparse.Namespace) -> Answer:
    from datetime import date

    from fundoscope.analysis.prices import open_prices, shipped

    today, lines, values = date.today(), [], []
    for prices in [open_prices(name) for name in arguments.prices or shipped()]:
        stale = prices.stale(today)
        weak = [name for name, price in prices.instances.items() if price.grade == "C"]
        values.append(_about(prices) | {"stale": bool(stale), "third_parties_only": weak})
        said = [f"{prices.age_days(today)} days old", *([stale.partition(": ")[2]] if stale else [])]
        said += [f"from third parties alone: {', '.join(weak)}"] if weak else []
        lines.append(f"{prices.name}: {'; '.join(said)}")
    ok = not any(value["stale"] for value in values)
    return Answer({"lists": values}, lines, ok=ok)


def _about(prices: "PriceList") -> dict[str, object]:
    return {
        "name": prices.name,
        "provider": prices.provider,
        "service": prices.service,
        "region": prices.region,
        "as_of": prices.as_of.isoformat(),
        "machines": len(prices.instances),
    }
