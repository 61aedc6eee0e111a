"""The line photographs stand in: worked off by a thread per processor, bounded in length.

    accepted ─▶ a free thread takes its share, up to `batch` ─▶ prepares, judges, predicts ─▶ answered

Requests take turns, a photograph at a time: a caller who sends one does not wait for all of another's sixty.
A photograph alone is predicted on all processors, while another thread judges its quality where there are more than
two of them: on two it would take its time from the prediction, and a wake-up besides. As soon as there are several
photographs, each thread does all of it for its own share, with a prediction of one thread.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue

import numpy as np
from numpy.typing import NDArray

from fundoscope.data.gradability import Gradability
from fundoscope.data.photo import Prepared
from fundoscope.serve.grading import Grader, Grading


class Busy(Exception):  # noqa: N818  # a state, not a fault
    """The line is full."""

    def __init__(self, retry_after_s: int) -> None:
        super().__init__(retry_after_s)
        self.retry_after_s = retry_after_s


@dataclass(eq=False)
class Party:
    """The photographs of one request, which stand in line together."""

    left: int  # not yet answered


@dataclass(eq=False)
class Place:
    """One photograph's place in the line."""

    grader: Grader
    photo: bytes
    answer: "asyncio.Future[Grading | None]"  # None: it was given up
    arrived: float = field(default_factory=time.perf_counter)
    gradability: Gradability | None = None
    probabilities: NDArray[np.float32] | None = None
    timings_ms: dict[str, float] = field(default_factory=dict)
    batch: int = 0  # photographs it was predicted with, itself included
    given_up: bool = False  # nobody waits for it any longer


class Turns:
    """Those who wait, request by request: each has its turn, and then again, until it has no more."""

    def __init__(self) -> None:
        self._requests: deque[deque[Place]] = deque()
        self._places = 0

    def __len__(self) -> int:
        return self._places

    def add(self, places: Sequence[Place]) -> None:
        self._requests.append(deque(places))
        self._places += len(places)

    @property
    def next(self) -> Place:
        return self._requests[0][0]

    def take(self) -> Place:
        request = self._requests.popleft()
        place = request.popleft()
        self._places -= 1
        if request:
            self._requests.append(request)
        return place


