"""Levels compared over matched cells; repetitions still to run; what a plan can show."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from measured_study import DESIGN, MACHINES, NOISE, measured, ran, study, without_tensorflow_on_gpu, write
from scipy import stats

from fundoscope.analysis.compare import comparisons, detectable, difference, logs_of, matched, spread_of
from fundoscope.analysis.table import Table, open_table
from fundoscope.errors import FundoscopeError
from fundoscope.experiment.design import Design, Trial
from fundoscope.experiment.outcome import Measured


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    return open_table(DESIGN, study(tmp_path_factory.mktemp("study") / "s"), MACHINES)


def test_every_pair_of_levels_is_compared_all_else_equal(table: Table) -> None:
    found, said = comparisons(table, "train_s")
    ratios = {(one.factor, one.one, one.other): one.ratio.value for one in found}
    assert ratios == {
        ("device", "cpu", "gpu"): pytest.approx(20),
        ("framework", "mxnet", "pytorch"): pytest.approx(1 / 1.5),
        ("framework", "mxnet", "tensorflow"): pytest.approx(1 / 2.5),
        ("framework", "pytorch", "tensorflow"): pytest.approx(1.5 / 2.5),
        ("image", "32", "64"): pytest.approx(1 / 3),
    }
    assert [one.cells for one in found] == [6, 4, 4, 4, 6]
    assert said == ()


def test_where_cells_vary_alike_the_interval_is_that_of_the_pooled_residual(table: Table) -> None:
    """By hand: six pairs of cells with three readings each, 24 degrees of freedom."""
    (device, *_), _ = comparisons(table, "train_s")
    deviation = np.log(NOISE).std(ddof=1)
    half = stats.t.ppf(0.975, 24) * deviation * np.sqrt(2 / (3 * 6))
    assert device.ratio.low == pytest.approx(20 * np.exp(-half))
    assert device.ratio.high == pytest.approx(20 * np.exp(half))
    assert device.effect_size == pytest.approx(np.log(20) / deviation)
    assert device.p_holm is not None
    assert device.ratio.p is not None
    assert device.p_holm >= device.ratio.p


def test_cells_that_are_not_compared_do_not_widen_the_interval(tmp_path: Path) -> None:
    def noisier(trial: Trial) -> Measured:
        found = measured(trial)
        wild = 5.0 ** (trial.repetition - 2) if trial.cell.levels["framework"] == "tensorflow" else 1.0
        return replace(found, readings={**found.readings, "train_s": found.readings["train_s"] * wild})

    table = open_table(DESIGN, study(tmp_path / "s", of=noisier), MACHINES)
    found, _ = comparisons(table, "train_s")
    (pair,) = [one for one in found if (one.one, one.other) == ("mxnet", "pytorch")]
    half = stats.t.ppf(0.975, 16) * np.log(NOISE).std(ddof=1) * np.sqrt(2 / (3 * 4))
    assert pair.ratio.high == pytest.approx(np.exp(half) / 1.5)


def test_a_single_pair_of_cells_is_welchs_test(tmp_path: Path) -> None:
    design = Design("pair", "cnn", {"device": ("gpu", "tpu")}, repetitions=10)
    times = {"gpu": [51.0, 51.5, 51.2, 51.9, 50.8, 51.4, 51.1, 51.6, 51.3, 51.5]}
    times["tpu"] = [33.9, 32.1, 33.0, 34.4, 33.3, 32.5, 34.0, 33.2, 32.9, 33.1]
    outcomes = []
    for trial in design.trials:
        value = times[str(trial.cell.levels["device"])][trial.repetition - 1]
        outcomes.append(Measured(trial, replace(ran(trial, value), machine="same"), {"train_s": value}))
    (found,), _ = comparisons(open_table(design, write(tmp_path / "s", design, outcomes), {}), "train_s")
    expected = stats.ttest_ind(np.log(times["gpu"]), np.log(times["tpu"]), equal_var=False)
    low, high = expected.confidence_interval()
    assert (found.ratio.low, found.ratio.high) == (pytest.approx(np.exp(low)), pytest.approx(np.exp(high)))
    assert found.ratio.p == pytest.approx(expected.pvalue)


def test_cells_without_a_partner_are_not_compared(tmp_path: Path) -> None:
    table = open_table(DESIGN, study(tmp_path / "s", of=without_tensorflow_on_gpu), MACHINES)
    found, _ = comparisons(table, "train_s")
    cells = {(one.factor, one.one, one.other): one.cells for one in found}
    assert cells["device", "cpu", "gpu"] == 4
    assert cells["framework", "mxnet", "tensorflow"] == 2
    assert [one.ratio.value for one in found if one.factor == "device"] == [pytest.approx(20)]


def test_a_single_reading_borrows_the_spread_of_the_others(tmp_path: Path) -> None:
    outcomes = [measured(trial) for trial in DESIGN.trials if trial.cell.number != 1 or trial.repetition == 1]
    table = open_table(DESIGN, write(tmp_path / "s", DESIGN, outcomes), MACHINES)
    (device, *_), _ = comparisons(table, "train_s")
    assert device.ratio.low is not None
    assert device.ratio.low < 20 < (device.ratio.high or 0)


def test_without_repetitions_there_are_ratios_and_no_intervals(tmp_path: Path) -> None:
    once = replace(DESIGN, repetitions=1)
    found, _ = comparisons(open_table(once, study(tmp_path / "s", once), MACHINES), "train_s")
    assert {(one.ratio.low, one.ratio.p, one.p_holm, one.effect_size) for one in found} == {(None, None, None, None)}


def test_metrics_that_reach_zero_have_no_ratios(tmp_path: Path) -> None:
    folder = study(tmp_path / "s", of=lambda trial: measured(trial, swaps=trial.repetition - 1))
    assert comparisons(open_table(DESIGN, folder, MACHINES), "swaps") == ((), ())


def test_a_ratio_can_be_asked_for_in_part_of_the_cells(table: Table) -> None:
    logs = logs_of(table, "train_s")
    assert logs is not None
    found = matched(table, logs, "image", 64, 32, table.where(device="gpu"))
    assert found is not None
    assert (found.pairs, found.ratio.value) == (3, pytest.approx(3))
    assert (found.least, found.greatest) == (pytest.approx(3), pytest.approx(3))
    assert matched(table, logs, "image", 64, 128) is None
    assert matched(table, logs, "colour", 1, 2) is None


def test_differences_are_over_the_same_pairs(table: Table) -> None:
    values, cell = table.readings("train_s")
    found = difference(table, spread_of(values, cell, len(table.cells)), "image", 64, 32, table.where(device="cpu"))
    assert found is not None
    mean = sum(NOISE) / 3
    assert found.value == pytest.approx(100 * (1 + 1.5 + 2.5) * 2 / 3 * mean)


def test_a_factor_of_many_levels_is_compared_with_its_first(tmp_path: Path) -> None:
    design = Design("many", "cnn", {"size": tuple(range(40))}, repetitions=2)
    outcomes = [
        Measured(t, ran(t, 1.0), {"y": 1.0 + int(t.cell.levels["size"]) + 0.01 * t.repetition}) for t in design.trials
    ]
    found, said = comparisons(open_table(design, write(tmp_path / "s", design, outcomes), MACHINES), "y")
    assert {one.one for one in found} == {"0"}
    assert len(found) == 39
    assert said == ("size has 40 levels: each was compared with the first alone",)


def test_more_repetitions_or_cells_show_smaller_ratios() -> None:
    found = [detectable(0.05, 3, 1, 2), detectable(0.05, 5, 1, 2), detectable(0.05, 5, 24, 2)]
    assert found == sorted(found, reverse=True)
    assert 1 < found[-1] < 1.03
    with pytest.raises(FundoscopeError, match="single repetition"):
        detectable(0.05, 1, 24, 2)


def test_so_many_trials_do_show_such_a_ratio_four_times_in_five() -> None:
    """By simulation: two levels of four cells, three readings each."""
    rng = np.random.default_rng(8)
    variation, repetitions, cells, studies = 0.1, 3, 4, 4000
    ratio = detectable(variation, repetitions, cells, 2)
    deviation = np.sqrt(np.log1p(variation**2))
    y = rng.normal(0, deviation, (studies, 2, cells, repetitions))
    y[:, 1] += np.log(ratio)
    pooled = y.var(axis=3, ddof=1).mean(axis=(1, 2))
    difference = y[:, 1].mean(axis=(1, 2)) - y[:, 0].mean(axis=(1, 2))
    t = difference / np.sqrt(pooled * 2 / (cells * repetitions))
    shown = (np.abs(t) > stats.t.ppf(0.975, 2 * cells * (repetitions - 1))).mean()
    assert shown == pytest.approx(0.8, abs=0.025)
