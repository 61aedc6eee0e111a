"""Workload `invoke`: an endpoint, asked when the thesis asked, or as a clinic would.

    warm       one request that does not count, then 25, five seconds apart
    cold       ten, each of a container that is started for it, its files not in memory
    real-time  25, five seconds apart, of a server that is always up
    poisson    an open loop: `requests` at `rate_per_s`, independent of each other
    trace      an open loop: the moments of a file

The endpoint is a process here, a container of an image, or SageMaker's (`endpoint`). A cold request is counted from the
start of its container to its answer; that the container was fresh is proven by what it says of itself. Throttled and
failed requests are counted, and are in no latency.

How much processor time a serverless worker has is not published: memory_mb / mb_per_cpu processors is what AWS Lambda
gives (one at 1,769 MB), and is an assumption here.
"""

import json
import re
import statistics
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from fundoscope.artefact.artefact import Artefact
from fundoscope.errors import FundoscopeError
from fundoscope.experiment import endpoints, sagemaker, schedules
from fundoscope.experiment.endpoints import Up, Worker
from fundoscope.experiment.limits import forget_files
from fundoscope.experiment.replies import Reply, ask, proven_cold, readings_of, send
from fundoscope.experiment.unavailable import Unavailable
from fundoscope.quota import cores

# What a server reads when it starts, and a host that never ran it has not in memory.
READ_AT_START = ("fundoscope", "onnxruntime", "numpy", "PIL", "simplejpeg", "uvicorn", "tensorflow", "keras")
IMAGE, SAGEMAKER = "image:", "sagemaker:"
INSTANCE = re.compile(r"ml\.[a-z0-9-]+\.(?:(\d*)x)?(medium|large)")


@dataclass(frozen=True)
class InvokeJob:
    artefact: str  # a folder, or one in --data; of an endpoint elsewhere, what it is called
    schedule: Literal["warm", "cold", "real-time", "poisson", "trace"] = "warm"
    endpoint: str = "process"  # or image:NAME, or sagemaker:NAME; {artefact} and the other fields are filled in
    memory_mb: int = 0  # a serverless worker's; 0: none
    mb_per_cpu: float = 1769.0
    instance: str = ""  # ml.m5.xlarge: as many processors as it has
    stack: Literal["lean", "published"] = "lean"
    workers: int = 0  # processes of a server here, each with the model in memory; 0: as the stack comes
    format: str = ""  # of the artefact: onnx, savedmodel; empty: any
    precision: str = ""  # of the artefact: float32, int8; empty: any
    image: str = ""  # for {image} in the endpoint
    client: Literal["http", "boto3"] = "http"  # how an endpoint here is asked; one elsewhere by boto3
    requests: int = 0  # 0: as many as the thesis sent
    every_s: float | None = None  # None: as the thesis waited; a cold container here is replaced and needs no waiting
    rate_per_s: float = 1.0  # of poisson
    trace: str = ""  # a file
    faster: float = 1.0  # than the trace was recorded
    photograph: str = ""  # a file; empty: a drawn eye
    cloudwatch_s: float = 300.0  # how long to wait for CloudWatch, of an endpoint of SageMaker's
    unsafe: bool = False  # measure even an artefact that its guard refused; advice will not take it

    def __post_init__(self) -> None:
        if min(self.memory_mb, self.requests, self.workers) < 0:
            raise ValueError("memory_mb, requests and workers cannot be below 0")
        if self.workers and self.endpoint != "process":
            raise ValueError("workers can be chosen for a process here, not for an image or an endpoint elsewhere")
        if not self.mb_per_cpu > 0:
            raise ValueError(f"mb_per_cpu is {self.mb_per_cpu:g}, not above 0")
        if self.memory_mb and self.instance:
            raise ValueError("a worker has memory_mb or is an instance, not both")
        if self.instance and not INSTANCE.fullmatch(self.instance):
            raise ValueError(f"'{self.instance}' is no instance type such as ml.m5.xlarge")
        if (self.schedule == "trace") != bool(self.trace):
            raise ValueError("the schedule trace, and no other, has a file called trace")
        if self.endpoint != "process" and not self.endpoint.startswith((IMAGE, SAGEMAKER)):
            raise ValueError(f"endpoint is '{self.endpoint}', not process, image:NAME or sagemaker:NAME")
        try:
            self.named_endpoint()
        except (KeyError, IndexError, ValueError):
            raise ValueError(f"endpoint is '{self.endpoint}', in which braces name a field of the job") from None

    def named_endpoint(self) -> str:
        return self.endpoint.format_map(asdict(self))

    def worker(self) -> Worker:
        if self.instance:
            return Worker(0, vcpus(self.instance))
        return Worker(self.memory_mb, self.memory_mb / self.mb_per_cpu)

    def when(self, seed: int, *, replaced: bool) -> schedules.Schedule:
        """`replaced`: a cold container is replaced, not waited for."""
        if self.schedule == "poisson":
            return schedules.poisson(self.requests or 100, self.rate_per_s, seed)
        if self.schedule == "trace":
            return schedules.trace(Path(self.trace), faster=self.faster)
        make = {"warm": schedules.warm, "cold": schedules.cold, "real-time": schedules.real_time}[self.schedule]
        given: dict[str, Any] = {"requests": self.requests} if self.requests else {}
        if self.every_s is not None or (replaced and self.schedule == "cold"):
            given["every_s"] = self.every_s or 0.0
        return make(**given)


