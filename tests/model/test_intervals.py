"""Intervals against published worked examples, and how often they hold what they promise to hold."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, norm
from sklearn.metrics import roc_auc_score

from fundoscope.model.intervals import auc, bootstrap, compare_aucs, proportion, wilson

# DeLong, DeLong and Clarke-Pearson (1988): will an operation help? Albumin, total protein, K-G score, outcome.
# As reprinted in the SAS/STAT 14.1 User's Guide, The LOGISTIC Procedure, example 72.8.
DELONG_1988 = """
3.0 5.8 10 0  3.2 6.3 5 1  3.9 6.8 3 1  2.8 4.8 6 0  3.2 5.8 3 1  0.9 4.0 5 0  2.5 5.7 8 0  1.6 5.6 5 1
3.8 5.7 5 1  3.7 6.7 6 1  3.2 5.4 4 1  3.8 6.6 6 1  4.1 6.6 5 1  3.6 5.7 5 1  4.3 7.0 4 1  3.6 6.7 4 0
2.3 4.4 6 1  4.2 7.6 4 0  4.0 6.6 6 0  3.5 5.8 6 1  3.8 6.8 7 1  3.0 4.7 8 0  4.5 7.4 5 1  3.7 7.4 5 1
3.1 6.6 6 1  4.1 8.2 6 1  4.3 7.0 5 1  4.3 6.5 4 1  3.2 5.1 5 1  2.6 4.7 6 1  3.3 6.8 6 0  1.7 4.0 7 0
3.7 6.1 5 1  3.3 6.3 7 1  4.2 7.7 6 1  3.5 6.2 5 1  2.9 5.7 9 0  2.1 4.8 7 1  2.8 6.2 8 0  4.0 7.0 7 1
3.3 5.7 6 1  3.7 6.9 5 1  3.6 6.6 5 1
"""


def alone(n):
    """Every photograph of a patient of its own."""
    return np.arange(n)


def delong_1988():
    albumin, protein, score, outcome = np.array(DELONG_1988.split(), float).reshape(-1, 4).T
    return outcome == 0, -albumin, -protein, score


# Newcombe, Stat Med 1998, 17:857, table I, method 3 (score method without continuity correction).
@pytest.mark.parametrize(
    ("hits", "n", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_matches_the_examples_of_newcombe_1998(hits, n, low, high):
    assert wilson(hits, n) == pytest.approx((low, high), abs=5e-5)


def test_delong_matches_the_example_of_delong_1988_as_sas_prints_it():
    positive, albumin, protein, score = delong_1988()
    for scores, expected in (
        (albumin, (0.7366, 0.5549, 0.9182)),
        (score, (0.7258, 0.5243, 0.9273)),
        (protein, (0.6478, 0.4518, 0.8439)),
    ):
        found = auc(positive, scores, alone(43), scale="plain")
        assert (found.value, found.low, found.high) == pytest.approx(expected, abs=5e-5)


def test_the_paired_difference_matches_the_example_of_delong_1988_as_sas_prints_it():
    positive, albumin, protein, score = delong_1988()
    found = compare_aucs(positive, albumin, score, alone(43))
    assert (found.difference.value, found.difference.low, found.difference.high, found.p) == pytest.approx(
        (0.0108, -0.1761, 0.1976, 0.9102), abs=5e-5
    )
    found = compare_aucs(positive, protein, score, alone(43))
    assert (found.difference.value, found.difference.low, found.difference.high, found.p) == pytest.approx(
        (-0.0780, -0.2830, 0.1271, 0.4561), abs=5e-5
    )


def test_delong_with_ties_matches_the_rating_data_of_hanley_and_mcneil_1982_as_stata_prints_it():
    # 109 CT images rated 1 to 5 (Radiology 143:29, table I); Stata's [R] roctab: 0.8932, 0.0307, 0.83295-0.95339.
    normal, abnormal = [33, 6, 6, 11, 2], [3, 2, 2, 11, 33]
    ratings = np.repeat(np.tile(np.arange(1.0, 6.0), 2), normal + abnormal)
    found = auc(np.repeat([False, True], [58, 51]), ratings, alone(109), scale="plain")
    assert found.value == pytest.approx(0.8932, abs=5e-5)
    assert (found.low, found.high) == pytest.approx((0.83295, 0.95339), abs=5e-6)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 6)), min_size=2, max_size=60))
def test_the_area_agrees_with_scikit_learn_whatever_the_ties(rows):
    positive, scores = np.array([r[0] for r in rows]), np.array([float(r[1]) for r in rows])
    found = auc(positive, scores, alone(len(rows)))
    if positive.all() or not positive.any():
        assert found.value is None
        assert "photograph here needs referral" in found.reason
    else:
        assert found.value == pytest.approx(roc_auc_score(positive, scores))
        assert 0 <= found.low <= found.value + 1e-12
        assert found.value - 1e-12 <= found.high <= 1


def test_a_perfect_separation_is_not_certainty():
    found = auc(np.repeat([False, True], 10), np.arange(20.0), alone(20))
    assert (found.value, found.high, found.method) == (1.0, 1.0, "Newcombe score")
    assert 0.75 < found.low < 0.9
    larger = auc(np.repeat([False, True], 1000), np.arange(2000.0), alone(2000))
    assert 0.99 < larger.low < 1


def test_one_patient_for_each_photograph_gives_delong_and_copies_of_a_photograph_add_nothing():
    rng = np.random.default_rng(1)
    positive = rng.random(300) < 0.4
    scores = rng.normal(positive * 1.5)
    once = auc(positive, scores, alone(300))
    twice = auc(np.tile(positive, 2), np.tile(scores, 2), np.tile(alone(300), 2))
    assert (twice.value, twice.low, twice.high) == pytest.approx((once.value, once.low, once.high), abs=1e-12)
    assert "by patient" in twice.method
    naive = auc(np.tile(positive, 2), np.tile(scores, 2), alone(600))
    assert naive.high - naive.low < 0.75 * (twice.high - twice.low)


def test_the_delong_interval_holds_the_true_area_as_often_as_it_says():
    rng, apart, holds = np.random.default_rng(2), 2.2, 0
    truth = norm.cdf(apart / np.sqrt(2))  # 0.940
    positive = np.repeat([False, True], [80, 40])
    for _ in range(2000):
        found = auc(positive, rng.normal(positive * apart), alone(120))
        holds += found.low <= truth <= found.high
    assert 0.935 < holds / 2000 < 0.97


def test_the_interval_by_patient_holds_the_true_area_where_the_naive_one_does_not():
    rng, apart, by_patient, naive = np.random.default_rng(3), 1.5, 0, 0
    truth = norm.cdf(apart / np.sqrt(2))
    patient = np.repeat(np.arange(60), 4)  # four photographs each, alike in grade and in how they look
    for _ in range(800):
        positive = (rng.random(60) < 0.5)[patient] ^ (rng.random(240) < 0.1)
        scores = positive * apart + np.sqrt(0.8) * rng.normal(size=60)[patient] + np.sqrt(0.2) * rng.normal(size=240)
        found, alike = auc(positive, scores, patient), auc(positive, scores, alone(240))
        by_patient += found.low <= truth <= found.high
        naive += alike.low <= truth <= alike.high
    assert 0.92 < by_patient / 800 < 0.98
    assert naive / 800 < 0.85


def test_wilson_holds_the_true_share_95_times_in_100_on_average():
    n, hits = 50, np.arange(51)
    low, high = np.array([wilson(x, n) for x in hits]).T
    shares = np.linspace(0.02, 0.98, 97)
    coverage = [binom.pmf(hits[(low <= p) & (p <= high)], n, p).sum() for p in shares]
    assert np.mean(coverage) == pytest.approx(0.95, abs=0.01)
    assert min(coverage) > 0.90


def test_a_share_by_patient_is_as_wide_as_its_patients_allow():
    hits = np.repeat(np.random.default_rng(4).random(100) < 0.7, 3)
    whose = np.repeat(np.arange(100), 3)
    found, naive = proportion(hits, whose, of="photographs"), proportion(hits, alone(300), of="photographs")
    assert (found.value, found.n) == (naive.value, 300)
    assert "design effect 3.0" in found.method
    assert (found.low, found.high) == pytest.approx(wilson(hits.sum() / 3, 100), abs=0.002)
    all_right = proportion(np.ones(6, bool), np.array([0, 0, 0, 1, 1, 1]), of="photographs")
    assert all_right.low == pytest.approx(wilson(2, 2)[0])
    assert proportion(np.zeros(0, bool), alone(0), of="photographs").reason == "no photographs"


def test_the_bootstrap_of_a_share_is_as_wide_as_wilson():
    hits = np.random.default_rng(5).random(400) < 0.8
    counts = np.stack([hits, ~hits], axis=1).astype(np.int64)
    found = bootstrap(counts, lambda c: c[:, 0] / c.sum(axis=1), n=400, seed=0, resamples=4000)
    assert (found.low, found.high) == pytest.approx(wilson(hits.sum(), 400), abs=0.006)
    again = bootstrap(counts, lambda c: c[:, 0] / c.sum(axis=1), n=400, seed=0, resamples=4000)
    assert again == found


@settings(max_examples=30)
@given(st.integers(0, 10_000))
def test_a_ranking_compared_with_itself_differs_by_nothing_and_order_only_changes_the_sign(seed):
    rng = np.random.default_rng(seed)
    positive = np.arange(40) < 15
    first, second = rng.normal(positive), rng.normal(positive)
    same = compare_aucs(positive, first, 2 * first + 1, alone(40))
    assert (same.difference.value, same.p) == (0, 1)
    there, back = compare_aucs(positive, first, second, alone(40)), compare_aucs(positive, second, first, alone(40))
    assert there.difference.value == pytest.approx(-back.difference.value)
    assert there.p == pytest.approx(back.p)
