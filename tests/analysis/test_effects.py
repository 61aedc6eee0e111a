"""Effects and allocation of variation, against other people's numbers."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fundoscope.analysis.effects import Cells, cells_of, effects
from fundoscope.errors import FundoscopeError


def cells(readings: dict[tuple[str, ...], tuple[float, ...]], *factors: str) -> Cells:
    values = [value for some in readings.values() for value in some]
    levels = [dict(zip(factors, key, strict=True)) for key, some in readings.items() for _ in some]
    known = {name: list(dict.fromkeys(key[i] for key in readings)) for i, name in enumerate(factors)}
    return cells_of(values, levels, known)


def test_effects_match_the_worked_example_in_jain_1991_chapter_18() -> None:
    mips = {  # memory x cache, three repetitions
        ("4 MB", "1 KB"): (15, 18, 12),
        ("16 MB", "1 KB"): (45, 48, 51),
        ("4 MB", "2 KB"): (25, 28, 19),
        ("16 MB", "2 KB"): (75, 75, 81),
    }
    found = effects(cells(mips, "memory", "cache"))
    assert found.mean.value == pytest.approx(41)
    assert found.parts["memory",].effects["16 MB",].value == pytest.approx(21.5)
    assert found.parts["cache",].effects["2 KB",].value == pytest.approx(9.5)
    assert found.parts["memory", "cache"].effects["16 MB", "2 KB"].value == pytest.approx(5)
    # Example 18.3 and 18.4: 5547, 1083, 300 and 102 of 7032
    squares = [found.parts[term].sum_of_squares for term in (("memory",), ("cache",), ("memory", "cache"))]
    assert squares == pytest.approx([5547, 1083, 300])
    assert found.unexplained == pytest.approx(102 / 7032)
    assert found.residual_deviation == pytest.approx((102 / 8) ** 0.5)
    # Example 18.5, at 90 % there: s_qi = 1.03; at 95 % t = 2.306
    effect = found.parts["memory",].effects["16 MB",]
    assert effect.high is not None
    assert effect.high - effect.value == pytest.approx(2.306 * (12.75 / 12) ** 0.5, rel=1e-3)


def test_one_factor_matches_nists_certified_analysis_of_sirstv() -> None:
    """NIST StRD, one-way ANOVA, SiRstv (Ehrstein and Croarkin): resistivity by instrument."""
    resistivity = {
        ("1",): (196.3052, 196.1240, 196.1890, 196.2569, 196.3403),
        ("2",): (196.3042, 196.3825, 196.1669, 196.3257, 196.0422),
        ("3",): (196.1303, 196.2005, 196.2889, 196.0343, 196.1811),
        ("4",): (196.2795, 196.1748, 196.1494, 196.1485, 195.9885),
        ("5",): (196.2119, 196.1051, 196.1850, 196.0052, 196.2090),
    }
    part = effects(cells(resistivity, "instrument")).parts["instrument",]
    assert part.degrees == 4
    assert part.sum_of_squares == pytest.approx(5.11462616000000e-02, rel=1e-9)
    assert part.f == pytest.approx(1.18046237440255, rel=1e-9)


@given(
    st.lists(st.integers(2, 3), min_size=1, max_size=3),
    st.integers(2, 4),
    st.integers(0, 1000),
)
@settings(max_examples=25, deadline=None)
def test_where_all_cells_are_filled_alike_the_shares_add_up_to_one(sizes: list[int], r: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = [f"f{i}" for i in range(len(sizes))]
    readings = {
        tuple(map(str, key)): tuple(rng.normal(sum(key), 1, r).tolist()) for key in product(*(range(n) for n in sizes))
    }
    found = effects(cells(readings, *names))
    assert found.balanced
    assert sum(part.share for part in found.parts.values()) + found.unexplained == pytest.approx(1)
    for part in found.parts.values():
        assert sum(effect.value for effect in part.effects.values()) == pytest.approx(0, abs=1e-9)


def test_a_cell_that_failed_leaves_the_rest_to_be_told() -> None:
    rng = np.random.default_rng(1)
    readings = {
        (a, b): tuple(10 + 3 * (a == "x") + 5 * (b == "y") + rng.normal(0, 0.01, 4)) for a in "wx" for b in "yz"
    }
    del readings["x", "z"]
    found = effects(cells(readings, "a", "b"))
    assert not found.balanced
    assert found.not_estimable == (("a", "b"),)
    assert found.parts["a",].degrees == found.parts["b",].degrees == 1
    assert found.unexplained < 0.001


def test_a_single_reading_in_each_cell_has_effects_and_no_intervals() -> None:
    found = effects(cells({("a",): (1.0,), ("b",): (3.0,)}, "f"))
    effect = found.parts["f",].effects["b",]
    assert (effect.value, effect.low, effect.high) == (pytest.approx(1.0), None, None)
    assert found.parts["f",].p is None


def test_what_cannot_be_analysed_says_why() -> None:
    with pytest.raises(FundoscopeError, match="no factor has two levels"):
        cells({("a",): (1.0, 2.0)}, "f")
    with pytest.raises(FundoscopeError, match="not a number"):
        cells({("a",): (1.0,), ("b",): (float("nan"),)}, "f")
