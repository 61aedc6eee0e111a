"""fundoscope data draw | import | check | prepare"""

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fundoscope.cli.command import Answer, Commands, bar, table, verb
from fundoscope.errors import FundoscopeError

if TYPE_CHECKING:
    from fundoscope.data.check import Checked
    from fundoscope.data.manifest import Manifest
    from fundoscope.data.prepare import Failure

SOURCES = {  # data/sources.py's, which would cost an import to name here
    "aptos2019": "folder with train.csv and train_images/",
    "eyepacs2015": "folder with trainLabels.csv and train/",
    "messidor2": "folder with messidor_data.csv and IMAGES/",
    "idrid": "folder 'B. Disease Grading'",
    "folders": "folder with a sub-folder per grade: 0 … 4, or No_DR … Proliferate_DR",
    "csv": "table with a column of files and one of grades",
    "tar": "uncompressed archive of images/ and labels.csv (file, grade, patient, eye)",
    "drawn": "folder that data draw wrote",
}
WAYS = ("voets", "gaussian")
PUBLISHED_SIZES = {"voets": 299, "gaussian": 224}
SHOWN = 10  # rows of a long table


def add_commands(commands: Commands) -> None:
    about = "photographs: draw, import, check, prepare"
    data = commands.add_parser("data", help=about, description=about[0].upper() + about[1:] + ".", allow_abbrev=False)
    verbs = data.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_draw(verbs)
    _add_import(verbs)
    _add_check(verbs)
    _add_prepare(verbs)


def _add_draw(verbs: Commands) -> None:
    parser = verb(
        verbs,
        "draw",
        _draw,
        help="draw eyes: synthetic fundus photographs with grades, for trying the software",
        example="fundoscope data draw --n 400 --seed 1 drawn/",
    )
    parser.add_argument("out", metavar="OUT", type=Path, help="folder to write images/ and labels.csv to")
    parser.add_argument("--n", type=_positive, default=400, help="how many photographs (default: 400)")
    parser.add_argument("--seed", type=int, default=1, help="same seed, same bytes (default: 1)")
    parser.add_argument("--size", type=_positive, default=1024, help="pixels of the longer side (default: 1024)")
    _add_processes(parser)


def _add_import(verbs: Commands) -> None:
    parser = verb(
        verbs,
        "import",
        _import,
        help="list the photographs of a dataset in a manifest, and draw its split",
        example="fundoscope data import aptos2019 downloads/aptos/ --out manifest.csv",
    )
    width = max(map(len, SOURCES))
    sources = "".join(f"\n  {name.ljust(width)}  {what}" for name, what in SOURCES.items())
    parser.epilog = f"sources:{sources}\n\n{parser.epilog}"
    parser.add_argument("source", metavar="SOURCE", help="what kind of dataset it is: see below")
    parser.add_argument("path", metavar="PATH", type=Path, help="where it is")
    parser.add_argument("--out", required=True, type=Path, metavar="FILE", help="the manifest to write")
    parser.add_argument("--seed", type=int, default=0, help="of the split (default: 0)")
    columns = parser.add_argument_group("columns of a csv, where they are not called path, grade, patient, eye, split")
    for name in ("path", "grade", "patient", "eye", "split"):
        columns.add_argument(f"--{name}-column", metavar="NAME")


def _add_check(verbs: Commands) -> None:
    parser = verb(
        verbs,
        "check",
        _check,
        help="look at every photograph of a manifest, and leave out what cannot be used, saying why",
        example="fundoscope data check manifest.csv",
    )
    parser.add_argument("manifest", metavar="MANIFEST", type=Path, help="is written anew, with what was found")
    parser.add_argument(
        "--keep-duplicates",
        action="store_true",
        help="use all copies of a photograph that agree on its grade, all on one side of the split",
    )
    _add_processes(parser)


def _add_prepare(verbs: Commands) -> None:
    parser = verb(
        verbs,
        "prepare",
        _prepare,
        help="find, crop and scale the retina of every photograph; write TFRecord shards to train on",
        example="fundoscope data prepare manifest.csv --size 224 --out records/",
    )
    parser.add_argument("manifest", metavar="MANIFEST", type=Path)
    parser.add_argument("--out", required=True, type=Path, metavar="FOLDER", help="goes on if it was begun before")
    parser.add_argument("--size", type=_positive, help="pixels of a side (default: 224; voets: 299)")
    parser.add_argument("--as-published", choices=WAYS, help="as Voets et al. or as the thesis's Gaussian-filtered set")
    _add_processes(parser)


def _add_processes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--processes", type=_positive, help="how many at once (default: one per core)")


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from 1 on")
    return int(text)


