"""Study files: what they mean, and what is wrong with them."""

from collections import Counter
from itertools import pairwise, product
from math import prod
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fundoscope.errors import FundoscopeError
from fundoscope.experiment.design import Design, open_design

TRAINING_COST = {
    "device": ("cpu", "gpu"),
    "framework": ("mxnet", "pytorch", "tensorflow"),
    "dataset": ("mnist", "cifar10"),
    "image": (32, 64),
    "network": ("rede1", "rede2"),
}


def design(**changes: object) -> Design:
    return Design(**({"name": "x", "workload": "cnn", "factors": TRAINING_COST, "repetitions": 5} | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("number", "levels"),
    [  # rows of the paper's Table 3
        (1, ("cpu", "mxnet", "mnist", 32, "rede1")),
        (7, ("cpu", "mxnet", "cifar10", 64, "rede1")),
        (10, ("cpu", "pytorch", "mnist", 32, "rede2")),
        (24, ("cpu", "tensorflow", "cifar10", 64, "rede2")),
        (25, ("gpu", "mxnet", "mnist", 32, "rede1")),
        (38, ("gpu", "pytorch", "cifar10", 32, "rede2")),
        (48, ("gpu", "tensorflow", "cifar10", 64, "rede2")),
    ],
)
def test_scenarios_are_numbered_as_in_the_papers_table_3(number: int, levels: tuple[object, ...]) -> None:
    cells = design().cells
    assert len(cells) == 48
    assert (cells[number - 1].name, tuple(cells[number - 1].levels.values())) == (f"C{number}", levels)


names = st.text("abcdefgh", min_size=1, max_size=4)
levels = st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True).map(tuple)


@settings(deadline=None)
@given(st.dictionaries(names, levels, min_size=1, max_size=3), st.integers(1, 4), st.integers(0, 99))
def test_every_cell_runs_once_in_every_repetition(
    factors: dict[str, tuple[int, ...]], repetitions: int, seed: int
) -> None:
    trials = design(factors=factors, repetitions=repetitions, seed=seed).trials
    runs = Counter((trial.repetition, *trial.cell.levels.values()) for trial in trials)
    assert set(runs.values()) == {1}
    assert len(runs) == repetitions * prod(map(len, factors.values()))
    assert [trial.repetition for trial in trials] == sorted(trial.repetition for trial in trials)


def test_every_repetition_has_an_order_of_its_own_and_the_same_one_every_time() -> None:
    orders = [[t.cell.number for t in design().trials if t.repetition == i] for i in range(1, 6)]
    assert len(set(map(tuple, orders))) == 5
    assert [t.id for t in design().trials] == [t.id for t in design().trials]
    assert [t.id for t in design().trials] != [t.id for t in design(seed=1).trials]


def test_as_published_the_cells_run_in_the_order_they_are_listed() -> None:
    trials = design(order="listed", repetitions=2).trials
    assert [trial.cell.number for trial in trials] == [*range(1, 49), *range(1, 49)]


def test_more_repetitions_add_trials_and_change_none() -> None:
    few, many = (design(repetitions=n).trials for n in (2, 3))
    assert many[: len(few)] == few
    assert design(repetitions=2).digest == design(repetitions=3, seed=9).digest
    assert design(settings={"epochs": 1}).digest != design().digest


def test_excluded_cells_are_not_run_and_the_others_keep_their_numbers() -> None:
    cells = design(exclude=({"device": "gpu", "framework": ["mxnet", "tensorflow"]},)).cells
    assert [cell.number for cell in cells] == [*range(1, 25), *range(33, 41)]


def test_the_cells_of_a_block_run_together() -> None:
    trials = design(blocks=("device", "framework"), repetitions=3).trials
    blocks = [(t.repetition, t.cell.levels["device"], t.cell.levels["framework"]) for t in trials]
    changes = sum(a != b for a, b in pairwise(blocks))
    assert changes == 3 * 6 - 1


