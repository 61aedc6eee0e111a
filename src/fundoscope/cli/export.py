"""fundoscope export …"""

import argparse
from pathlib import Path
from typing import Any

from fundoscope.cli.command import Answer, Commands, bar, verb

FORMATS = ("onnx", "savedmodel")  # artefact/convert.py's EXPORTERS, which would cost an import to name here


def add_commands(commands: Commands) -> None:
    parser = verb(
        commands,
        "export",
        _export,
        help="turn a training run into an artefact: the model to deploy, compared with the one that was trained",
        example="fundoscope export runs/x --format onnx --out artefacts/x",
    )
    parser.add_argument("run_folder", metavar="RUN", type=Path, help="what fundoscope train left")
    parser.add_argument("--format", choices=FORMATS, default="onnx", help="default: onnx")
    parser.add_argument("--out", required=True, type=Path, metavar="FOLDER", help="the artefact: a new folder")
    parser.add_argument(
        "--records", type=Path, metavar="FOLDER", help="the records it was trained on, if they have been moved"
    )


def _export(arguments: argparse.Namespace) -> Answer:
    from dataclasses import asdict

    from fundoscope.artefact.artefact import ARCHIVE
    from fundoscope.artefact.export import export
    from fundoscope.artefact.parity import ParityFailed

    try:
        exported = export(
            arguments.run_folder, arguments.out, format=arguments.format, records=arguments.records, track=bar
        )
    except ParityFailed as refused:
        values: dict[str, Any] = {"error": refused.message, "hint": refused.hint, "parity": asdict(refused.parity)}
        return Answer(values, [f"refused: {refused.message}", f"hint: {refused.hint}"], ok=False)
    artefact, archive = exported.artefact, arguments.out / ARCHIVE
    done = "already there, byte for byte:" if exported.already_there else "exported:"
    lines = [
        f"{done} {arguments.out}, {artefact.format} {artefact.precision}, {_megabytes(artefact.size_bytes)}",
        f"digest: {artefact.digest}",
        f"parity: {exported.parity}",
    ]
    if exported.parity.against != exported.from_training.against:
        lines.append(f"and with the scores' own answers, computed on {artefact.origin['device']}:")
        lines.append(f"  {exported.from_training}")
    lines.append(f"for S3: {archive}, {_megabytes(archive.stat().st_size)}")
    values = {
        "artefact": str(arguments.out),
        "digest": artefact.digest,
        "format": artefact.format,
        "precision": artefact.precision,
        "size_bytes": artefact.size_bytes,
        "archive": str(archive),
        "archive_bytes": archive.stat().st_size,
        "parity": asdict(exported.parity),
        "from_training": asdict(exported.from_training),
        "already_there": exported.already_there,
        "seconds": round(exported.seconds, 3),
    }
    return Answer(values, lines, next=f"fundoscope serve {arguments.out}")


def _megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.1f} MB"
