"""The response explained: its scale, its terms, and whether residuals bear it out."""

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from measured_study import DESIGN, MACHINES, ran, study, without_tensorflow_on_gpu, write
from scipy import stats

from fundoscope.analysis.effects import gather
from fundoscope.analysis.findings import Response
from fundoscope.analysis.model import MOST_COLUMNS, MOST_DRAWN, box_cox, choose_scale, choose_terms, explain_response
from fundoscope.analysis.table import open_table
from fundoscope.errors import FundoscopeError
from fundoscope.experiment.design import Design
from fundoscope.experiment.outcome import Measured


def explained(folder: Path, design: Design, values: dict[str, float]) -> Response:
    """`values` by id of trial."""
    outcomes = [Measured(t, ran(t, 1.0), {"y": values[t.id]}) for t in design.trials if t.id in values]
    return explain_response(open_table(design, write(folder, design, outcomes), MACHINES), "y")


def noisy(design: Design, seed: int = 1, **of: Any) -> dict[str, float]:
    """10 s, twice as long for each level further of every factor, with noise on the log scale."""
    rng = np.random.default_rng(seed)
    spread = of.get("spread", 0.05)
    found = {}
    for trial in design.trials:
        steps = sum(design.factors[name].index(level) for name, level in trial.cell.levels.items())
        found[trial.id] = float(10 * 2**steps * np.exp(rng.normal(0, spread)))
    return found


TWO = Design("two", "cnn", {"a": ("x", "y"), "b": ("u", "v", "w")}, repetitions=6)


def test_effects_that_multiply_are_found_on_the_log_scale(tmp_path: Path) -> None:
    found = explained(tmp_path / "s", TWO, noisy(TWO))
    assert found.scale == "log"
    assert found.box_cox is not None
    assert found.box_cox.low is not None
    assert found.box_cox.low < 0 < (found.box_cox.high or 0)
    assert "holds 0" in found.why
    effect = found.effects.parts["a",].effects["y",]
    assert effect.low is not None
    assert effect.low < np.log(2) / 2 < (effect.high or 0)
    assert found.effects.unexplained < 0.02
    assert found.left_out == ()
    assert found.not_modelled == ""


