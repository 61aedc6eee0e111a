"""fundoscope conform: any server, ours or not, through SageMaker's container contract, and under attack."""

import argparse
import signal
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from fundoscope.cli.command import Answer, Commands, bar, verb
from fundoscope.errors import FundoscopeError

if TYPE_CHECKING:
    from fundoscope.conform.run import Conformance

KINDS = ("auto", "image", "command", "address")
PLATFORMS = ("real-time", "serverless")  # conform/contract.py's, which a test compares with these


def add_commands(commands: Commands) -> None:
    parser = verb(
        commands,
        "conform",
        _conform,
        help="put an image, a command line or an address through SageMaker's container contract, and under attack",
        example='fundoscope conform "fundoscope serve {model}" --model artefacts/x --html conform.html',
    )
    add = parser.add_argument
    add("target", metavar="TARGET", help='an image, a "command line" ({port} and {model} are filled in) or an address')
    add("--kind", choices=KINDS, default="auto", help="what TARGET is, where it cannot be told (default: auto)")
    add("--model", type=Path, metavar="FOLDER", help="the model: {model}, or mounted read-only at /opt/ml/model")
    add("--photo", type=Path, metavar="FILE", help="what to send (default: a drawn eye, 224 x 224)")
    add("--content-type", metavar="TYPE", help="of the photograph (default: by its name)")
    add("--platform", choices=PLATFORMS, default="real-time", help="whose limits hold (default: real-time)")
    add("--rules", metavar="1,5,9", help="try only these (default: all; 1-16 are SageMaker's, 17-21 ours)")
    add("--ping", metavar="PATH", default="/ping", help="where its health is asked, if not at /ping")
    add("--invocations", metavar="PATH", default="/invocations", help="where it takes a photograph, if elsewhere")
    add("--junit", type=Path, metavar="FILE", help="write JUnit XML, for continuous integration")
    add("--html", type=Path, metavar="FILE", help="write a page that opens without a network")
    add("--quick", action="store_true", help="load it for a shorter time; no rule is left out")


def _conform(arguments: argparse.Namespace) -> Answer:
    from fundoscope.conform.aim import target_of
    from fundoscope.conform.contract import RULES, Routes, limits_of
    from fundoscope.conform.live import FULL, QUICK, Plan
    from fundoscope.conform.photographs import default_payload, read_payload
    from fundoscope.conform.report import lines, values, write_html, write_junit
    from fundoscope.conform.run import chosen, conform

    plan = Plan(
        limits_of(arguments.platform),
        read_payload(arguments.photo, arguments.content_type) if arguments.photo else default_payload(),
        rules=chosen(arguments.rules) if arguments.rules is not None else tuple(RULES),
        effort=QUICK if arguments.quick else FULL,
        platform=arguments.platform,
        routes=Routes(_path(arguments.ping), _path(arguments.invocations)),
    )
    target = target_of(arguments.target, kind=arguments.kind, model=arguments.model)
    signal.signal(signal.SIGTERM, _as_interrupt)  # so that what we started is ended then too
    found = conform(target, plan, track=bar)
    if arguments.junit:
        write_junit(found, arguments.junit)
    if arguments.html:
        write_html(found, arguments.html)
    written = [f"written: {path}" for path in (arguments.junit, arguments.html) if path]
    return Answer(values(found), [*lines(found), *written], next=_next(found, arguments), ok=found.holds)


def _as_interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _path(text: str) -> str:
    if not text.startswith("/") or not text.isascii() or len(text.split()) != 1:
        raise FundoscopeError(f"{text!r} is not the path of a route", "write it as /health")
    return text


def _next(found: "Conformance", arguments: argparse.Namespace) -> str:
    if not found.tried:
        return "see that it runs and answers /ping, then the same again"
    if found.holds:
        return "" if arguments.html else "the same with --html conform.html, to keep what was measured"
    return "mend it, and try what broke alone: the same with --rules and its number"
