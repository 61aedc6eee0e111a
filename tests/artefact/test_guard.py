"""The guard's statistics: laws, other people's numbers, and how often its bound is right."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from fundoscope.artefact.artefact import OperatingPoint
from fundoscope.artefact.guard import Guard, judge, rate_difference, tango
from fundoscope.data.grades import grade_of
from fundoscope.errors import FundoscopeError
from fundoscope.model.intervals import bootstrap
from fundoscope.model.predictions import Predictions
from fundoscope.model.scores import quick_kappa

HALF = OperatingPoint("half", 0.5, 0.95, "sensitivity")
Z = 1.959963984540054


def answers(
    grade: NDArray[np.int64],
    referred: NDArray[np.bool_],
    *,
    patient: NDArray[np.str_] | None = None,
    gradable: NDArray[np.bool_] | None = None,
    given: NDArray[np.int64] | None = None,
) -> Predictions:
    n = len(grade)
    probabilities = None if given is None else np.eye(5)[given]
    return Predictions(
        id=np.array([f"{i:016x}" for i in range(n)]),
        patient=np.full(n, "") if patient is None else patient,
        eye=np.full(n, ""),
        grade=grade,
        split=np.full(n, "test"),
        gradable=np.ones(n, bool) if gradable is None else gradable,
        probabilities=probabilities,
        referral=np.where(referred, 0.9, 0.1),
    )


def photographs(positives: int, negatives: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Grades 2, 3, 4, 2 … and 0, 1, 0 …; every tenth answered wrongly."""
    grade = np.concatenate([np.arange(positives) % 3 + 2, np.arange(negatives) % 2])
    return grade, (grade >= 2) ^ (np.arange(len(grade)) % 10 == 0)


def judged(before: Predictions, after: Predictions, **options: float) -> Guard:
    return judge(before, after, [HALF], referral_from=2, **options)  # type: ignore[arg-type]


def test_an_identical_model_passes_with_a_difference_of_nothing() -> None:
    grade, referred = photographs(300, 200)
    before = answers(grade, referred, given=np.where(referred, 2, 0))
    guard = judged(before, before)
    assert guard.passed
    assert [(d.measure, d.value, d.verdict) for d in guard.differences] == [
        ("sensitivity", 0.0, "non-inferior"),
        ("specificity", 0.0, "non-inferior"),
        ("kappa", 0.0, "non-inferior"),
    ]
    # Tango's bound where nothing flips, in closed form: -z²/(n + z²).
    assert [d.low for d in guard.differences[:2]] == pytest.approx([-(Z**2) / (n + Z**2) for n in (300, 200)])
    assert (guard.flips["half"].lost, guard.flips["half"].gained, guard.grade_changes) == (0, 0, 0)
    assert guard.why == "not inferior to float32 by 0.02 or more, on 500 photographs"


def test_flipped_positives_lower_sensitivity_by_exactly_their_share() -> None:
    grade, referred = photographs(300, 200)
    after = referred.copy()
    flipped = np.flatnonzero((grade >= 2) & referred)[:30]
    after[flipped] = False
    guard = judged(answers(grade, referred), answers(grade, after))
    sensitivity, specificity = guard.differences
    assert sensitivity.value == pytest.approx(-30 / 300, abs=1e-12)
    assert (sensitivity.verdict, specificity.value, guard.passed) == ("inferior", 0.0, False)
    flips = guard.flips["half"]
    assert (flips.lost, flips.gained) == (30, 0)
    assert flips.lost_by_grade == tuple(np.bincount(grade[flipped], minlength=5))
    assert "its sensitivity at half is worse than float32's: -0.1000 on 300 photographs" in guard.why


def test_flips_in_both_directions_cancel_in_the_rate_and_are_still_counted() -> None:
    grade, referred = photographs(400, 400)
    after = referred.copy()
    for was in (True, False):
        after[np.flatnonzero((grade >= 2) & (referred == was))[:8]] = not was
    guard = judged(answers(grade, referred), answers(grade, after))
    assert guard.differences[0].value == 0
    assert guard.differences[0].low == pytest.approx(-Z * np.sqrt(16) / 400, abs=0.003)  # McNemar's standard error
    assert (guard.flips["half"].lost, guard.flips["half"].gained) == (8, 8)
    assert guard.flips["half"].gained_by_grade == (0, 0, 3, 3, 2)  # photographs 0, 10 … 70, of grades 2, 3, 4, 2 …