def test_a_fraction_is_half_of_a_2_to_the_4_in_which_generated_signs_multiply() -> None:
    factors = dict.fromkeys("abcd", ("low", "high"))
    cells = design(factors=factors, plan="fractional", generators={"d": "a*b*c"}).cells
    assert len(cells) == 8
    for cell in cells:
        highs = sum(level == "high" for level in cell.levels.values())
        assert highs % 2 == 0  # the signs of all four multiply to +1: I = ABCD


def test_one_factor_at_a_time_stays_next_to_the_baseline() -> None:
    factors = {"a": (1, 2, 3), "b": ("x", "y"), "c": (True, False)}
    baseline = {"a": 2, "b": "x", "c": True}
    cells = design(factors=factors, plan="one-at-a-time", baseline=baseline).cells
    found = {tuple(cell.levels.values()) for cell in cells}
    assert found == {(2, "x", True), (1, "x", True), (3, "x", True), (2, "y", True), (2, "x", False)}


GOOD = """
name = "x"
workload = "cnn"
repetitions = 2
[factors]
framework = ["pytorch", "mxnet"]
image = [32, 64]
"""


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text(GOOD + '[settings]\nepochs = 10\n[[exclude]]\nframework = "mxnet"\nimage = 64\n')
    found = open_design(path)
    assert [tuple(cell.levels.values()) for cell in found.cells] == list(product(("pytorch", "mxnet"), (32, 64)))[:3]
    assert (found.settings, found.repetitions, found.sample_s) == ({"epochs": 10}, 2, 10.0)


@pytest.mark.parametrize(
    ("change", "message", "hint"),
    [
        (("repetitions", "repetitons"), "called 'repetitons'", "use repetitions"),
        (("repetitions = 2", "repetitions = 0"), "0 repetitions", "use 1 or more"),
        (('"mxnet"]', '"pytorch"]'), "'pytorch' twice", "leave one"),
        (("image = [32, 64]", "image = []"), "'image' in", "list them"),
        (("image = [32, 64]", "image = 32"), "has no levels", "image = "),
        (('name = "x"', 'name = "a/b"'), "'a/b' is no name", "letters"),
        (("[factors]", "timeout_s = 0.0\n[factors]"), "timeout_s is 0", "above 0"),
        (("[factors]", 'order = "shuffled"\n[factors]'), "cannot be 'shuffled'", "listed"),
        (("[factors]", 'blocks = ["framewrok"]\n[factors]'), "called 'framewrok'", "use framework"),
        (("[factors]", 'plan = "fractional"\n[factors]'), "the fraction is not said", "[generators]"),
        (("[factors]", 'plan = "one-at-a-time"\n[factors]'), "does not say framework, image", "[baseline]"),
    ],
)
def test_what_is_wrong_is_said_before_anything_runs(
    change: tuple[str, str], message: str, hint: str, tmp_path: Path
) -> None:
    path = tmp_path / "x.toml"
    assert change[0] in GOOD
    path.write_text(GOOD.replace(*change, 1))
    with pytest.raises(FundoscopeError) as caught:
        open_design(path)
    assert message in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ('[[exclude]]\nframewrk = "mxnet"\n', "no factor", "use framework"),
        ('[[exclude]]\nframework = "mxnett"\n', "no level of 'framework'", "use mxnet"),
        ("[[exclude]]\nimage = [32, 64]\n", "no cell is left", "exclude less"),
        ("[settings]\nimage = 3\n", "both a factor and a setting", "leave one"),
        ('[generators]\nimage = "framework"\n', "has no generators", "fractional"),
    ],
)
def test_misspelt_factors_and_levels_are_named(text: str, message: str, hint: str, tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text(GOOD + text)
    with pytest.raises(FundoscopeError) as caught:
        open_design(path)
    assert message in caught.value.message
    assert hint in caught.value.hint
