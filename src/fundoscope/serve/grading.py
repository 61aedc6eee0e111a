"""Bytes of a photograph -> Grading: what the service answers. Knows models and nothing about HTTP or threads."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fundoscope.artefact.artefact import Artefact, Name, OperatingPoint
from fundoscope.artefact.runtime import Predictor, give_back_memory
from fundoscope.data.gradability import Gradability, assess_photo
from fundoscope.data.grades import grade_of, referral_of
from fundoscope.data.photo import Prepared, prepare
from fundoscope.errors import pick


@dataclass(frozen=True, eq=False)
class Reading:
    """A photograph on its way: prepared, not yet shown to the network."""

    pixels: NDArray[np.uint8]  # (size, size, 3)
    gradability: Gradability
    decode_ms: float


@dataclass(frozen=True)
class Grading:
    """The answer for one photograph."""

    grade: int | None  # None: the model answers referral only
    name: Name | None
    probabilities: tuple[float, ...]
    referral: bool
    referral_probability: float
    operating_point: OperatingPoint
    gradability: Gradability
    artefact: str  # digest
    timings_ms: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        return {
            "grade": self.grade,
            "name": self.name and {"en": self.name.en, "pt": self.name.pt},
            "probabilities": self.probabilities,
            "predictions": self.probabilities,  # under the published key too
            "referral": self.referral,
            "referral_probability": self.referral_probability,
            "operating_point": {"name": self.operating_point.name, "threshold": self.operating_point.threshold},
            "gradable": self.gradability.gradable,
            "gradability": {"score": round(self.gradability.score, 4), "reasons": self.gradability.reasons},
            "artefact": self.artefact,
            "timings_ms": {phase: round(ms, 3) for phase, ms in self.timings_ms.items()},
        }


class Grader:
    """An artefact, open. Calls from several threads at once are safe."""

    def __init__(
        self,
        artefact: Artefact,
        predictor: Predictor,
        *,
        operating_point: str = "high_sensitivity",
        max_pixels: int | None = None,
        narrow: Callable[[], Predictor] | None = None,
    ) -> None:
        """`max_pixels`: refuse larger photographs than the artefact would take, for want of memory.

        `narrow` opens the model once more, for predictions of one thread each: see `widen_out`.
        """
        self.artefact = artefact
        points = {point.name: point for point in artefact.operating_points}
        self.operating_point = pick(points, operating_point, kind="operating point")
        preparation = artefact.input.preparation
        self._preparation = replace(preparation, max_pixels=min(preparation.max_pixels, max_pixels or 2**62))
        self._predictor, self._narrow_predictor, self._open_narrow = predictor, predictor, narrow
        self._lock = threading.Lock()

    def read(self, photo: bytes) -> Reading:
        """Decode, prepare and judge the quality. Raises UnreadablePhoto."""
        start = time.perf_counter()
        prepared = self.prepare(photo)
        gradability = self.assess(photo, prepared)
        return Reading(prepared.pixels, gradability, (time.perf_counter() - start) * 1000)

    def grade(self, readings: Sequence[Reading]) -> list[Grading]:
        """One prediction for all of them."""
        start = time.perf_counter()
        probabilities = self.predict([reading.pixels for reading in readings])
        predict_ms = (time.perf_counter() - start) * 1000
        return [
            self.grading(reading.gradability, answer, {"decode": reading.decode_ms, "predict": predict_ms})
            for reading, answer in zip(readings, probabilities, strict=True)
        ]

    def prepare(self, photo: bytes) -> Prepared:
        return prepare(photo, self._preparation)

    def assess(self, photo: bytes, prepared: Prepared) -> Gradability:
        return assess_photo(photo, prepared, self._preparation, self.artefact.input.gradability)

    def predict(self, pixels: Sequence[NDArray[np.uint8]], *, alone: bool = True) -> NDArray[np.float32]:
        """Probabilities, a row for each. `alone`: nothing else is being predicted, all threads may be used."""
        predictor = self._predictor if alone else self._narrow_predictor
        probabilities = predictor.probabilities(np.stack(pixels))
        if not np.isfinite(probabilities).all():  # compared with a threshold it would pass for "no referral"
            raise ArithmeticError("the network's answer is not a number")
        return probabilities

    def widen_out(self) -> None:
        """Get ready for many callers at once: from now on, predictions that are not alone use one thread each.

        Two predictions of one thread take less of two processors than one after the other on both: threads wait for
        each other at every layer. It costs the model's memory once more, so it is done when it is needed.
        """
        with self._lock:
            opening, self._open_narrow = self._open_narrow, None
        if opening is not None:  # aside, and meanwhile as before
            threading.Thread(target=self._widen, args=(opening,), daemon=True).start()

    def _widen(self, opening: Callable[[], Predictor]) -> None:
        predictor = opening()
        predictor.warm_up()
        self._narrow_predictor = predictor
        give_back_memory()

    def warm_up(self) -> None:
        """Answer one photograph, all the way, so that nobody's request pays for what happens only once."""
        self.grade([self.read(_warm_up_photo())])

    def grading(
        self, gradability: Gradability, probabilities: NDArray[np.float32], timings_ms: dict[str, float]
    ) -> Grading:
        """What one photograph's probabilities amount to."""
        chance = float(referral_of(probabilities[None], self.artefact.referral_from)[0])
        grade = int(grade_of(probabilities)) if len(probabilities) > 1 else None
        return Grading(
            grade=grade,
            name=None if grade is None else self.artefact.output.classes[grade],
            probabilities=tuple(probabilities.tolist()),
            # Intention to screen: who cannot be graded is seen by a person, as in the scores.
            referral=chance >= self.operating_point.threshold or not gradability.gradable,
            referral_probability=chance,
            operating_point=self.operating_point,
            gradability=gradability,
            artefact=self.artefact.digest,
            timings_ms=timings_ms,
        )


def _warm_up_photo() -> bytes:
    """A JPEG of a red disc."""
    import simplejpeg

    offsets = np.arange(256) - 127.5
    disc = np.hypot(offsets[:, None], offsets) < 120
    pixels = disc[..., None] * np.array([180, 90, 40], np.uint8)
    return bytes(simplejpeg.encode_jpeg(pixels, quality=85, colorspace="RGB"))
