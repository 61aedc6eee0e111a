# mypy: ignore-errors
"""MLServer: a custom runtime for its V2 protocol, with its adaptive batching and its pool of workers."""

import json

import peer
from mlserver import MLModel
from mlserver.codecs import StringCodec
from mlserver.types import InferenceRequest, InferenceResponse


class Model(MLModel):
    async def load(self) -> bool:
        self.grader = peer.open_grader()
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        photographs = [peer.bytes_of(text) for text in payload.inputs[0].data.root]
        gradings = [json.dumps(grading) for grading in peer.grade(self.grader, photographs)]
        return InferenceResponse(model_name=self.name, outputs=[StringCodec.encode_output("gradings", gradings)])
