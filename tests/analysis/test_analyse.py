"""The whole way: a study's folder into findings, whatever came of its trials."""

import json
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from measured_study import DESIGN, NOISE, measured, ran, study, without_tensorflow_on_gpu, write

from fundoscope.analysis.analyse import analyse, write_findings
from fundoscope.analysis.findings import Findings
from fundoscope.errors import FundoscopeError
from fundoscope.experiment.design import Design, Trial
from fundoscope.experiment.outcome import Failed
from fundoscope.experiment.study import Study
from fundoscope.provenance import sha256_file

TODAY = date(2026, 11, 15)


def findings(folder: Path, design: Design = DESIGN, **options: Any) -> Findings:
    return analyse(Study(folder, design), today=TODAY, **options)


def test_a_study_becomes_findings(tmp_path: Path) -> None:
    folder = study(tmp_path / "s", of=without_tensorflow_on_gpu)
    found = findings(folder)
    assert (found.study, found.workload) == ("known", "cnn")
    assert (found.planned, found.measured, found.failed, found.not_run) == (36, 30, 6, 0)
    assert next(iter(found.metrics)) == "train_s"
    assert found.metrics["train_s"].label == "training time"
    first = found.cells[0]
    assert (first.cell.name, first.planned, first.measured) == ("C1", 3, 3)
    assert first.readings["train_s"].mean == pytest.approx(100 * sum(NOISE) / 3)
    failed = found.cells[-1]
    assert (failed.measured, failed.failures, failed.readings) == (0, {"tensorflow sees no GPU": 3}, {})
    assert found.response is not None
    assert found.response.scale == "log"
    assert found.no_response == ""
    assert found.costs is not None
    assert len(found.statements) == 14
    assert found.machines["gpu-digest"]["gpus"][0]["name"] == "H200"
    assert found.made_by["log_sha256"] == sha256_file(folder / "outcomes.jsonl")
    assert found.design["factors"]["image"] == (32, 64)


def test_a_comparison_of_two_levels_says_what_the_analysis_of_variance_says(tmp_path: Path) -> None:
    found = findings(study(tmp_path / "s"))
    assert found.response is not None
    for factor in ("device", "image"):
        (pair,) = [one for one in found.comparisons if one.factor == factor]
        assert pair.ratio.p == pytest.approx(found.response.effects.parts[factor,].p, rel=1e-6)


def test_repetitions_still_to_run_are_counted_priced_and_timed(tmp_path: Path) -> None:
    found = findings(study(tmp_path / "s"))
    one, *_, ten = found.precision
    variation = sorted(c.readings["train_s"].variation or 0 for c in found.cells)
    assert one.variation == pytest.approx((variation[5] + variation[6]) / 2)
    # t(0.975, 17) = 2.110: 2.110 x 0.0202 / √18 = 1.005 %; with 19, 2.101 x 0.0202 / √19 = 0.974 %
    assert one.repetitions == 19
    assert one.more_trials == 12 * 16
    assert one.hours == pytest.approx(16 * sum(c.readings["wall_s"].mean for c in found.cells) / 3600)
    assert found.costs is not None
    assert one.usd == pytest.approx(16 * sum(c.usd.mean for c in found.costs.cells))
    assert (ten.percent, ten.more_trials, ten.usd) == (10, 0, 0)


def test_another_metric_can_be_asked_for(tmp_path: Path) -> None:
    folder = study(tmp_path / "s")
    found = findings(folder, metric="wall_s")
    assert found.response is not None
    assert found.response.metric == "wall_s"
    assert next(iter(found.metrics)) == "wall_s"
    assert {one.metric for one in found.comparisons} == {"wall_s"}
    with pytest.raises(FundoscopeError, match="no metric in this study called 'trian_s'") as problem:
        findings(folder, metric="trian_s")
    assert problem.value.hint == "use train_s"


def test_prices_can_be_replaced_and_are_not_needed(tmp_path: Path) -> None:
    folder = study(tmp_path / "s")
    other = findings(folder, prices="azure-eastus-2025-09-11", spot=True)
    assert other.costs is not None
    assert other.costs.spot
    assert other.costs.stale
    unpriced = findings(folder, replace(DESIGN, prices=None))
    assert unpriced.costs is None
    assert unpriced.precision[0].usd is None


