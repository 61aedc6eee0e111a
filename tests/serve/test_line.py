"""The line by itself: whose photograph comes next."""

import asyncio
import threading
from pathlib import Path

import numpy as np

from fundoscope.artefact.artefact import Artefact
from fundoscope.data.draw import draw_eye
from fundoscope.data.photo import encode_png
from fundoscope.serve.grading import Grader
from fundoscope.serve.line import Line


class Waits:
    """A predictor that answers once it may."""

    def __init__(self) -> None:
        self.asked, self.may = threading.Event(), threading.Event()

    def probabilities(self, pixels: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
        self.asked.set()
        assert self.may.wait(60)
        return np.array([[0.6, 0.1, 0.1, 0.1, 0.1]], np.float32).repeat(len(pixels), axis=0)

    def warm_up(self) -> None: ...


def order(artefact_folder: Path, requests: dict[str, int], batch: int) -> list[str]:
    """In which photographs of `requests` are answered, who come while the first is being predicted."""
    predictor = Waits()
    grader = Grader(Artefact.open(artefact_folder), predictor)
    photo, answered = encode_png(draw_eye(5, 0, size=64).pixels), []

    async def answer() -> None:
        line = Line(threads=1, length=64, batch=batch, delay_ms=0, timeout_s=60)
        places = []
        for name, photographs in requests.items():
            for number, place in enumerate(line.join(grader, [photo] * photographs)):
                place.answer.add_done_callback(lambda _, who=f"{name}{number}": answered.append(who))
                places.append(place)
            await asyncio.to_thread(predictor.asked.wait, 60)
        predictor.may.set()
        await asyncio.gather(*(place.answer for place in places))

    asyncio.run(answer())
    return answered


def test_requests_take_turns(artefact_folder: Path) -> None:
    found = order(artefact_folder, {"a": 5, "b": 1, "c": 2}, batch=1)
    assert found == ["a0", "a1", "b0", "c0", "a2", "c1", "a3", "a4"]


def test_photographs_of_several_requests_are_predicted_together(artefact_folder: Path) -> None:
    found = order(artefact_folder, {"a": 5, "b": 1, "c": 2}, batch=4)
    assert found[:4] == ["a0", "a1", "a2", "a3"]  # they were alone when the thread took them
    assert found[4:] == ["a4", "b0", "c0", "c1"]
