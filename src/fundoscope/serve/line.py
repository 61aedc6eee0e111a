"""The line photographs stand in: read by several threads, predicted by several, bounded in length.

    accepted ─▶ reading ─▶ predicting, up to `batch` at a time ─▶ answered
                   └─▶ judging the quality meanwhile ─────────────┘

A photograph alone is predicted on all processors. As soon as there are several, each prediction has one thread, and
there are as many predictions at once as processors; a thread that is free takes its share of what is ready. Threads,
not processes: decoding, resampling and the runtime all let go of Python's lock.
"""

import asyncio
import threading
import time
from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fundoscope.data.gradability import Gradability
from fundoscope.serve.grading import Grader, Grading


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
    pixels: NDArray[np.uint8] | None = None
    gradability: Gradability | None = None
    probabilities: NDArray[np.float32] | None = None
    timings_ms: dict[str, float] = field(default_factory=dict)
    batch: int = 0  # photographs it was predicted with, itself included
    given_up: bool = False  # nobody waits for it any longer


class Line:
    def __init__(self, *, threads: int, length: int, batch: int, delay_ms: float, timeout_s: float) -> None:
        """`threads` to read, and as many to predict."""
        self._length, self._batch, self._delay_s, self._timeout_s = length, batch, delay_ms / 1000, timeout_s
        self._threads = threads
        self._changed = threading.Condition()
        self._to_read: deque[Place] = deque()
        self._to_predict: deque[Place] = deque()
        self._reading = self._predicting = 0
        self._standing = 0  # accepted and not yet answered
        self._each_s = 0.0  # smoothed seconds from one answer to the next while busy
        self._working: dict[int, float] = {}  # thread -> since when it has been at the same piece of work
        for work in [self._read] * threads + [self._predict] * threads:
            # Daemons: a stuck prediction must not keep the process from ending.
            threading.Thread(target=work, daemon=True).start()

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
            self._begin()
            try:
                self._read_one(place)
            except Exception as problem:
                _settle(place, problem)
            finally:
                self._end()
                place.photo = b""  # up to 25 MB that nobody needs any longer

    def _read_one(self, place: Place) -> None:
        prepared = None
        try:
            if not place.given_up:
                start = time.perf_counter()
                prepared = place.grader.prepare(place.photo)
                place.timings_ms["decode"] = (time.perf_counter() - start) * 1000
        finally:
            with self._changed:
                self._reading -= 1
                if prepared is not None:
                    place.pixels = prepared.pixels
                    self._to_predict.append(place)
                self._changed.notify_all()
        if prepared is not None:  # judged while the network predicts: it need not know
            place.gradability = place.grader.assess(place.photo, prepared)
            self._finish(place)

    def _predict(self) -> None:
        while True:
            places, alone = self._gather()
            self._begin()
            start = time.perf_counter()
            try:
                if not alone:
                    places[0].grader.widen_out()
                answers = places[0].grader.predict([p.pixels for p in places if p.pixels is not None], alone=alone)
                took_s = time.perf_counter() - start
                at_once = 1 if alone else self._threads
                self._each_s += 0.2 * (took_s / len(places) / at_once - self._each_s)
                for place, answer in zip(places, answers, strict=True):
                    place.batch, place.timings_ms["predict"] = len(places), took_s * 1000
                    place.probabilities = answer
                    self._finish(place)
            except Exception as problem:
                for place in places:
                    _settle(place, problem)
            finally:
                self._end()
                with self._changed:
                    self._predicting -= 1

    def _gather(self) -> tuple[list[Place], bool]:
        """The next to be predicted together, of one model, in their order; and whether nothing else is going on."""
        with self._changed:
            while True:
                while not self._to_predict:
                    self._changed.wait()
                self._wait_for_company()
                while self._to_predict and self._to_predict[0].given_up:
                    self._to_predict.popleft()
                if self._to_predict:
                    break
            # Its share of what is ready, so that the other threads have something to do too.
            most = min(self._batch, -(-len(self._to_predict) // (self._threads - self._predicting)))
            places = [self._to_predict.popleft()]
            while self._to_predict and len(places) < most and self._to_predict[0].grader is places[0].grader:
                places.append(self._to_predict.popleft())
            alone = not (self._predicting or self._to_predict or self._reading or self._to_read)
            self._predicting += 1
        return places, alone

    def _wait_for_company(self) -> None:
        """Let a photograph that is being read come along, if it takes no longer than the delay. Holding the lock."""
        deadline = time.perf_counter() + self._delay_s
        while 0 < len(self._to_predict) < self._batch and self._reading:
            left_s = deadline - time.perf_counter()
            if left_s <= 0 or not self._changed.wait(left_s):
                break

    def _finish(self, place: Place) -> None:
        """Answer, if this was the last of the two things to be known."""
        with self._changed:
            if place.gradability is None or place.probabilities is None:
                return
        _settle(place, place.grader.grading(place.gradability, place.probabilities, place.timings_ms))

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

    place.pixels = None
    place.answer.get_loop().call_soon_threadsafe(settle)
