"""The double, put through the contract; long waits of the contract shortened, its thresholds as they are."""

import shlex
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from fundoscope.conform.aim import target_of
from fundoscope.conform.contract import CONTRACT, MIB, OURS, Bounds, Limits, limits_of
from fundoscope.conform.finding import Outcome
from fundoscope.conform.live import Effort, Plan
from fundoscope.conform.photographs import Payload, default_payload
from fundoscope.conform.run import Conformance, conform

DOUBLE = Path(__file__).with_name("doubles") / "server_double.py"
SHORT = replace(limits_of("real-time"), response_s=10, stop_s=10, pong_s=1, start_s=30)
AT_A_TIME = 3
EFFORT = Effort(load_s=0.6, watch_s=0)
# Attacks of the same kinds, smaller: a fault of the double is still ten times what is allowed.
SMALL = replace(SHORT, payload_bytes=4 * MIB, response_s=30)
BOUNDS = replace(OURS, head_bytes=32 * MIB, wait_s=3, settle_s=2)


def command(*faults: str, **options: Any) -> str:
    words = [sys.executable, "-I", str(DOUBLE), "serve"]
    for fault in faults:
        words += ["--fault", fault]
    for name, value in options.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join(words)


def tried(
    line: str,
    *,
    model: Path | None = None,
    rules: tuple[int, ...] = CONTRACT,
    limits: Limits = SHORT,
    platform: str = "real-time",
    kind: str = "auto",
    bounds: Bounds = OURS,
) -> Conformance:
    plan = Plan(limits, payload(), rules=rules, effort=EFFORT, platform=platform, bounds=bounds)
    return conform(target_of(line, kind=kind, model=model), plan)


class Trials:
    """Many trials at a time, since most of a trial is waiting; each in a process that has a clock to itself."""

    def __init__(self, pool: ProcessPoolExecutor, asked: dict[str, dict[str, Any]]) -> None:
        self._found = {name: pool.submit(tried, **arguments) for name, arguments in asked.items()}

    def __getitem__(self, name: str) -> Conformance:
        return self._found[name].result()


@contextmanager
def side_by_side(asked: dict[str, dict[str, Any]]) -> Iterator[Trials]:
    with ProcessPoolExecutor(AT_A_TIME, mp_context=get_context("spawn")) as pool:
        yield Trials(pool, asked)


@cache
def payload() -> Payload:
    return default_payload()


def verdicts(found: Conformance) -> dict[int, str]:
    return {outcome.rule.number: outcome.verdict for outcome in found.outcomes}


def broken(found: Conformance) -> dict[int, str]:
    """The broken rules and why."""
    return {outcome.rule.number: outcome.reason for outcome in found.outcomes if outcome.verdict == "broken"}


def line_of(found: Conformance, rule: int) -> Outcome:
    return next(outcome for outcome in found.outcomes if outcome.rule.number == rule)
