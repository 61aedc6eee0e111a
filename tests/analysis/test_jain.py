"""Jain, The Art of Computer Systems Performance Analysis (1991): his worked examples, to the digits he prints.

Checked against a public reproduction of the book's text (chapters 17 to 23) and the course notes CS 5014 of Virginia
Tech on it. Chapter 18 is in test_effects.py. Left out: chapter 23's paging study, of which one reading is misprinted in
the reproduction at hand.
"""

from itertools import product

import pytest

from fundoscope.analysis.effects import Cells, Effects, cells_of, effects

Readings = dict[tuple[str, ...], tuple[float, ...]]


def cells(readings: Readings, *factors: str) -> Cells:
    values = [value for some in readings.values() for value in some]
    levels = [dict(zip(factors, key, strict=True)) for key, some in readings.items() for _ in some]
    known = {name: list(dict.fromkeys(key[i] for key in readings)) for i, name in enumerate(factors)}
    return cells_of(values, levels, known)


def squares(found: Effects, *factors: str) -> float:
    return found.parts[factors].sum_of_squares


def test_chapter_17_a_workstation_of_three_factors() -> None:
    """Example 17.3: MIPS by memory, cache and processors; q0 = 40, qA = 10, qB = 5, qC = 20, 5, 2, 3 and 1."""
    mips = (14, 46, 22, 58, 10, 50, 34, 86)  # cache, then memory, then processors vary
    keys = product(("1 kB", "2 kB"), ("4 MB", "16 MB"), ("1", "2"))
    readings: Readings = {(m, c, p): (float(y),) for (c, m, p), y in zip(keys, mips, strict=True)}
    found = effects(cells(readings, "memory", "cache", "processors"))
    high = {"memory": "16 MB", "cache": "2 kB", "processors": "2"}
    values = {term: part.effects[tuple(high[name] for name in term)].value for term, part in found.parts.items()}
    assert found.mean.value == pytest.approx(40)
    assert values == {
        ("memory",): pytest.approx(10),
        ("cache",): pytest.approx(5),
        ("processors",): pytest.approx(20),
        ("memory", "cache"): pytest.approx(5),
        ("memory", "processors"): pytest.approx(2),
        ("cache", "processors"): pytest.approx(3),
        ("memory", "cache", "processors"): pytest.approx(1),
    }
    # 800, 200, 3200, 200, 32, 72 and 8 of 4512: 18, 4, 71, 4, 1, 2 and 0 per cent
    percents = [round(100 * part.share) for part in found.parts.values()]
    assert percents == [18, 4, 71, 4, 1, 2, 0]


CODE_SIZES: Readings = {
    ("R",): (144, 120, 176, 288, 144),
    ("V",): (101, 144, 211, 288, 72),
    ("Z",): (130, 180, 141, 374, 302),
}


def test_chapter_20_code_sizes_of_three_processors() -> None:
    """Examples 20.1 to 20.6: effects -13.3, -24.5 and 37.7 on 187.7; deviations 22.9 and 32.4; 89.6 % is error."""
    found = effects(cells(CODE_SIZES, "processor"))
    values = {level: effect.value for (level,), effect in found.parts["processor",].effects.items()}
    assert found.mean.value == pytest.approx(187.7, abs=0.05)
    assert values == pytest.approx({"R": -13.3, "V": -24.5, "Z": 37.7}, abs=0.05)
    assert found.unexplained == pytest.approx(0.896, abs=0.0005)
    assert found.residual_degrees == 12
    # His intervals are of 90 %, with t = 1.782; ours of 95 %, with t = 2.179.
    assert found.mean.high is not None
    assert found.mean.high - found.mean.value == pytest.approx(2.179 * 22.9, rel=2e-3)
    effect = found.parts["processor",].effects["Z",]
    assert effect.high is not None
    assert effect.high - effect.value == pytest.approx(2.179 * 32.4, rel=2e-3)


def test_chapter_20_unequal_numbers_of_readings() -> None:
    """Example 20.7: sums of squares 2220.38 and 39,113.87, 5.37 and 94.63 %, F = 0.26; effects 2.15, 13.75, -21.92.

    His effects are about the mean of all readings, ours about the mean of the three processors: they differ alike.
    """
    fewer: Readings = {
        ("R",): CODE_SIZES["R",],
        ("V",): CODE_SIZES["V",][:4],
        ("Z",): CODE_SIZES["Z",][:3],
    }
    found = effects(cells(fewer, "processor"))
    part = found.parts["processor",]
    assert part.sum_of_squares == pytest.approx(2220.38, abs=0.005)
    assert found.residual_deviation is not None
    assert found.residual_deviation**2 * 9 == pytest.approx(39113.87, abs=0.005)
    assert (part.degrees, found.residual_degrees) == (2, 9)
    assert (part.share, found.unexplained) == (pytest.approx(0.0537, abs=5e-5), pytest.approx(0.9463, abs=5e-5))
    assert part.f == pytest.approx(0.26, abs=0.005)
    values = [part.effects[level,].value for level in "RVZ"]
    assert [value - values[0] for value in values] == pytest.approx([0, 13.75 - 2.15, -21.92 - 2.15], abs=0.01)