def vcpus(instance: str) -> int:
    """ml.*.large has 2, xlarge 4, 2xlarge 8 and so on, in all families that serve."""
    found = INSTANCE.fullmatch(instance)
    assert found is not None
    return 4 * int(found[1] or 1) if found[1] is not None else 2


def run(job: InvokeJob, *, seed: int, data_folder: Path | None) -> dict[str, Any]:
    photo = _photograph(job, seed)
    if job.named_endpoint().startswith(SAGEMAKER):
        replies, more = _elsewhere(job, photo, seed, data_folder)
    else:
        replies, more = _here(job, photo, seed, data_folder)
    return readings_of(replies) | more | {"photograph_bytes": len(photo)}


def _here(job: InvokeJob, photo: bytes, seed: int, data: Path | None) -> tuple[list[Reply], dict[str, Any]]:
    artefact, worker, schedule = _artefact(job, data), job.worker(), job.when(seed, replaced=True)
    worker.check()
    start, files = _starter(job, artefact)
    used: list[dict[str, float]] = []
    try:
        if schedule.cold:
            replies: list[Reply] = []
            for _ in schedule.at_s:
                forget_files(*files)
                with start() as up:
                    replies.append(proven_cold(ask(up.ask, photo, up.began, cold=True), replies, ours=True))
                    used.append(up.used())
                    if up.killed_for_memory():
                        raise MemoryError
        else:
            with start() as up:
                replies = send(schedule, up.ask, photo)
                used.append(up.used())
                if up.killed_for_memory():
                    raise MemoryError
    except MemoryError:
        raise MemoryError(f"the server was ended for want of memory at {job.memory_mb} MB") from None
    refused = Artefact.open(artefact, verify=False).refused or ""
    most = {name: max(each[name] for each in used) for name in used[0]}
    return replies, {**most, "cpus": worker.cpus or float(cores()), "artefact_refused": refused}


Start = Callable[[], AbstractContextManager[Up]]


def _starter(job: InvokeJob, artefact: Path) -> tuple[Start, list[Path]]:
    """How its server is started, and what that reads."""
    platform = "real-time" if job.schedule == "real-time" or job.instance else "serverless"
    worker, name = job.worker(), job.named_endpoint()
    if name == "process":
        more = {"platform": platform, "stack": job.stack, "client": job.client}
        start = partial(endpoints.process, artefact, worker, unsafe=job.unsafe, workers=job.workers, **more)
        return start, [artefact, *_libraries()]
    image = name.removeprefix(IMAGE)
    contained = partial(
        endpoints.container, image, artefact, worker, platform=platform, stack=job.stack, client=job.client
    )
    return contained, [artefact, *endpoints.image_files(image)]