def fail(trial: Trial) -> Failed:
    return Failed(trial, ran(trial, 2.0), "crashed", "it ended with status 1", "Traceback")


@pytest.mark.parametrize(
    ("trials", "reason"),
    [
        ("none", "No trial was run yet."),
        ("all failed", "Every trial failed."),
        ("one each", "Every cell has a single reading of train_s: nothing tells an effect from noise"),
        ("one cell", "No factor has two levels with readings; measure more cells."),
        ("no such metric", "No trial measured steady_epoch_s; measured was wall_s"),
    ],
)
def test_what_cannot_be_explained_says_why_and_the_rest_is_there(trials: str, reason: str, tmp_path: Path) -> None:
    design = replace(DESIGN, response="steady_epoch_s") if trials == "no such metric" else DESIGN
    outcomes = {
        "none": [],
        "all failed": [fail(trial) for trial in design.trials],
        "one each": [measured(trial) for trial in design.trials if trial.repetition == 1],
        "one cell": [measured(trial) for trial in design.trials if trial.cell.number == 1],
        "no such metric": [measured(trial) for trial in design.trials],
    }[trials]
    found = findings(write(tmp_path / "s", design, outcomes), design)
    assert found.response is None
    assert found.no_response.startswith(reason)
    assert found.planned == 36
    assert found.measured + found.failed + found.not_run == 36
    assert found.costs is not None
    assert len(found.cells) == 12
    write_findings(tmp_path / "findings.json", found)
    assert json.loads((tmp_path / "findings.json").read_text())["no_response"] == found.no_response


def test_readings_without_any_noise_are_no_problem(tmp_path: Path) -> None:
    """A count, say: the same in every repetition of a cell."""
    folder = study(tmp_path / "s", of=lambda trial: measured(trial, steps=7 * trial.cell.number))
    found = findings(folder, metric="steps")
    assert found.response is not None
    assert [one.holds for one in found.response.assumptions] == [None, None, None, None]
    assert found.response.effects.unexplained == pytest.approx(0, abs=1e-12)
    assert found.precision == ()
    write_findings(tmp_path / "findings.json", found)
    alike = findings(study(tmp_path / "t", of=lambda trial: measured(trial, steps=7)), metric="steps")
    assert alike.response is not None
    assert {one.ratio.value for one in alike.comparisons} == {1.0}
    write_findings(tmp_path / "findings.json", alike)


def test_findings_are_written_whole_and_without_nan(tmp_path: Path) -> None:
    found = findings(study(tmp_path / "s", of=without_tensorflow_on_gpu))
    path = tmp_path / "findings.json"
    write_findings(path, found)

    def refuse(name: str) -> None:
        raise AssertionError(name)

    table = json.loads(path.read_text(), parse_constant=refuse)
    assert set(table) == set(Findings.__dataclass_fields__)
    parts = table["response"]["effects"]["parts"]
    assert found.response is not None
    assert list(parts) == [" × ".join(term) for term in found.response.effects.parts]
    assert parts["device × image"]["effects"]["cpu × 32"]["value"] == pytest.approx(0, abs=1e-9)
    assert "device × framework" in table["response"]["effects"]["not_estimable"]
    assert table["cells"][0]["readings"]["train_s"]["n"] == 3
    assert table["costs"]["pareto"] == list(found.costs.pareto if found.costs else ())
    odd = replace(found, precision=(replace(found.precision[0], hours=float("nan"), usd=float("inf")),))
    write_findings(path, odd)
    again = json.loads(path.read_text(), parse_constant=refuse)
    assert (again["precision"][0]["hours"], again["precision"][0]["usd"]) == (None, None)
    assert {**again, "precision": None} == {**table, "precision": None}


def test_a_machine_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    folder = study(tmp_path / "s")
    (folder / "machines" / "cpu-digest.json").write_text("{")
    with pytest.raises(FundoscopeError, match=r"cpu-digest.json does not describe a machine"):
        findings(folder)


def test_repetitions_added_to_a_design_are_still_to_be_run(tmp_path: Path) -> None:
    found = findings(study(tmp_path / "s"), replace(DESIGN, repetitions=5))
    assert (found.planned, found.measured, found.not_run) == (60, 36, 24)
    fewer = findings(tmp_path / "s", replace(DESIGN, repetitions=2))
    assert (fewer.planned, fewer.measured, fewer.not_run) == (24, 36, 0)
