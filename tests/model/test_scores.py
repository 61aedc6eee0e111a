import json
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, brier_score_loss, cohen_kappa_score, confusion_matrix, roc_curve

from fundoscope.data.grades import grade_of
from fundoscope.errors import FundoscopeError
from fundoscope.model import curves
from fundoscope.model.intervals import wilson
from fundoscope.model.operating import OperatingPoint
from fundoscope.model.predictions import Predictions
from fundoscope.model.scores import (
    confusion,
    quadratic_kappa,
    quick_auc,
    quick_kappa,
    score,
    score_elsewhere,
    score_run,
)

POINTS = (
    OperatingPoint("high_sensitivity", 0.3, 0.95, "sensitivity"),
    OperatingPoint("high_specificity", 0.7, 0.95, "specificity"),
)


def predictions(grade, referral=None, *, patient=None, eye=None, gradable=None, split="test", probabilities=None):
    n = len(grade)
    if probabilities is not None and referral is None:
        referral = np.asarray(probabilities)[:, 2:].sum(axis=1)
    return Predictions(
        id=np.array([f"{i:016x}" for i in range(n)], dtype=np.str_),
        patient=np.full(n, "") if patient is None else np.array(patient, dtype=np.str_),
        eye=np.full(n, "") if eye is None else np.array(eye, dtype=np.str_),
        grade=np.array(grade, dtype=np.int64),
        split=np.full(n, split) if isinstance(split, str) else np.array(split),
        gradable=np.ones(n, bool) if gradable is None else np.array(gradable, bool),
        probabilities=None if probabilities is None else np.array(probabilities, float),
        referral=np.array(referral, float),
    )


def plausible(n, *, seed=0, per_patient=1, ungradable=0.05):
    """Grades as a screening set has them and probabilities that follow them, more or less."""
    rng = np.random.default_rng(seed)
    grade = rng.choice(5, n, p=[0.5, 0.1, 0.25, 0.06, 0.09])
    seen = grade + rng.normal(0, 0.8, n)
    p = np.exp(-1.5 * (seen[:, None] - np.arange(5)) ** 2)
    patient = [f"p{i // per_patient:05d}" for i in range(n)] if per_patient > 1 else None
    eye = ["left" if i % 2 else "right" for i in range(n)] if per_patient > 1 else None
    return predictions(
        grade,
        probabilities=p / p.sum(axis=1, keepdims=True),
        patient=patient,
        eye=eye,
        gradable=rng.random(n) > ungradable,
        split=rng.choice(["tune", "test"], n),
    )


def test_quadratic_kappa_matches_the_mammograms_of_boyd_1982_as_stata_prints_them():
    # 85 xeromammograms read twice, normal to cancer; Stata's [R] kappa, kap rada radb, wgt(w2): 0.6714.
    table = np.zeros((5, 5))
    table[:4, :4] = [[21, 12, 0, 0], [4, 17, 1, 0], [3, 9, 15, 2], [0, 0, 0, 1]]
    assert quadratic_kappa(table.reshape(-1)) == pytest.approx(0.6714, abs=5e-5)


grade_pairs = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=50)


@given(grade_pairs)
def test_kappa_and_confusion_agree_with_scikit_learn_on_any_grades(pairs):
    true, given_ = np.array(pairs).T
    assert (confusion(true, given_) == confusion_matrix(true, given_, labels=range(5))).all()
    kappa = quick_kappa(true, given_)
    if len({*true, *given_}) == 1:
        assert np.isnan(kappa)
    else:
        assert kappa == pytest.approx(cohen_kappa_score(true, given_, labels=range(5), weights="quadratic"), abs=1e-12)


@given(st.lists(st.lists(st.integers(0, 20), min_size=5, max_size=5).filter(any), min_size=1, max_size=8))
def test_the_grade_is_the_median_grade(rows):
    p = np.array(rows, float) / np.array(rows, float).sum(axis=1, keepdims=True)
    by_definition = [max([0, *(k for k in range(1, 5) if sum(row[: k - 1 : -1]) >= 0.5 - 1e-15)]) for row in p.tolist()]
    near = np.abs(np.cumsum(p[:, ::-1], axis=1) - 0.5).min(axis=1) < 1e-9  # a matter of rounding
    assert ((grade_of(p) == by_definition) | near).all()
    assert grade_of(np.array([0.2, 0.1, 0.2, 0.5, 0.0])) == 3
    assert grade_of(np.array([0.45, 0.0, 0.1, 0.0, 0.45])) == 2


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 1)), min_size=2, max_size=60))
def test_brier_and_the_roc_curve_agree_with_scikit_learn(rows):
    positive, scores = np.array([r[0] for r in rows]), np.array([r[1] for r in rows])
    found = curves.calibration(positive, scores, np.arange(len(rows)))
    assert found["brier"] == pytest.approx(brier_score_loss(positive, scores, labels=[False, True], pos_label=True))
    assert sum(part["n"] for part in found["bins"]) == len(rows)
    assert 0 <= found["ece"] <= 1
    if positive.any() and not positive.all():
        theirs = roc_curve(positive, scores, drop_intermediate=False)
        assert np.array(curves.roc_curve(positive, scores)) == pytest.approx(np.array(theirs[:2]))


