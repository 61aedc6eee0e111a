"""A finished run that nobody trained: drawn eyes, a network with weights that tell them apart, and its own answers."""

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fundoscope.data.draw import draw_eye
from fundoscope.data.manifest import Manifest, Photograph
from fundoscope.data.photo import Preparation, encode_png
from fundoscope.data.prepare import prepare_records
from fundoscope.data.records import Records
from fundoscope.model.backend import use_backend
from fundoscope.model.predict import predict
from fundoscope.model.predictions import Predictions
from fundoscope.model.recipe import Recipe
from fundoscope.model.scores import score_run
from fundoscope.provenance import sha256_file, sha256_of, versions, write_json

SIZE, TUNE, TEST = 64, 40, 24


@dataclass(frozen=True)
class UntrainedRun:
    folder: Path
    pixels: NDArray[np.uint8]  # the tuning photographs
    answers: NDArray[np.float32]  # the Keras model's, to them


@contextmanager
def keras_warnings_are_its_own() -> Iterator[None]:
    """Keras and tf2onnx use what NumPy and TensorFlow are about to retire; nothing we could do about it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def draw_records(folder: Path) -> Records:
    """Drawn eyes, prepared by the same code as photographs."""
    folder.mkdir(parents=True)
    photographs = []
    for index in range(TUNE + TEST):
        eye = draw_eye(7, index, size=256)
        data = encode_png(eye.pixels)
        (folder / f"{index}.png").write_bytes(data)
        split = "tune" if index < TUNE else "test"
        photographs.append(
            Photograph(
                f"{index}.png",
                eye.grade,
                patient=eye.patient,
                eye=eye.eye,
                split=split,
                sha256=sha256_of(data),
                source="drawn",
            )
        )
    return prepare_records(Manifest(tuple(photographs), folder), folder / "records", Preparation(SIZE), processes=1)[0]


def blotches(n: int, *, size: int = SIZE, seed: int = 0) -> NDArray[np.uint8]:
    """Squares of every colour: pictures as far apart as they can be."""
    rng = np.random.default_rng(seed)
    squares = rng.integers(0, 256, (n, 8, 8, 3)).repeat(size // 8, axis=1).repeat(size // 8, axis=2)
    return np.clip(squares + rng.normal(0, 10, (n, size, size, 3)), 0, 255).astype(np.uint8)


def telling_network(backbone: str, head: str, pixels: NDArray[np.uint8]) -> Any:
    """A network whose answers to these photographs differ, as those of a trained one do.

    A fresh one gives nearly the same answer to everything, and any export of it would seem to agree.
    """
    use_backend("tensorflow")
    import keras

    from fundoscope.model.network import build_network

    keras.utils.set_random_seed(1)
    network = build_network(backbone, head, size=pixels.shape[1], weights="random")
    for layer in network.backbone.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.momentum = 0.0  # one pass then sets its statistics to those of these photographs
    network.whole(pixels, training=True)
    logits = network.head.get_layer("logits")
    inputs = predict(keras.Model(network.head.inputs, logits.input), predict(network.features, pixels))
    kernel = np.random.default_rng(2).normal(0, 1, logits.kernel.shape)
    kernel *= 1.5 / (inputs @ kernel).std(axis=0)
    logits.set_weights([kernel, 0.7 - (inputs @ kernel).mean(axis=0)])
    return network.whole


def fabricate_run(folder: Path, records: Records, *, head: str = "ordinal") -> UntrainedRun:
    rows = [*records.of("tune"), *records.of("test")]
    pixels = np.concatenate([records.pixels("tune"), records.pixels("test")])
    network = telling_network("tiny", head, pixels)
    answers = predict(network, pixels)
    predictions = Predictions.of_records(rows, answers, referral_from=2)
    folder.mkdir(parents=True)
    network.save(folder / "model.keras")
    predictions.write_csv(folder / "predictions.csv")
    write_json(folder / "scores.json", score_run(predictions, resamples=200))
    write_json(folder / "run.json", _facts(folder, records, network.count_params(), head))
    return UntrainedRun(folder, pixels[:TUNE], answers[:TUNE])


def _facts(folder: Path, records: Records, parameters: int, head: str) -> dict[str, Any]:
    recipe = Recipe("by-hand", "tiny", SIZE, head=head, weights="random", epochs=1)  # type: ignore[arg-type]
    kept = ("digest", "source", "drawn", "manifest_sha256", "preparation", "rule", "n")
    return {
        "status": "done",
        "recipe": asdict(recipe),
        "seed": 5,
        "backend": "tensorflow",
        "device": "cpu",
        "precision": "float32",
        "records": {"folder": str(records.folder), **{name: records.index[name] for name in kept}},
        "versions": versions(),
        "command": "fundoscope train records --recipe by-hand.toml --out run",
        "parameters": parameters,
        "best_epoch": 1,
        "model_sha256": sha256_file(folder / "model.keras"),
    }


def change_json(path: Path, **changes: Any) -> None:
    write_json(path, json.loads(path.read_text()) | changes)
