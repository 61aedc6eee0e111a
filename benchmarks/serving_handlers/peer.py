"""What every peer does with a photograph, so that only the server around it differs: our preparation and Grading."""

import base64
import json
import os
from pathlib import Path
from typing import Any

from fundoscope.artefact.artefact import Artefact
from fundoscope.artefact.runtime import open_predictor
from fundoscope.serve.grading import Grader

# artefact, threads, workers, batch and so on, as serving_peers.py sets them
SETTINGS: dict[str, Any] = json.loads(os.environ["PEER_SETTINGS"])


def open_grader() -> Grader:
    artefact = Artefact.open(Path(SETTINGS["artefact"]), verify=False)
    grader = Grader(artefact, open_predictor(artefact, threads=SETTINGS["threads"]))
    grader.warm_up()
    return grader


def grade(grader: Grader, photographs: list[bytes]) -> list[dict[str, Any]]:
    return [grading.to_json() for grading in grader.grade([grader.read(photograph) for photograph in photographs])]


def bytes_of(text: str | bytes) -> bytes:
    return base64.b64decode(text)
