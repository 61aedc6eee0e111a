"""How well the referral network does on real photographs: frozen features against fine-tuning, and on other sets.

APTOS 2019 at 224 px, split by us (70/30, duplicates left out), MobileNet 0.75 with ImageNet weights. For every seed
another split; both recipes see the same one. Then the fine-tuned network of the first seed on sets it never saw.
The numbers are the network's own answers for every photograph ("ungated" in scores.json), as published results are.

    python benchmarks/referral.py [--quick] [--json FILE] [--seeds N] [--data FOLDER] [--keep FOLDER]
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fundoscope.cli.command import table
from fundoscope.data.check import check
from fundoscope.data.intake import import_photographs
from fundoscope.data.manifest import Manifest
from fundoscope.data.photo import Preparation
from fundoscope.data.prepare import prepare_records
from fundoscope.data.records import Records
from fundoscope.model.backend import choose_backend, use_backend
from fundoscope.model.recipe import Recipe, load_recipe

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
BACKBONE, WEIGHTS = "MobileNet-0.75", "mobilenet_v1_0.75_224_notop.weights.h5"
SETS = {"IDRiD": "idrid_640.tar", "EyePACS": "eyepacs2015_224.tar"}
REACH = {"auc": 0.965, "kappa": 0.80}
FROZEN_BEFORE = {"APTOS": "0.944 / 0.73", "IDRiD": "0.89 / 0.64", "EyePACS": "0.76 / 0.43"}  # data/README.md, issue


def main() -> int:
    args = _arguments()
    aptos = args.data / "fundus" / "aptos2019_224.tar"
    if not aptos.is_file():
        print(f"no real photographs here: {aptos} is absent")
        return 0
    use_backend(choose_backend())
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.keep or Path(scratch)
        rows = list(_all(args, aptos, folder))
    header = ["trained by", "tested on", "seed", "n", "AUC (95 %)", "kappa (95 %)", "seconds", "frozen before"]
    shown = [[r["recipe"], r["set"], r["seed"], r["n"], r["auc"], r["kappa"], r["seconds"], r["before"]] for r in rows]
    print("\n".join(table(shown, header=header)))
    fine = [r for r in rows if (r["recipe"], r["set"]) == ("finetune", "APTOS")]
    reached = {name: _median([r["values"][name] for r in fine]) for name in REACH}
    for name, least in REACH.items():
        print(f"{name}, median of {len(fine)} splits: {reached[name]:.4f}, to reach: {least}")
    if args.json:
        args.json.write_text(json.dumps({"rows": rows, "median": reached}, indent=2) + "\n")
    return 0 if args.quick or all(reached[name] >= least for name, least in REACH.items()) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="300 photographs and two epochs: does it run at all")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--data", type=Path, default=SHARED)
    parser.add_argument("--keep", type=Path, help="leave the runs here")
    args = parser.parse_args()
    if args.json:
        args.json.touch()  # rather fail now than after an hour
    return args


def _all(args: argparse.Namespace, aptos: Path, folder: Path) -> Iterator[dict[str, Any]]:
    weights = str(args.data / "weights" / WEIGHTS)
    for seed in range(args.seeds):
        records = _records(aptos, folder / f"seed{seed}", seed, quick=args.quick)
        for recipe in _recipes(weights, quick=args.quick):
            out = folder / f"seed{seed}" / recipe.name
            seconds = _train(recipe, records, out, seed)
            scores = json.loads((out / "scores.json").read_text())["test"]
            yield _row(recipe.name, "APTOS", seed, scores, seconds)
        for name, archive in SETS.items() if seed == 0 and not args.quick else ():
            if (args.data / "fundus" / archive).is_file():
                yield _row("finetune", name, seed, _elsewhere(out, args.data / "fundus" / archive, name), None)


def _records(aptos: Path, folder: Path, seed: int, *, quick: bool) -> Records:
    manifest = import_photographs("tar", aptos, folder=folder, seed=seed)
    if quick:
        manifest = Manifest(manifest.photographs[:300], manifest.folder)
    checked = check(manifest).manifest
    return prepare_records(checked, folder / "records", Preparation(size=224))[0]


def _recipes(weights: str, *, quick: bool) -> list[Recipe]:
    few = {"head_epochs": 2} if quick else {}
    fine = {"head_epochs": 2, "epochs": 1} if quick else {}
    return [
        load_recipe("frozen", backbone=BACKBONE, weights=weights, **few),
        load_recipe("finetune", backbone=BACKBONE, weights=weights, **fine),
    ]


def _train(recipe: Recipe, records: Records, out: Path, seed: int) -> float:
    from fundoscope.model.evaluate import evaluate_run
    from fundoscope.model.train import train

    began = time.perf_counter()
    for row in train(recipe, records, out, seed=seed):
        done = f"{recipe.name} seed {seed} epoch {row.epoch}: {row.seconds:.1f} s, tuning AUC {row.tune_auc:.4f}"
        print(done, file=sys.stderr)
    seconds = time.perf_counter() - began
    evaluate_run(out, records)
    return seconds


def _elsewhere(run: Path, archive: Path, name: str) -> dict[str, Any]:
    from fundoscope.model.evaluate import evaluate_on
    from fundoscope.model.run import TrainedModel

    manifest = import_photographs("tar", archive, folder=run)
    found: dict[str, Any] = evaluate_on(TrainedModel.open(run), manifest, name)["test"]
    return found


def _row(recipe: str, name: str, seed: int, scores: dict[str, Any], seconds: float | None) -> dict[str, Any]:
    measured = scores["image"]["ungated"]
    return {
        "recipe": recipe,
        "set": name,
        "seed": seed,
        "n": scores["n"],
        "auc": _interval(measured["auc"]),
        "kappa": _interval(measured["kappa"]),
        "values": {"auc": measured["auc"]["value"], "kappa": measured["kappa"]["value"]},
        "seconds": None if seconds is None else f"{seconds:.0f}",
        "before": FROZEN_BEFORE[name],
        "scores": measured,
    }


def _interval(found: dict[str, Any]) -> str:
    return f"{found['value']:.3f} ({found['low']:.3f} to {found['high']:.3f})"


def _median(values: list[float]) -> float:
    middle = sorted(values)
    return (middle[(len(middle) - 1) // 2] + middle[len(middle) // 2]) / 2


if __name__ == "__main__":
    sys.exit(main())
