"""Predictions as Vertex AI asks for them, at the address that it names in AIP_PREDICT_ROUTE.

Its `predict` sends {"instances": [{"b64": "<base64>"}, …]} and hands {"predictions": […]} on. Its `rawPredict` hands on
any body as it is, and the answer too: a photograph sent so is answered as at /invocations.
"""

from fundoscope.serve.http import Answer, Request, json_answer
from fundoscope.serve.invoke import JSON, counted, graded, invoke, photographs, row
from fundoscope.serve.models import ONLY
from fundoscope.serve.service import Service


async def predict(service: Service, request: Request) -> Answer:
    if request.content_type != JSON:
        return await invoke(service, request, ONLY)
    return await counted(service, request, ONLY, _predict)


async def _predict(service: Service, request: Request, model: str) -> Answer:
    outcomes = await graded(service, request, model, photographs)
    service.container.answered()
    return json_answer({"predictions": [row(outcome) for outcome in outcomes]})