def test_bins_of_the_reliability_curve_are_equal_in_size_and_never_split_equal_scores():
    rng = np.random.default_rng(0)
    scores = rng.random(1000)
    found = curves.calibration(rng.random(1000) < scores, scores, np.arange(1000))
    assert [part["n"] for part in found["bins"]] == [100] * 10
    assert found["ece"] < 0.05  # calibrated by construction
    tied = curves.calibration(rng.random(1000) < 0.5, np.full(1000, 0.5), np.arange(1000))
    assert [part["n"] for part in tied["bins"]] == [1000]


def test_counts_and_rates_at_a_point_are_those_of_a_table_made_by_hand():
    made = predictions([0, 0, 0, 1, 2, 3, 4, 4], [0.1, 0.2, 0.3, 0.8, 0.25, 0.5, 0.9, 0.95])
    found = score(made, POINTS)["image"]["gradable"]["operating_points"]["high_sensitivity"]
    assert [found[name] for name in ("tp", "fp", "tn", "fn")] == [3, 2, 2, 1]  # 0.3 itself is referred
    rates = [found[name]["value"] for name in ("sensitivity", "specificity", "ppv", "npv")]
    assert rates == pytest.approx([3 / 4, 2 / 4, 3 / 5, 2 / 3])
    assert (found["ppv"]["low"], found["ppv"]["high"]) == pytest.approx(wilson(3, 5))


def test_an_ungradable_photograph_is_left_out_or_referred_or_ignored():
    made = predictions([0, 0, 3, 3], [0.1, 0.2, 0.9, 0.1], gradable=[True, False, True, False])
    image = score(made, POINTS)["image"]
    point = {way: image[way]["operating_points"]["high_specificity"] for way in image}
    assert [image[way]["n"] for way in ("gradable", "all", "ungated")] == [2, 4, 4]
    assert [point[way]["sensitivity"]["value"] for way in ("gradable", "all", "ungated")] == [1, 1, 0.5]
    assert [point[way]["specificity"]["value"] for way in ("gradable", "all", "ungated")] == [1, 0.5, 1]
    # As a ranking: both ungradable ones tie at the top.
    assert image["all"]["auc"]["value"] == pytest.approx((1 + 0 + 1 + 0.5) / 4)
    assert image["all"]["calibration"] is None


def test_the_worse_eye_decides_for_the_patient():
    made = predictions(
        [0, 1, 2, 0, 0, 0],
        [0.1, 0.2, 0.6, 0.1, 0.4, 0.2],
        patient=["a", "a", "a", "b", "b", "b"],
        eye=["left", "left", "right", "left", "right", "right"],
    )
    found = score(made, POINTS)
    assert [found[level]["gradable"]["n"] for level in ("image", "eye", "patient")] == [6, 4, 2]
    assert [found[level]["gradable"]["n_positive"] for level in ("image", "eye", "patient")] == [1, 1, 1]
    patient = found["patient"]["gradable"]["operating_points"]
    assert [patient["high_sensitivity"][name] for name in ("tp", "fp")] == [1, 1]  # b: 0.4 in one photograph
    assert [patient["high_specificity"][name] for name in ("fn", "tn")] == [1, 1]
    assert found["n_patients"] == 2


def test_one_ungradable_photograph_refers_its_patient():
    made = predictions([0, 0, 0], [0.1, 0.1, 0.1], patient=["a", "a", "b"], eye=["left", "right", "left"])
    made = Predictions(**{**vars(made), "gradable": np.array([True, False, True])})
    patient = score(made, POINTS)["patient"]
    assert patient["all"]["operating_points"]["high_specificity"]["fp"] == 1
    assert patient["gradable"]["operating_points"]["high_specificity"]["fp"] == 0


def test_levels_without_identity_are_null():
    found = score(plausible(100), POINTS)
    assert (found["eye"], found["patient"], found["n_patients"]) == (None, None, None)


def test_grades_agree_with_scikit_learn_and_their_intervals_hold_the_value():
    made = plausible(600, per_patient=2)
    kept = made.select(made.gradable)
    image = score(made, POINTS)["image"]["gradable"]
    given_ = grade_of(kept.probabilities)
    assert image["kappa"]["value"] == pytest.approx(cohen_kappa_score(kept.grade, given_, weights="quadratic"))
    assert image["accuracy"]["value"] == pytest.approx(accuracy_score(kept.grade, given_))
    for name in ("kappa", "accuracy"):
        assert image[name]["low"] < image[name]["value"] < image[name]["high"]
        assert "patients" in image[name]["method"]
    assert quick_auc(kept.grade >= 2, kept.referral) == pytest.approx(image["auc"]["value"])


