"""fundoscope demo: the whole path on drawn eyes, command by command, as a newcomer would type it."""

import argparse
import json
import shlex
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from fundoscope.cli.command import Answer, Commands, table, verb
from fundoscope.cli.train import brief
from fundoscope.errors import FundoscopeError
from fundoscope.provenance import versions, write_json

PHOTOGRAPHS, DRAWN_PX, PREPARED_PX = 1200, 512, 160


def add_commands(commands: Commands) -> None:
    parser = verb(
        commands,
        "demo",
        _demo,
        help="the whole path on drawn eyes, with no network, account, GPU or data: some minutes on two cores",
        example="fundoscope demo --out runs/demo",
    )
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), help="where to (default runs/demo)")
    parser.add_argument("--n", type=int, default=PHOTOGRAPHS, help=f"eyes to draw (default {PHOTOGRAPHS})")
    parser.add_argument("--epochs", type=int, help="other than the demo recipe's")
    parser.add_argument("--seed", type=int, default=1, help="another seed draws other eyes (default 1)")


@dataclass(frozen=True)
class Stage:
    name: str
    command: list[str]  # what to type after `fundoscope`


@dataclass(frozen=True)
class Timing:
    stage: str
    command: str
    seconds: float


def stages(out: Path, *, n: int, epochs: int | None, seed: int) -> list[Stage]:
    eyes, manifest, records, model = out / "photographs", out / "manifest.csv", out / "records", out / "model"
    trained = ["--recipe", "demo", *(["--epochs", str(epochs)] if epochs else []), "--seed", str(seed)]
    typed = {
        "draw": ["data", "draw", "--n", n, "--seed", seed, "--size", DRAWN_PX, eyes],
        "import": ["data", "import", "drawn", eyes, "--seed", seed, "--out", manifest],
        "check": ["data", "check", manifest],
        "prepare": ["data", "prepare", manifest, "--size", PREPARED_PX, "--out", records],
        "train": ["train", records, *trained, "--out", model],
        "export": ["export", model, "--format", "onnx", "--out", out / "artefact"],
        "report": ["report", model, "--out", out / "report.html"],
    }
    return [Stage(name, [str(word) for word in words]) for name, words in typed.items()]


def _demo(args: argparse.Namespace) -> Answer:
    if args.n < 100:
        raise FundoscopeError(f"{args.n} drawn eyes are too few to learn from", "use --n 100 or more")
    done = _read_timings(args.out)
    for stage in stages(args.out, n=args.n, epochs=args.epochs, seed=args.seed):
        typed = shlex.join(["fundoscope", *stage.command])
        if any((timing.stage, timing.command) == (stage.name, typed) for timing in done):
            continue  # an interrupted demo goes on
        if not args.json:
            print(f"\n$ {typed}", flush=True)
        seconds = _run(stage, as_json=args.json)
        done = [*(timing for timing in done if timing.stage != stage.name), Timing(stage.name, typed, seconds)]
        _write_timings(args.out, done)
    return _answer(args.out, done)


def _run(stage: Stage, *, as_json: bool) -> float:
    began = time.perf_counter()
    command = [sys.executable, "-m", "fundoscope.cli.main", *stage.command]
    status = subprocess.run(command, stdout=subprocess.DEVNULL if as_json else None).returncode
    if status != 0:
        hint = f"see what it says: fundoscope {shlex.join(stage.command)}"
        raise FundoscopeError(f"the demo stopped at its stage '{stage.name}'", hint)
    return time.perf_counter() - began


def _read_timings(out: Path) -> list[Timing]:
    path = out / "timings.json"
    if not path.is_file():
        return []
    return [Timing(**timing) for timing in json.loads(path.read_text())["stages"]]


def _write_timings(out: Path, done: list[Timing]) -> None:
    total = sum(timing.seconds for timing in done)
    write_json(
        out / "timings.json",
        {"seconds": total, "stages": [asdict(timing) for timing in done], "versions": versions()},
    )


def _answer(out: Path, done: list[Timing]) -> Answer:
    scores = json.loads((out / "model" / "scores.json").read_text())
    write_json(out / "scores.json", scores)
    report, total = out / "report.html", sum(timing.seconds for timing in done)
    auc = scores["test"]["image"]["gradable"]["auc"]
    rows = [[timing.stage, f"{timing.seconds:.1f}"] for timing in done]
    lines = [
        "",
        *table([*rows, ["in all", f"{total:.1f}"]], header=["stage", "seconds"]),
        "",
        f"referral AUC {auc['value']:.3f} ({auc['low']:.3f} to {auc['high']:.3f}) on drawn eyes it had not seen",
        "drawn eyes are for trying the software; nothing about medicine follows from them",
        f"the report: {report.resolve()}",
    ]
    values = {
        "report": str(report.resolve()),
        "artefact": str((out / "artefact").resolve()),
        "seconds": total,
        "scores": brief(scores["test"]),
    }
    return Answer(values, lines, next="fundoscope data import --help   (your own photographs)")
