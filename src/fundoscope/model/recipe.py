"""Recipe: everything that decides a training but the photographs and the seed. Shipped by name in recipes/."""

import dataclasses
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Literal

from fundoscope.config import build, read_toml
from fundoscope.data.batches import AUGMENTATIONS
from fundoscope.errors import FundoscopeError, nearest, pick
from fundoscope.model.backbones import BACKBONES


@dataclass(frozen=True)
class Recipe:
    name: str
    backbone: str
    size: int  # pixels a side, as the records hold them
    head: Literal["published", "referral", "ordinal"] = "ordinal"
    weights: str = "imagenet"  # or random, or a file or folder of weights
    scaling: Literal["own", "published"] = "own"
    referral_from: int = 2  # the grade from which a patient is referred
    dropout: float = 0.0

    head_epochs: int = 0  # first, the head alone over features computed once: seconds
    head_batch: int = 64
    head_learning_rate: float = 1e-3
    epochs: int = 0  # then the whole network
    batch: int = 32
    learning_rate: float = 3e-4
    optimiser: Literal["adam", "rmsprop"] = "adam"
    weight_decay: float = 0.0
    warm_up_epochs: int = 0
    schedule: Literal["plateau", "cosine"] = "plateau"
    plateau_patience: int = 5
    plateau_factor: float = 0.5
    stop_patience: int = 0  # epochs without a better tuning score before stopping; 0: never
    target_auc: float | None = None  # stop as soon as the tuning AUC reaches it

    augment: str = "fundus"
    balance: float = 0.0  # 0: as the data are; 1: every grade has the same say in the loss
    gradable_only: bool = True  # train on photographs a grader could grade
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    monitor: Literal["auc", "kappa", "both", "loss"] = "both"  # what makes an epoch the best one
    sensitivity: float = 0.95  # of the high-sensitivity operating point, on tuning photographs
    specificity: float = 0.95  # of the high-specificity one

    def __post_init__(self) -> None:
        pick(BACKBONES, self.backbone, kind="backbone")
        pick(AUGMENTATIONS, self.augment, kind="augmentation")
        checks = {
            "epochs": self.epochs + self.head_epochs >= 1,
            "batch": self.batch >= 1 and self.head_batch >= 1,
            "size": 32 <= self.size <= 2048,
            "learning_rate": self.learning_rate > 0 and self.head_learning_rate > 0,
            "referral_from": 1 <= self.referral_from <= 4,
            "dropout": 0 <= self.dropout < 1,
            "plateau_factor": 0 < self.plateau_factor < 1,
            "sensitivity": 0 < self.sensitivity < 1,
            "specificity": 0 < self.specificity < 1,
        }
        for name, holds in checks.items():
            if not holds:
                raise ValueError(f"{name} = {getattr(self, name)} cannot be")
        if self.head == "referral" and self.monitor == "kappa":
            raise ValueError("a referral head has no grades, so monitor cannot be kappa")


def shipped_recipes() -> dict[str, Path]:
    folder = Path(str(resources.files("fundoscope.model") / "recipes"))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def load_recipe(name_or_file: str, **changes: object) -> Recipe:
    """A shipped recipe by name, or any TOML file; `changes` are the command line's own settings."""
    shipped = shipped_recipes()
    if name_or_file in shipped:
        path = shipped[name_or_file]
    elif name_or_file.endswith(".toml"):
        path = Path(name_or_file)
    else:
        hint = f"use {nearest(name_or_file, shipped)}, or a file that ends in .toml"
        raise FundoscopeError(f"there is no recipe called '{name_or_file}'", hint)
    table = {"name": path.stem} | read_toml(path)
    recipe = build(Recipe, table, where=path.name)
    try:
        return dataclasses.replace(recipe, **{k: v for k, v in changes.items() if v is not None})  # type: ignore[arg-type]
    except ValueError as problem:
        raise FundoscopeError(str(problem), "change that value") from None
