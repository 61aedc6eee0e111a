"""fundoscope published: the thesis's tables and figures from its raw numbers, its statements judged, ours beside."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from fundoscope.cli.command import Answer, Commands, verb

if TYPE_CHECKING:
    from fundoscope.analysis.summaries import Summary
    from fundoscope.analysis.thesis import Cell


def add_commands(commands: Commands) -> None:
    parser = verb(
        commands,
        "published",
        _published,
        help="regenerate the thesis's tables and figures from its raw numbers, and judge what it printed",
        example="fundoscope published --out thesis.html",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("thesis.html"), metavar="FILE.html", help="default: thesis.html"
    )
    parser.add_argument(
        "--study", type=Path, metavar="STUDY", help="of the workload invoke, to stand in the next column"
    )


def _published(arguments: argparse.Namespace) -> Answer:
    from collections import Counter

    from fundoscope.analysis.thesis import thesis_results
    from fundoscope.analysis.thesis_statements import statements
    from fundoscope.report.thesis import write_thesis_page

    ours, measured = _ours(arguments.study) if arguments.study else (None, "")
    out = write_thesis_page(arguments.out, ours, measured=measured)
    verdicts = Counter(judged.verdict for judged in statements(thesis_results()))
    said = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items())
    lines = [f"{verdicts.total()} printed statements: {said}"]
    if ours is not None:
        hint = (
            "" if ours else ": its artefacts must be called mobilenet and vgg19, as in designs/serverless-memory.toml"
        )
        lines.append(f"{len(ours)} readings of the study stand beside the thesis's{hint}")
    lines.append(f"the page: {out.resolve()}")
    return Answer({"page": str(out), "verdicts": dict(verdicts), "ours": len(ours or {})}, lines)


def _ours(folder: Path) -> "tuple[dict[Cell, Summary], str]":
    from datetime import date

    from fundoscope.analysis.analyse import analyse
    from fundoscope.analysis.thesis_ours import ours_of
    from fundoscope.experiment.study import open_study

    findings = analyse(open_study(folder), today=date.today())
    said = f"{findings.study}, {findings.measured} trials, servers under emulated limits."
    return ours_of(findings), said
