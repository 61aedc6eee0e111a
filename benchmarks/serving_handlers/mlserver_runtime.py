# mypy: ignore-errors
"""MLServer: a custom runtime with its pool of workers: raw bytes to a handler of our own, or its V2 protocol.

Only what comes by the V2 protocol, in JSON and so in base64, can be batched.
"""

import json
from typing import Annotated

import peer
from fastapi import Body
from mlserver import MLModel
from mlserver.codecs import StringCodec
from mlserver.handlers import custom_handler
from mlserver.types import InferenceRequest, InferenceResponse


class Model(MLModel):
    async def load(self) -> bool:
        self.grader = peer.open_grader()
        return True

    @custom_handler(rest_path="/invocations")
    async def grade(self, photograph: Annotated[bytes, Body(media_type="image/jpeg")]) -> dict:
        return peer.grade(self.grader, [photograph])[0]

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        photographs = [peer.bytes_of(text) for text in payload.inputs[0].data.root]
        gradings = [json.dumps(grading) for grading in peer.grade(self.grader, photographs)]
        return InferenceResponse(model_name=self.name, outputs=[StringCodec.encode_output("gradings", gradings)])
