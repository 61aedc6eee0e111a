"""A run folder into one HTML file that opens without a network, and is the same bytes whenever it is made."""

from pathlib import Path
from statistics import median
from typing import Any

from fundoscope.model.curves import roc_curve
from fundoscope.model.predictions import Predictions
from fundoscope.model.scores import cases_of
from fundoscope.provenance import write_whole
from fundoscope.report import charts
from fundoscope.report.inputs import RunFiles, read_run_files
from fundoscope.report.published import Result, published_results
from fundoscope.report.template import fill

GRADE_NAMES_PT = ("sem retinopatia", "leve", "moderada", "grave", "proliferativa")
PARTS = ("train", "tune", "test")
WAY_NAMES = {
    "gradable": "gradable only",
    "all": "intention to screen",
    "ungated": "gradability ignored",
}
LEVEL_NAMES = {"image": "photograph", "eye": "eye", "patient": "patient"}


def write_report(folder: Path, out: Path | None = None) -> Path:
    """Write the report on the run in `folder`; by default next to it, as report.html."""
    out = out or folder / "report.html"
    write_whole(out, render(read_run_files(folder)).encode())
    return out


def render(files: RunFiles) -> str:
    return fill("report.html", _context(files))


def _context(files: RunFiles) -> dict[str, Any]:
    run, records = files.run, files.run.get("records", {})
    test = (files.scores or {}).get("test")
    drawn = bool(records.get("drawn"))
    results = published_results()
    return {
        "run": run,
        "recipe": run["recipe"],
        "records": records,
        "folder": str(files.folder),
        "drawn": drawn,
        "source": "drawn eyes" if drawn else records.get("source") or "photographs of unknown source",
        "finished": run.get("status") == "done",
        "grade_names": charts.GRADE_NAMES,
        "grade_names_pt": GRADE_NAMES_PT,
        "balance": _balance(records.get("n") or {}),
        "curves": _training_curves(files),
        "phases": _phases(files.history),
        "epochs": len(files.history),
        "points": (files.scores or {}).get("operating_points", []),
        "tune": (files.scores or {}).get("tune"),
        "test": test,
        "figures": _test_figures(files.predictions, test, () if drawn else results),
        "levels": _levels(test) if test else [],
        "one_per_eye": _one_per_eye(test),
        "elsewhere": {name: found["test"] for name, found in files.elsewhere.items()},
        "published": results,
        "gallery": _stories(files.gallery),
        "artefacts": files.artefacts,
        "artefact_columns": list(dict.fromkeys(key for item in files.artefacts for key in item)),
        "commands": _commands(files),
        "digests": files.digests,
        "parents": _parents(records),
    }


def _balance(n: dict[str, dict[str, int]]) -> list[dict[str, Any]]:
    """How many photographs of each grade each part has, and their shares."""
    rows = []
    for part in PARTS:
        if part in n:
            grades = [int(n[part].get(str(grade), 0)) for grade in range(5)]
            total = sum(grades)
            shares = [grade / total if total else 0.0 for grade in grades]
            rows.append({"part": part, "n": total, "grades": list(zip(grades, shares, strict=True))})
    return rows


def _training_curves(files: RunFiles) -> list[str]:
    if not files.history:
        return []
    best = files.run.get("best_epoch")
    drawn = (charts.losses, charts.tuning_scores, charts.learning_rates, charts.seconds)
    return [chart(files.history, best) for chart in drawn]


def _phases(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Time by phase. The median, because the first epoch of a phase also compiles."""
    found = []
    for phase in dict.fromkeys(row.get("phase", "") for row in history):
        rows = [row for row in history if row.get("phase", "") == phase]
        seconds = [row["seconds"] for row in rows]
        speeds = [row["images_per_second"] for row in rows if row.get("images_per_second")]
        found.append(
            {
                "phase": {"head": "head, on frozen features", "fine": "whole network"}.get(phase, phase),
                "epochs": len(rows),
                "median_s": median(seconds),
                "first_s": seconds[0],
                "total_s": sum(seconds),
                "images_per_second": median(speeds) if speeds else None,
            }
        )
    return found


def _test_figures(
    predictions: Predictions | None, test: dict[str, Any] | None, published: tuple[Result, ...]
) -> dict[str, str]:
    """The charts of the test part. Published results stay off the chart of drawn eyes: they are of eyes."""
    if not test:
        return {}
    measures, figures = test["image"]["gradable"], {}
    area = measures["auc"]
    if area["value"] is not None and predictions is not None:
        curves = {part: _roc(predictions.of(part), test["referral_from"]) for part in ("tune", "test")}
        points, label = measures["operating_points"], f"AUC {area['value']:.3f}"
        if curves["test"] is not None:
            figures["roc"] = charts.roc(curves["test"], curves["tune"], points, label)
            figures["corner"] = charts.roc_corner(curves["test"], points, published)
    if measures["calibration"]:
        figures["reliability"] = charts.reliability(measures["calibration"])
    if measures["n"] and measures["operating_points"]:
        rows = measures["per_grade_sensitivity"]
        figures["by_grade"] = charts.referred_by_grade(rows, test["referral_from"])
    return figures


def _roc(part: Predictions, referral_from: int) -> charts.Curve | None:
    kept = part.select(part.gradable)
    cases = cases_of(kept, level="image", way="gradable", referral_from=referral_from)
    if not cases.positive.any() or cases.positive.all():
        return None
    return roc_curve(cases.positive, cases.score)


def _levels(test: dict[str, Any]) -> list[dict[str, Any]]:
    """Photographs, eyes, patients × left out, referred, ignored: one row each."""
    return [
        {
            "level": LEVEL_NAMES[level],
            "way": WAY_NAMES[way],
            "measures": test[level][way],
            "first": number == 0,
            "rows": len(WAY_NAMES),
        }
        for level in LEVEL_NAMES
        if test.get(level) and not (level == "eye" and _one_per_eye(test))
        for number, way in enumerate(WAY_NAMES)
    ]


def _one_per_eye(test: dict[str, Any] | None) -> bool:
    return bool(test and test.get("eye") and test["eye"]["ungated"]["n"] == test["image"]["ungated"]["n"])


def _stories(gallery: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The gallery by what happened, what went wrong first."""
    found: dict[str, list[dict[str, Any]]] = {}
    for item in sorted(gallery, key=lambda item: item.get("kind") != "wrong"):
        found.setdefault(str(item.get("story") or item.get("kind") or "graded"), []).append(item)
    return found


def _commands(files: RunFiles) -> list[str]:
    """From the photographs to this page, as they were typed."""
    made = [*files.run.get("records", {}).get("commands", []), files.run.get("command")]
    made += [found.get("about", {}).get("command") for found in files.elsewhere.values()]
    return [*(line for line in made if line), f"fundoscope report {files.folder}"]


def _parents(records: dict[str, Any]) -> dict[str, str]:
    """sha256 of what the run was made from."""
    named = {
        "records (index.json)": records.get("digest"),
        "manifest": records.get("manifest_sha256"),
    }
    return {name: digest for name, digest in named.items() if digest}
