"""The workload `cnn`: train one of two small networks, in one of four frameworks, and say how long each part took.

Everything that could differ and is not the framework is the same in all four: the networks, their first weights, the
pictures and their order, the optimiser (momentum), the loss, the number of threads. What a framework does by itself
is left to it: how it lays out memory, compiles, uses the GPU's memory or its reduced-precision units.

Imports NumPy and the standard library only; a framework is imported when a job asks for it.
"""

import math
import platform
from collections.abc import Iterator
from dataclasses import dataclass, fields
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any, Literal, Protocol, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from fundoscope.errors import FundoscopeError
from fundoscope.experiment import images
from fundoscope.experiment.frameworks import FRAMEWORKS
from fundoscope.experiment.networks import NETWORKS, Network, initial_weights
from fundoscope.experiment.threads import fix_threads
from fundoscope.experiment.unavailable import Unavailable

MOMENTUM = 0.9
MOST_TEST_IMAGES = 2_000
MOST_EPOCHS_KEPT = 100  # in the log, one by one


@dataclass(frozen=True)
class CnnJob:
    framework: Literal["mxnet", "pytorch", "tensorflow", "jax"]
    dataset: Literal["mnist", "cifar10"]
    image: Literal[32, 64]  # pixels, both ways
    network: Literal["rede1", "rede2"]
    device: Literal["cpu", "gpu"] = "cpu"
    epochs: int = 10
    at_least_s: float = 0.0  # more epochs until all have taken so long: on a GPU they may be over before one can look
    batch: int = 128
    images: int = 0  # to train on in an epoch; 0: all there are
    learning_rate: float = 0.01
    threads: int = 0  # 0: as many as there are processors
    data: Literal["files", "drawn"] = "files"

    def __post_init__(self) -> None:
        kinds = get_type_hints(CnnJob)
        for field in fields(self):
            value, choices = getattr(self, field.name), get_args(kinds[field.name])
            if get_origin(kinds[field.name]) is Literal and value not in choices:
                raise ValueError(f"{field.name} is {value!r}, not one of {', '.join(map(str, choices))}")
        for name in ("epochs", "batch"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, not 1 or more")
        for name in ("images", "threads", "at_least_s"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} is {getattr(self, name)}, not 0 or more")
        if 0 < self.images < self.batch:
            raise ValueError(f"images is {self.images}, fewer than a batch of {self.batch}")
        if not self.at_least_s < math.inf:
            raise ValueError("at_least_s has no end")
        if not 0 < self.learning_rate < math.inf:
            raise ValueError(f"learning_rate is {self.learning_rate}, not above 0")


@dataclass(frozen=True)
class Plan:
    """What a framework is told."""

    network: Network
    image: int
    channels: int
    weights: list[NDArray[np.float32]]  # as `networks` lays them out
    learning_rate: float
    momentum: float
    gpu: bool
    threads: int


class Trainer(Protocol):
    """A network on its device, and the optimiser's state. Pictures are bytes, laid out as `CHANNELS_FIRST` of the
    trainer's module says; labels are whole numbers."""

    device_name: str
    parameters: int

    def step(self, pixels: NDArray[np.uint8], labels: NDArray[np.int64]) -> Any:
        """Train on one batch. The loss stays on the device, so that nothing waits for it."""

    def wait(self) -> None:
        """Until the device has done all it was told."""

    def losses(self, steps: list[Any]) -> list[float]:
        """What the steps returned, as numbers."""

    def classes(self, pixels: NDArray[np.uint8]) -> NDArray[np.int64]:
        """The likeliest class of each picture."""


def run(job: CnnJob, *, seed: int, data_folder: Path | None) -> dict[str, Any]:
    """Train as the job says and return the readings, in seconds where they end in _s."""
    if job.data == "files" and data_folder is None:
        raise FundoscopeError(f"the folder of {job.dataset} is not said", 'give it, or use data = "drawn"')
    threads = fix_threads(job.threads)
    clock = _Clock()
    ours, versions = _framework(job.framework)
    readings: dict[str, Any] = {"import_s": clock.lap()}
    pictures = _pictures(job, data_folder, channels_first=ours.CHANNELS_FIRST)
    readings["data_s"] = clock.lap()
    network, channels = NETWORKS[job.network], images.SHAPES[job.dataset][2]
    weights = initial_weights(network, job.image, channels, seed)
    gpu = job.device == "gpu"
    plan = Plan(network, job.image, channels, weights, job.learning_rate, MOMENTUM, gpu, threads)
    trainer: Trainer = ours.Trainer(plan)
    trainer.wait()
    readings["build_s"] = clock.lap()
    readings |= _train(trainer, pictures, job, seed)
    readings["accuracy"] = _accuracy(trainer, pictures, job.batch)
    return readings | {
        "parameters": trainer.parameters,
        "threads": threads,
        "device_name": trainer.device_name,
        "versions": versions,
        "data": job.data,
    }


class _Clock:
    def __init__(self) -> None:
        self._last = perf_counter()

    def lap(self) -> float:
        """Seconds since the last lap."""
        before, self._last = self._last, perf_counter()
        return self._last - before


def _framework(name: str) -> tuple[Any, dict[str, str]]:
    """Our module for it, and the versions in use."""
    try:
        theirs = import_module(FRAMEWORKS[name])
    except ImportError as problem:  # not installed, or a library that it loads
        raise Unavailable(f"{name} cannot be imported here: {problem}") from None
    versions = {"python": platform.python_version(), "numpy": np.__version__, name: str(theirs.__version__)}
    return import_module(f"fundoscope.experiment.frameworks.{name}"), versions


def _pictures(job: CnnJob, data_folder: Path | None, *, channels_first: bool) -> images.Pictures:
    folder = data_folder if job.data == "files" else None
    # No more than it is trained on: testing a short trial should not take longer than training it.
    limit = min(MOST_TEST_IMAGES, job.images or MOST_TEST_IMAGES)
    pictures = images.load(job.dataset, job.image, folder, train=job.images, most_test=limit)
    if len(pictures.train) < job.batch:
        raise FundoscopeError(
            f"{len(pictures.train)} pictures do not fill a batch of {job.batch}", "use a smaller batch"
        )
    return pictures.with_channels_first() if channels_first else pictures


def _train(trainer: Trainer, pictures: images.Pictures, job: CnnJob, seed: int) -> dict[str, Any]:
    epochs: list[_Epoch] = []
    while len(epochs) < job.epochs or sum(epoch.all_s for epoch in epochs) < job.at_least_s:
        epochs.append(_epoch(trainer, pictures, job, seed, len(epochs)))
        if not math.isfinite(sum(epochs[-1].losses)):
            raise FundoscopeError(f"the loss of epoch {len(epochs)} is not a number", "use a smaller learning_rate")
    epoch_s = [epoch.all_s for epoch in epochs]
    trained = len(epochs[0].losses) * job.batch
    readings = {
        "first_step_s": epochs[0].first_step_s,
        "epoch_s": epoch_s[:MOST_EPOCHS_KEPT],
        "epochs": len(epoch_s),
        "first_epoch_s": epoch_s[0],
        "train_s": sum(epoch_s),
        "images": trained,
        "initial_loss": epochs[0].losses[0],
        "losses": [sum(epoch.losses) / len(epoch.losses) for epoch in epochs[:MOST_EPOCHS_KEPT]],
    }
    if later := epoch_s[1:]:
        steady_s = sum(later) / len(later)
        readings |= {"steady_epoch_s": steady_s, "images_per_s": trained / steady_s}
    return readings


@dataclass(frozen=True)
class _Epoch:
    first_step_s: float
    all_s: float
    losses: list[float]  # of each step


def _epoch(trainer: Trainer, pictures: images.Pictures, job: CnnJob, seed: int, number: int) -> _Epoch:
    started = first = perf_counter()
    steps: list[Any] = []
    for some in batches(len(pictures.train), job.batch, seed=seed, epoch=number):
        steps.append(trainer.step(pictures.train[some], pictures.train_labels[some]))
        if number == 0 and len(steps) == 1:  # with what is compiled; later epochs are not held up here
            trainer.wait()
            first = perf_counter()
    trainer.wait()
    ended = perf_counter()
    return _Epoch(first - started, ended - started, trainer.losses(steps))


def batches(n: int, batch: int, *, seed: int, epoch: int) -> Iterator[NDArray[np.int64]]:
    """Which pictures are in which batch: the same in every framework; what does not fill the last is left out."""
    order = np.random.RandomState([seed, epoch]).permutation(n)  # the same numbers in every NumPy
    for start in range(0, n - batch + 1, batch):
        yield order[start : start + batch]


def _accuracy(trainer: Trainer, pictures: images.Pictures, batch: int) -> float:
    right, n = 0, len(pictures.test)
    for start in range(0, n, batch):
        # The last batch is filled up with the first pictures: another size would be compiled anew.
        some = np.arange(start, start + batch) % n
        kept = min(batch, n - start)
        found = trainer.classes(pictures.test[some])[:kept]
        right += int((found == pictures.test_labels[some][:kept]).sum())
    return right / n