def test_effects_that_add_stay_on_their_scale(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    steps = {"x": 0, "y": 1, "u": 0, "v": 2, "w": 4}
    values = {
        t.id: 10 + sum(steps[str(level)] for level in t.cell.levels.values()) + float(rng.uniform(-0.5, 0.5) * 6)
        for t in replace(TWO, repetitions=60).trials
    }
    found = explained(tmp_path / "s", replace(TWO, repetitions=60), values)
    assert found.box_cox is not None
    assert found.box_cox.low is not None
    assert found.box_cox.low > 0
    assert found.scale == "linear"
    assert "add" in found.why


def test_readings_that_cannot_have_a_logarithm_stay_as_they_are() -> None:
    assert choose_scale(np.array([0.0, 1.0, 2.0, 3.0]), np.array([0, 0, 1, 1])).name == "linear"
    far = choose_scale(np.array([1.0, 1.0, 50.0, 50.0]), np.array([0, 0, 1, 1]))
    assert (far.name, far.box_cox) == ("log", None)
    assert "50 times" in far.why


def test_the_best_power_maximises_the_likelihood_of_the_cell_means_model() -> None:
    """By brute force over the textbook formula, with the Jacobian written out."""
    rng = np.random.default_rng(5)
    cell = np.repeat(np.arange(4), 12)
    y = (3 + 2 * cell + rng.normal(0, 0.4, len(cell))) ** 2  # the square root is normal

    def likelihood(power: float) -> float:
        z = (y**power - 1) / power
        within = sum(((z[cell == i] - z[cell == i].mean()) ** 2).sum() for i in range(4))
        return float(-len(y) / 2 * np.log(within / len(y)) + (power - 1) * np.log(y).sum())

    powers = np.linspace(-0.5, 1.5, 2001) + 1e-7
    curve = np.array([likelihood(power) for power in powers])
    inside = powers[curve >= curve.max() - stats.chi2.ppf(0.95, 1) / 2]
    found = box_cox(y, cell)
    assert found is not None
    assert found.value == pytest.approx(powers[curve.argmax()], abs=2e-3)
    assert (found.low, found.high) == (pytest.approx(inside[0], abs=2e-3), pytest.approx(inside[-1], abs=2e-3))
    assert inside[0] < 0.5 < inside[-1]


def test_equal_spread_is_brown_and_forsythes_test(tmp_path: Path) -> None:
    values = noisy(TWO)
    found = explained(tmp_path / "s", TWO, values)
    cells = [[np.log(v) for id_, v in values.items() if id_.startswith(f"{cell.name}-")] for cell in TWO.cells]
    expected = stats.levene(*cells, center="median")
    spread = found.assumptions[1]
    assert (spread.statistic, spread.p) == (pytest.approx(expected.statistic), pytest.approx(expected.pvalue))


def test_residuals_that_are_as_they_should_be_are_said_to_be(tmp_path: Path) -> None:
    found = explained(tmp_path / "s", TWO, noisy(TWO))
    assert [one.holds for one in found.assumptions] == [True, True, True, True]
    logs = np.log(list(noisy(TWO).values()))
    assert len(found.residuals.residual) == len(logs)
    assert found.assumptions[0].statistic == pytest.approx(stats.shapiro(found.residuals.residual).statistic)
    order = np.argsort(found.residuals.residual)
    assert (np.diff(np.array(found.residuals.quantile)[order]) > 0).all()


def test_drift_is_noticed_and_said(tmp_path: Path) -> None:
    values = noisy(TWO, spread=0.01)
    drifting = {id_: value * (1 + 0.02 * i) for i, (id_, value) in enumerate(values.items())}
    found = explained(tmp_path / "s", TWO, drifting)
    drift = found.assumptions[2]
    assert drift.holds is False
    assert (drift.statistic or 0) > 0.8
    assert "greater" in drift.said
    assert "all cells alike" in drift.said


def test_a_slow_repetition_is_noticed(tmp_path: Path) -> None:
    values = {id_: v * (1.3 if id_.endswith("-4") else 1) for id_, v in noisy(TWO, spread=0.02).items()}
    found = explained(tmp_path / "s", TWO, values)
    assert found.assumptions[3].holds is False
    assert "repetitions were slower or faster" in found.assumptions[3].said


def test_repetitions_are_blocks(tmp_path: Path) -> None:
    """The F of a randomised block design: blocks against what is left of cells x blocks."""
    values = noisy(TWO)
    found = explained(tmp_path / "s", TWO, values)
    grid = np.array([[np.log(values[f"{cell.name}-{i}"]) for i in range(1, 7)] for cell in TWO.cells])
    rows, columns, whole = grid.mean(axis=1, keepdims=True), grid.mean(axis=0, keepdims=True), grid.mean()
    between = len(grid) * ((columns - whole) ** 2).sum() / 5
    rest = ((grid - rows - columns + whole) ** 2).sum() / (5 * 5)
    assert found.assumptions[3].statistic == pytest.approx(between / rest)


def test_unequal_spread_is_noticed(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    design = replace(TWO, repetitions=20)
    values = {
        t.id: float(np.exp(rng.normal(0, 0.3 if t.cell.levels["a"] == "y" else 0.01))) * 10 for t in design.trials
    }
    assert explained(tmp_path / "s", design, values).assumptions[1].holds is False


def test_a_factor_of_one_measured_level_is_left_out_and_named(tmp_path: Path) -> None:
    values = {t.id: v for t, v in zip(TWO.trials, noisy(TWO).values(), strict=True) if t.cell.levels["a"] == "x"}
    found = explained(tmp_path / "s", TWO, values)
    assert found.left_out == ("a",)
    assert set(found.effects.parts) == {("b",)}


def test_holes_leave_terms_out_and_the_rest_in(tmp_path: Path) -> None:
    table = open_table(DESIGN, study(tmp_path / "s", of=without_tensorflow_on_gpu), MACHINES)
    found = explain_response(table, "train_s")
    assert ("device", "framework") in found.effects.not_estimable
    # Effects are those of the fitted model: what the GPU saves is known though one framework never ran there.
    device = found.effects.parts["device",].effects
    assert np.exp(device["cpu",].value - device["gpu",].value) == pytest.approx(20)
    framework = found.effects.parts["framework",].effects
    assert np.exp(framework["tensorflow",].value - framework["mxnet",].value) == pytest.approx(2.5)


def test_what_cannot_be_explained_says_why(tmp_path: Path) -> None:
    once = replace(TWO, repetitions=1)
    with pytest.raises(FundoscopeError, match="single reading"):
        explained(tmp_path / "once", once, noisy(once))
    table = open_table(DESIGN, study(tmp_path / "s"), MACHINES)
    with pytest.raises(FundoscopeError, match="no trial measured losses"):
        explain_response(table, "losses")


def test_many_levels_keep_the_model_small_and_say_what_is_left_to_the_residual() -> None:
    sizes = {"a": 2, "b": 3, "c": 30, "d": 40}
    codes = np.array(list(product(*(range(n) for n in sizes.values()))))
    rng = np.random.default_rng(1)
    cell = np.repeat(np.arange(len(codes)), 2)
    cells = gather(rng.normal(10, 1, len(cell)), cell, codes, {name: list(range(n)) for name, n in sizes.items()})
    terms, said = choose_terms(cells)
    assert ("c", "d") not in terms
    assert ("a", "b", "d") in terms
    assert ("a", "c", "d") not in terms  # not without c × d
    assert "c × d" in said
    columns = 1 + sum(int(np.prod([sizes[name] - 1 for name in term])) for term in terms)
    assert columns <= MOST_COLUMNS


def test_very_many_residuals_are_drawn_as_a_sample(tmp_path: Path) -> None:
    design = Design("large", "cnn", {"a": ("x", "y")}, repetitions=3000)
    rng = np.random.default_rng(4)
    first = design.trials[0]
    log = write(tmp_path / "s", design, [Measured(first, ran(first, 1.0), {"y": 1.0})]) / "outcomes.jsonl"
    line = json.loads(log.read_text().splitlines()[1])
    with log.open("a") as file:  # all at once: a log is synced for every line
        for trial in design.trials[1:]:
            line |= {"trial": trial.id, "cell": trial.cell.number, "repetition": trial.repetition}
            line["levels"] = dict(trial.cell.levels)
            line["measured"]["readings"] = {"y": float(np.exp(rng.normal(0, 0.1)))}
            file.write(json.dumps(line) + "\n")
    found = explain_response(open_table(design, log, MACHINES), "y")
    assert len(found.residuals.order) == MOST_DRAWN
    assert found.residuals.order == tuple(sorted(found.residuals.order))
    assert "5,000 of 6,000" in found.assumptions[0].test
