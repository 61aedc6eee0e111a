"""What a report is made of: the files of a run folder, as far as they are there."""

import base64
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image, UnidentifiedImageError

from fundoscope.errors import FundoscopeError
from fundoscope.model.predictions import Predictions
from fundoscope.provenance import sha256_file

MOST_PICTURES = 16
LARGEST_BYTES = 40_000  # of one picture in the page; a larger one is made smaller
SIDE_PX = 256
DIGESTED = ("run.json", "history.jsonl", "predictions.csv", "scores.json", "gallery.json", "model.keras")


@dataclass(frozen=True)
class RunFiles:
    folder: Path
    run: dict[str, Any]
    history: list[dict[str, Any]]
    predictions: Predictions | None
    scores: dict[str, Any] | None
    gallery: list[dict[str, Any]]  # with "picture" and "overlay" as data: addresses
    elsewhere: dict[str, dict[str, Any]]  # name of the other set -> its scores.json
    artefacts: list[dict[str, Any]]
    digests: dict[str, str]


def read_run_files(folder: Path) -> RunFiles:
    """Everything a report can show. Only run.json has to be there."""
    if not (folder / "run.json").is_file():
        hint = "give the folder that fundoscope train wrote (its --out)"
        raise FundoscopeError(f"{folder} is not a training run: it has no run.json", hint)
    run = _read_json(folder / "run.json")
    if not isinstance(run, dict) or not isinstance(run.get("recipe"), dict):
        hint = "give the folder that fundoscope train wrote (its --out)"
        raise FundoscopeError(f"{folder}/run.json does not describe a training", hint)
    predictions = folder / "predictions.csv"
    return RunFiles(
        folder=folder,
        run=run,
        history=_read_history(folder / "history.jsonl"),
        predictions=Predictions.read_csv(predictions) if predictions.is_file() else None,
        scores=_read_json(folder / "scores.json"),
        gallery=_read_gallery(folder),
        elsewhere={
            path.parent.name: found
            for path in sorted(folder.glob("on/*/scores.json"))
            if "test" in (found := _read_json(path))
        },
        artefacts=_read_artefacts(folder, run),
        digests={name: sha256_file(folder / name) for name in DIGESTED if (folder / name).is_file()},
    )


def _read_json(path: Path) -> Any:
    if not path.is_file():
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as problem:
        hint = "make it anew with the command that wrote it"
        raise FundoscopeError(f"{path} is damaged: it is not JSON ({problem})", hint) from None


def _read_history(path: Path) -> list[dict[str, Any]]:
    """The epochs that are whole: a kill may have cut the last line short."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else []:
        try:
            rows.append(json.loads(line))
        except ValueError:
            break
    return rows


def _read_artefacts(folder: Path, run: dict[str, Any]) -> list[dict[str, Any]]:
    listed = run.get("artefacts") or _read_json(folder / "artefacts.json") or []
    return [item if isinstance(item, dict) else {"folder": str(item)} for item in listed]


def _read_gallery(folder: Path) -> list[dict[str, Any]]:
    items = []
    for item in (_read_json(folder / "gallery.json") or [])[:MOST_PICTURES]:
        pictures = {name: _picture(folder, str(item.get(name, ""))) for name in ("picture", "overlay")}
        if pictures["picture"]:
            items.append({**item, **pictures})
    return items


def _picture(folder: Path, name: str) -> str:
    """A picture of the run as a data: address, or nothing where it cannot be shown."""
    path = (folder / name).resolve()
    if not name or not path.is_relative_to(folder.resolve()) or not path.is_file():
        return ""
    data = path.read_bytes()
    try:
        image = Image.open(io.BytesIO(data))
        if len(data) > LARGEST_BYTES or image.format != "JPEG":
            small = image.convert("RGB")
            small.thumbnail((SIDE_PX, SIDE_PX))
            smaller = io.BytesIO()
            small.save(smaller, "JPEG", quality=80)
            data = smaller.getvalue()
    except (UnidentifiedImageError, OSError):
        return ""
    return "data:image/jpeg;base64," + base64.b64encode(data).decode()