def test_referral_by_grade_adds_up_to_the_sensitivity():
    image = score(plausible(500), POINTS)["image"]["gradable"]
    point = image["operating_points"]["high_sensitivity"]
    rows = image["per_grade_sensitivity"]
    hits = [row["n"] * row["referred"]["high_sensitivity"]["value"] for row in rows]
    assert (sum(hits[2:]), sum(hits[:2])) == pytest.approx((point["tp"], point["fp"]))


def test_a_referral_head_has_no_kappa_and_says_so():
    image = score(predictions([0, 2, 3, 1], [0.1, 0.8, 0.9, 0.2]), POINTS)["image"]["gradable"]
    assert image["kappa"]["value"] is None
    assert image["kappa"]["reason"] == "the model answers referral only, not grades"
    assert image["confusion"] is None


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(0, 12))
def test_whatever_the_predictions_the_scores_are_json_without_nan(data, n):
    draw = data.draw
    weights = [draw(st.lists(st.integers(0, 9), min_size=5, max_size=5).filter(any)) for _ in range(n)]
    p = np.array(weights, float).reshape(n, 5)
    made = predictions(
        [draw(st.integers(0, 4)) for _ in range(n)],
        referral=[draw(st.floats(0, 1)) for _ in range(n)],
        probabilities=p / p.sum(axis=1, keepdims=True) if draw(st.booleans()) else None,
        patient=[draw(st.sampled_from(["", "a", "b"])) for _ in range(n)],
        eye=[draw(st.sampled_from(["", "left", "right"])) for _ in range(n)],
        gradable=[draw(st.booleans()) for _ in range(n)],
    )
    text = json.dumps(score(made, POINTS, resamples=50), allow_nan=False)
    for estimate in estimates(json.loads(text)):
        assert (estimate["value"] is None) <= bool(estimate["reason"])
        if estimate["low"] is not None:
            assert estimate["low"] <= estimate["value"] + 1e-9
            assert estimate["value"] <= estimate["high"] + 1e-9


def estimates(node):
    if isinstance(node, dict):
        if "method" in node:
            yield node
        for child in node.values():
            yield from estimates(child)
    elif isinstance(node, list):
        for child in node:
            yield from estimates(child)


def test_a_run_is_scored_at_thresholds_that_only_its_tuning_part_chose():
    made = plausible(800, per_patient=2)
    found = score_run(made, sensitivity=0.9, specificity=0.9)
    changed = Predictions(**{**vars(made), "referral": np.where(made.split == "test", 0.5, made.referral)})
    assert score_run(changed, sensitivity=0.9, specificity=0.9)["operating_points"] == found["operating_points"]
    tune = found["tune"]["image"]["gradable"]["operating_points"]
    assert tune["high_sensitivity"]["sensitivity"]["value"] >= 0.9
    assert tune["high_specificity"]["specificity"]["value"] >= 0.9
    points = [OperatingPoint(**point) for point in found["operating_points"]]
    assert score_elsewhere(made.of("test"), points)["test"] == found["test"]


def test_two_thousand_photographs_and_resamples_take_less_than_two_seconds():
    made = plausible(2000, per_patient=3)
    began = time.process_time()
    score(made, POINTS, resamples=2000)
    assert time.process_time() - began < 2


def test_reading_predictions_back_gives_what_was_written(tmp_path):
    for made in (plausible(50, per_patient=2), predictions([0, 3], [0.125, 1 / 3])):
        made.write_csv(tmp_path / "predictions.csv")
        back = Predictions.read_csv(tmp_path / "predictions.csv")
        for name, value in vars(made).items():
            assert np.array_equal(getattr(back, name), value) if value is not None else getattr(back, name) is None
    header = (tmp_path / "predictions.csv").read_text().splitlines()[0]
    assert header == "id,patient,eye,grade,split,gradable,p0,p1,p2,p3,p4,referral"


def test_predictions_that_cannot_be_read_are_errors_with_a_hint(tmp_path):
    with pytest.raises(FundoscopeError, match="there is no file") as caught:
        Predictions.read_csv(tmp_path / "predictions.csv")
    assert "fundoscope evaluate" in caught.value.hint
    (tmp_path / "predictions.csv").write_text("id,grade\nx,2\n")
    with pytest.raises(FundoscopeError, match="not a table of predictions"):
        Predictions.read_csv(tmp_path / "predictions.csv")
    with pytest.raises(FundoscopeError, match="is not a number"):
        predictions([0, 3], [0.5, np.nan])
