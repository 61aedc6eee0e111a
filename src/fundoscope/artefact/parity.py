"""The parity gate: an exported model must answer as the trained one did, on the tuning photographs, or it is refused.

What counts. *Largest difference*: of any probability, referral's among them, for any photograph. Rounding alone, ONNX
Runtime against TensorFlow, was seen to make 7e-6 in a VGG19, 6e-5 in a MobileNet, 2e-4 in an InceptionV3, all with
random weights, which amplify it most; real faults (a wrong scaling or channel order) make 1e-2 and more. LIMIT lies
between. A random ResNet152 exceeds it, but half a unit in the last place of its weights already moves its answers by
9e-4: a network as ill-conditioned as that answers differently on every machine, and is rightly refused.
*Referral flips*: photographs referred by one model and not by the other, at each operating point. None is allowed: the
sensitivity that the artefact states is then exactly the one of the deployed model, photograph by photograph.

A photograph whose trained probability lies within EDGE of a threshold is not counted as flipped; it is counted as on
the edge. EDGE is some ten units in the last place of a float32 probability: there the answer depends on the number of
threads and the make of the processor, in the trained model too, and a refusal would be as arbitrary. Thresholds are
put half-way between two tuning photographs (model/operating.py), so that this is rare.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fundoscope.artefact.artefact import OperatingPoint
from fundoscope.data.grades import grade_of, referral_of
from fundoscope.errors import FundoscopeError

LIMIT, EDGE = 1e-3, 1e-6

Floats = NDArray[np.floating]


@dataclass(frozen=True)
class Parity:
    against: str  # whose answers these are compared with
    photographs: int
    largest_difference: float
    mean_difference: float
    referral_flips: dict[str, int]  # by operating point
    on_the_edge: int
    grade_flips: int | None  # None: the model gives no grades
    limit: float = LIMIT

    @property
    def passed(self) -> bool:
        return self.largest_difference <= self.limit and not any(self.referral_flips.values())

    def __str__(self) -> str:
        flips = ", ".join(f"{n} at {name}" for name, n in self.referral_flips.items() if n) or "none"
        grades = "" if self.grade_flips is None else f", grade changes {self.grade_flips}"
        return (
            f"{self.photographs} tuning photographs against {self.against}: largest difference "
            f"{self.largest_difference:.1e}, mean {self.mean_difference:.1e}, referral flips {flips}{grades}"
        )


class ParityFailed(FundoscopeError):  # noqa: N818  # a finding, not a fault
    """The exported model does not answer as the trained one."""

    def __init__(self, parity: Parity) -> None:
        hint = "the model was not kept; report this with the output of fundoscope --version: an export should not do it"
        super().__init__(f"the exported model does not answer as the trained one: {parity}", hint)
        self.parity = parity


def compare(
    trained: Floats, deployed: Floats, *, points: Sequence[OperatingPoint], referral_from: int, against: str
) -> Parity:
    """Probabilities (n, 5) or (n, 1) of the same photographs from both models."""
    if trained.shape != deployed.shape or not len(trained):
        raise ValueError(f"the trained model gave {trained.shape} probabilities, the deployed one {deployed.shape}")
    before, after = (_with_referral(p, referral_from) for p in (trained, deployed))
    difference = np.abs(before - after)
    flips, edge = {}, np.zeros(len(before), dtype=bool)
    for point in points:
        flipped = (before[:, -1] >= point.threshold) != (after[:, -1] >= point.threshold)
        on_edge = np.abs(before[:, -1] - point.threshold) <= EDGE
        flips[point.name], edge = int((flipped & ~on_edge).sum()), edge | on_edge
    graded = trained.shape[1] > 1
    return Parity(
        against=against,
        photographs=len(before),
        largest_difference=float(difference.max()),
        mean_difference=float(difference.mean()),
        referral_flips=flips,
        on_the_edge=int(edge.sum()),
        grade_flips=int((grade_of(trained) != grade_of(deployed)).sum()) if graded else None,
    )


def _with_referral(probabilities: Floats, referral_from: int) -> NDArray[np.float64]:
    """The probabilities, and that of referral as the last column."""
    wide = probabilities.astype(np.float64)
    return np.column_stack([wide, referral_of(probabilities, referral_from)])
