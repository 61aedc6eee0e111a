"""Train a network by a recipe, an epoch at a time, each safely on disk before the next begins.

`kill -9` loses the epoch in progress and nothing else; the same command goes on from the last one, with the same order
of photographs, the same augmentation and the same optimiser state as without the interruption.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from fundoscope.data.batches import AUGMENTATIONS, batches, grade_weights, steps
from fundoscope.data.grades import grade_of, referral_of
from fundoscope.data.records import Records
from fundoscope.errors import FundoscopeError
from fundoscope.model.backbones import resolve_weights
from fundoscope.model.backend import device_name, has_gpu
from fundoscope.model.checkpoint import forget_weights, load_weights, save_network, save_weights
from fundoscope.model.layers import Augment
from fundoscope.model.network import Network, build_network, loss_of
from fundoscope.model.predict import predict
from fundoscope.model.recipe import Recipe
from fundoscope.model.run import claim_run, now, read_history, write_history
from fundoscope.model.schedule import Epoch, best_epoch, learning_rate, phase_of, reason_to_stop
from fundoscope.model.scores import quick_auc, quick_kappa
from fundoscope.provenance import command, sha256_file, versions, write_json


def train(recipe: Recipe, records: Records, out: Path, *, seed: int = 0) -> Iterator[Epoch]:
    """Train, yielding each epoch once it is on disk; those of an earlier, interrupted call come first."""
    check_fit(recipe, records)
    facts = claim_run(out, _identity(recipe, records, seed), _about(records))
    keras.utils.set_random_seed(seed)
    training = _Training.prepare(recipe, records, out, seed, facts["precision"])
    write_json(out / "run.json", facts)  # only now: without weights to start from there is no training
    history = read_history(out)
    yield from history
    phase = None
    while not (reason := reason_to_stop(recipe, history)):
        if phase is None or phase.name != phase_of(recipe, len(history) + 1):
            phase = _begin_phase(training, history)
        row = _one_epoch(training, phase, history)
        history = [*history, row]
        yield row
    write_json(out / "run.json", facts | _outcome(training, history, reason))
    forget_weights(out)


def check_fit(recipe: Recipe, records: Records) -> None:
    """Whether this recipe can learn from these records at all: asked before anything is written."""
    size = records.preparation.size
    if size != recipe.size:
        hint = f"prepare them with --size {recipe.size}, or change size in the recipe"
        raise FundoscopeError(f"the records are {size} px and the recipe says {recipe.size}", hint)
    for split in ("train", "tune"):
        if {row.grade >= recipe.referral_from for row in records.of(split)} != {True, False}:
            hint = "give it more photographs: both referred and not referred ones"
            raise FundoscopeError(f"the {split} part has photographs on one side of referral only", hint)


def _identity(recipe: Recipe, records: Records, seed: int) -> dict[str, Any]:
    """What must be the same for two calls to be one training."""
    precision = recipe.precision
    if precision == "auto":  # bfloat16 pays on tensor cores; on most processors it is emulated
        precision = "bfloat16" if has_gpu() else "float32"
    return {
        "recipe": asdict(recipe),
        "seed": seed,
        "backend": keras.config.backend(),
        "precision": precision,
        "records_digest": records.digest,
    }


def _about(records: Records) -> dict[str, Any]:
    kept = ("digest", "source", "drawn", "manifest_sha256", "preparation", "rule", "n", "commands")
    return {
        "records": {"folder": str(records.folder.resolve()), **{name: records.index[name] for name in kept}},
        "device": device_name(),
        "versions": versions(),
        "command": command(),
        "started": now(),
    }


@dataclass(frozen=True)
class _Training:
    """Everything the epochs share. Pixels stay on disk until a batch asks for them."""

    recipe: Recipe
    out: Path
    seed: int
    network: Network
    saved: Any  # what goes to model.keras: the network in float32, as it will be scored and served
    pixels: NDArray[np.uint8]
    grades: NDArray[np.int64]
    weights: NDArray[np.float32]
    rows: NDArray[np.int64]  # those of the training part that are learnt from
    tune_pixels: NDArray[np.uint8]
    tune_grades: NDArray[np.int64]

    @classmethod
    def prepare(cls, recipe: Recipe, records: Records, out: Path, seed: int, precision: str) -> "_Training":
        keras.config.set_dtype_policy("float32")
        weights = resolve_weights(recipe.backbone, recipe.weights)
        twin = None if precision == "float32" else _build(recipe, "random").whole
        keras.config.set_dtype_policy("float32" if precision == "float32" else "mixed_bfloat16")
        network = _build(recipe, weights)
        rows = records.of("train")
        grades = np.array([row.grade for row in rows])
        return cls(
            recipe=recipe,
            out=out,
            seed=seed,
            network=network,
            saved=twin or network.whole,
            pixels=records.pixels("train"),
            grades=grades,
            weights=grade_weights(grades, recipe.balance),
            rows=np.flatnonzero([row.gradable or not recipe.gradable_only for row in rows]),
            tune_pixels=records.pixels("tune"),
            tune_grades=np.array([row.grade for row in records.of("tune")]),
        )


def _build(recipe: Recipe, weights: str) -> Network:
    return build_network(
        recipe.backbone,
        recipe.head,
        size=recipe.size,
        weights=weights,
        scaling=recipe.scaling,
        dropout=recipe.dropout,
    )


@dataclass(frozen=True)
class _Phase:
    """A compiled model, where its epochs come from, and what is scored after each."""

    name: str
    model: Any
    epoch: Callable[[int], dict[str, Any]]  # epoch number -> arguments of fit
    images: int
    tune: NDArray[Any]
    predictor: Any  # tune -> probabilities


def _begin_phase(training: _Training, history: list[Epoch]) -> _Phase:
    """The phase of the next epoch, as the epochs so far have left it."""
    last = history[-1] if history else None
    if last and last.phase == "head":  # whatever comes next starts from the head trained so far
        load_weights(_head_alone(training.network), training.out, last.epoch)
    name = phase_of(training.recipe, len(history) + 1)
    phase = {"head": _head_phase, "fine": _fine_phase}[name](training)
    if last and last.phase == name:
        load_weights(phase.model, training.out, last.epoch)
    return phase


def _head_alone(network: Network) -> Any:
    """A model of its own around the head: what is compiled for training must not be saved inside the network."""
    features = keras.Input(network.head.input_shape[1:], name="pooled")
    return keras.Model(features, network.head(features), name="head_alone")


def _head_phase(training: _Training) -> _Phase:
    """The head on features computed once: with a frozen backbone and no augmentation they never change."""
    network, recipe = training.network, training.recipe
    features = predict(network.features, training.pixels[training.rows])
    grades, weights = training.grades[training.rows], training.weights[training.rows]

    def epoch(number: int) -> dict[str, Any]:
        order = np.random.default_rng([training.seed, number]).permutation(len(features))
        data = {"x": features[order], "y": grades[order], "sample_weight": weights[order]}
        return {**data, "batch_size": recipe.head_batch}

    model = _head_alone(network)
    _compile(model, recipe)
    tune = predict(network.features, training.tune_pixels)
    return _Phase("head", model, epoch, len(features), tune, model)


def _fine_phase(training: _Training) -> _Phase:
    """The whole network on turned and recoloured photographs."""
    recipe, whole = training.recipe, training.network.whole
    pixels = keras.Input((recipe.size, recipe.size, 3), dtype="uint8", name="photographs")
    transform, colour = keras.Input((8,), name="transform"), keras.Input((4,), name="colour")
    changed = Augment(dtype="float32", name="augment")(pixels, transform, colour)
    model = keras.Model([pixels, transform, colour], whole(changed), name="trainer")
    _compile(model, recipe)
    augmentation, n = AUGMENTATIONS[recipe.augment], len(training.rows)

    def generate(number: int) -> Iterator[Any]:
        drawing = {"size": recipe.size, "augmentation": augmentation, "seed": training.seed, "epoch": number}
        for b in batches(training.rows, batch=recipe.batch, **drawing):  # type: ignore[arg-type]
            inputs = (training.pixels[b.rows], b.transform, b.colour)
            yield inputs, training.grades[b.rows], training.weights[b.rows]

    def epoch(number: int) -> dict[str, Any]:
        return {"x": generate(number), "steps_per_epoch": steps(n, recipe.batch)}

    images = steps(n, recipe.batch) * min(recipe.batch, n)
    return _Phase("fine", model, epoch, images, training.tune_pixels, whole)


def _compile(model: Any, recipe: Recipe) -> None:
    options: dict[str, Any] = {"learning_rate": recipe.learning_rate, "global_clipnorm": 1.0}
    if recipe.weight_decay:
        options["weight_decay"] = recipe.weight_decay
    kinds = {"adam": keras.optimizers.Adam, "rmsprop": keras.optimizers.RMSprop}
    optimiser = kinds[recipe.optimiser](**options)
    if recipe.weight_decay:
        optimiser.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    model.compile(optimizer=optimiser, loss=loss_of(recipe.head, referral_from=recipe.referral_from))
    optimiser.build(model.trainable_variables)  # so that its state can be loaded before the first step


def _one_epoch(training: _Training, phase: _Phase, history: list[Epoch]) -> Epoch:
    """Fit once over the photographs, score the tuning part, and put both on disk."""
    recipe, out, number = training.recipe, training.out, len(history) + 1
    rate = learning_rate(recipe, history)
    phase.model.optimizer.learning_rate = rate
    _seed_dropout(phase.model, training.seed, number)
    began, stop_on_nan = time.perf_counter(), keras.callbacks.TerminateOnNaN()
    fitted = phase.model.fit(**phase.epoch(number), shuffle=False, verbose=0, callbacks=[stop_on_nan])
    seconds, loss = time.perf_counter() - began, float(fitted.history["loss"][-1])
    if not np.isfinite(loss):
        raise _diverged(training, history)
    row = _score(recipe, phase, training.tune_grades, number=number, rate=rate, loss=loss, seconds=seconds)
    if best_epoch(recipe, [*history, row]) is row:
        if training.saved is not training.network.whole:
            training.saved.set_weights(training.network.whole.get_weights())
        save_network(training.saved, out / "model.keras")
    save_weights(phase.model, out, number)
    write_history(out, [*history, row])
    forget_weights(out, but=number)
    return row


def _seed_dropout(model: Any, seed: int, epoch: int) -> None:
    """Keras saves no random state: set it from (seed, epoch), like everything else an epoch draws."""
    states = [variable for variable in model.variables if "seed_generator" in variable.path]
    for i, state in enumerate(states):
        state.assign(np.random.SeedSequence([seed, epoch, i]).generate_state(2, np.uint32))


def _score(
    recipe: Recipe, phase: _Phase, grades: NDArray[np.int64], *, number: int, rate: float, loss: float, seconds: float
) -> Epoch:
    began = time.perf_counter()
    probabilities = predict(phase.predictor, phase.tune)
    losses = loss_of(recipe.head, referral_from=recipe.referral_from)(grades, probabilities)
    referral = referral_of(probabilities, recipe.referral_from)
    return Epoch(
        epoch=number,
        phase=phase.name,
        learning_rate=rate,
        loss=loss,
        tune_loss=float(np.mean(keras.ops.convert_to_numpy(losses))),
        tune_auc=quick_auc(grades >= recipe.referral_from, referral),
        tune_kappa=None if probabilities.shape[1] == 1 else quick_kappa(grades, grade_of(probabilities)),
        seconds=seconds,
        tune_seconds=time.perf_counter() - began,
        images_per_second=phase.images / seconds,
    )


def _diverged(training: _Training, history: list[Epoch]) -> FundoscopeError:
    best = best_epoch(training.recipe, history)
    kept = f"model.keras holds epoch {best.epoch}, the best before it" if best else "no epoch was finished"
    rate = learning_rate(training.recipe, history)
    return FundoscopeError(
        f"the loss became NaN or infinite in epoch {len(history) + 1}; {kept}",
        f"lower the learning rate (it was {rate:g}) and train into another folder",
    )


def _outcome(training: _Training, history: list[Epoch], reason: str) -> dict[str, Any]:
    best = best_epoch(training.recipe, history)
    assert best is not None  # a recipe has at least one epoch
    return {
        "status": "trained",
        "parameters": training.network.whole.count_params(),
        "backbone_parameters": training.network.backbone.count_params(),
        "finished": now(),
        "seconds": sum(row.seconds + row.tune_seconds for row in history),
        "stopped_because": reason,
        "best_epoch": best.epoch,
        "model_sha256": sha256_file(training.out / "model.keras"),
    }
