"""The line photographs stand in: read by several threads, predicted together by one, bounded in length.

    accepted ─▶ reading (a thread per processor) ─▶ predicting (one thread, up to `batch` at a time) ─▶ answered

The predicting thread takes all that is ready, at once when nothing else is on its way: a photograph alone never waits
for company, and the busier the server the larger the batches. Threads, not processes: decoding, resampling and the
runtime all let go of Python's lock.
"""

import asyncio
import threading
import time
from collections import deque
from dataclasses import dataclass, field

from fundoscope.serve.grading import Grader, Grading, Reading


class Busy(Exception):  # noqa: N818  # a state, not a fault
    """The line is full."""

    def __init__(self, retry_after_s: int) -> None:
        super().__init__(retry_after_s)
        self.retry_after_s = retry_after_s


@dataclass(eq=False)
class Place:
    """One photograph's place in the line."""

    grader: Grader
    photo: bytes
    answer: "asyncio.Future[Grading]"
    arrived: float = field(default_factory=time.perf_counter)
    reading: Reading | None = None
    batch: int = 0  # photographs it was predicted with, itself included
    given_up: bool = False  # nobody waits for it any longer


class Line:
    def __init__(self, *, readers: int, length: int, batch: int, delay_ms: float, timeout_s: float) -> None:
        self._length, self._batch, self._delay_s, self._timeout_s = length, batch, delay_ms / 1000, timeout_s
        self._changed = threading.Condition()
        self._to_read: deque[Place] = deque()
        self._to_predict: deque[Place] = deque()
        self._reading = 0
        self._standing = 0  # accepted and not yet answered
        self._each_s = 0.0  # smoothed seconds from one answer to the next while busy
        self._working: dict[int, float] = {}  # thread -> since when it has been at the same piece of work
        names = [("read", self._read)] * readers + [("predict", self._predict)]
        for number, (name, work) in enumerate(names):
            # Daemons: a stuck prediction must not keep the process from ending.
            threading.Thread(target=work, name=f"{name}-{number}", daemon=True).start()

    @property
    def standing(self) -> int:
        return self._standing

    def stuck_s(self) -> float:
        """For how long the slowest thread has been at one piece of work."""
        now = time.perf_counter()
        return max((now - since for since in list(self._working.values())), default=0.0)

    def retry_after_s(self) -> int:
        return max(1, round(self._standing * self._each_s))

    def check(self, photographs: int) -> None:
        """Raise Busy unless so many more may stand in line and can expect an answer in time."""
        waiting = self._standing + photographs
        if self._standing and (waiting > self._length or waiting * self._each_s > self._timeout_s):
            raise Busy(self.retry_after_s())

    def join(self, grader: Grader, photo: bytes) -> Place:
        """Take a place; `answer` will hold the Grading, or why there is none. On the event loop."""
        place = Place(grader, photo, asyncio.get_running_loop().create_future())
        self._standing += 1
        place.answer.add_done_callback(self._leave)
        with self._changed:
            self._to_read.append(place)
            self._changed.notify_all()
        return place

    def _leave(self, _: object) -> None:
        self._standing -= 1

    def _read(self) -> None:
        while True:
            with self._changed:
                while not self._to_read:
                    self._changed.wait()
                place = self._to_read.popleft()
                self._reading += 1
            try:
                if not place.given_up:
                    self._begin()
                    place.reading = place.grader.read(place.photo)
            except Exception as problem:
                _settle(place, problem)
            finally:
                self._end()
                place.photo = b""  # up to 25 MB that nobody needs any longer
                with self._changed:
                    self._reading -= 1
                    if place.reading is not None:
                        self._to_predict.append(place)
                    self._changed.notify_all()

    def _predict(self) -> None:
        while True:
            places = self._gather()
            start = time.perf_counter()
            try:
                self._begin()
                gradings = places[0].grader.grade([place.reading for place in places if place.reading])
                self._each_s += 0.2 * ((time.perf_counter() - start) / len(places) - self._each_s)
                for place, grading in zip(places, gradings, strict=True):
                    place.batch = len(places)
                    place.reading = None
                    _settle(place, grading)
            except Exception as problem:
                for place in places:
                    _settle(place, problem)
            finally:
                self._end()

    def _gather(self) -> list[Place]:
        """The next to be predicted together: of one model, in their order."""
        with self._changed:
            while not self._to_predict:
                self._changed.wait()
            deadline = time.perf_counter() + self._delay_s
            while len(self._to_predict) < self._batch and (self._reading or self._to_read):
                left = deadline - time.perf_counter()
                if left <= 0 or not self._changed.wait(left):
                    break
            grader = self._to_predict[0].grader
            places: list[Place] = []
            others: list[Place] = []
            while self._to_predict and len(places) < self._batch:
                place = self._to_predict.popleft()
                if place.given_up:
                    continue
                (places if place.grader is grader else others).append(place)
            self._to_predict.extendleft(reversed(others))
        return places if places else self._gather()

    def _begin(self) -> None:
        self._working[threading.get_ident()] = time.perf_counter()

    def _end(self) -> None:
        self._working.pop(threading.get_ident(), None)


def _settle(place: Place, outcome: Grading | Exception) -> None:
    """From whichever thread: give the answer to the event loop."""

    def settle() -> None:
        if place.answer.done():  # given up meanwhile
            return
        if isinstance(outcome, Exception):
            place.answer.set_exception(outcome)
        else:
            place.answer.set_result(outcome)

    place.answer.get_loop().call_soon_threadsafe(settle)
