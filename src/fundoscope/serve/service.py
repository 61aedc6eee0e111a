"""What the routes call: grade photographs within the server's limits, and say how it is doing."""

import asyncio
import gc
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from fundoscope.artefact.runtime import give_back_memory
from fundoscope.data.photo import UnreadablePhoto
from fundoscope.serve.body import Uploads
from fundoscope.serve.container import Container
from fundoscope.serve.grading import Grader, Grading
from fundoscope.serve.http import Refusal
from fundoscope.serve.line import Busy, Line, Place
from fundoscope.serve.log import log
from fundoscope.serve.metrics import Metrics, resident_bytes
from fundoscope.serve.models import ONLY, Models
from fundoscope.serve.settings import MB, Settings

PATIENCE_S = 5.0  # for the photograph of a caller who may have gone
DRAIN_BODY_S = 1.0  # for the rest of a body to arrive once the server is stopping
IN_HAND = 8  # requests' worth of the largest body that may be held in memory at once
TIDY_S, TIDY_BYTES = 1.0, 24 * MB  # how often the memory is looked at, and how much is worth giving back


class Service:
    """One worker's state. All of it is touched on the event loop only."""

    def __init__(self, settings: Settings, metrics: Metrics, container: Container) -> None:
        self.settings, self.metrics, self.container = settings, metrics, container
        self.models = Models(settings)
        self.line = Line(
            threads=settings.line_threads,
            length=settings.queue,
            batch=settings.batch_size,
            delay_ms=settings.batch_delay_ms,
            timeout_s=settings.timeout_s,
            elsewhere=metrics.elsewhere,
        )
        self._opened, self.ready = asyncio.Event(), asyncio.Event()
        self._waiting = 0  # requests that came before the model was open
        self._answered = asyncio.Event()
        self.draining = False
        self.uploads = Uploads(IN_HAND * settings.payload_bytes, lambda: self.busy(self.line.retry_after_s()))
        self.stuck = asyncio.Event()  # a prediction never came back: this process should be replaced
        self._loading: asyncio.Future[Any] | None = None
        self._warming: asyncio.Future[Any] | None = None  # kept, or it may be collected before it is done
        # Loading a model, and whatever else would hold up the event loop, one at a time.
        self.aside = ThreadPoolExecutor(1, thread_name_prefix="aside")
        # Photographs in JSON, one request at a time too: many would take the processors from the predictions.
        self.reader = ThreadPoolExecutor(1, thread_name_prefix="reader")
        self._in_flight, self._tidying = 0, False
        self._tidy_bytes = 0  # resident memory when last there was nothing to give back

    @property
    def healthy(self) -> bool:
        """Whether /ping says yes: warm; serverless, open; or as published, before anything is loaded."""
        early = self.settings.load == "first-request" or self.settings.multi_model
        return (self.ready.is_set() or early) and not self.draining and not self.stuck.is_set()

    async def load(self) -> None:
        """Open the one model and answer a photograph with it; asked again, wait for the first asking."""
        if self._loading is None:
            self._loading = asyncio.ensure_future(self._load())
        await asyncio.shield(self._loading)

    async def _load(self) -> None:
        loop = asyncio.get_running_loop()
        self.container.resume()  # at the first request: since the server was up
        try:
            grader = await loop.run_in_executor(self.aside, self._open)
        finally:
            self._opened.set()
        self.container.ended("import")  # of the web server, where that took longer than the model
        if self.settings.platform == "serverless":
            # A container is started there because somebody waits, whose photograph comes as soon as /ping says yes.
            self.ready.set()
            self._warming = asyncio.ensure_future(self._warm_up(grader, expected=True))
            self._warming.add_done_callback(self._warmed)
            return
        await self._warm_up(grader, expected=self._waiting > 0)
        self.ready.set()

    async def _warm_up(self, grader: Grader, *, expected: bool) -> None:
        """`expected`: a caller's photograph is here or coming, and warms the model up as well as ours would."""
        if expected:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._answered.wait(), PATIENCE_S)
            self.container.resume()
        if not self._answered.is_set():
            await asyncio.get_running_loop().run_in_executor(self.aside, grader.warm_up)
            self.container.ended("warm_up")
        self.aside.submit(give_back_memory)  # nobody waits for it

    def _warmed(self, warming: "asyncio.Future[Any]") -> None:
        """A model that opens and cannot answer: no longer healthy, and the log says why."""
        if not warming.cancelled() and warming.exception() is not None:
            self.ready.clear()
            _report(warming)

    def _open(self) -> Grader:
        grader = self.models.load(ONLY, self.settings.model, imported=lambda: self.container.ended("import"))
        self.container.ended("load")
        return grader

    async def grader(self, name: str = ONLY) -> Grader:
        if name == ONLY and not self._opened.is_set():
            self._waiting += 1
            if self.settings.load == "first-request" and self._loading is None:
                self._loading = asyncio.ensure_future(self._load())
                self._loading.add_done_callback(_report)
            await self._opened.wait()
        return self.models.get(name)

    def began(self) -> None:
        """A request has come."""
        self._in_flight += 1
        self.metrics.gauge("fundoscope_in_flight", 1)

    def ended(self, status: int) -> None:
        """It has been answered."""
        self._in_flight -= 1
        self.metrics.gauge("fundoscope_in_flight", -1)
        self.metrics.request(status)
        if not self._tidying:
            self._tidying = True
            asyncio.get_running_loop().call_later(TIDY_S, self.aside.submit, self._tidy)

    def _tidy(self) -> None:
        """Give back what large requests have left behind. Once they are done: the next would only ask for it again."""
        self._tidying = False
        if self._in_flight:
            return  # the last of them asks for this anew
        if resident_bytes() > self._tidy_bytes + TIDY_BYTES:
            gc.collect()  # a refusal and the body it was about may hold each other
            give_back_memory()
            self._tidy_bytes = resident_bytes()
        self._tidy_bytes = min(self._tidy_bytes, resident_bytes())

    def busy(self, retry_after_s: int) -> Refusal:
        hint = f"try again in {retry_after_s} s"
        return Refusal(503, "all places are taken: the server is busy", hint, {"retry-after": str(retry_after_s)})

    def drain(self) -> None:
        """No more is taken on, and what has only half arrived is not waited for."""
        self.draining = True
        self.uploads.hurry(DRAIN_BODY_S)

    async def grade(
        self, grader: Grader, photos: Sequence[bytes], *, began: float
    ) -> list[Grading | UnreadablePhoto | Exception]:
        """An answer for every photograph, in their order: a grading, or why there is none."""
        try:
            self.line.check(len(photos))
        except Busy as busy:
            for _ in photos:
                self.metrics.photograph("busy")
            raise self.busy(busy.retry_after_s) from None
        self.metrics.gauge("fundoscope_queue", len(photos))
        places = self.line.join(grader, photos)
        left_s = max(0.0, self.settings.timeout_s - (time.perf_counter() - began))
        timer = asyncio.get_running_loop().call_later(left_s, _expire, places)
        try:
            for place in places:
                with suppress(Exception):  # told below
                    await place.answer
        except asyncio.CancelledError:
            self._give_up(places)
            raise
        finally:
            timer.cancel()
            self.metrics.gauge("fundoscope_queue", -len(photos))
        if any(place.given_up for place in places):
            raise self._too_late(places)
        outcomes = [self._outcome(place) for place in places]
        for grading in outcomes:
            if isinstance(grading, Grading):
                self.container.predicted(grading.timings_ms)
                self._answered.set()
        return outcomes

    def _outcome(self, place: Place) -> Grading | UnreadablePhoto | Exception:
        problem = place.answer.exception()
        if isinstance(problem, UnreadablePhoto):
            self.metrics.photograph("unreadable")
            return problem
        if problem is not None:
            self.metrics.photograph("failed")
            return problem if isinstance(problem, Exception) else RuntimeError("interrupted")
        grading = place.answer.result()
        assert grading is not None  # nobody has given it up
        self.metrics.photograph("graded" if grading.gradability.gradable else "ungradable")
        timings = grading.timings_ms
        total_ms = (time.perf_counter() - place.arrived) * 1000
        timings["queue"] = max(0.0, total_ms - timings["decode"] - timings["predict"])
        timings["total"] = total_ms
        for phase, ms in timings.items():
            self.metrics.phase(phase, ms / 1000)
        self.metrics.batch(place.batch)
        return grading

    def _give_up(self, places: Sequence[Place]) -> None:
        for place in places:
            place.given_up = True
            place.answer.cancel()

    def _too_late(self, places: Sequence[Place]) -> Refusal:
        for _ in places:
            self.metrics.photograph("timeout")
        self._give_up(places)
        if self.line.stuck_s() >= self.settings.timeout_s / 2:
            self.stuck.set()
        message = f"there was no answer within {self.settings.timeout_s:g} s"
        return Refusal(503, message, "try again", {"retry-after": "1"})


def _expire(places: Sequence[Place]) -> None:
    for place in places:
        if not place.answer.done():
            place.given_up = True
            place.answer.set_result(None)


def _report(loading: "asyncio.Future[Any]") -> None:
    """A model that could not be loaded when first asked for: the caller reads 500, the log why."""
    problem = loading.exception()
    if problem is not None:
        log("load failed", problem=getattr(problem, "message", type(problem).__name__))
