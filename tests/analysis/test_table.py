"""Logs into columns: which outcome of a trial counts, which machines may be put together, what is worth a warning."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from measured_study import CPU, DESIGN, GPU, MACHINES, measured, ran, study, without_tensorflow_on_gpu, write

from fundoscope.analysis.evidence import share_of_machine
from fundoscope.analysis.table import metric_of, open_table
from fundoscope.errors import FundoscopeError
from fundoscope.experiment.design import Design
from fundoscope.experiment.outcome import Failed


def test_every_number_of_a_trial_is_a_metric_and_nothing_else_is(tmp_path: Path) -> None:
    table = open_table(DESIGN, study(tmp_path / "s"), MACHINES)
    expected = {"wall_s", "train_s", "accuracy", "samples", "cpu_percent_mean", "memory_mb_mean"}
    assert set(table.metrics) == expected | {"gpu_percent_mean", "gpu_memory_mb_mean", "gpu_memory_mb_max"}
    assert len(table.cell) == 36
    assert table.order.tolist() == list(range(1, 37))
    assert np.isnan(table.metrics["gpu_percent_mean"]).sum() == 18  # of the CPU's trials


def test_rows_are_the_trials_they_were_read_from(tmp_path: Path) -> None:
    table = open_table(DESIGN, study(tmp_path / "s"), MACHINES)
    for row in (0, 17, 35):
        trial = DESIGN.trials[row]
        assert table.cells[table.cell[row]] == trial.cell
        assert table.repetition[row] == trial.repetition
        found = measured(trial)
        assert table.metrics["train_s"][row] == found.readings["train_s"]
        assert table.wall_s[row] == found.ran.wall_s


def test_the_last_outcome_of_a_trial_counts(tmp_path: Path) -> None:
    first, *rest = DESIGN.trials
    failed = Failed(first, ran(first, 1.0), "timed out", "it took too long")
    again = measured(first, accuracy=0.5)
    table = open_table(DESIGN, write(tmp_path / "s", DESIGN, [failed, *map(measured, rest), again]), MACHINES)
    assert len(table.cell) == 36
    assert table.measured.all()
    assert not table.failures
    assert table.metrics["accuracy"][-1] == 0.5
    assert table.cells[table.cell[-1]] == first.cell


def test_failures_are_counted_by_reason_with_what_the_first_said(tmp_path: Path) -> None:
    table = open_table(DESIGN, study(tmp_path / "s", of=without_tensorflow_on_gpu), MACHINES)
    (failure,) = table.failures
    assert (failure.kind, failure.reason, failure.last_words) == ("unavailable", "tensorflow sees no GPU", "last line")
    assert len(failure.trials) == 6
    assert (~table.measured).sum() == 6
    assert sum(table.failed_kinds.values(), start=type(next(iter(table.failed_kinds.values())))()) == {
        "tensorflow sees no GPU": 6
    }


def test_a_line_cut_off_is_dropped_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    log = study(tmp_path / "s") / "outcomes.jsonl"
    whole = log.read_bytes()
    log.write_bytes(whole[:-7])
    assert len(open_table(DESIGN, log, MACHINES).cell) == 35
    lines = whole.split(b"\n")
    log.write_bytes(b"\n".join([*lines[:4], lines[4][:50], *lines[5:]]))
    with pytest.raises(FundoscopeError, match=r"line 5 of .* is no outcome"):
        open_table(DESIGN, log, MACHINES)


def test_a_log_of_another_design_is_refused(tmp_path: Path) -> None:
    folder = study(tmp_path / "s")
    with pytest.raises(FundoscopeError, match="another design"):
        open_table(replace(DESIGN, settings={"epochs": 2}), folder, MACHINES)
    with pytest.raises(FundoscopeError, match="has no outcomes"):
        open_table(DESIGN, tmp_path / "nothing.jsonl", MACHINES)


def test_two_machines_are_not_mixed_unless_the_design_says_so(tmp_path: Path) -> None:
    one = replace(DESIGN, machine_factor="", name="mixed")
    with pytest.raises(FundoscopeError, match=r"ran on two machines, \S+ and \S+, which differ in") as problem:
        open_table(one, study(tmp_path / "s", one), MACHINES)
    assert "processors: " in problem.value.message
    assert "gpus: " in problem.value.message
    assert "H200" in problem.value.message
    assert "kernel" not in problem.value.message
    assert "machine_factor" in problem.value.hint


def test_a_level_of_the_machine_factor_has_one_machine(tmp_path: Path) -> None:
    outcomes = [measured(trial) for trial in DESIGN.trials]
    other = replace(outcomes[0], ran=replace(outcomes[0].ran, machine="third"))
    folder = write(tmp_path / "s", DESIGN, [other, *outcomes[1:]])
    level = outcomes[0].trial.cell.levels["device"]
    with pytest.raises(FundoscopeError, match=f"trials of device '{level}' ran on two machines") as problem:
        open_table(DESIGN, folder, MACHINES)
    assert "facts are not in the study's folder" in problem.value.message


def test_machine_as_a_factor_may_have_many_machines(tmp_path: Path) -> None:
    design = Design("machines", "cnn", {"machine": ("a", "b"), "device": ("cpu", "gpu")}, repetitions=2)
    outcomes = []
    for trial in design.trials:
        found = measured(DESIGN.trials[0])
        outcomes.append(replace(found, trial=trial, ran=replace(found.ran, machine=str(trial.cell.levels["machine"]))))
    assert len(open_table(design, write(tmp_path / "s", design, outcomes), {}).machines) == 2


def test_busy_trials_and_differing_versions_and_data_are_worth_a_warning(tmp_path: Path) -> None:
    outcomes = [measured(trial) for trial in DESIGN.trials]
    busy = replace(outcomes[0], ran=replace(outcomes[0].ran, flags=("busy",)))
    newer = measured(outcomes[1].trial, versions={"numpy": "2.5.0"}, data="drawn")
    table = open_table(DESIGN, write(tmp_path / "s", DESIGN, [busy, newer, *outcomes[2:]]), MACHINES)
    framework = outcomes[1].trial.cell.levels["framework"]
    assert table.warnings == (
        "1 of 36 trials ran while others used the processors",
        f"versions of numpy of trials with {framework} differ: 2.4.6, 2.5.0",
        "the data of trials differ: 1 of drawn, 35 of files",
    )
    assert table.flags["busy"].sum() == 1


def test_outcomes_of_cells_left_out_since_are_not_counted(tmp_path: Path) -> None:
    fewer = replace(DESIGN, exclude=({"framework": "tensorflow"},))
    table = open_table(fewer, study(tmp_path / "s"), MACHINES)
    assert len(table.cell) == 24
    assert table.warnings == ("12 outcomes are of cells that the design leaves out, and were not counted",)


def test_use_is_a_share_of_what_the_machine_has(tmp_path: Path) -> None:
    table = open_table(DESIGN, study(tmp_path / "s"), MACHINES)
    on_gpu = table.where(device="gpu")[table.cell]
    processors = share_of_machine(table, "cpu_percent_mean", MACHINES)
    assert set(processors[~on_gpu]) == {95.0}  # 190 of 2 x 100
    assert set(processors[on_gpu]) == {19.0}  # of 10 x 100
    assert set(share_of_machine(table, "memory_mb_mean", MACHINES)) == {40.0}  # 8 of 20 GB
    assert set(share_of_machine(table, "gpu_memory_mb_mean", MACHINES)[on_gpu]) == {21.0}
    quota = {name: facts | {"quota": 4.0} for name, facts in (("cpu-digest", CPU), ("gpu-digest", GPU))}
    assert set(share_of_machine(table, "cpu_percent_mean", quota)) == {47.5}
    assert np.isnan(share_of_machine(table, "cpu_percent_mean", {})).all()


def test_of_processors_those_count_that_a_trial_was_given(tmp_path: Path) -> None:
    table = open_table(DESIGN, study(tmp_path / "s", of=lambda trial: measured(trial, threads=4)), MACHINES)
    on_gpu = table.where(device="gpu")[table.cell]
    processors = share_of_machine(table, "cpu_percent_mean", MACHINES)
    assert set(processors[~on_gpu]) == {95.0}  # there are but two
    assert set(processors[on_gpu]) == {47.5}  # 190 of 4 x 100, of ten processors
    assert np.isnan(share_of_machine(table, "cpu_percent_mean", {})).all()


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("train_s", "s"),
        ("images_per_s", "pictures/s"),
        ("tokens_per_s", "1/s"),
        ("gpu_memory_mb_max", "MB"),
        ("cpu_percent_mean", "%"),
        ("gpu_joules", "J"),
        ("predict_ms", "ms"),
        ("accuracy", ""),
    ],
)
def test_the_unit_of_a_metric_is_in_its_name(name: str, unit: str) -> None:
    assert metric_of(name).unit == unit


def test_levels_are_found_whatever_their_type(tmp_path: Path) -> None:
    table = open_table(DESIGN, study(tmp_path / "s"), MACHINES)
    assert table.where(image="64").sum() == table.where(image=64).sum() == 6
    assert table.where(image="64", device="gpu", framework="mxnet").sum() == 1
    assert table.where(image="128").sum() == 0


def test_true_is_no_number_and_the_log_may_say_what_it_likes_beside(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    write(folder, DESIGN, [measured(DESIGN.trials[0], compiled=True, notes="x", sizes={"a": 1})])
    table = open_table(DESIGN, folder, MACHINES)
    assert not {"compiled", "notes", "sizes"} & set(table.metrics)
    assert json.loads((folder / "outcomes.jsonl").read_text().splitlines()[1])["measured"]["readings"]["compiled"]


@pytest.mark.parametrize(
    ("old", "new"), [('"readings": {', '"readings": 3, "x": {'), ('"wall_s": ', '"wall_s": "long", "was_s": ')]
)
def test_an_outcome_of_the_wrong_shape_is_named(old: str, new: str, tmp_path: Path) -> None:
    log = write(tmp_path / "s", DESIGN, [measured(DESIGN.trials[0])]) / "outcomes.jsonl"
    log.write_text(log.read_text().replace(old, new))
    with pytest.raises(FundoscopeError, match="outcome"):
        open_table(DESIGN, log, MACHINES)


def test_numbers_that_no_float_can_hold_are_not_readings(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    write(folder, DESIGN, [measured(DESIGN.trials[0], count=10**400, other=2)])
    table = open_table(DESIGN, folder, MACHINES)
    assert "count" not in table.metrics
    assert table.metrics["other"].tolist() == [2.0]
