"""The line on any number of processors: a photograph that is alone is judged by a thread of its own."""

import asyncio
from pathlib import Path

import numpy as np

from fundoscope.artefact.artefact import Artefact
from fundoscope.data.draw import draw_eye
from fundoscope.data.photo import encode_png
from fundoscope.serve.grading import Grader, Grading
from fundoscope.serve.line import Line


class Answers:
    """A predictor that knows its answer."""

    def probabilities(self, pixels: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
        return np.array([[0.5, 0.25, 0.125, 0.0625, 0.0625]], np.float32).repeat(len(pixels), axis=0)

    def warm_up(self) -> None: ...


def graded(artefact_folder: Path, photo: bytes, *, threads: int) -> Grading:
    grader = Grader(Artefact.open(artefact_folder), Answers())

    async def answer() -> Grading:
        line = Line(threads=threads, length=8, batch=4, delay_ms=0, timeout_s=60)
        (place,) = line.join(grader, [photo])
        found: Grading = await asyncio.wait_for(place.answer, 60)
        return found

    return asyncio.run(answer())


def test_a_photograph_alone_gets_the_same_answer_on_any_number_of_processors(artefact_folder: Path) -> None:
    photo = encode_png(draw_eye(5, 0, size=128).pixels)
    one, two, many = (graded(artefact_folder, photo, threads=threads) for threads in (1, 2, 4))
    assert one.probabilities == (0.5, 0.25, 0.125, 0.0625, 0.0625)
    assert one.gradability == two.gradability == many.gradability
    assert one.referral_probability == two.referral_probability == many.referral_probability == 0.25
    assert set(many.timings_ms) == {"decode", "predict"}
