"""conform over every server that can be had here: ours, the published stack, LitServe, BentoML, MLServer.

The same network, the same preparation and the same photograph (a drawn eye, 224 × 224) behind each; the peers with two
workers and batches, asked at the routes and in the form that they have. Rule 4 asks for
SageMaker's routes, which they were not made for. 17 to 21 are our own rules, under attack, and ask nothing of routes.

    python benchmarks/conform_peers.py [--servers lean,published,…] [--rules 17,18,…] [--also NAME=SRC] [--json FILE]
                                       [--mobilenet FOLDER] [--cache FOLDER] [--quick]

--also: the lean server of another checkout, by the folder its package lies in, under a name of its own.
"""

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from subprocess import CalledProcessError
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, ClassVar

from serving_models import find_or_make
from serving_peers import PINS, servers_of
from serving_servers import Server, lean, published

from fundoscope.conform.command import RunningCommand
from fundoscope.conform.contract import ATTACKS, MIB, OURS, RULES, SAGEMAKER, Routes, limits_of
from fundoscope.conform.finding import Outcome, as_values, duration
from fundoscope.conform.live import FULL, QUICK, Plan
from fundoscope.conform.photographs import Payload, default_payload
from fundoscope.conform.run import Conformance, chosen, conform
from fundoscope.conform.target import LOOPBACK, Setting, Started
from fundoscope.quota import cores

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fundoscope" / "benchmarks"
PINGS = {"litserve": "/health", "bentoml": "/readyz", "mlserver": "/v2/health/ready"}
# Of serving_peers.SETTINGS: two workers, batches, and a form in which conform can see the photograph and replace it.
CHOSEN = {"litserve": 1, "bentoml": 0, "mlserver": 1}
OURS_TOO = ("lean", "published")
# What a command with a port of its own can be asked; images, mounts and many models are left to `conform` itself.
ASKED = (4, 5, 6, 7, 8, 9, 11, 12, 15, 16, *ATTACKS)


@dataclass(frozen=True)
class PeerTarget:
    """A server of this benchmark, as conform starts and watches it."""

    server: Server
    folder: Path
    host: str = LOOPBACK
    kind: ClassVar[str] = "command"
    takes_port: ClassVar[bool] = True
    models_url: ClassVar[str | None] = None

    @property
    def name(self) -> str:
        return self.server.name

    def labels(self) -> Mapping[str, str] | None:
        return None

    def start(self, setting: Setting) -> Started:
        assert setting.port is not None  # it takes one
        self.server.prepare(setting.port, self.folder)
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("SAGEMAKER_")}
        return RunningCommand(self.server.command(setting.port), inherited | dict(self.server.environment), self.folder)


def main() -> int:
    arguments = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers are ended too
    model = find_or_make("MobileNet", arguments.mobilenet, arguments.cache)
    print(f"{cores()} processors, load at the start {os.getloadavg()[0]:.1f}; {', '.join(_versions())}", flush=True)
    results: list[Conformance] = []
    for name in arguments.servers:
        try:
            server, routes = _server(name, model.onnx, model.savedmodel, arguments.cache)
        except CalledProcessError as problem:
            print(f"{name}: could not be installed ({problem})", file=sys.stderr)
            continue
        results.append(_tried(server, routes, arguments))
    for also in arguments.also:
        name, _, source = also.partition("=")
        server = replace(lean(model.onnx, name=name), environment={"PYTHONPATH": str(Path(source).resolve())})
        results.append(_tried(server, SAGEMAKER, arguments))
    print("\n" + "\n".join(_table(results, arguments.rules)))
    if arguments.json:
        values = {result.target: [as_values(outcome) for outcome in result.outcomes] for result in results}
        arguments.json.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    return 1 if any(result.target == "lean" and not result.holds for result in results) else 0


def _server(name: str, onnx: Path, savedmodel: Path, cache: Path) -> tuple[Server, Routes]:
    if name in OURS_TOO:
        return (lean(onnx) if name == "lean" else published(savedmodel)), SAGEMAKER
    server = servers_of(name, onnx, cache)[CHOSEN[name]]
    return server, Routes(PINGS[name], server.path)


