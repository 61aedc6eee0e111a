# mypy: ignore-errors
"""BentoML: a service with one API. Files (multipart) and text in JSON can be batched, a raw body cannot.

A file that is uploaded is a path to BentoML, and a text its own words; whichever is faster here is the one compared.
"""

from pathlib import Path
from typing import Annotated

import bentoml
import peer
from bentoml.validators import ContentType

Photograph = Annotated[Path, ContentType("image/jpeg")]
BATCHED = {
    "batchable": True,
    "max_batch_size": peer.SETTINGS["batch"],
    "max_latency_ms": peer.SETTINGS["latency_ms"],
}


@bentoml.service(workers=peer.SETTINGS["workers"], traffic={"timeout": 60}, logging={"access": {"enabled": False}})
class Service:
    def __init__(self) -> None:
        self.grader = peer.open_grader()

    if peer.SETTINGS["sent"] == "raw":

        @bentoml.api(route="/invocations")
        def grade(self, photograph: Photograph, /) -> list[dict]:
            return peer.grade(self.grader, [photograph.read_bytes()])

    elif peer.SETTINGS["sent"] == "multipart":

        @bentoml.api(route="/invocations", **BATCHED)
        def grade(self, photographs: list[Photograph]) -> list[dict]:
            return peer.grade(self.grader, [photograph.read_bytes() for photograph in photographs])

    else:

        @bentoml.api(route="/invocations", **BATCHED)
        def grade(self, photographs: list[str]) -> list[dict]:
            return peer.grade(self.grader, [peer.bytes_of(text) for text in photographs])
