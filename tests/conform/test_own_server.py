"""Our own server, put through the contract as anybody's."""

import shlex
import sys
from pathlib import Path

from double_trials import broken, tried, verdicts

from fundoscope.artefact.export import Exported
from fundoscope.conform.contract import RULES, limits_of

SLOW_TO_LOAD = str(Path(__file__).parent / "doubles" / "slow_to_load.py")


def test_our_own_server_keeps_the_contract_and_bears_every_attack(exported: dict[str, Exported]) -> None:
    line = shlex.join([sys.executable, "-m", "fundoscope.cli.main", "serve", "{model}"])
    model = exported["onnx"].artefact.folder
    found = tried(line, model=model, limits=limits_of("real-time"), rules=tuple(RULES))
    assert broken(found) == {}
    assert {rule for rule, verdict in verdicts(found).items() if verdict != "held"} == {2, 14}


def test_our_own_server_loading_late_as_published_is_found_out(exported: dict[str, Exported]) -> None:
    words = [sys.executable, SLOW_TO_LOAD, "serve", "{model}", "--load", "first-request"]
    found = tried(shlex.join(words), model=exported["onnx"].artefact.folder, rules=(8,))
    assert "before the model was loaded" in broken(found)[8]
