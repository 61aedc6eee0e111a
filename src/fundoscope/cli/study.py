"""fundoscope study: designed experiments that say what something costs, where, and why."""

import argparse
import shlex
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from fundoscope.cli.command import Answer, Commands, bar, table, verb
from fundoscope.errors import FundoscopeError

if TYPE_CHECKING:
    from fundoscope.analysis.findings import Findings
    from fundoscope.experiment.environments import Environment
    from fundoscope.experiment.study import Study

RETRIED = ("unavailable", "crashed", "out of memory", "timed out", "no readings", "disk full")


def add_commands(commands: Commands) -> None:
    group = commands.add_parser("study", help="designed experiments: what training costs, where, and why")
    verbs = group.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_plan(verbs)
    _add_setup(verbs)
    _add_run(verbs)
    _add_analyse(verbs)
    _add_report(verbs)
    _add_export(verbs)
    _add_environments(verbs)


def _add_plan(verbs: Commands) -> None:
    parser = verb(
        verbs,
        "plan",
        _plan,
        help="read and check a study file: cells, order, expected hours and dollars, what the repetitions can show",
        example="fundoscope study plan designs/training-cost.toml",
    )
    _design_argument(parser)
    parser.add_argument(
        "--variation", type=float, metavar="PERCENT", help="between repetitions, where none are measured yet"
    )


def _add_setup(verbs: Commands) -> None:
    parser = verb(
        verbs,
        "setup",
        _setup,
        help="make the environments and find the data a study needs; say what this machine cannot run",
        example="fundoscope study setup designs/training-cost.toml --data ~/pictures",
    )
    _design_argument(parser)
    _place_arguments(parser)
    parser.add_argument(
        "--use", action="append", default=[], metavar="FRAMEWORK=PYTHON", help="an interpreter that has it already"
    )


def _add_run(verbs: Commands) -> None:
    parser = verb(
        verbs,
        "run",
        _run,
        help="measure what has not been measured yet; killed or not, the same command goes on",
        example="fundoscope study run designs/training-cost-small.toml",
    )
    _design_argument(parser)
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="the study's folder (default: studies/NAME)")
    _place_arguments(parser)
    parser.add_argument(
        "--retry", action="append", default=[], choices=RETRIED, help="failures to try again; may be repeated"
    )
    parser.add_argument("--on", metavar="ray[://ADDRESS]", help="run trials over a Ray cluster (default: here)")
    parser.add_argument(
        "--per-node", type=int, default=1, metavar="N", help="on Ray: trials at once on a node (default: 1)"
    )


def _add_analyse(verbs: Commands) -> None:
    parser = verb(
        verbs,
        "analyse",
        _analyse,
        help="effects, comparisons, cost: in numbers with intervals",
        example="fundoscope study analyse studies/training-cost --prices azure-eastus-2025-09-11 --machine cpu=F4s_v2",
    )
    _study_arguments(parser)


def _add_report(verbs: Commands) -> None:
    parser = verb(
        verbs,
        "report",
        _report,
        help="one HTML file about a study, to read without a network",
        example="fundoscope study report studies/training-cost",
    )
    _study_arguments(parser)
    parser.add_argument("--out", type=Path, metavar="FILE.html", help="default: report.html in the study's folder")


def _add_export(verbs: Commands) -> None:
    parser = verb(
        verbs,
        "export",
        _export,
        help="write every trial as a run of an experiment tracker",
        example="fundoscope study export studies/training-cost --to mlflow --tracking sqlite:///mlflow.db",
    )
    parser.add_argument("study", type=Path, metavar="STUDY", help="a study's folder")
    parser.add_argument("--to", required=True, choices=["mlflow"])
    parser.add_argument(
        "--tracking", default="sqlite:///mlflow.db", metavar="ADDRESS", help="of MLflow (default: sqlite:///mlflow.db)"
    )


def _add_environments(verbs: Commands) -> None:
    parser = verb(
        verbs,
        "environments",
        _environments,
        help="list the environments that setup made, or remove some",
        example="fundoscope study environments --remove mxnet-cpu-1a2b3c4d",
    )
    _place_arguments(parser, data=False)
    parser.add_argument("--remove", action="append", default=[], metavar="NAME", help="may be repeated")


def _design_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("design", type=Path, metavar="STUDY.toml", help="a study file, or the folder of a study")


