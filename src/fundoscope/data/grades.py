"""What a network's probabilities say: the grade, and how likely a referral is. Scores and the server agree on it."""

import numpy as np
from numpy.typing import NDArray


def grade_of(probabilities: NDArray[np.floating]) -> NDArray[np.int64]:
    """The median grade: the highest k with P(grade ≥ k) ≥ 0.5; over the last axis.

    Not the most probable one: the grades are ordered, and the median loses least when they are a near thing.
    """
    at_least = np.cumsum(probabilities[..., ::-1], axis=-1)[..., ::-1][..., 1:]
    return np.asarray((at_least >= 0.5).sum(axis=-1), dtype=np.int64)


def referral_of(probabilities: NDArray[np.float32], referral_from: int) -> NDArray[np.float32]:
    """Probability of referral: a referral head's own, or the sum over the grades that are referred."""
    if probabilities.shape[1] == 1:
        return probabilities[:, 0]
    return np.asarray(np.clip(probabilities[:, referral_from:].sum(axis=1), 0, 1))
