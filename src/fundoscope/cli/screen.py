"""fundoscope screen: a folder of photographs into a table of gradings and a page, most severe first."""

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fundoscope.cli.command import Answer, Commands, bar, table, verb
from fundoscope.cli.trusted import add_trusted_key, trusted_keys
from fundoscope.errors import FundoscopeError

if TYPE_CHECKING:
    from fundoscope.screen.screen import Screened

EPILOG = """what is written, for --out gradings.parquet (or .csv, .jsonl):
  gradings.parquet            a row per photograph, also of those that could not be graded, with the reason
  gradings.patients.parquet   a row per patient, where patients are known: refer, retake or refer, no referral
  gradings.html               a page to read, most severe first; no photograph is in it
  gradings.screening.jsonl    the log: with it the same command, killed or not, grades only what is new

exit status: 0 all photographs are accounted for (graded, ungradable or unreadable); 1 some failed, for a reason that
is not in the photograph: the same command tries them again; 2 nothing was done"""


def add_commands(commands: Commands) -> None:
    parser = verb(
        commands,
        "screen",
        _screen,
        help="grade every photograph of a folder, on all cores; go on where an earlier run was stopped",
        example="fundoscope screen photographs/ --artefact artefacts/x --out gradings.parquet",
    )
    parser.epilog = f"{EPILOG}\n\n{parser.epilog}"
    parser.add_argument("source", metavar="FOLDER", type=Path, help="or a manifest.csv, or an uncompressed .tar")
    parser.add_argument("--artefact", required=True, type=Path, metavar="FOLDER", help="what fundoscope export wrote")
    parser.add_argument("--out", required=True, type=Path, metavar="FILE", help=".parquet, .csv or .jsonl")
    whose = parser.add_mutually_exclusive_group()
    whose.add_argument(
        "--patients", type=Path, metavar="FILE.csv", help="whose they are: columns path (or file), patient, eye"
    )
    whose.add_argument(
        "--patients-from-names", action="store_true", help="10_left.jpeg is the left eye of patient 10, as in EyePACS"
    )
    parser.add_argument(
        "--operating-point", default="high_sensitivity", metavar="NAME", help="default: high_sensitivity"
    )
    parser.add_argument(
        "--processes", type=_positive, help="how many at once (default: one per core, if memory allows)"
    )
    parser.add_argument("--unsafe", action="store_true", help="use even an artefact that was refused, or never judged")
    add_trusted_key(parser)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from 1 on")
    return int(text)


def _screen(arguments: argparse.Namespace) -> Answer:
    from fundoscope.provenance import command
    from fundoscope.screen.screen import screen

    a = arguments
    if a.patients is not None and a.source.suffix.lower() == ".csv":
        raise FundoscopeError("a manifest says itself whose photographs they are", "leave out --patients")
    screened = screen(
        a.source,
        a.artefact,
        a.out,
        operating_point=a.operating_point,
        patients=a.patients,
        names_are_patients=a.patients_from_names,
        processes=a.processes,
        unsafe=a.unsafe,
        trusted_keys=trusted_keys(a),
        track=bar,
    )
    page = _write_page(screened)
    failed = screened.counts["failed"]
    following = command() if failed else shlex.join(["fundoscope", "serve", str(a.artefact)])
    return Answer(_values(screened, page), _lines(screened, page), next=following, ok=not failed)


def _write_page(screened: "Screened") -> Path | None:
    """None: the libraries that reports need are not installed, as in a container that only serves."""
    try:
        from fundoscope.report.screening import write_screening
    except ModuleNotFoundError as missing:
        if missing.name and missing.name.startswith("fundoscope"):
            raise
        return None
    return write_screening(screened)


def _values(screened: "Screened", page: Path | None) -> dict[str, Any]:
    asked, effort = screened.asked, screened.effort
    return {
        "out": str(asked.out),
        "patients_out": str(screened.patients_out) if screened.patients_out else None,
        "report": str(page) if page else None,
        "log": str(asked.log),
        "artefact": asked.artefact.digest,
        "operating_point": {"name": asked.operating_point.name, "threshold": asked.operating_point.threshold},
        **screened.counts,
        "not_opened": screened.passed_over,
        "this_run": {
            "photographs": effort.photographs,
            "seconds": round(effort.seconds, 3),
            "photographs_per_second": round(screened.speed, 2) if effort.photographs else None,
            "processes": effort.processes,
            "peak_mb_per_process": round(effort.peak_bytes / 1e6),
        },
    }


def _lines(screened: "Screened", page: Path | None) -> list[str]:
    counts, asked = screened.counts, screened.asked
    parts = [f"{counts[name]:,} {name}" for name in ("graded", "ungradable", "unreadable", "failed")]
    lines = [f"{counts['photographs']:,} photographs: {', '.join(parts)}"]
    if counts["grades"]:
        classes = asked.artefact.output.classes
        rows = [[f"{i} {name.en}", f"{counts['grades'][str(i)]:,}"] for i, name in enumerate(classes)]
        lines += ["", *table(rows[::-1], header=["grade", "photographs"]), ""]
    point = asked.operating_point
    lines.append(f"{counts['referred']:,} photographs to refer at {point.name} (P(referral) >= {point.threshold:.3f},")
    lines[-1] += " or ungradable)"
    if "patients" in counts:
        of = counts["patients"]
        lines.append(f"{of['n']:,} patients: " + ", ".join(f"{n:,} {name}" for name, n in of.items() if name != "n"))
        if counts["without_patient"]:
            lines.append(f"photographs of nobody known: {counts['without_patient']:,}")
    lines += _remarks(screened)
    wrote = [asked.out, screened.patients_out, page]
    return [*lines, "", "wrote " + ", ".join(str(path) for path in wrote if path)]


def _remarks(screened: "Screened") -> list[str]:
    counts, effort = screened.counts, screened.effort
    lines = [f"not opened: {n:,} × {reason}" for reason, n in screened.passed_over.items()]
    if counts["copies"]:
        lines.append(f"copies, byte for byte, of others: {counts['copies']:,}, graded once")
    if counts["conflicting_copies"]:
        lines.append(f"copies given to another patient or eye: {counts['conflicting_copies']:,}; see the page")
    if effort.photographs:
        lines.append(
            f"{effort.photographs:,} looked at in {effort.seconds:.1f} s, {screened.speed:.1f} per second, by "
            f"{effort.processes} processes of up to {effort.peak_bytes / 1e6:.0f} MB"
        )
    else:
        lines.append("all of them were in the log: nothing was graded again")
    return lines
