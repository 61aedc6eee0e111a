# mypy: ignore-errors
"""BentoML: a service with one batchable API, its adaptive batching on."""

import bentoml
import peer

BATCH = peer.SETTINGS["batch"]


@bentoml.service(workers=peer.SETTINGS["workers"], traffic={"timeout": 60}, logging={"access": {"enabled": False}})
class Service:
    def __init__(self) -> None:
        self.grader = peer.open_grader()

    if BATCH > 1:

        @bentoml.api(
            route="/invocations",
            batchable=True,
            max_batch_size=BATCH,
            max_latency_ms=peer.SETTINGS["latency_ms"],
        )
        def grade(self, photographs: list[str]) -> list[dict]:
            return peer.grade(self.grader, [peer.bytes_of(text) for text in photographs])

    else:

        @bentoml.api(route="/invocations")
        def grade(self, photographs: list[str]) -> list[dict]:
            return peer.grade(self.grader, [peer.bytes_of(text) for text in photographs])