class Line:
    def __init__(
        self,
        *,
        threads: int,
        length: int,
        batch: int,
        delay_ms: float,
        timeout_s: float,
        elsewhere: Callable[[], float] = lambda: 0,
    ) -> None:
        """`elsewhere`: photographs that stand in the lines of other processes."""
        self._threads, self._length, self._batch = threads, length, batch
        self._delay_s, self._timeout_s, self._elsewhere = delay_ms / 1000, timeout_s, elsewhere
        self._changed = threading.Condition()
        self._most = max(1, length // 2)  # places that count of one request: it must not keep all others out
        self._waiting = Turns()
        self._parties: set[Party] = set()
        self._to_judge: SimpleQueue[tuple[Place, Prepared]] = SimpleQueue()
        self._each_s = 0.0  # smoothed seconds from one answer to the next while busy
        self._working: dict[int, float] = {}  # thread -> since when it has been at the same piece of work
        for work in [self._work] * threads + [self._judge_aside]:
            # Daemons: a stuck prediction must not keep the process from ending.
            threading.Thread(target=work, daemon=True).start()

    def stuck_s(self) -> float:
        """For how long the slowest thread has been at one piece of work."""
        now = time.perf_counter()
        return max((now - since for since in list(self._working.values())), default=0.0)

    def retry_after_s(self) -> int:
        return max(1, round(sum(party.left for party in self._parties) * self._each_s))

    def check(self, photographs: int) -> None:
        """Raise Busy unless so many more may stand in line and can expect an answer in time."""
        taken = sum(min(party.left, self._most) for party in self._parties)
        ahead = sum(min(party.left, photographs) for party in self._parties)  # requests take turns
        full = taken + min(photographs, self._most) > self._length
        if self._parties and (full or (ahead + photographs) * self._each_s > self._timeout_s):
            raise Busy(self.retry_after_s())

    def join(self, grader: Grader, photos: Sequence[bytes]) -> list[Place]:
        """A request takes places; each `answer` will hold the Grading, or why there is none. On the event loop."""
        loop, party = asyncio.get_running_loop(), Party(len(photos))
        places = [Place(grader, photo, loop.create_future()) for photo in photos]
        self._parties.add(party)
        for place in places:
            place.answer.add_done_callback(partial(self._leave, party))
        with self._changed:
            self._waiting.add(places)
            self._changed.notify(len(places))
        return places

    def _leave(self, party: Party, _: object) -> None:
        party.left -= 1
        if not party.left:
            self._parties.remove(party)

    def _work(self) -> None:
        me = threading.get_ident()
        while True:
            with self._changed:
                while not self._waiting:
                    self._changed.wait()
                places, alone = self._gather()
                self._working[me] = time.perf_counter()
            try:
                if places:
                    self._answer(places, alone=alone)
            finally:
                self._working.pop(me, None)

    def _gather(self) -> tuple[list[Place], bool]:
        """The next for one thread, of one model and in turn; and whether nothing else is going on."""
        if self._delay_s and self._working:  # one alone never waits for company
            self._changed.wait_for(lambda: len(self._waiting) >= self._batch, self._delay_s)
        # Its share, so that the other threads have something to do too.
        most = min(self._batch, -(-len(self._waiting) // max(1, self._threads - len(self._working))))
        places: list[Place] = []
        while self._waiting and len(places) < most:
            if places and self._waiting.next.grader is not places[0].grader:
                break
            place = self._waiting.take()
            if not place.given_up:
                places.append(place)
        return places, not (self._working or self._waiting or self._elsewhere())

    def _answer(self, places: list[Place], *, alone: bool) -> None:
        start = time.perf_counter()
        grader, readable, prepared = places[0].grader, [], []
        for place in places:
            try:
                prepared.append(self._prepare(place))
                readable.append(place)
            except Exception as problem:
                _settle(place, problem)
        if not readable:
            return
        try:
            if not alone:
                grader.widen_out()
            for place, one in zip(readable, prepared, strict=True):
                if (
                    alone and self._threads > 2
                ):  # the network need not know the quality, and a processor has time for it
                    self._to_judge.put((place, one))  # no sooner: Python runs one thread, and this one must get on
                else:
                    self._judge(place, one)
            before = time.perf_counter()
            answers = grader.predict([one.pixels for one in prepared], alone=alone)
            now = time.perf_counter()
            for place, answer in zip(readable, answers, strict=True):
                place.batch, place.timings_ms["predict"] = len(readable), (now - before) * 1000
                place.probabilities = answer
                self._finish(place)
            at_once = 1 if alone else self._threads
            self._each_s += 0.2 * ((now - start) / len(places) / at_once - self._each_s)
        except Exception as problem:
            for place in readable:
                _settle(place, problem)

    def _prepare(self, place: Place) -> Prepared:
        start = time.perf_counter()
        prepared = place.grader.prepare(place.photo)
        place.timings_ms["decode"] = (time.perf_counter() - start) * 1000
        return prepared

    def _judge_aside(self) -> None:
        while True:
            self._judge(*self._to_judge.get())

    def _judge(self, place: Place, prepared: Prepared) -> None:
        try:
            place.gradability = place.grader.assess(place.photo, prepared)
            self._finish(place)
        except Exception as problem:
            _settle(place, problem)
        place.photo = b""  # up to 25 MB that nobody needs any longer

    def _finish(self, place: Place) -> None:
        """Answer, if this was the last of the two things to be known."""
        with self._changed:
            if place.gradability is None or place.probabilities is None:
                return
        _settle(place, place.grader.grading(place.gradability, place.probabilities, place.timings_ms))


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