def test_chapter_21_caches_by_workload_without_repetitions() -> None:
    """Examples 21.1 to 21.5: 72.2 ms; two caches -21.2, one -20.2, none 41.4; 95.9, 2.3 and 1.8 %; F 217.2 and 2.6."""
    times = {
        "ASM": (54, 55, 106),
        "TECO": (60, 60, 123),
        "SIEVE": (43, 43, 120),
        "DHRYSTONE": (49, 52, 111),
        "SORT": (49, 50, 108),
    }
    readings: Readings = {
        (cache, workload): (float(ms),)
        for workload, row in times.items()
        for cache, ms in zip(("two", "one", "none"), row, strict=True)
    }
    found = effects(cells(readings, "caches", "workload"), order=1)
    caches, workload = found.parts["caches",], found.parts["workload",]
    assert found.mean.value == pytest.approx(72.2)
    assert {level: effect.value for (level,), effect in caches.effects.items()} == pytest.approx(
        {"two": -21.2, "one": -20.2, "none": 41.4}
    )
    assert workload.effects["ASM",].value == pytest.approx(-0.5, abs=0.05)
    assert workload.effects["TECO",].value == pytest.approx(8.8, abs=0.05)
    assert squares(found, "caches") == pytest.approx(12857.20, abs=0.005)
    assert squares(found, "workload") == pytest.approx(308.40, abs=0.005)
    assert found.residual_deviation is not None
    assert found.residual_deviation**2 == pytest.approx(29.60, abs=0.005)
    assert (caches.degrees, workload.degrees, found.residual_degrees) == (2, 4, 8)
    assert (caches.f, workload.f) == (pytest.approx(217.2, abs=0.05), pytest.approx(2.6, abs=0.05))
    shares = [caches.share, workload.share, found.unexplained]
    assert [round(100 * share, 1) for share in shares] == [95.9, 2.3, 1.8]


# Table 22.2, log10 of code sizes: three readings of each workload (rows) on each processor.
LOG_SIZES = {
    "I": ((3.8455, 4.0807, 4.4633, 3.9958), (3.8191, 4.0717, 4.4321, 3.9641), (3.8634, 4.1164, 4.4779, 4.0015)),
    "J": ((3.5061, 3.7095, 3.9523, 3.6184), (3.4598, 3.7507, 3.9066, 3.6291), (3.5469, 3.6635, 3.9857, 3.6091)),
    "K": ((3.6727, 3.9735, 4.2953, 3.8506), (3.6933, 3.9510, 4.2866, 3.8440), (3.6498, 3.9984, 4.3247, 3.8246)),
    "L": ((3.7082, 3.7492, 4.3491, 3.7288), (3.7410, 3.7743, 4.3636, 3.7585), (3.6761, 3.7127, 4.3313, 3.6959)),
    "M": ((3.8330, 4.0879, 4.4558, 3.9914), (3.8056, 4.0790, 4.4289, 3.9688), (3.8578, 4.1131, 4.4851, 4.0100)),
}


def test_chapter_22_code_sizes_with_repetitions_on_the_log_scale() -> None:
    """Tables 22.3 and 22.4: effects and interactions, computed there from means of four decimals."""
    readings: Readings = {
        (processor, workload): tuple(row[i] for row in rows)
        for workload, rows in LOG_SIZES.items()
        for i, processor in enumerate("WXYZ")
    }
    found = effects(cells(readings, "processor", "workload"))
    processors = {level: effect.value for (level,), effect in found.parts["processor",].effects.items()}
    workloads = {level: effect.value for (level,), effect in found.parts["workload",].effects.items()}
    assert found.mean.value == pytest.approx(3.9423, abs=1e-4)
    assert processors == pytest.approx({"W": -0.2304, "X": -0.0202, "Y": 0.3603, "Z": -0.1096}, abs=1.5e-4)
    expected = {"I": 0.1520, "J": -0.2475, "K": 0.0047, "L": -0.0599, "M": 0.1507}
    assert workloads == pytest.approx(expected, abs=1.5e-4)
    printed = {
        "I": (-0.0212, 0.0155, 0.0032, 0.0024),
        "J": (0.0399, 0.0333, -0.1069, 0.0337),
        "K": (-0.0447, 0.0475, -0.0051, 0.0023),
        "L": (0.0564, -0.1168, 0.1054, -0.0450),
        "M": (-0.0305, 0.0205, 0.0033, 0.0066),
    }
    both = found.parts["processor", "workload"].effects
    for workload, row in printed.items():
        assert [both[processor, workload].value for processor in "WXYZ"] == pytest.approx(row, abs=3e-4)
    degrees = [part.degrees for part in found.parts.values()]
    assert (degrees, found.residual_degrees) == ([3, 4, 12], 40)
