"""fundoscope train, sweep, evaluate."""

import argparse
from pathlib import Path
from typing import Any

from fundoscope.cli.command import Answer, Commands, bar, table, verb


def add_commands(commands: Commands) -> None:
    _add_train(commands)
    _add_sweep(commands)
    _add_evaluate(commands)


def _add_train(commands: Commands) -> None:
    parser = verb(
        commands,
        "train",
        _train,
        help="train a network on prepared photographs, score it on those it has not seen",
        example="fundoscope train records/ --recipe finetune --out runs/first",
    )
    parser.add_argument("records", type=Path, help="the folder `data prepare` wrote")
    parser.add_argument(
        "--recipe", default="finetune", help="published, frozen, finetune (default), demo, or a TOML file"
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="the folder to leave the run in; an unfinished one resumes"
    )
    parser.add_argument("--backbone", help="another network than the recipe's")
    parser.add_argument("--weights", help="imagenet, random, or a file (or folder) of weights")
    parser.add_argument("--epochs", type=int, help="other than the recipe's")
    parser.add_argument("--batch", type=int, help="other than the recipe's")
    _add_common(parser)


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--backend", help="tensorflow, jax or torch (default: the best for this machine)")
    parser.add_argument("--seed", type=int, default=0, help="same seed, same result on a CPU (default 0)")


def _train(args: argparse.Namespace) -> Answer:
    from fundoscope.data.records import Records
    from fundoscope.model.backend import choose_backend, use_backend
    from fundoscope.model.recipe import load_recipe
    from fundoscope.model.run import TrainedModel

    changes = {name: getattr(args, name) for name in ("backbone", "weights", "epochs", "batch")}
    recipe = load_recipe(args.recipe, **changes)
    records = Records.open(args.records)
    use_backend(choose_backend(args.backend))
    from fundoscope.model.evaluate import evaluate_run
    from fundoscope.model.train import train

    resumed = _resumed_from(args.out)
    epochs = recipe.head_epochs + recipe.epochs
    rows = list(bar(train(recipe, records, args.out, seed=args.seed), total=epochs, label="epochs"))
    scores = evaluate_run(args.out, records)
    facts = TrainedModel.open(args.out).facts
    lines = [f"resumed after epoch {resumed}"] if resumed else []
    lines += [
        f"{recipe.backbone}, {facts['parameters']:,} weights, on {facts['backend']} ({facts['device']})",
        f"{len(rows)} epochs: {facts['stopped_because']}; the best was epoch {facts['best_epoch']}",
        *summary_lines(scores["test"]),
    ]
    values = {"run": str(args.out), "epochs": len(rows), "resumed_after": resumed, "scores": brief(scores["test"])}
    return Answer(values, lines, next=f"fundoscope report {args.out}")


def _resumed_from(out: Path) -> int:
    from fundoscope.model.run import read_history

    return len(read_history(out))


def _add_sweep(commands: Commands) -> None:
    parser = verb(
        commands,
        "sweep",
        _sweep,
        help="compare many backbones on the same photographs, features computed once for each",
        example="fundoscope sweep records/ --out runs/sweep --backbones MobileNet,VGG19,DenseNet121",
    )
    parser.add_argument("records", type=Path, help="the folder `data prepare` wrote")
    parser.add_argument("--out", type=Path, required=True, help="a folder for one run per backbone")
    parser.add_argument("--backbones", help="names with commas between (default: the 24 of the thesis's notebook)")
    parser.add_argument("--weights", help="imagenet (default), random, or a folder of weight files")
    parser.add_argument("--recipe", default="frozen", help="what the heads are trained by (default: frozen)")
    _add_common(parser)


