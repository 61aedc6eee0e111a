"""Scores that say there is no figure: how many photographs there would have been for it."""

import numpy as np

from fundoscope.model.predictions import Predictions
from fundoscope.model.scores import score


def test_a_kappa_that_a_referral_head_does_not_have_is_of_as_many_photographs() -> None:
    grade = np.array([0, 2, 3, 1])
    referral_only = Predictions(
        id=np.array([f"{i:016x}" for i in range(4)]),
        patient=np.full(4, ""),
        eye=np.full(4, ""),
        grade=grade,
        split=np.full(4, "test"),
        gradable=np.array([True, True, True, False]),
        probabilities=None,
        referral=np.array([0.1, 0.8, 0.9, 0.2]),
    )
    image = score(referral_only, [])["image"]
    for way, n in (("gradable", 3), ("ungated", 4)):
        for name in ("kappa", "accuracy"):
            figure = image[way][name]
            assert (figure["value"], figure["n"]) == (None, n)
            assert figure["reason"] == "the model answers referral only, not grades"
