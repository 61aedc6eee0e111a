"""What an epoch does next, read off the epochs before it: the learning rate, whether it was the best, whether to stop.

Pure functions of the recipe and the history. A resumed training reads the history from disk and so continues exactly
as it would have without the interruption; there is no other state to lose.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fundoscope.model.recipe import Recipe


@dataclass(frozen=True)
class Epoch:
    """One line of history.jsonl."""

    epoch: int  # from 1
    phase: str  # "head": the head alone, on features computed once; "fine": the whole network
    learning_rate: float
    loss: float
    tune_loss: float
    tune_auc: float
    tune_kappa: float | None  # None where the head gives no grades
    seconds: float  # of training; the tuning scores come after
    tune_seconds: float
    images_per_second: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def phase_of(recipe: Recipe, epoch: int) -> str:
    return "head" if epoch <= recipe.head_epochs else "fine"


def learning_rate(recipe: Recipe, history: Sequence[Epoch]) -> float:
    """Of the epoch that follows `history`."""
    if phase_of(recipe, len(history) + 1) == "head":
        return recipe.head_learning_rate
    fine = [row for row in history if row.phase == "fine"]
    done, warm_up = len(fine), recipe.warm_up_epochs
    if done < warm_up:
        return recipe.learning_rate * (done + 1) / (warm_up + 1)
    if recipe.schedule == "cosine":
        progress = (done - warm_up) / max(recipe.epochs - warm_up, 1)
        return recipe.learning_rate * max(0.5 * (1 + math.cos(math.pi * progress)), 0.01)
    return recipe.learning_rate * recipe.plateau_factor ** _reductions(recipe, fine)


def _reductions(recipe: Recipe, fine: Sequence[Epoch]) -> int:
    """How often the tuning loss has gone `plateau_patience` epochs without a new minimum."""
    best, waited, reductions = math.inf, 0, 0
    for row in fine:
        best, waited = (row.tune_loss, 0) if row.tune_loss < best else (best, waited + 1)
        if waited == recipe.plateau_patience:
            reductions, waited = reductions + 1, 0
    return reductions


def merit(recipe: Recipe, row: Epoch) -> float:
    """What makes an epoch the best: higher is better."""
    kappa = row.tune_auc if row.tune_kappa is None else row.tune_kappa
    return {
        "auc": row.tune_auc,
        "kappa": kappa,
        "both": (row.tune_auc + kappa) / 2,
        "loss": -row.tune_loss,
    }[recipe.monitor]


def best_epoch(recipe: Recipe, history: Sequence[Epoch]) -> Epoch | None:
    """The best of the last phase there was: a head on frozen features is only a start for the whole network."""
    if not history:
        return None
    last_phase = [row for row in history if row.phase == history[-1].phase]
    return max(last_phase, key=lambda row: merit(recipe, row))


def reason_to_stop(recipe: Recipe, history: Sequence[Epoch]) -> str:
    """Why no further epoch follows, or nothing."""
    if len(history) >= recipe.head_epochs + recipe.epochs:
        return "all epochs done"
    if not history or phase_of(recipe, len(history) + 1) != phase_of(recipe, recipe.head_epochs + recipe.epochs):
        return ""  # what stops a training stops its last phase only
    if history[-1].phase != phase_of(recipe, len(history) + 1):
        return ""
    if recipe.target_auc is not None and history[-1].tune_auc >= recipe.target_auc:
        return f"tuning AUC reached {recipe.target_auc:g}"
    best = best_epoch(recipe, history)
    if recipe.stop_patience and best and history[-1].epoch - best.epoch >= recipe.stop_patience:
        return f"no better tuning score in {recipe.stop_patience} epochs"
    return ""
