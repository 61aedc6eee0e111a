"""Grading without HTTP: what follows from a network's numbers."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fundoscope.artefact.artefact import Artefact
from fundoscope.artefact.runtime import open_predictor
from fundoscope.data.draw import draw_eye
from fundoscope.data.photo import Preparation, encode_png
from fundoscope.serve.grading import Grader


class Says:
    """A predictor that says what it is told to."""

    def __init__(self, *probabilities: float) -> None:
        self._answer = np.array([probabilities], np.float32)

    def probabilities(self, pixels: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
        return self._answer.repeat(len(pixels), axis=0)

    def warm_up(self) -> None: ...


@pytest.fixture(scope="module")
def artefact(artefact_folder: Path) -> Artefact:
    return Artefact.open(artefact_folder)


def eye(index: int = 0) -> bytes:
    return encode_png(draw_eye(5, index, size=256).pixels)


def test_the_grade_is_the_median_and_referral_is_by_the_frozen_threshold(artefact: Artefact) -> None:
    point = replace(artefact.operating_points[0], threshold=0.5)
    fixed = replace(artefact, operating_points=(point,))
    grading = Grader(fixed, Says(0.1, 0.45, 0.2, 0.15, 0.1), operating_point=point.name)
    answer = grading.grade([grading.read(eye())])[0]
    assert (answer.grade, answer.referral) == (1, False)
    assert answer.referral_probability == pytest.approx(0.45)
    above = Grader(fixed, Says(0.1, 0.39, 0.2, 0.2, 0.11), operating_point=point.name)
    answer = above.grade([above.read(eye())])[0]
    assert (answer.grade, answer.referral) == (2, True)


def test_a_referral_begins_on_the_threshold(artefact: Artefact) -> None:
    """As thresholds were chosen: whoever reaches it counts as found. A half and its parts are exact in binary."""
    point = replace(artefact.operating_points[0], threshold=0.5)
    fixed = replace(artefact, operating_points=(point,))
    on = Grader(fixed, Says(0.25, 0.25, 0.25, 0.125, 0.125), operating_point=point.name)
    below = Grader(fixed, Says(0.25, 0.25390625, 0.25, 0.125, 0.12109375), operating_point=point.name)
    answers = [grader.grade([grader.read(eye())])[0] for grader in (on, below)]
    assert [answer.gradability.gradable for answer in answers] == [True, True]
    assert [answer.referral_probability for answer in answers] == [0.5, 0.49609375]
    assert [answer.referral for answer in answers] == [True, False]


def test_a_referral_head_gives_no_grade(artefact: Artefact) -> None:
    grader = Grader(artefact, Says(0.9))
    answer = grader.grade([grader.read(eye())])[0]
    assert (answer.grade, answer.name, answer.referral, len(answer.probabilities)) == (None, None, True, 1)


def test_what_cannot_be_graded_is_referred(artefact: Artefact) -> None:
    grader = Grader(artefact, Says(1.0, 0.0, 0.0, 0.0, 0.0))
    black = grader.grade([grader.read(encode_png(np.zeros((200, 200, 3), np.uint8)))])[0]
    assert (black.grade, black.referral, black.gradability.gradable) == (0, True, False)
    assert black.gradability.reasons == ("no retina found",)


def test_an_answer_that_is_not_a_number_is_no_answer(artefact: Artefact) -> None:
    grader = Grader(artefact, Says(float("nan"), 0.0, 0.0, 0.0, 0.0))
    with pytest.raises(ArithmeticError, match="not a number"):
        grader.grade([grader.read(eye())])


def test_a_photograph_prepared_as_published_is_judged_by_what_was_photographed(artefact: Artefact) -> None:
    recommended = Grader(artefact, open_predictor(artefact, threads=1))
    as_published = replace(artefact.input, preparation=Preparation(artefact.input.preparation.size, way="gaussian"))
    published = Grader(replace(artefact, input=as_published), open_predictor(artefact, threads=1))
    photo = encode_png(draw_eye(5, 0, size=512).pixels)
    assert published.read(photo).gradability.gradable == recommended.read(photo).gradability.gradable
    assert not np.array_equal(published.read(photo).pixels, recommended.read(photo).pixels)


def test_several_together_get_the_answers_they_get_alone(artefact: Artefact) -> None:
    grader = Grader(artefact, open_predictor(artefact, threads=1))
    readings = [grader.read(eye(index)) for index in range(5)]
    together = np.array([grading.probabilities for grading in grader.grade(readings)])
    alone = np.array([grader.grade([reading])[0].probabilities for reading in readings])
    assert together == pytest.approx(alone, abs=1e-5)
    assert len(set(together[:, 0].round(4))) > 1