def test_tango_matches_a_published_example() -> None:
    # Complete response before and after consolidation therapy (Cavo et al. 2012): 59, 6, 16, 80. The interval is the
    # one of the R package to Fagerland, Lydersen and Laake, Statistical Analysis of Contingency Tables, chapter 8.
    assert tango(6, 16, 161) == pytest.approx((-0.1240, -0.0054), abs=5e-5)
    assert tango(16, 6, 161) == pytest.approx((0.0054, 0.1240), abs=5e-5)


def test_the_bootstrap_agrees_with_the_analytic_paired_interval() -> None:
    # The same table; its Wald interval there is -0.1184 to -0.0058.
    analytic = (-10 / 161 + np.array([-Z, Z]) * np.sqrt(22 - 100 / 161) / 161).tolist()
    assert analytic == pytest.approx([-0.1184, -0.0058], abs=5e-5)
    before = np.repeat([True, False, True, False], [59, 6, 16, 80])
    after = np.repeat([True, True, False, False], [59, 6, 16, 80])
    counts = np.column_stack([np.ones(161, np.int64), before, after])
    found = bootstrap(counts, lambda c: (c[:, 2] - c[:, 1]) / c[:, 0], n=161, seed=0, resamples=20_000)
    assert [found.low, found.high] == pytest.approx(analytic, abs=0.006)
    both = rate_difference(before, after, np.arange(161), seed=0, resamples=2000)
    assert both.low <= min(tango(6, 16, 161)[0], -0.118)


@pytest.mark.parametrize(("positives", "lost", "gained", "bound"), [(220, 1, 1, -0.02118), (220, 1, 0, -0.02529)])
def test_few_flips_are_bounded_by_tango_and_not_by_the_bootstrap_that_promises_more(
    positives: int, lost: int, gained: int, bound: float
) -> None:
    """Resampling a flip or two hardly ever draws several of them; the first of these would pass a margin of 0.0205."""
    grade, referred = photographs(positives, 400)
    after = referred.copy()
    after[np.flatnonzero((grade >= 2) & referred)[:lost]] = False
    after[np.flatnonzero((grade >= 2) & ~referred)[:gained]] = True
    among = grade >= 2
    counts = np.column_stack([np.ones(positives, np.int64), referred[among], after[among]])
    resampled = bootstrap(counts, lambda c: (c[:, 2] - c[:, 1]) / c[:, 0], n=positives, seed=0, resamples=2000)
    guard = judged(answers(grade, referred), answers(grade, after), margin=0.0205)
    sensitivity = guard.differences[0]
    assert resampled.low is not None
    assert sensitivity.low == pytest.approx(bound, abs=5e-5)
    assert sensitivity.low == pytest.approx(tango(gained, lost, positives)[0], abs=1e-9)
    assert resampled.low > sensitivity.low + 0.0015
    assert (sensitivity.verdict, guard.passed) == ("undecided", False)


@pytest.mark.parametrize("eyes", [1, 2])
def test_the_bound_lies_below_the_truth_at_least_as_often_as_it_says(eyes: int) -> None:
    """400 patients; both eyes of one flip together, so that two photographs tell no more than one."""
    rng = np.random.default_rng(11)
    lost, gained, simulations = 0.015, 0.010, 600
    below = 0
    for seed in range(simulations):
        change = rng.choice([-1, 0, 1], size=400, p=[lost, 1 - lost - gained, gained]).repeat(eyes)
        cluster = np.arange(400).repeat(eyes)
        before = np.where(change == 0, rng.random(400).repeat(eyes) < 0.9, change < 0)
        found = rate_difference(before, before ^ (change != 0), cluster, seed=seed, resamples=500)
        below += found.low <= gained - lost
    # 97.5 % is promised; 600 simulations of exactly that would fall below 0.958 once in 200 times.
    assert 0.958 <= below / simulations <= 1.0


def test_two_photographs_of_one_patient_count_as_one() -> None:
    rng = np.random.default_rng(3)
    before = rng.random(300) < 0.9
    after = before ^ (rng.random(300) < 0.03)
    single = rate_difference(before, after, np.arange(300), seed=0, resamples=2000)
    double = rate_difference(before.repeat(2), after.repeat(2), np.arange(300).repeat(2), seed=0, resamples=2000)
    assert double.value == pytest.approx(single.value)
    assert double.low == pytest.approx(single.low, abs=1e-3)
    unaware = rate_difference(before.repeat(2), after.repeat(2), np.arange(600), seed=0, resamples=2000)
    assert unaware.low > single.low + 0.003


