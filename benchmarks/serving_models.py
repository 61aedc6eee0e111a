"""What the serving benchmark serves: MobileNet and VGG19 at 224 pixels with the published head, in every format.

Real ones are given as folders with onnx/, savedmodel/ and int8/ in them. Otherwise they are made here once, with seeded
random weights and batch statistics of drawn eyes: as large and as fast as trained ones. Of their accuracy nothing can
be said, nor then of what INT8 does to it.
"""

import multiprocessing
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fundoscope.artefact.artefact import Artefact
from fundoscope.errors import FundoscopeError
from fundoscope.provenance import sha256_file, versions, write_json

BACKBONES = {"MobileNet": "MobileNet", "VGG19": "VGG19"}
SIZE, EYES, SEED = 224, 48, 11
CALIBRATION = 32  # photographs of them are for tuning
FORMATS = ("onnx", "savedmodel")


@dataclass(frozen=True)
class Model:
    """One network in the formats it is served in."""

    name: str
    onnx: Path
    savedmodel: Path
    int8: Path | None
    guard: str  # what is known of INT8's accuracy
    weights: str  # trained, or random

    @property
    def refused(self) -> bool:
        return self.guard.startswith("refused")

    @property
    def guarded(self) -> str:
        """In a word, for a table."""
        return "guard " + self.guard.partition(":")[0]


def find_or_make(name: str, given: Path | None, cache: Path) -> Model:
    if given is not None:
        return _open(name, given, weights="trained")
    folder = cache / "models" / name
    if not all((folder / format / "artefact.json").is_file() for format in FORMATS):
        print(f"making {name} with random weights in {folder} …", file=sys.stderr, flush=True)
        _in_a_process_of_its_own(_make, name, folder)
    if not (folder / "int8" / "artefact.json").is_file():
        _in_a_process_of_its_own(_quantise, name, folder)
    return _open(name, folder, weights="random")


def _open(name: str, folder: Path, *, weights: str) -> Model:
    paths = {format: folder / format for format in FORMATS}
    for format, path in paths.items():
        if (found := Artefact.open(path)).format != format:
            raise FundoscopeError(f"{path} holds {found.format}", f"export {name} there with --format {format}")
    int8, guard = folder / "int8", "no INT8 model"
    if (int8 / "artefact.json").is_file():
        refused = Artefact.open(int8).refused
        guard = "passed" if refused is None else f"refused: {refused}"
        if weights == "random":
            guard = "not tried: the weights are random"
    return Model(name, paths["onnx"], paths["savedmodel"], int8 if int8.is_dir() else None, guard, weights)


def _in_a_process_of_its_own(function: Any, *arguments: Any) -> None:
    """TensorFlow's memory and threads are not to stay in a process that measures."""
    process = multiprocessing.get_context("spawn").Process(target=function, args=arguments)
    process.start()
    process.join()
    if process.exitcode != 0:
        raise FundoscopeError(f"{function.__name__.strip('_')} of {arguments[0]} failed", "its own words are above")


def _make(name: str, folder: Path) -> None:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    from fundoscope.artefact.export import export

    run = folder / "run"
    if not (run / "run.json").is_file():
        _fabricate_run(name, run)
    for format in FORMATS:
        export(run, folder / format, format=format)  # type: ignore[arg-type]


def _fabricate_run(name: str, run: Path) -> None:
    """A folder as a training leaves it, of a network that nobody trained."""
    from fundoscope.model.predict import predict
    from fundoscope.model.predictions import Predictions
    from fundoscope.model.scores import score_run

    records = _drawn_records(run.parent / "eyes")
    rows = [*records.of("tune"), *records.of("test")]
    pixels = np.concatenate([records.pixels("tune"), records.pixels("test")])
    network = _telling_network(BACKBONES[name], pixels)
    answers = predict(network, pixels)
    predictions = Predictions.of_records(rows, answers, referral_from=2)
    run.mkdir(parents=True, exist_ok=True)
    network.save(run / "model.keras")
    predictions.write_csv(run / "predictions.csv")
    write_json(run / "scores.json", score_run(predictions, resamples=100))
    write_json(run / "run.json", _facts(BACKBONES[name], run, records, network.count_params()))


def _drawn_records(folder: Path) -> Any:
    from fundoscope.data.draw import draw_eye
    from fundoscope.data.manifest import Manifest, Photograph
    from fundoscope.data.photo import Preparation, encode_png
    from fundoscope.data.prepare import prepare_records
    from fundoscope.provenance import sha256_of

    folder.mkdir(parents=True, exist_ok=True)
    photographs = []
    for index in range(EYES):
        eye = draw_eye(SEED, index, size=512)
        data = encode_png(eye.pixels)
        (folder / f"{index}.png").write_bytes(data)
        who = {"patient": eye.patient, "eye": eye.eye, "source": "drawn", "sha256": sha256_of(data)}
        split = "tune" if index < CALIBRATION else "test"
        photographs.append(Photograph(f"{index}.png", eye.grade, split=split, **who))  # type: ignore[arg-type]
    return prepare_records(Manifest(tuple(photographs), folder), folder / "records", Preparation(SIZE))[0]


def _telling_network(backbone: str, pixels: Any) -> Any:
    """Random weights whose answers differ from photograph to photograph, as a trained network's do."""
    from fundoscope.model.backend import use_backend

    use_backend("tensorflow")
    import keras

    from fundoscope.model.network import build_network
    from fundoscope.model.predict import predict

    keras.utils.set_random_seed(SEED)
    network = build_network(backbone, "published", size=SIZE, weights="random")
    for layer in network.backbone.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.momentum = 0.0  # one pass then sets its statistics to those of these photographs
    network.whole(pixels, training=True)
    logits = network.head.get_layer("logits")
    features: Any = predict(network.features, pixels)
    inputs = predict(keras.Model(network.head.inputs, logits.input), features)
    kernel = np.random.default_rng(SEED).normal(0, 1, logits.kernel.shape)
    kernel *= 1.5 / (inputs @ kernel).std(axis=0)
    logits.set_weights([kernel, 0.7 - (inputs @ kernel).mean(axis=0)])
    return network.whole


def _facts(backbone: str, run: Path, records: Any, parameters: int) -> dict[str, Any]:
    from dataclasses import asdict

    from fundoscope.model.recipe import Recipe

    recipe = Recipe("random", backbone, SIZE, head="published", weights="random", epochs=1)
    kept = ("digest", "source", "drawn", "manifest_sha256", "preparation", "rule", "n")
    return {
        "status": "done",
        "recipe": asdict(recipe),
        "seed": SEED,
        "backend": "tensorflow",
        "device": "cpu",
        "precision": "float32",
        "records": {"folder": str(records.folder), **{name: records.index[name] for name in kept}},
        "versions": versions(),
        "command": "python benchmarks/serving.py",
        "parameters": parameters,
        "best_epoch": 1,
        "model_sha256": sha256_file(run / "model.keras"),
    }


def _quantise(name: str, folder: Path) -> None:
    """INT8 by our quantiser. Its guard has nothing to judge in random weights; its measurements are not needed here."""
    from fundoscope.artefact.quantise import quantise

    print(f"quantising {name} …", file=sys.stderr, flush=True)
    quantise(folder / "onnx", folder / "eyes" / "records", folder / "int8", calibration=CALIBRATION)
