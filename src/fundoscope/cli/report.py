"""fundoscope report: a run folder into one HTML file."""

import argparse
from pathlib import Path

from fundoscope.cli.command import Answer, Commands, verb


def add_commands(commands: Commands) -> None:
    parser = verb(
        commands,
        "report",
        report,
        help="write a run's report: one HTML file that opens without a network",
        example="fundoscope report runs/x",
    )
    parser.add_argument("run_folder", metavar="RUN", type=Path, help="the folder that fundoscope train wrote")
    parser.add_argument("--out", metavar="FILE", type=Path, help="where to write it (default: RUN/report.html)")


def report(asked: argparse.Namespace) -> Answer:
    from fundoscope.report.page import write_report

    path = write_report(asked.run_folder, asked.out)
    size = path.stat().st_size
    line = f"{path}: {size / 1e6:.1f} MB, opens in any browser without a network"
    return Answer({"report": str(path), "bytes": size}, [line], next=_export(asked.run_folder))


def _export(run: Path) -> str:
    return f"fundoscope export {run} --format onnx --out artefacts/{run.resolve().name}"
