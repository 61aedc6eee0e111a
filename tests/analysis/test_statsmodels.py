"""statsmodels and SciPy as oracles, on data that nobody chose."""

from itertools import combinations, product

import numpy as np
import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.formula.api import ols
from statsmodels.stats.anova import anova_lm
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestIndPower

from fundoscope.analysis.compare import detectable
from fundoscope.analysis.effects import cells_of, effects
from fundoscope.analysis.model import box_cox
from fundoscope.analysis.summaries import holm


@given(st.lists(st.integers(2, 3), min_size=2, max_size=3), st.integers(0, 10_000))
@settings(max_examples=15, deadline=None)
def test_terms_of_unbalanced_designs_are_those_of_type_two(sizes: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = [f"f{i}" for i in range(len(sizes))]
    rows, values = [], []
    for key in product(*(range(n) for n in sizes)):
        for _ in range(rng.integers(1, 5)):
            rows.append(dict(zip(names, map(str, key), strict=True)))
            values.append(float(rng.normal(sum(key) + key[0] * key[1], 1)))
    rows.append(rows[0])  # so that there is a residual
    values.append(float(rng.normal(0, 1)))
    found = effects(
        cells_of(values, rows, {name: [str(i) for i in range(n)] for name, n in zip(names, sizes, strict=True)})
    )
    frame = pandas.DataFrame(rows).assign(y=values)
    formula = "y ~ " + " * ".join(f"C({name}, Sum)" for name in names)
    fitted = ols(formula, frame).fit()
    table = anova_lm(fitted, typ=2)
    assert found.residual_degrees == table.df["Residual"]
    assert found.mean.value == pytest.approx(fitted.params["Intercept"])
    low, high = fitted.conf_int().loc["Intercept"]
    assert (found.mean.low, found.mean.high) == (pytest.approx(low), pytest.approx(high))
    for size in range(1, len(names) + 1):
        for term in combinations(names, size):
            row = table.loc[":".join(f"C({name}, Sum)" for name in term)]
            part = found.parts[term]
            assert part.sum_of_squares == pytest.approx(row["sum_sq"], rel=1e-7, abs=1e-9)
            assert (part.degrees, part.f, part.p) == (
                row["df"],
                pytest.approx(row["F"], rel=1e-6, abs=1e-9),
                pytest.approx(row["PR(>F)"], rel=1e-6, abs=1e-12),
            )


def test_with_whole_cells_missing_effects_are_those_of_the_fitted_model() -> None:
    """Two frameworks without a GPU: the additive model's coefficients, intervals too."""
    rng = np.random.default_rng(7)
    rows, values = [], []
    for device, framework in [("cpu", "a"), ("cpu", "b"), ("cpu", "c"), ("gpu", "b")]:
        for _ in range(4):
            rows.append({"device": device, "framework": framework})
            values.append(10.0 - 5 * (device == "gpu") + "abc".index(framework) + float(rng.normal(0, 0.1)))
    found = effects(cells_of(values, rows, {"device": ["cpu", "gpu"], "framework": ["a", "b", "c"]}))
    fitted = ols("y ~ C(device, Sum) + C(framework, Sum)", pandas.DataFrame(rows).assign(y=values)).fit()
    assert found.not_estimable == (("device", "framework"),)
    effect = found.parts["framework",].effects["a",]
    assert effect.value == pytest.approx(fitted.params["C(framework, Sum)[S.a]"])
    low, high = fitted.conf_int().loc["C(framework, Sum)[S.a]"]
    assert (effect.low, effect.high) == (pytest.approx(low), pytest.approx(high))


@pytest.mark.parametrize("n", [1, 2, 7, 40])
def test_holms_adjustment_is_that_of_multipletests(n: int) -> None:
    p = np.random.default_rng(n).uniform(0, 0.2, n).tolist()
    expected = multipletests(p, method="holm")[1]
    assert list(holm({str(i): value for i, value in enumerate(p)}).values()) == pytest.approx(list(expected))


@pytest.mark.parametrize(("repetitions", "power", "alpha"), [(3, 0.8, 0.05), (5, 0.8, 0.05), (10, 0.9, 0.01)])
def test_what_two_cells_can_show_is_what_the_power_of_a_t_test_says(
    repetitions: int, power: float, alpha: float
) -> None:
    size = TTestIndPower().solve_power(nobs1=repetitions, power=power, alpha=alpha)
    variation = 0.03
    found = detectable(variation, repetitions, 1, 2, power=power, alpha=alpha)
    assert np.log(found) / np.sqrt(np.log1p(variation**2)) == pytest.approx(size, rel=1e-5)


def test_the_best_power_and_its_interval_are_scipys_for_a_single_cell() -> None:
    values = stats.gamma(3, scale=20).rvs(400, random_state=np.random.default_rng(3))
    _, power, (low, high) = stats.boxcox(values, alpha=0.05)
    found = box_cox(values, np.zeros(len(values), np.int64))
    assert found is not None
    assert (found.value, found.low, found.high) == (
        pytest.approx(power, abs=1e-4),
        pytest.approx(low, abs=1e-4),
        pytest.approx(high, abs=1e-4),
    )
