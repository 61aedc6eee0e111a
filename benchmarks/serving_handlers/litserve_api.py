# mypy: ignore-errors
"""LitServe: a LitAPI with its own batching, started as its documentation does."""

import sys
from typing import Annotated

import litserve
import peer
from fastapi import Body


class Api(litserve.LitAPI):
    def setup(self, device) -> None:  # noqa: ARG002
        self.grader = peer.open_grader()

    def decode_request(self, request: Annotated[bytes, Body(media_type="image/jpeg")]):  # the file as it is
        return request

    def batch(self, inputs):
        return list(inputs)

    def predict(self, photographs):
        if isinstance(photographs, list):
            return peer.grade(self.grader, photographs)
        return peer.grade(self.grader, [photographs])[0]

    def unbatch(self, output):
        return output

    def encode_response(self, output):
        return output


if __name__ == "__main__":
    batching = {"max_batch_size": peer.SETTINGS["batch"], "batch_timeout": peer.SETTINGS["delay_s"]}
    server = litserve.LitServer(
        Api(api_path="/invocations", **batching),
        accelerator="cpu",
        devices=1,
        workers_per_device=peer.SETTINGS["workers"],
        fast_queue=peer.SETTINGS["fast_queue"],
    )
    server.run(host="127.0.0.1", port=int(sys.argv[1]), generate_client_file=False, log_level="warning")
