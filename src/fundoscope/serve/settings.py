"""Settings of a server, and what a platform asks of it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fundoscope.quota import cores

MB = 2**20  # the platform counts its limits in these

Platform = Literal["real-time", "serverless", "batch"]
# The most one request may bring. SageMaker's own limits: sagemaker.md, rows 4 and 12.
PAYLOAD_BYTES: dict[str, int] = {"real-time": 25 * MB, "serverless": 4 * MB, "batch": 100 * MB}
# Pixels of all photographs of one request, as `data/decode.py` counts them: some thirty of twelve million each, and
# seconds of decoding. Batch transform has nobody else waiting.
REQUEST_PIXELS: dict[str, int] = {"real-time": 400_000_000, "serverless": 400_000_000, "batch": 1_600_000_000}
# Photographs predicted together. A serverless worker is sent one request at a time: there is nothing to wait for.
BATCH: dict[str, int] = {"real-time": 4, "serverless": 1, "batch": 4}


@dataclass(frozen=True)
class Settings:
    """Everything that decides a server; plain values, filled in by the command line."""

    model: Path
    stack: Literal["lean", "published"] = "lean"
    host: str = "127.0.0.1"
    port: int = 8080  # 0: any free one
    platform: Platform = "real-time"
    load: Literal["at-start", "first-request"] = "at-start"
    workers: int | None = None  # processes, each with the model in memory; None: one, or as the stack was published
    threads: int | None = None  # processors to use; None: what the quota pays for
    queue: int = 64  # photographs accepted and not yet answered, beyond which callers are sent away
    batch: int | None = None  # photographs predicted together at most; None: by platform
    batch_delay_ms: float = 0.0  # a thread waits for its batch to fill, while others work; on a CPU it gains nothing
    timeout_s: float = 60.0  # the platform gives up on a request after 60 s
    operating_point: str = "high_sensitivity"
    multi_model: bool = False
    models_root: Path = Path("/opt/ml/models")
    unsafe: bool = False
    trusted_keys: tuple[Path, ...] = ()  # public keys; one of them must have signed the artefact, where there are any
    log_requests: bool = False
    health_route: str = ""  # another address for /ping, where the platform names one
    predict_route: str = ""  # the address that Vertex AI asks for predictions
    image: str | None = None  # digest or reference of the container's image, for the answers to say

    @property
    def payload_bytes(self) -> int:
        return PAYLOAD_BYTES[self.platform]

    @property
    def request_pixels(self) -> int:
        return REQUEST_PIXELS[self.platform]

    @property
    def batch_size(self) -> int:
        return self.batch or BATCH[self.platform]

    @property
    def processes(self) -> int:
        return 1 if self.multi_model else self.workers or 1

    @property
    def predict_threads(self) -> int:
        """Of a prediction that has the processors to itself."""
        return self.threads or cores()

    @property
    def line_threads(self) -> int:
        """Predictions at once in each process, of one thread each, where there are many."""
        return max(1, self.predict_threads // self.processes)
