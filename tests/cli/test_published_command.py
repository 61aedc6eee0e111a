"""fundoscope published: the thesis regenerated, and a study of ours in the next column."""

import json
from pathlib import Path

import pytest

from fundoscope.cli.main import main
from fundoscope.experiment.design import open_design
from fundoscope.experiment.machine import this_machine
from fundoscope.experiment.outcome import Measured, OutcomeLog, Ran

DESIGN = """name = "memory"
workload = "invoke"
repetitions = 2
response = "latency_s"
[factors]
schedule = ["cold", "warm"]
artefact = ["mobilenet", "vgg19"]
memory_mb = [1024, 2048]
"""


def test_the_page_says_how_many_printed_statements_hold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["published", "--out", str(tmp_path / "thesis.html"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert sum(found["verdicts"].values()) == 72
    assert set(found["verdicts"]) == {"reproduced", "mislabelled", "not reproducible"}
    assert "Tabela 6.1" in (tmp_path / "thesis.html").read_text()


def test_a_study_of_ours_stands_beside_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "study"
    folder.mkdir()
    (folder / "design.toml").write_text(DESIGN)
    design, machine = open_design(folder / "design.toml"), this_machine()
    (folder / "machines").mkdir()
    (folder / "machines" / f"{machine.digest}.json").write_text(json.dumps(machine.to_json()))
    with OutcomeLog(folder / "outcomes.jsonl", design) as log:
        for trial in design.trials:
            seconds = 0.123456 if trial.cell.number == 1 else 2.0 + trial.cell.number + trial.repetition / 100
            readings = {"latency_s": seconds, "latency_mean_s": seconds, "predict_s": seconds / 2}
            log.append(Measured(trial, Ran("2026-11-15T12:00:00+00:00", 1.0, machine.digest), readings))
    assert main(["published", "--out", str(tmp_path / "x.html"), "--study", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ours"] == 24  # eight cells: two readings each, and a cost
    page = (tmp_path / "x.html").read_text()
    assert "0.123" in page
    assert "memory, 16 trials, servers under emulated limits" in page


def test_a_study_of_other_networks_is_told_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "study"
    folder.mkdir()
    (folder / "design.toml").write_text(DESIGN.replace('"mobilenet", "vgg19"', '"first", "second"'))
    with OutcomeLog(folder / "outcomes.jsonl", open_design(folder / "design.toml")):
        pass
    assert main(["published", "--out", str(tmp_path / "x.html"), "--study", str(folder)]) == 0
    assert "0 readings of the study stand beside the thesis's: its artefacts must be called" in capsys.readouterr().out


def test_what_is_no_study_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["published", "--out", str(tmp_path / "x.html"), "--study", str(tmp_path / "none")]) == 2
    assert "is not a study that was run" in capsys.readouterr().err
    assert not (tmp_path / "x.html").exists()