def _draw(arguments: argparse.Namespace) -> Answer:
    from fundoscope.data.draw import draw_folder

    a = arguments
    folder = draw_folder(a.out, n=a.n, seed=a.seed, size=a.size, processes=a.processes, track=bar)
    return Answer(
        {"folder": str(folder), "n": a.n, "seed": a.seed, "size": a.size},
        [f"{a.n:,} drawn photographs in {folder}; nothing about medicine can be learnt from them"],
        next=shlex.join(["fundoscope", "data", "import", "drawn", str(folder), "--out", "manifest.csv"]),
    )


def _import(arguments: argparse.Namespace) -> Answer:
    from fundoscope.data.intake import import_photographs
    from fundoscope.data.manifest import counts, note_history
    from fundoscope.data.sources import Columns
    from fundoscope.provenance import command

    out: Path = arguments.out
    _refuse_to_overwrite(out)
    given = {name: getattr(arguments, f"{name}_column") for name in ("path", "grade", "patient", "eye", "split")}
    if any(given.values()) and arguments.source != "csv":
        raise FundoscopeError(f"{arguments.source} has its own column names", "leave out the --…-column options")
    manifest = import_photographs(
        arguments.source, arguments.path, folder=out.parent, seed=arguments.seed, columns=Columns(**given), track=bar
    )
    manifest.write(out)
    note_history(out, [_drawn_by(arguments.path), command()], anew=True)
    patients = {p.patient for p in manifest.photographs if p.patient}
    values = {
        "manifest": str(out),
        "photographs": len(manifest.photographs),
        "used": len(manifest.used),
        "patients": len(patients),
        "seed": arguments.seed,
        "n": counts(manifest.used),
        "sha256": manifest.digest,
    }
    known = f"of {len(patients):,} patients" if patients else "patients unknown"
    lines = [f"{len(manifest.photographs):,} photographs, {known}; {len(manifest.used):,} can be used so far", ""]
    lines += _split_table(counts(manifest.used)) + _left_out(manifest)
    return Answer(values, [*lines, "", f"wrote {out}"], next=_command("check", str(out)))


def _drawn_by(path: Path) -> str:
    """The command that drew these eyes, where they are drawn ones."""
    import json

    try:
        drawn = json.loads((path / "drawn.json").read_bytes())
        return shlex.join(
            ["fundoscope", "data", "draw", *(f"--{k}={drawn[k]}" for k in ("n", "seed", "size")), str(path)]
        )
    except (OSError, ValueError, KeyError):
        return ""


def _refuse_to_overwrite(out: Path) -> None:
    """A slip must not destroy the table of grades it was to be made from; an older manifest is what it replaces."""
    from fundoscope.data.manifest import Manifest

    if out.is_dir():
        raise FundoscopeError(f"{out} is a folder", f"name the file to write: --out {out / 'manifest.csv'}")
    if out.exists():
        try:
            Manifest.read(out)
        except FundoscopeError:
            raise FundoscopeError(f"{out} exists and is not a manifest", "choose another name: --out") from None


def _check(arguments: argparse.Namespace) -> Answer:
    from fundoscope.data.check import check, left_out_table
    from fundoscope.data.manifest import Manifest, counts, note_history, read_history
    from fundoscope.provenance import command, write_whole

    path: Path = arguments.manifest
    checked = check(
        Manifest.read(path), keep_duplicates=arguments.keep_duplicates, processes=arguments.processes, track=bar
    )
    manifest = checked.manifest
    left_out_file = path.with_name(f"{path.stem}.left-out.csv")
    write_whole(left_out_file, left_out_table(manifest))
    manifest.write(path)
    if command() not in read_history(path)[-1:]:  # a second check changes nothing
        note_history(path, [command()], anew=False)
    values = {
        "manifest": str(path),
        "left_out_file": str(left_out_file),
        "photographs": len(manifest.photographs),
        "used": len(manifest.used),
        "left_out": dict(manifest.reasons.most_common()),
        "ungradable": len(checked.ungradable),
        "moved": len(checked.moved),
        "n": counts(manifest.used),
        "sizes": [{"width": w, "height": h, "n": n} for (w, h), n in checked.sizes.most_common()],
        "problems": list(checked.problems),
        "sha256": manifest.digest,
    }
    lines = [*_findings(checked), "", f"wrote {path} and {left_out_file}"]
    lines += [f"problem: {problem}" for problem in checked.problems]
    # Drawn eyes go to the small network, which takes 160 pixels; photographs to one that ImageNet has taught.
    size = "160" if any(photograph.source == "drawn" for photograph in manifest.used) else "224"
    following = "" if checked.problems else _command("prepare", str(path), "--size", size, "--out", "records/")
    return Answer(values, lines, next=following, ok=not checked.problems)