def _place_arguments(parser: argparse.ArgumentParser, *, data: bool = True) -> None:
    where = "where the environments are (default: ~/.cache/fundoscope/environments)"
    parser.add_argument("--environments", type=Path, metavar="FOLDER", help=where)
    if data:
        parser.add_argument("--data", type=Path, metavar="FOLDER", help="pictures or records that the trials read")


def _study_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("study", type=Path, metavar="STUDY", help="a study's folder")
    parser.add_argument("--metric", help="what to explain (default: the study file's response)")
    parser.add_argument("--prices", metavar="LIST", help="price it anew: a list's name or file (see `prices list`)")
    parser.add_argument(
        "--machine", action="append", default=[], metavar="[LEVEL=]NAME", help="of that list, for all or for a level"
    )
    parser.add_argument("--spot", action="store_true", help="at spot prices")
    parser.add_argument(
        "--monthly",
        type=int,
        default=100_000,
        metavar="N",
        help="requests a month, of the workload invoke (default: 100000)",
    )


def _plan(arguments: argparse.Namespace) -> Answer:
    from fundoscope.analysis.plan import plan, values_of
    from fundoscope.cli.study_text import plan_lines
    from fundoscope.experiment.study import plan_study

    study = plan_study(arguments.design)
    found = plan(study, assumed_variation=arguments.variation and arguments.variation / 100)
    following = shlex.join(["fundoscope", "study", "setup", str(arguments.design)])
    return Answer(values_of(found), plan_lines(found), following)


def _setup(arguments: argparse.Namespace) -> Answer:
    from fundoscope.experiment.environments import size_bytes
    from fundoscope.experiment.setup import set_up
    from fundoscope.experiment.study import plan_study

    study = plan_study(arguments.design)
    found = set_up(study.design, *_folders(arguments), use=_pairs(arguments.use, "--use"), say=_say)
    rows = [[e.name, _versions(e), f"{size_bytes(e) / 1e6:.0f}"] for e in found.environments]
    lines = [*table(rows, header=["environment", "versions", "MB"]), ""] if rows else []
    lines += [f"data: {line}" for line in found.data]
    lines += [
        f"cannot run here: {cells} of {len(study.design.cells)} cells: {why}" for why, cells in found.lacking.items()
    ]
    values = {
        "environments": [
            {"name": e.name, "python": str(e.python), "versions": dict(e.versions)} for e in found.environments
        ],
        "data": found.data,
        "lacking": found.lacking,
    }
    given = ["--data", str(arguments.data)] if arguments.data else []
    return Answer(values, lines, shlex.join(["fundoscope", "study", "run", str(arguments.design), *given]))


def _run(arguments: argparse.Namespace) -> Answer:
    from fundoscope.analysis.prices import prices_of
    from fundoscope.experiment.outcome import Failed, OutcomeLog
    from fundoscope.experiment.runner import Lab, here, missing, run
    from fundoscope.experiment.setup import set_up
    from fundoscope.experiment.study import begin, plan_study
    from fundoscope.experiment.workloads import Place

    _stop_on_term()
    study = plan_study(arguments.design, arguments.out)
    prices_of(study.design)  # not after a night of measuring
    begin(study, arguments.design)
    environments, data = _folders(arguments)
    lab: Lab = here
    scratch = str(study.scratch.resolve())
    if arguments.on:
        from fundoscope.experiment.ray import on_ray

        lab, scratch = on_ray(arguments.on, per_node=arguments.per_node), ""
    place = Place(str(environments), scratch, str(data), str(Path.cwd()))
    with OutcomeLog(study.log, study.design) as log:
        retry = frozenset(arguments.retry)
        left = missing(study, log, retry)
        if left and not arguments.on:
            set_up(study.design, environments, data, use={}, say=_say, strict=False)
        outcomes = list(bar(run(study, log, place, lab, retry=retry), total=len(left), label=study.design.name))
    reasons = Counter(f"{outcome.kind}: {outcome.reason}" for outcome in outcomes if isinstance(outcome, Failed))
    measured, before = len(outcomes) - reasons.total(), len(study.design.trials) - len(left)
    lines = [
        f"{measured} trials measured, {reasons.total()} failed" + (f"; {before} were done before" if before else ""),
        *[f"  {count} × {reason}" for reason, count in reasons.items()],
    ]
    values = {"study": str(study.folder), "measured": measured, "failed": dict(reasons), "before": before}
    return Answer(values, lines, shlex.join(["fundoscope", "study", "report", str(study.folder)]))


