"""NIST's Statistical Reference Datasets, one-way analysis of variance, against their certified values.

SmLs data are made by a rule: nine treatments of 21 readings, each about a centre and 0.1 to either side of it; the sets
differ in how many leading digits all readings share. Certified are the sums for the decimal numbers; a double keeps of
a reading about 1e12 the nearest 1.2e-4, so that no arithmetic on doubles has more than four digits of SmLs07 right, ten
of SmLs04 or AtmWtAg. Ours has as many as exact arithmetic on the same doubles.
"""

from fractions import Fraction

import pytest

from fundoscope.analysis.effects import Cells, cells_of, effects

TENTHS = (4, 3, 5, 3, 5, 3, 5, 3, 5)  # where each treatment is centred
SILVER = {
    "1": (
        *(1568, 1465, 1572, 1785, 1446, 1903, 1526, 1494, 1616, 1587, 1519, 1486),
        *(1419, 1569, 1508, 1672, 1385, 1518, 1662, 1424, 1360, 1333, 1610, 1477),
    ),
    "2": (
        *(1079, 1344, 1513, 1197, 1604, 1385, 1642, 1365, 1151, 1082, 1517, 1448),
        *(1198, 1482, 1334, 1609, 1101, 1512, 1469, 1360, 1254, 1261, 1450, 1368),
    ),
}  # AgWt = 107.868…: the last four digits


def one_factor(readings: dict[str, list[float]]) -> Cells:
    values = [value for some in readings.values() for value in some]
    levels = [{"treatment": name} for name, some in readings.items() for _ in some]
    return cells_of(values, levels, {"treatment": list(readings)})


def simon_lesage(leading: str) -> dict[str, list[float]]:
    """Read from decimal texts, as the files have them: 1000000.4."""
    steps = [0, *(-1, 1) * 10]
    return {str(i): [float(f"{leading}.{tenths + step}") for step in steps] for i, tenths in enumerate(TENTHS, 1)}


@pytest.mark.parametrize(
    ("leading", "digits"),
    [("1", 14), ("1000000", 10), ("1000000000000", 4)],
    ids=["SmLs01", "SmLs04", "SmLs07"],
)
def test_sums_of_squares_are_certified_to_the_digits_that_doubles_keep(leading: str, digits: int) -> None:
    found = effects(one_factor(simon_lesage(leading)))
    part = found.parts["treatment",]
    assert (part.degrees, found.residual_degrees) == (8, 180)
    assert found.residual_deviation is not None
    within = found.residual_deviation**2 * found.residual_degrees
    assert part.sum_of_squares == pytest.approx(1.68, rel=10**-digits)
    assert within == pytest.approx(1.80, rel=10**-digits)
    assert part.f == pytest.approx(21.0, rel=10**-digits)
    assert part.share == pytest.approx(4.82758620689655e-01, rel=10**-digits)


@pytest.mark.parametrize("leading", ["1", "1000000", "1000000000000"], ids=["SmLs01", "SmLs04", "SmLs07"])
def test_nothing_is_lost_beyond_what_doubles_lose(leading: str) -> None:
    readings = simon_lesage(leading)
    means = [sum(map(Fraction, some)) / 21 for some in readings.values()]
    between = 21 * sum((mean - sum(means) / 9) ** 2 for mean in means)
    within = sum((Fraction(y) - mean) ** 2 for some, mean in zip(readings.values(), means, strict=True) for y in some)
    found = effects(one_factor(readings))
    assert found.residual_deviation is not None
    assert found.parts["treatment",].sum_of_squares == pytest.approx(float(between), rel=1e-13)
    assert found.residual_deviation**2 * 180 == pytest.approx(float(within), rel=1e-13)


def test_the_atomic_weight_of_silver_has_ten_digits_right() -> None:
    """AtmWtAg: Powell, Murphy and Gramlich (1982)."""
    found = effects(one_factor({name: [float(f"107.868{last:04d}") for last in some] for name, some in SILVER.items()}))
    part = found.parts["treatment",]
    assert found.residual_deviation is not None
    assert (part.degrees, found.residual_degrees) == (1, 46)
    assert part.sum_of_squares == pytest.approx(3.63834187500000e-09, rel=1e-10)
    assert found.residual_deviation == pytest.approx(1.51048314446410e-05, rel=1e-10)
    assert part.f == pytest.approx(1.59467335677930e01, rel=1e-10)