def _findings(checked: "Checked") -> list[str]:
    from fundoscope.data.manifest import counts

    manifest = checked.manifest
    lines = [
        f"{len(manifest.photographs):,} photographs: {len(manifest.used):,} can be used, "
        f"{len(manifest.photographs) - len(manifest.used):,} are left out",
        "",
        *_split_table(counts(manifest.used)),
        "",
        f"size    {_sizes(checked)}",
        f"quality {len(checked.ungradable):,} look ungradable: noted as gradability, not left out",
    ]
    if checked.moved:
        lines.append(f"split   {len(checked.moved):,} moved to train, to be with their patient or their copy")
    return lines + _left_out(manifest)


def _sizes(checked: "Checked") -> str:
    by_number = checked.sizes.most_common()
    if not by_number:
        return "none"
    shown = ", ".join(f"{w} × {h} ({n:,})" for (w, h), n in by_number[:3])
    widths = sorted(w for (w, _), _ in by_number)
    more = f", {len(by_number) - 3} others; {widths[0]} to {widths[-1]} pixels wide" if len(by_number) > 3 else ""
    return shown + more


def _split_table(n: dict[str, dict[int, int]]) -> list[str]:
    rows = [[split, *per_grade.values(), sum(per_grade.values())] for split, per_grade in n.items()]
    return table(rows, header=["split", "grade 0", "1", "2", "3", "4", "all"])


def _left_out(manifest: "Manifest") -> list[str]:
    """Why photographs are left out, and the first of them."""
    from fundoscope.data.manifest import row_number

    found = [(row_number(i), p) for i, p in enumerate(manifest.photographs) if p.left_out]
    if not found:
        return []
    rows = [[row, p.path.replace("\n", "\\n"), p.left_out] for row, p in found[:SHOWN]]
    lines = ["", *table([[n, reason] for reason, n in manifest.reasons.most_common()], header=["left out", "because"])]
    lines += ["", *table(rows, header=["row", "photograph", "left out because"])]
    return lines + ([f"… and {len(found) - SHOWN:,} more"] if len(found) > SHOWN else [])


def _prepare(arguments: argparse.Namespace) -> Answer:
    from fundoscope.config import build
    from fundoscope.data.manifest import Manifest, read_history
    from fundoscope.data.photo import Preparation
    from fundoscope.data.prepare import prepare_records

    manifest = Manifest.read(arguments.manifest)
    way = arguments.as_published or "recommended"
    size = arguments.size or PUBLISHED_SIZES.get(way, 224)
    preparation = build(Preparation, {"size": size, "way": way}, where="the preparation")
    history = read_history(arguments.manifest)
    records, failures = prepare_records(
        manifest, arguments.out, preparation, history=history, processes=arguments.processes, track=bar
    )
    n = {split: {int(grade): k for grade, k in per_grade.items()} for split, per_grade in records.index["n"].items()}
    values = {
        "records": str(arguments.out),
        "digest": records.digest,
        "manifest_sha256": records.manifest_sha256,
        "n": n,
        "left_out": [_failed(failure, manifest) for failure in failures],
    }
    lines = [f"{len(records.rows):,} photographs prepared at {size} × {size}", "", *_split_table(n)]
    lines += _failures([_failed(failure, manifest) for failure in failures])
    recipe = {"voets": "published", "gaussian": "frozen"}.get(way, "demo" if records.drawn else "finetune")
    following = shlex.join(["fundoscope", "train", str(arguments.out), "--recipe", recipe, "--out", "runs/first"])
    lines += ["", f"wrote {arguments.out}, digest {records.digest[:16]}"]
    return Answer(values, lines, next=following if records.rows else "", ok=bool(records.rows))


def _failed(failure: "Failure", manifest: "Manifest") -> dict[str, Any]:
    """With its path, which the records themselves must not name: for whoever is at the terminal."""
    from fundoscope.data.manifest import FIRST_ROW

    photograph = manifest.photographs[failure.row - FIRST_ROW]
    return {"row": failure.row, "path": photograph.path, "reason": failure.reason}


def _failures(failed: list[dict[str, Any]]) -> list[str]:
    if not failed:
        return []
    rows = [list(item.values()) for item in failed[:SHOWN]]
    lines = ["", *table(rows, header=["row", "photograph", "could not be prepared because"])]
    return lines + ([f"… and {len(failed) - SHOWN:,} more in left_out.csv"] if len(failed) > SHOWN else [])


def _command(*words: str) -> str:
    return shlex.join(["fundoscope", "data", *words])
