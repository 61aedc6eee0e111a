import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fundoscope.errors import FundoscopeError
from fundoscope.model.operating import choose_operating_points
from fundoscope.model.predictions import Predictions


def tuning(positive, scores, gradable=None):
    n = len(scores)
    return Predictions(
        id=np.array([f"{i:016x}" for i in range(n)]),
        patient=np.full(n, ""),
        eye=np.full(n, ""),
        grade=np.where(positive, 3, 0),
        split=np.full(n, "tune"),
        gradable=np.ones(n, bool) if gradable is None else np.array(gradable),
        probabilities=None,
        referral=np.array(scores, float),
    )


scores = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.25, 0.5, 1.0]))
targets = st.sampled_from([0.5, 0.8, 0.9, 0.95, 0.99, 1.0])


@given(st.lists(st.tuples(st.booleans(), scores), min_size=2, max_size=40), targets, targets)
def test_the_points_are_the_best_thresholds_that_keep_their_promises(rows, sensitivity, specificity):
    positive, referral = np.array([r[0] for r in rows]), np.array([r[1] for r in rows])
    if positive.all() or not positive.any():
        return
    points = choose_operating_points(tuning(positive, referral), sensitivity=sensitivity, specificity=specificity)
    high_sensitivity, high_specificity = (point.threshold for point in points)
    # Every decision a threshold can make on these scores, by brute force.
    candidates = [*np.unique(referral), np.nextafter(1, 2)]
    sensible = [t for t in candidates if (referral[positive] >= t).mean() >= sensitivity - 1e-12]
    specific = [t for t in candidates if (referral[~positive] < t).mean() >= specificity - 1e-12]
    low, high = sorted((max(sensible), min(specific)))  # crossed where every threshold between keeps both promises
    assert ((referral >= high_sensitivity) == (referral >= low)).all()
    assert ((referral >= high_specificity) == (referral >= high)).all()
    assert (referral[positive] >= high_sensitivity).mean() >= sensitivity - 1e-12
    assert (referral[~positive] < high_specificity).mean() >= specificity - 1e-12


def test_a_network_that_keeps_both_promises_is_more_sensitive_at_its_high_sensitivity_point():
    positive = np.arange(40) >= 20
    referral = np.linspace(0, 1, 40)
    points = choose_operating_points(tuning(positive, referral), sensitivity=0.8, specificity=0.8)
    assert points[0].threshold < 0.5 < points[1].threshold


def test_a_threshold_lies_half_way_between_two_scores():
    positive = np.array([False, False, False, True, True])
    points = choose_operating_points(tuning(positive, [0.1, 0.2, 0.3, 0.6, 0.9]), sensitivity=1, specificity=1)
    assert [point.threshold for point in points] == pytest.approx([0.45, 0.45])
    assert [(point.name, point.target, point.measure) for point in points] == [
        ("high_sensitivity", 1, "sensitivity"),
        ("high_specificity", 1, "specificity"),
    ]


def test_ungradable_photographs_do_not_move_a_threshold():
    positive, referral = [True, True, False, True], [0.9, 0.7, 0.2, 0.01]
    (point, _) = choose_operating_points(tuning(positive, referral, [True, True, True, False]), sensitivity=1)
    assert point.threshold == pytest.approx(0.45)


def test_a_tuning_part_of_one_class_is_an_error_with_a_hint():
    with pytest.raises(FundoscopeError, match="no gradable photograph that needs referral") as caught:
        choose_operating_points(tuning(np.zeros(3, bool), [0.1, 0.2, 0.3]))
    assert "both" in caught.value.hint