def _sweep(args: argparse.Namespace) -> Answer:
    from dataclasses import asdict

    from fundoscope.data.records import Records
    from fundoscope.errors import pick
    from fundoscope.model.backbones import BACKBONES, PUBLISHED_24
    from fundoscope.model.backend import choose_backend, use_backend
    from fundoscope.model.recipe import load_recipe
    from fundoscope.provenance import write_json

    names = args.backbones.split(",") if args.backbones else list(PUBLISHED_24)
    for name in names:
        pick(BACKBONES, name, kind="backbone")
    recipe = load_recipe(args.recipe, weights=args.weights)
    records = Records.open(args.records)
    use_backend(choose_backend(args.backend))
    from fundoscope.model.sweep import sweep

    tried = sweep(recipe, records, args.out, backbones=names, seed=args.seed)
    entries = list(bar(tried, total=len(names), label="backbones"))
    entries.sort(key=lambda entry: -(entry.auc or 0))
    values = {"entries": [asdict(entry) for entry in entries]}
    write_json(args.out / "sweep.json", values)
    header = ["backbone", "AUC", "kappa", "accuracy", "weights", "MB", "features s", "head s", "failed"]
    rows = [
        [
            entry.backbone,
            *(None if v is None else f"{v:.3f}" for v in (entry.auc, entry.kappa, entry.accuracy)),
            None if entry.parameters is None else f"{entry.parameters:,}",
            *(None if v is None else f"{v:.1f}" for v in (entry.size_mb, entry.features_seconds, entry.head_seconds)),
            entry.failed,
        ]
        for entry in entries
    ]
    best = entries[0] if entries and entries[0].auc is not None else None
    follow = f"fundoscope train {args.records} --backbone {best.backbone} --out runs/{best.backbone}" if best else ""
    return Answer(values, table(rows, header=header), next=follow, ok=best is not None)


def _add_evaluate(commands: Commands) -> None:
    parser = verb(
        commands,
        "evaluate",
        _evaluate,
        help="score a trained network, on its own test part or on photographs of another manifest",
        example="fundoscope evaluate runs/first --on idrid.csv",
    )
    parser.add_argument("folder", type=Path, help="the folder `train` wrote", metavar="RUN")
    parser.add_argument("--on", type=Path, help="a manifest; its photographs are prepared as the run's were")
    parser.add_argument("--records", type=Path, help="where the run's records are now, if they were moved")
    parser.add_argument("--name", help="what to call the other set (default: the manifest's file name)")
    parser.add_argument("--processes", type=int, help="for preparing (default: one per core)")
    parser.add_argument("--backend", help="tensorflow, jax or torch (default: the best for this machine)")


def _evaluate(args: argparse.Namespace) -> Answer:
    from fundoscope.data.manifest import Manifest
    from fundoscope.data.records import Records
    from fundoscope.model.backend import choose_backend, use_backend
    from fundoscope.model.run import TrainedModel

    model = TrainedModel.open(args.folder)
    manifest = Manifest.read(args.on) if args.on else None
    use_backend(choose_backend(args.backend))
    from fundoscope.model.evaluate import evaluate_on, evaluate_run

    if manifest is None:
        scores = evaluate_run(args.folder, Records.open(args.records or Path(model.facts["records"]["folder"])))
    else:
        name = args.name or args.on.stem
        scores = evaluate_on(model, manifest, name, processes=args.processes, track=bar)
    lines = summary_lines(scores["test"])
    left_out = scores.get("about", {}).get("left_out", {})
    lines += [f"left out: {n} × {reason}" for reason, n in left_out.items()]
    values = {"run": str(args.folder), "scores": brief(scores["test"]), "left_out": left_out}
    return Answer(values, lines, next=f"fundoscope report {args.folder}")


def brief(scores: dict[str, Any]) -> dict[str, Any]:
    """The few numbers a script asks for; scores.json has the rest."""
    measured = scores["image"]["gradable"]
    points = measured["operating_points"]
    return {
        "n": scores["n"],
        "auc": measured["auc"],
        "kappa": measured["kappa"],
        "accuracy": measured["accuracy"],
        "operating_points": {
            name: {key: point[key] for key in ("threshold", "sensitivity", "specificity")}
            for name, point in points.items()
        },
    }


def summary_lines(scores: dict[str, Any]) -> list[str]:
    """Scores as a table for people: gradable photographs, and all of them (an ungradable one is referred)."""
    rows = []
    for way, label in (("gradable", "gradable"), ("all", "all (intention to screen)")):
        measured = scores["image"][way]
        rows.append(["AUC", label, measured["n"], *_interval(measured["auc"])])
        for name, point in measured["operating_points"].items():
            for measure in ("sensitivity", "specificity"):
                rows.append([f"{measure}, {name.replace('_', ' ')}", label, measured["n"], *_interval(point[measure])])
        for name in ("kappa", "accuracy"):
            if measured.get(name) and measured[name]["value"] is not None:
                rows.append([name, label, measured["n"], *_interval(measured[name])])
    return table(rows, header=["measure", "photographs", "n", "value", "95 % interval"])


def _interval(found: dict[str, Any]) -> list[str]:
    if found["value"] is None:
        return ["–", found.get("reason") or ""]
    if found["low"] is None:
        return [f"{found['value']:.3f}", found.get("reason") or ""]
    return [f"{found['value']:.3f}", f"{found['low']:.3f} to {found['high']:.3f}"]
