"""An artefact made by hand: whole, and of any bytes, for tests that never open its model."""

import json
from pathlib import Path
from typing import Any

from fundoscope.artefact.artefact import GRADES, NOTICE, Artefact, Input, OperatingPoint, Output, write
from fundoscope.artefact.files import digest_of
from fundoscope.data.gradability import GradabilityRule
from fundoscope.data.photo import Preparation
from fundoscope.provenance import write_json


def make_artefact(folder: Path, model: bytes = b"weights", *, format: str = "onnx", **changes: Any) -> Artefact:
    (folder / "saved_model" / "variables").mkdir(parents=True) if format == "savedmodel" else folder.mkdir(parents=True)
    places = {"onnx": ["model.onnx"], "savedmodel": ["saved_model/saved_model.pb", "saved_model/variables/variables.x"]}
    for place in places[format]:
        (folder / place).write_bytes(model)
    values: dict[str, Any] = {
        "folder": folder,
        "version": 1,
        "digest": "",
        "format": format,
        "precision": "float32",
        "files": (),
        "input": Input("photograph", "uint8", (None, 64, 64, 3), Preparation(64), GradabilityRule()),
        "output": Output("probabilities", "ordinal", (None, 5), GRADES),
        "referral_from": 2,
        "operating_points": (OperatingPoint("high_sensitivity", 0.3, 0.95, "sensitivity"),),
        "scores": {},
        "drawn": True,
        "notice": NOTICE,
        "origin": {},
        "parity": None,
        "export": {},
    }
    return write(Artefact(**(values | changes)))


def forge(folder: Path, **changes: Any) -> str:
    """Change artefact.json and give it the digest that then fits, as anybody can; the digest."""
    table = json.loads((folder / "artefact.json").read_text()) | changes
    table["digest"] = digest_of(table)
    write_json(folder / "artefact.json", table)
    return str(table["digest"])
