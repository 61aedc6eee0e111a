"""fundoscope export on the command line: what can be said without a network. The rest is in tests/artefact."""

from pathlib import Path

import pytest

from fundoscope.artefact.convert import EXPORTERS
from fundoscope.artefact.runtime import RUNTIMES
from fundoscope.cli.export import FORMATS
from fundoscope.cli.main import main


def test_every_format_offered_can_be_written_and_served() -> None:
    assert set(FORMATS) == set(EXPORTERS) == set(RUNTIMES)


def test_the_help_shows_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["export", "--help"])
    assert left.value.code == 0
    assert "fundoscope export runs/x --format onnx --out artefacts/x" in capsys.readouterr().out


def test_a_folder_that_is_no_run_says_how_to_train_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(tmp_path), "--out", str(tmp_path / "x")]) == 2
    said = capsys.readouterr().err
    assert f"error: {tmp_path} is not a training run: it has no run.json" in said
    assert "hint: fundoscope train" in said
    assert not (tmp_path / "x").exists()