def _analyse(arguments: argparse.Namespace) -> Answer:
    from fundoscope.analysis.analyse import write_findings
    from fundoscope.cli.study_text import answer_lines, finding_lines

    _, findings = _findings(arguments)
    out = arguments.study / "findings.json"
    write_findings(out, findings)
    values = {"findings": str(out), "answer": answer_lines(findings), "warnings": list(findings.warnings)}
    following = shlex.join(["fundoscope", "study", "report", str(arguments.study)])
    return Answer(values, [*finding_lines(findings), "", f"all of it: {out}"], following)


def _report(arguments: argparse.Namespace) -> Answer:
    from fundoscope.cli.study_text import answer_lines
    from fundoscope.report.study import write_study_report
    from fundoscope.report.study_words import extremes

    study, findings = _findings(arguments)
    series = {cell: study.series(f"{cell}-1") for cell in extremes(findings)}
    out = arguments.out or arguments.study / "report.html"
    write_study_report(findings, out, series={f"{cell}-1": rows for cell, rows in series.items() if rows})
    sentences = answer_lines(findings)
    following = ""
    if findings.per_inference:
        words = ["fundoscope", "advise", "--study", str(arguments.study), "--traffic", "5000/day", "--objective"]
        following = shlex.join([*words, "p95<2s"])
    return Answer(
        {"report": str(out), "answer": sentences}, [*sentences, "", f"the report: {out.resolve()}"], following
    )


def _findings(arguments: argparse.Namespace) -> tuple["Study", "Findings"]:
    from datetime import date

    from fundoscope.analysis.analyse import analyse
    from fundoscope.experiment.study import open_study

    study = open_study(arguments.study)
    findings = analyse(
        study,
        metric=arguments.metric,
        prices=arguments.prices,
        machines_by_level=_pairs(arguments.machine, "--machine", lone=True),
        spot=arguments.spot,
        monthly=arguments.monthly,
        today=date.today(),
    )
    return study, findings


def _export(arguments: argparse.Namespace) -> Answer:
    from fundoscope.experiment.mlflow import export
    from fundoscope.experiment.study import open_study

    written = export(open_study(arguments.study), arguments.tracking, track=bar)
    following = shlex.join(["mlflow", "ui", "--backend-store-uri", arguments.tracking])
    return Answer({"runs": written, "tracking": arguments.tracking}, [f"{written} runs written"], following)


def _environments(arguments: argparse.Namespace) -> Answer:
    from fundoscope.experiment.environments import listed, remove, size_bytes

    folder, _ = _folders(arguments)
    for name in arguments.remove:
        remove(name, folder)
    rows = [[e.name, _versions(e), f"{size_bytes(e) / 1e6:.0f}", e.made[:10], e.python] for e in listed(folder)]
    lines = table(rows, header=["environment", "versions", "MB", "made", "python"]) if rows else [f"none in {folder}"]
    values = {"folder": str(folder), "environments": [row[0] for row in rows], "removed": arguments.remove}
    return Answer(values, lines)


def _folders(arguments: argparse.Namespace) -> tuple[Path, Path]:
    """Of environments, and of data."""
    from fundoscope.experiment.environments import default_folder

    environments = arguments.environments or default_folder()
    data = getattr(arguments, "data", None) or default_folder().with_name("data")
    return environments.expanduser().resolve(), data.expanduser().resolve()


def _versions(environment: "Environment") -> str:
    return " ".join(f"{name} {version}" for name, version in environment.versions.items())


def _pairs(texts: list[str], option: str, *, lone: bool = False) -> dict[str, str]:
    """NAME=VALUE, any number of times; `lone`: a value alone is for all, under the empty name."""
    found = {}
    for text in texts:
        name, equals, value = text.rpartition("=")
        if not value or (not equals and not lone):
            raise FundoscopeError(f"{option} cannot be '{text}'", f"write it as {option} NAME=VALUE")
        found[name] = value
    return found


def _say(line: str) -> None:
    import sys

    print(line, file=sys.stderr, flush=True)


def _stop_on_term() -> None:
    """A polite end is like Ctrl-C: the trial in progress is lost, and its processes are ended."""
    import signal

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
