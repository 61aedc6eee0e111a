"""fundoscope quantise …"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fundoscope.cli.command import Answer, Commands, bar, table, verb

if TYPE_CHECKING:
    from fundoscope.artefact.quantise import Candidate, Measured, Quantised

METHODS = ("int8", "int8-dynamic", "float16", "bfloat16")  # artefact/precisions.py's PRECISIONS, an import away


def add_commands(commands: Commands) -> None:
    parser = verb(
        commands,
        "quantise",
        _quantise,
        help="make an artefact smaller and faster, and prove on held-out photographs that it is as good, or refuse it",
        example="fundoscope quantise artefacts/x --records records/ --out artefacts/x-int8",
    )
    parser.add_argument("artefact", metavar="ARTEFACT", type=Path, help="a float32 ONNX artefact")
    parser.add_argument(
        "--records",
        required=True,
        type=Path,
        metavar="FOLDER",
        help="prepared photographs: the tuning part calibrates, the test part judges",
    )
    parser.add_argument("--out", required=True, type=Path, metavar="FOLDER", help="a new folder")
    parser.add_argument(
        "--method",
        choices=(*METHODS, "all"),
        default="int8",
        help="default: int8; all compares them, and writes each into a folder of its name",
    )
    parser.add_argument(
        "--run",
        dest="run_folder",
        type=Path,
        metavar="RUN",
        help="the training run, where the records are not those it was trained on",
    )
    parser.add_argument(
        "--margin",
        type=_margin,
        default=0.02,
        metavar="SHARE",
        help="how much sensitivity, specificity or kappa may at worst be lost; default: 0.02",
    )
    parser.add_argument(
        "--calibration", type=int, default=128, metavar="N", help="tuning photographs to calibrate on; default: 128"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="default: 0")
    parser.add_argument("--threads", type=int, metavar="N", help="for one prediction; default: one per core")


def _margin(text: str) -> float:
    value = float(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1")
    return value


def _quantise(arguments: argparse.Namespace) -> Answer:
    from fundoscope.artefact.quantise import quantise

    made = quantise(
        arguments.artefact,
        arguments.records,
        arguments.out,
        methods=METHODS if arguments.method == "all" else (arguments.method,),
        run=arguments.run_folder,
        calibration=arguments.calibration,
        margin=arguments.margin,
        seed=arguments.seed,
        threads=arguments.threads,
        track=bar,
    )
    best = made.candidates[made.recommended].artefact.folder if made.recommended else arguments.artefact
    values = {
        "float32": {"artefact": str(arguments.artefact), "digest": made.float32.digest, **_measured(made.measured)},
        "candidates": {method: _values(found) for method, found in made.candidates.items()},
        "recommended": made.recommended,
        "left_out": made.left_out,
    }
    passed = any(found.guard.passed for found in made.candidates.values())
    return Answer(values, _lines(made), next=f"fundoscope serve {best}", ok=passed)


def _measured(measured: "Measured") -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(measured)


def _values(found: "Candidate") -> dict[str, Any]:
    artefact = found.artefact
    return {
        "artefact": str(artefact.folder),
        "digest": artefact.digest,
        "precision": artefact.precision,
        **_measured(found.measured),
        "gain": found.gain,
        "guard": found.guard.to_json(),
    }


def _lines(made: "Quantised") -> list[str]:
    header = ["method", "MB", "ms", "times faster (95 %)", "memory MB", "gain", "verdict"]
    rows = [["float32", *_figures(made.measured), "", ""]]
    rows += [
        [method, *_figures(found.measured), found.gain, "passed" if found.guard.passed else "refused"]
        for method, found in made.candidates.items()
    ]
    guard = next(iter(made.candidates.values())).guard
    patients = f" of {guard.patients} patients" if guard.patients else ""
    lines = [*table(rows, header=header), ""]
    lines.append(
        f"against float32 on {guard.photographs} held-out photographs{patients}; in brackets what it is at worst "
        f"(97.5 %), which must lie above -{guard.margin:g}:"
    )
    lines += table(
        [row for method, found in made.candidates.items() for row in _guarded(method, found)],
        header=["method", "at", "sensitivity", "specificity", "kappa", "lost", "gained", "grades changed"],
    )
    if made.left_out:
        lines.append(f"left out: {made.left_out} test photographs that the model had learnt from")
    lines.append("")
    lines += [
        f"{'passed' if found.guard.passed else 'refused'}: {method}, {found.guard.why}"
        for method, found in made.candidates.items()
    ]
    lines += sorted({f"careful: {found.guard.caution}" for found in made.candidates.values() if found.guard.caution})
    if made.recommended:
        lines.append(f"recommended: {made.recommended}, {made.candidates[made.recommended].gain} than float32")
    else:
        lines.append("recommended: float32 as it is; no candidate is both as good and an improvement")
    return lines


def _figures(measured: "Measured") -> list[str]:
    latency = measured.latency
    interval = f"{latency.faster:.2f} ({latency.faster_low:.2f} to {latency.faster_high:.2f})"
    return [
        f"{measured.size_bytes / 1e6:.1f}",
        f"{latency.predict_ms:.1f}",
        interval,
        f"{measured.peak_bytes / 1e6:.0f}",
    ]


def _guarded(method: str, found: "Candidate") -> list[list[str]]:
    """A line for each operating point, and one for the grades."""
    at = {(d.measure, d.operating_point): f"{d.value:+.4f} ({d.low:+.4f})" for d in found.guard.differences}
    rows = [
        [
            method,
            point,
            at["sensitivity", point],
            at["specificity", point],
            "",
            str(flips.lost),
            str(flips.gained),
            "",
        ]
        for point, flips in found.guard.flips.items()
    ]
    if ("kappa", None) in at:
        rows.append([method, "grades", "", "", at["kappa", None], "", "", str(found.guard.grade_changes)])
    return rows
