"""The published web application, repaired: FastAPI in front of a SavedModel. One in each of gunicorn's workers.

Kept as published: the answer's keys and their seconds, Keras's `predict` on one photograph at a time, and (asked for)
loading on the first request with a /ping that knows nothing of the model. Repaired: the model may be any artefact, any
photograph is prepared as ours are, what cannot be read is refused with 4xx, and the event loop stays free for /ping.
"""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import keras
import numpy as np
from anyio import CapacityLimiter, to_thread
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from numpy.typing import NDArray

from fundoscope.artefact.artefact import Artefact, usable
from fundoscope.artefact.runtime import Predictor, open_predictor
from fundoscope.data.photo import UnreadablePhoto
from fundoscope.errors import pick
from fundoscope.serve.grading import Grader

OTHER_TYPES = ("application/octet-stream", "application/x-image")


class KerasPredictor:
    """The published call: `predict` on a batch of one, and all that Keras sets up around every such call."""

    def __init__(self, artefact: Artefact) -> None:
        # Keras 3 no longer loads a SavedModel as a model; this layer is what it offers instead.
        layer = keras.layers.TFSMLayer(str(artefact.model), call_endpoint="serving_default")
        pixels = keras.Input(artefact.input.shape[1:], dtype="uint8")
        self._model = keras.Model(pixels, layer(pixels)[artefact.output.name])
        self._shape = artefact.input.shape[1:]

    def probabilities(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        answers: NDArray[np.float32] = self._model.predict(pixels, verbose=0)
        return answers

    def warm_up(self) -> None:
        self.probabilities(np.zeros((1, *self._shape), np.uint8))  # type: ignore[arg-type]  # only n is unknown


CALLS: dict[str, Callable[[Artefact], Predictor]] = {
    "keras-predict": KerasPredictor,
    "signature": lambda artefact: open_predictor(artefact, threads=0),  # TensorFlow's choice, as published
}


class Service:
    """A model that is loaded once, at the start or when first asked, and answers one photograph at a time."""

    def __init__(self, model: str, call: str, operating_point: str, unsafe: bool) -> None:
        # Its bytes and its signature were checked by published.py, once for all workers.
        self._artefact = usable(Artefact.open(Path(model), verify=False), unsafe=unsafe)
        self._call = pick(CALLS, call, kind="way of calling the model")
        self._operating_point = operating_point
        self._grader: Grader | None = None

    def load(self) -> Grader:
        if self._grader is None:
            self._grader = Grader(self._artefact, self._call(self._artefact), operating_point=self._operating_point)
        return self._grader

    def answer(self, photo: bytes) -> dict[str, Any]:
        """The published keys and our Grading. As published, the first answer's time includes loading the model."""
        start = time.perf_counter()
        grader = self.load()
        load_s = time.perf_counter() - start
        reading = grader.read(photo)
        grading = grader.grade([reading])[0]
        total_s = time.perf_counter() - start
        table = grading.to_json()
        table["timings_ms"]["total"] = round(total_s * 1000, 3)
        return table | {"requestLatency": total_s, "predictionLatency": load_s + grading.timings_ms["predict"] / 1000}


def create_app(model: str, load: str, call: str, operating_point: str, unsafe: bool) -> FastAPI:
    """Called by gunicorn in each worker, with the literals that published.py writes into its command line."""
    service = Service(model, call, operating_point, unsafe)
    one_at_a_time = CapacityLimiter(1)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        # A worker accepts no connection before this yields.
        if load == "at-start":
            service.load().warm_up()
        yield

    app = FastAPI(title="Diabetic retinopathy grading, as published", lifespan=lifespan)

    @app.get("/ping")
    async def ping() -> Response:
        return Response()

    @app.post("/invocations", response_model=None)
    async def invocations(request: Request) -> dict[str, Any] | Response:
        sent = request.headers.get("content-type", "").split(";")[0].strip().lower()
        if sent and not sent.startswith("image/") and sent not in OTHER_TYPES:
            return _refusal(
                415, f"this service reads photographs, not {sent[:80]}", "send one as image/jpeg or image/png"
            )
        photo = await request.body()
        try:
            return await to_thread.run_sync(service.answer, photo, limiter=one_at_a_time)
        except UnreadablePhoto as problem:
            return _refusal(400, problem.message, problem.hint)

    return app


def _refusal(status: int, error: str, hint: str) -> Response:
    return JSONResponse({"error": error, "hint": hint}, status)
