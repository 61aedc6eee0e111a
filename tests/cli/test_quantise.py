"""fundoscope quantise on the command line: what it prints, and how it ends."""

import json
import shutil
from pathlib import Path

import pytest
from untrained_run import UntrainedRun

from fundoscope.artefact.artefact import Artefact
from fundoscope.artefact.export import Exported
from fundoscope.artefact.guard import MARGIN
from fundoscope.artefact.held_out import CALIBRATION
from fundoscope.artefact.precisions import PRECISIONS
from fundoscope.cli.main import build_parser, main
from fundoscope.cli.quantise import METHODS
from fundoscope.data.records import Records


@pytest.fixture
def command(run: UntrainedRun, exported: dict[str, Exported], tmp_path: Path) -> list[str]:
    """float16: the quickest to make, and sure to pass a wide margin."""
    records = json.loads((run.folder / "run.json").read_text())["records"]["folder"]
    artefact = exported["onnx"].artefact.folder
    arguments = ["--records", records, "--out", str(tmp_path / "small"), "--method", "float16", "--threads", "1"]
    return ["quantise", str(artefact), *arguments]


def test_every_method_offered_can_be_made_and_the_defaults_are_the_librarys() -> None:
    assert set(METHODS) == set(PRECISIONS)
    parsed = build_parser().parse_args(["quantise", "x", "--records", "y", "--out", "z"])
    assert (parsed.margin, parsed.calibration, parsed.method) == (MARGIN, CALIBRATION, "int8")


def test_the_help_shows_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["quantise", "--help"])
    assert left.value.code == 0
    assert "fundoscope quantise artefacts/x --records records/ --out artefacts/x-int8" in capsys.readouterr().out


def test_one_that_passes_ends_with_the_command_that_serves_it(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--margin", "0.6"]) == 0
    said = capsys.readouterr().out
    assert "passed: float16, not inferior to float32 by 0.6 or more" in said
    assert "which must lie above -0.6:" in said
    assert said.rstrip().splitlines()[-1].startswith("next: fundoscope serve ")
    assert Artefact.open(tmp_path / "small").precision == "float16"


def test_a_second_candidate_before_the_same_photographs_is_counted_and_said(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fresh = shutil.ignore_patterns("attempts.jsonl")  # as if they had judged nothing yet
    records = Records.open(Path(command[3]))
    command[3] = str(shutil.copytree(records.folder, tmp_path / "records", ignore=fresh))
    assert main([*command, "--margin", "0.6"]) == 0
    assert "careful" not in capsys.readouterr().out
    command[5] = str(tmp_path / "second")
    assert main([*command, "--margin", "0.7"]) == 0
    caution = (
        "one of 2 candidates that the same photographs have judged: the chance that one worse by 0.7 passes "
        "is at most 5 %, not 2.5 %"
    )
    assert f"careful: {caution}" in capsys.readouterr().out.splitlines()
    guards = [Artefact.open(tmp_path / name).guard or {} for name in ("small", "second")]
    assert [(guard["attempts"], guard["caution"]) for guard in guards] == [(1, ""), (2, caution)]
    lines = [json.loads(line) for line in (tmp_path / "records" / "attempts.jsonl").read_text().splitlines()]
    assert [(line["method"], line["margin"], line["attempts"]) for line in lines] == [
        ("float16", 0.6, 1),
        ("float16", 0.7, 2),
    ]
    assert Records.open(tmp_path / "records").digest == records.digest  # the ledger is no part of the records


def test_one_that_is_refused_ends_with_1_and_says_why(
    command: list[str], exported: dict[str, Exported], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    found = said["candidates"]["float16"]
    assert (found["guard"]["passed"], said["recommended"]) == (False, None)
    assert "to tell" in found["guard"]["why"]
    assert found["artefact"] == str(tmp_path / "small")
    assert found["digest"] == Artefact.open(tmp_path / "small").digest
    assert found["latency"]["faster_low"] <= found["latency"]["faster"] <= found["latency"]["faster_high"]
    assert said["next"] == f"fundoscope serve {exported['onnx'].artefact.folder}"


def test_a_margin_that_is_none_is_bad_usage(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([*command, "--margin", "2"])
    assert left.value.code == 2
    assert "2 is not between 0 and 1" in capsys.readouterr().err


def test_an_error_is_a_sentence_and_a_hint(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    command[1] = "nowhere"
    assert main(command) == 2
    said = capsys.readouterr().err
    assert "error: nowhere is not an artefact: it has no artefact.json" in said
    assert "hint: make one: fundoscope export" in said