def _elsewhere(job: InvokeJob, photo: bytes, seed: int, data: Path | None) -> tuple[list[Reply], dict[str, Any]]:
    """SageMaker's: what the cell says it is must be what it is, and CloudWatch's figures come beside ours."""
    name = job.named_endpoint().removeprefix(SAGEMAKER)
    described = sagemaker.describe(name)
    sagemaker.check(described, name=name, memory_mb=job.memory_mb, instance=job.instance)
    schedule, began, up = job.when(seed, replaced=False), datetime.now(UTC), endpoints.sagemaker(name)
    all_replies = send(schedule, up.ask, photo)
    replies = all_replies
    if schedule.cold:
        replies = [proven_cold(reply, all_replies[:i], ours=False) for i, reply in enumerate(all_replies)]
    answered = [reply for reply in replies if reply.latency_s is not None]
    if not answered:
        return replies, {}
    sent = sum(reply.latency_s is not None for reply in all_replies) + schedule.uncounted
    return replies, _guard(job, data, answered[0]) | _cloudwatch(name, described, job, began, sent, answered)


def _guard(job: InvokeJob, data: Path | None, reply: Reply) -> dict[str, str]:
    """Of an artefact elsewhere, where we have it here too; else nothing is said, and advice will say that."""
    try:
        artefact = _artefact(job, data)
    except (FundoscopeError, Unavailable):
        return {}
    about = Artefact.open(artefact, verify=False)
    if about.digest != reply.artefact:
        message = (
            f"the endpoint answers with the artefact {reply.artefact[:12] or 'without a name'}, not {job.artefact}"
        )
        raise FundoscopeError(message, f"deploy {artefact}, or take --data out")
    return {"artefact_refused": about.refused or ""}


def _cloudwatch(
    name: str, described: sagemaker.Described, job: InvokeJob, began: datetime, sent: int, answered: Sequence[Reply]
) -> dict[str, Any]:
    """Its figures beside ours. What it does not say, or to us, is no reason to lose what was measured."""
    try:
        counted = sagemaker.counted(name, described.variant, began=began, requests=sent, wait_s=job.cloudwatch_s)
    except FundoscopeError as problem:
        return {"cloudwatch_missing": sent, "cloudwatch_error": problem.message}
    return sagemaker.reconciled(
        counted,
        requests=sent,
        mean_latency_s=statistics.fmean(reply.latency_s or 0.0 for reply in answered),
        mean_processing_s=statistics.fmean(reply.processing_s for reply in answered),
    )


def _artefact(job: InvokeJob, data: Path | None) -> Path:
    """In --data, under its name or, where there are several of it, under its format or precision."""
    format = job.format or ("savedmodel" if job.stack == "published" else "")
    wanted = {"format": format, "precision": job.precision}
    places = [folder for folder in ((data / job.artefact) if data else None, Path(job.artefact)) if folder]
    found = [
        path for place in places for path in (place, *sorted(place.glob("*"))) if (path / "artefact.json").is_file()
    ]
    if not found:
        hint = "give a folder that `fundoscope export` wrote, or --data, the folder that it is in"
        raise FundoscopeError(f"{job.artefact} is not an artefact", hint)
    for path in found:
        about = json.loads((path / "artefact.json").read_text(encoding="utf-8"))
        if all(not value or about.get(name) == value for name, value in wanted.items()):
            return path.resolve()
    asked = ", ".join(f"{name} {value}" for name, value in wanted.items() if value)
    raise Unavailable(f"there is no {job.artefact} of {asked} in {places[0]}")


def _photograph(job: InvokeJob, seed: int) -> bytes:
    if job.photograph:
        try:
            return Path(job.photograph).read_bytes()
        except OSError as problem:
            raise FundoscopeError(f"{job.photograph} cannot be read: {problem.strerror}", "check the path") from None
    from fundoscope.data.draw import draw_eye

    return draw_eye(seed % 1000, 0).jpeg()


def _libraries() -> list[Path]:
    found = []
    for name in READ_AT_START:
        spec = find_spec(name)
        if spec is not None and spec.origin:
            found.append(Path(spec.origin).parent)
    return found
