"""What an inference costs, cell by cell, checked by hand; and under the thesis's labels."""

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from fundoscope.analysis.analyse import analyse
from fundoscope.analysis.findings import Findings
from fundoscope.analysis.prices import GB, SAGEMAKER
from fundoscope.analysis.thesis import Cell
from fundoscope.analysis.thesis_ours import ours_of
from fundoscope.experiment.design import open_design
from fundoscope.experiment.machine import this_machine
from fundoscope.experiment.outcome import Measured, OutcomeLog, Ran
from fundoscope.experiment.study import open_study
from fundoscope.report.study import render

SERVERLESS = 'schedule = ["warm", "cold"]\nmemory_mb = [1024, 2048]\n[settings]\nartefact = "mobilenet"\n'
RENTED = 'instance = ["ml.m5.xlarge", "ml.x9.large"]\n[settings]\nartefact = "vgg19"\nschedule = "real-time"\n'


def study(folder: Path, factors: str, readings: dict[str, Any]) -> Findings:
    text = f'name = "x"\nworkload = "invoke"\nrepetitions = 2\nresponse = "latency_s"\n[factors]\n{factors}'
    (folder / "design.toml").write_text(text)
    design, machine = open_design(folder / "design.toml"), this_machine()
    (folder / "machines").mkdir()
    (folder / "machines" / f"{machine.digest}.json").write_text(json.dumps(machine.to_json()))
    with OutcomeLog(folder / "outcomes.jsonl", design) as log:
        for trial in design.trials:
            log.append(Measured(trial, Ran("2026-11-15T12:00:00+00:00", 1.0, machine.digest), readings))
    return analyse(open_study(folder), today=date(2026, 11, 15), monthly=720_000)


READINGS = {
    "latencies_s": [0.5, 0.7],
    "processings_s": [0.1001, 0.2],
    "latency_s": 0.6,
    "latency_mean_s": 0.6,
    "processing_s": 0.15005,
    "photograph_bytes": 99_000,
    "answer_bytes": 1_000,
}


def test_a_serverless_cell_costs_what_a_hand_reckons(tmp_path: Path) -> None:
    found = study(tmp_path, SERVERLESS, READINGS).per_inference
    assert found is not None
    assert (found.prices, [one.billed_as for one in found.cells]) == (
        SAGEMAKER,
        ["serverless 1 GB", "serverless 2 GB"] * 2,
    )
    small, large = found.cells[:2]
    moved = 0.016 * 100_000 / GB
    assert small.requests == 4  # two trials of two
    assert small.thesis_per_thousand == pytest.approx(1000 * 0.00002 * 0.6)
    assert small.billed_per_thousand == pytest.approx(1000 * (0.00002 * (0.101 + 0.2) / 2 + moved))
    assert large.billed_per_thousand == pytest.approx(1000 * (0.00004 * (0.101 + 0.2) / 2 + moved))
    assert small.billed_per_month == pytest.approx(720 * (small.billed_per_thousand or 0))


def test_an_instance_costs_its_month_whatever_it_does_and_an_unknown_one_is_left_out(tmp_path: Path) -> None:
    findings = study(tmp_path, RENTED, READINGS)
    assert findings.per_inference is not None
    (rented,) = findings.per_inference.cells
    assert (rented.billed_as, rented.billed_per_thousand) == ("ml.m5.xlarge", None)
    assert rented.billed_per_month == pytest.approx(0.23 * 720)
    assert rented.thesis_per_thousand == pytest.approx(1000 * 0.23 / 3600 * 0.6)
    page = render(findings)
    assert "What an inference costs" in page
    assert "US$ a month of 720,000 requests" in page


def test_what_was_measured_stands_under_the_thesis_s_labels(tmp_path: Path) -> None:
    ours = ours_of(study(tmp_path, SERVERLESS, READINGS))
    cold = Cell("serverless-cold-start", "MobileNet", "memory", "2048MB", "total_latency")
    assert ours[cold].mean == pytest.approx(0.6)
    assert ours[cold._replace(metric="cost_per_inference_total_latency")].mean == pytest.approx(0.00004 * 0.6)
    assert ours[cold._replace(metric="cost_per_inference_server_time")].mean == pytest.approx(0.00004 * 0.15005)
    assert {cell.level for cell in ours} == {"1024MB", "2048MB"}
