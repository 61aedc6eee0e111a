"""Workload `referral`: the first paper's training, by one of our recipes, on prepared photographs.

As published: InceptionV3, 200 epochs of batch 8, metrics, learning rate and best network kept at every epoch; ten
trainings on two GPUs and ten on a TPU. Its readings are `fundoscope train`'s own: the same code does the work.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from fundoscope.errors import FundoscopeError
from fundoscope.experiment.threads import fix_threads
from fundoscope.experiment.unavailable import Unavailable

Device = Literal["cpu", "gpu", "gpus", "tpu"]


@dataclass(frozen=True)
class ReferralJob:
    recipe: str = "published"
    device: Device = "cpu"  # gpus: all of them, every batch shared out
    backend: Literal["auto", "tensorflow", "jax", "torch"] = "auto"
    backbone: str | None = None  # these four: other than the recipe's
    weights: str | None = None
    epochs: int | None = None
    batch: int | None = None
    drawn: int = 0  # so many drawn eyes instead of records in --data: for trying the software
    threads: int = 0  # 0: all processors

    def __post_init__(self) -> None:
        if self.drawn and self.drawn < 100:
            raise ValueError(f"{self.drawn} drawn eyes are too few to learn from: 100 or more")


def run(job: ReferralJob, *, seed: int, data_folder: Path | None) -> dict[str, Any]:
    """Train once; the network itself is thrown away."""
    began = time.perf_counter()
    processors = fix_threads(job.threads)
    if job.device == "cpu":
        os.environ |= {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}
    from fundoscope.data.records import Records
    from fundoscope.model.backend import choose_backend, use_backend
    from fundoscope.model.recipe import load_recipe

    recipe = load_recipe(job.recipe, backbone=job.backbone, weights=job.weights, epochs=job.epochs, batch=job.batch)
    records = Records.open(records_folder(job.drawn, recipe.size, data_folder))
    wanted = "jax" if job.device in ("gpus", "tpu") else None  # the backend that shares a batch out
    try:
        backend = choose_backend(wanted if job.backend == "auto" else job.backend)
    except FundoscopeError as problem:
        raise Unavailable(problem.message) from None
    use_backend(backend)
    devices = _use_device(job.device, backend)
    imported = time.perf_counter()
    from fundoscope.model.train import train

    with TemporaryDirectory() as out:
        epochs = list(train(recipe, records, Path(out) / "run", seed=seed % 2**31))
    ended = time.perf_counter()
    epoch_s = [epoch.seconds + epoch.tune_seconds for epoch in epochs]
    steady = epoch_s[1:]
    return {
        "import_s": imported - began,
        "build_s": ended - imported - sum(epoch_s),  # the network, its weights, and the files of every epoch
        "epoch_s": epoch_s,
        "first_epoch_s": epoch_s[0],
        **({"steady_epoch_s": sum(steady) / len(steady)} if steady else {}),
        "train_s": ended - imported,  # as published: with metrics and checkpoints
        "images_per_s": epochs[-1].images_per_second,
        "auc": max(epoch.tune_auc for epoch in epochs),
        "losses": [epoch.loss for epoch in epochs],
        "threads": processors,
        **_facts(devices),
        "data": "drawn" if job.drawn else "files",
        "records_sha256": records.digest,
    }


def records_folder(drawn: int, size: int, data: Path | None) -> Path:
    if data is None:
        raise FundoscopeError("no folder of records was given", "give --data, the folder `data prepare` wrote")
    return data / f"drawn-{drawn}-{size}px" if drawn else data


def draw_records(job: ReferralJob, data: Path) -> Path:
    """The drawn eyes that a study without photographs trains on: made once, and reused."""
    from fundoscope.data.draw import draw_folder
    from fundoscope.data.intake import import_photographs
    from fundoscope.data.photo import Preparation
    from fundoscope.data.prepare import prepare_records
    from fundoscope.model.recipe import load_recipe

    size = load_recipe(job.recipe).size
    out = records_folder(job.drawn, size, data)
    if not (out / "index.json").exists():
        eyes = out.with_name(f"{out.name}-eyes")
        draw_folder(eyes, n=job.drawn, seed=0, size=512)
        prepare_records(import_photographs("drawn", eyes, folder=data), out, Preparation(size=size))
    return out


def _use_device(device: Device, backend: str) -> list[str]:
    """The devices the training runs on, or Unavailable."""
    import keras

    found = [str(name) for name in keras.distribution.list_devices()]
    wanted = {"cpu": "cpu", "gpu": "gpu", "gpus": "gpu", "tpu": "tpu"}[device]
    usable = [name for name in found if wanted in name.lower() or (wanted == "gpu" and "cuda" in name.lower())]
    if not usable:
        raise Unavailable(f"no {wanted.upper()}: {backend} sees {', '.join(found) or 'no device'}")
    if device == "gpus":
        if len(usable) < 2:
            raise Unavailable(f"one GPU: several need at least two, and {backend} sees {usable[0]}")
        keras.distribution.set_distribution(keras.distribution.DataParallel(devices=usable))
    return usable if device in ("gpus", "tpu") else usable[:1]


def _facts(devices: list[str]) -> dict[str, Any]:
    from fundoscope.model.backend import device_name
    from fundoscope.provenance import versions

    return {"device_name": device_name(), "devices": len(devices), "versions": versions()}