def _tried(server: Server, routes: Routes, arguments: argparse.Namespace) -> Conformance:
    plain = default_payload()
    packed = Payload(plain.name, *server.pack(plain.data))
    effort = QUICK if arguments.quick else FULL
    plan = Plan(limits_of("real-time"), packed, rules=arguments.rules, effort=effort, routes=routes)
    with TemporaryDirectory(prefix="conform-") as folder:
        result = conform(PeerTarget(server, Path(folder)), plan)
    print(f"\n{server.name}, {server.settings}: {result.seconds:.0f} s", flush=True)
    for outcome in result.outcomes:
        for finding in outcome.findings:
            print(f"  {finding.rule:>2} {finding.verdict}: {finding.reason} ({finding.measured})", flush=True)
    return result


def _table(results: list[Conformance], rules: list[int]) -> list[str]:
    """In Markdown: a row per rule, a column per server, as RESULTS.md has it."""
    lines = [f"| rule | {' | '.join(result.target for result in results)} |", "| --- |" + " --- |" * len(results)]
    for position, number in enumerate(rules):
        cells = [_cell(result.outcomes[position]) for result in results]
        lines.append(f"| {number} {RULES[number].title} | {' | '.join(cells)} |")
    return lines


def _cell(outcome: Outcome) -> str:
    values = [finding.values for finding in outcome.findings if finding.verdict in ("held", "broken")]
    figure = FIGURES[outcome.rule.number](values) if outcome.rule.number in FIGURES else ""
    verdict = f"**{outcome.verdict}**" if outcome.verdict == "broken" else outcome.verdict
    return f"{verdict}, {figure}" if figure else verdict


def _most(values: list[dict[str, Any]], name: str) -> float | None:
    return max((value[name] for value in values if value.get(name) is not None), default=None)


def _memory(values: list[dict[str, Any]]) -> str:
    grown = _most(values, "grown_bytes")
    return "" if grown is None else f"+{grown / MIB:,.0f} MB"


def _time(values: list[dict[str, Any]], name: str = "worst_s") -> str:
    seconds = _most(values, name)
    return "" if seconds is None else duration(seconds)


def _waited(values: list[dict[str, Any]]) -> str:
    seconds = _most(values, "worst_s")
    return "" if seconds is None else f"{duration(seconds)}{' and more' if seconds >= OURS.wait_s else ''}"


FIGURES: dict[int, Callable[[list[dict[str, Any]]], str]] = {
    5: _time,
    6: lambda values: _time(values, "slowest_s"),
    7: _time,
    9: lambda values: _time(values, "took_s"),
    15: lambda values: _time(values, "ready_s"),
    17: _memory,
    18: lambda values: f"ping {_time(values)}, {_memory(values)}",
    19: _waited,
    20: _waited,
    21: lambda values: "" if (left := _most(values, "left_bytes")) is None else f"{left / MIB:+,.0f} MB",
}


def _versions() -> list[str]:
    peers = [requirement.replace("==", " ") for name in PINGS for requirement in PINS[name][:1]]
    return [*peers, *(f"{name} {version(name)}" for name in ("fundoscope", "uvicorn", "gunicorn", "fastapi"))]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = (*OURS_TOO, *PINGS)
    parser.add_argument("--servers", type=lambda text: text.split(","), metavar="A,B", help=f"of {', '.join(names)}")
    parser.add_argument("--rules", type=chosen, default=list(ASKED), metavar="17,18")
    parser.add_argument(
        "--also", action="append", default=[], metavar="NAME=SRC", help="another checkout's lean server"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything measured there")
    parser.add_argument("--mobilenet", type=Path, metavar="FOLDER", help="holds onnx/ and savedmodel/")
    parser.add_argument("--cache", type=Path, default=CACHE, metavar="FOLDER", help=f"default: {CACHE}")
    parser.add_argument(
        "--quick", action="store_true", help="the lean server alone, if no others are named, and shorter"
    )
    arguments = parser.parse_args()
    if arguments.servers is None:
        arguments.servers = ["lean"] if arguments.quick else list(names)
    if unknown := set(filter(None, arguments.servers)) - set(names):
        parser.error(f"there are no servers {', '.join(sorted(unknown))}: use {', '.join(names)}")
    arguments.servers = [name for name in arguments.servers if name]
    return arguments


if __name__ == "__main__":
    began = monotonic()
    status = main()
    print(f"{monotonic() - began:.0f} s")
    sys.exit(status)