def test_too_few_photographs_are_a_refusal_that_says_how_many_it_takes() -> None:
    grade, referred = photographs(50, 400)
    guard = judged(answers(grade, referred), answers(grade, referred))
    sensitivity, specificity = guard.differences
    assert (guard.passed, sensitivity.verdict, specificity.verdict) == (False, "undecided", "non-inferior")
    # z²(1 - margin)/margin = 188.2
    assert sensitivity.needed is not None
    assert 189 <= sensitivity.needed <= 195
    assert f"on 50 photographs, bound -0.0713, margin 0.02; it would take about {sensitivity.needed}" in guard.why
    assert judged(answers(grade, referred), answers(grade, referred), margin=0.08).passed


def test_no_number_of_photographs_would_pass_what_loses_more_than_the_margin() -> None:
    grade, referred = photographs(60, 400)
    after = referred.copy()
    after[np.flatnonzero((grade >= 2) & referred)[:2]] = False
    sensitivity = judged(answers(grade, referred), answers(grade, after)).differences[0]
    assert (sensitivity.verdict, sensitivity.needed) == ("undecided", None)


def test_ungradable_photographs_have_no_say() -> None:
    grade, referred = photographs(300, 300)
    gradable = np.arange(600) % 50 != 1
    before, after = (answers(grade, answer, gradable=gradable) for answer in (referred, referred ^ ~gradable))
    guard = judged(before, after)
    assert (guard.photographs, guard.flips["half"].lost, guard.flips["half"].gained) == (588, 0, 0)


def test_kappa_is_compared_where_there_are_grades() -> None:
    grade, referred = photographs(300, 300)
    rng = np.random.default_rng(0)
    given = np.clip(grade + rng.integers(-1, 2, 600), 0, 4)
    worse = np.where(rng.random(600) < 0.2, rng.integers(0, 5, 600), given)
    guard = judged(answers(grade, referred, given=given), answers(grade, referred, given=worse))
    kappa = guard.differences[-1]
    assert kappa.measure == "kappa"
    assert kappa.value == pytest.approx(quick_kappa(grade, worse) - quick_kappa(grade, given))
    assert (kappa.verdict, guard.grade_changes) == ("inferior", int((given != worse).sum()))
    assert (grade_of(np.eye(5)[worse]) == worse).all()
    assert sum(guard.grade_changes_by_grade or ()) == guard.grade_changes


def test_patients_are_counted_where_they_are_known() -> None:
    grade, referred = photographs(300, 300)
    patient = np.array([f"p{i // 2}" for i in range(600)])
    guard = judged(*(answers(grade, referred, patient=patient) for _ in range(2)))
    assert guard.patients == 300
    assert judged(*(answers(grade, referred) for _ in range(2))).patients is None


@pytest.mark.parametrize(
    ("positives", "negatives", "what"), [(40, 0, "none below grade 2"), (0, 40, "none of grade 2")]
)
def test_both_kinds_of_photograph_are_needed(positives: int, negatives: int, what: str) -> None:
    grade, referred = photographs(positives, negatives)
    with pytest.raises(FundoscopeError, match=what) as refused:
        judged(answers(grade, referred), answers(grade, referred))
    assert "give other records" in refused.value.hint


def test_several_attempts_before_the_same_photographs_are_said_with_what_they_cost() -> None:
    grade, referred = photographs(300, 300)
    guard = judged(answers(grade, referred), answers(grade, referred))
    assert (guard.attempts, guard.worse_passes_at_most, guard.caution) == (1, 0.025, "")
    third = replace(guard, attempts=3)
    assert (third.passed, third.worse_passes_at_most) == (True, 0.075)
    assert third.caution == (
        "one of 3 candidates that the same photographs have judged: the chance that one worse by 0.02 passes "
        "is at most 7.5 %, not 2.5 %"
    )
    told = third.to_json()
    assert (told["attempts"], told["worse_passes_at_most"], told["caution"]) == (3, 0.075, third.caution)
    assert replace(guard, attempts=100).worse_passes_at_most == 1.0
