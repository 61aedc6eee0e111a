import dataclasses
import itertools

import keras
import numpy as np
import pytest
from pytest import approx

from fundoscope.errors import FundoscopeError
from fundoscope.model.recipe import load_recipe, shipped_recipes
from fundoscope.model.schedule import Epoch, best_epoch, learning_rate, reason_to_stop


def history(losses, *, head=0, aucs=None):
    aucs = aucs or [0.8] * len(losses)
    return [
        Epoch(i + 1, "head" if i < head else "fine", 0.1, 0.5, loss, auc, 0.6, 1.0, 0.1, 10.0)
        for i, (loss, auc) in enumerate(zip(losses, aucs, strict=True))
    ]


def test_the_plateau_schedule_is_the_one_of_the_keras_callback():
    recipe = load_recipe("published", plateau_patience=3, plateau_factor=0.5)
    losses = [1.0, 0.8, 0.85, 0.81, 0.83, 0.7, 0.71, 0.72, 0.9, 0.75, 0.74, 0.73, 0.6, 0.65]
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(recipe.learning_rate))
    callback = keras.callbacks.ReduceLROnPlateau("val_loss", factor=0.5, patience=3, min_delta=0)
    callback.set_model(model)
    callback.on_train_begin()
    for i, loss in enumerate(losses):
        assert learning_rate(recipe, history(losses[:i])) == approx(float(model.optimizer.learning_rate), rel=1e-6)
        callback.on_epoch_end(i, {"val_loss": loss})


def test_the_cosine_schedule_warms_up_and_ends_near_nothing():
    recipe = load_recipe("finetune", head_epochs=2, epochs=10, warm_up_epochs=1, learning_rate=1e-3)
    rates = [learning_rate(recipe, history([0.5] * n, head=2)) for n in range(12)]
    assert rates[:2] == [recipe.head_learning_rate] * 2
    assert rates[2] == approx(0.5e-3)
    assert rates[3] == approx(1e-3)
    assert rates[-1] == approx(1e-3 * 0.5 * (1 + np.cos(np.pi * 8 / 9)), rel=1e-6)
    assert all(a >= b for a, b in itertools.pairwise(rates[3:]))


def test_the_best_epoch_is_of_the_last_phase_even_if_the_head_alone_looked_better():
    recipe = load_recipe("finetune")
    rows = history([0.5] * 4, head=2, aucs=[0.95, 0.96, 0.90, 0.91])
    assert best_epoch(recipe, rows).epoch == 4


def test_training_stops_at_the_target_when_it_stalls_or_when_all_is_done():
    recipe = load_recipe("demo", epochs=20, target_auc=0.9)
    assert reason_to_stop(recipe, history([0.5, 0.4], aucs=[0.7, 0.89])) == ""
    assert reason_to_stop(recipe, history([0.5, 0.4], aucs=[0.7, 0.90])) == "tuning AUC reached 0.9"
    stalls = load_recipe("demo", epochs=20, stop_patience=2)
    assert reason_to_stop(stalls, history([0.5] * 3, aucs=[0.8, 0.7, 0.7])) == "no better tuning score in 2 epochs"
    assert reason_to_stop(stalls, []) == ""
    assert reason_to_stop(load_recipe("demo", epochs=2), history([0.5] * 2)) == "all epochs done"


def test_the_published_recipe_is_as_published():
    recipe = load_recipe("published")
    said = (recipe.backbone, recipe.size, recipe.head, recipe.epochs, recipe.batch, recipe.schedule)
    assert said == ("InceptionV3", 299, "referral", 200, 8, "plateau")


@pytest.mark.parametrize("name", ["published", "frozen", "finetune", "demo"])
def test_every_shipped_recipe_loads(name):
    assert load_recipe(name).name == name
    assert name in shipped_recipes()


def test_a_misspelt_setting_and_an_impossible_value_are_one_sentence(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('backbone = "VGG19"\nsize = 224\nepochs = 3\nlerning_rate = 0.1\n')
    with pytest.raises(FundoscopeError, match="no setting in mine.toml called 'lerning_rate'") as wrong:
        load_recipe(str(file))
    assert wrong.value.hint == "use learning_rate"
    file.write_text('backbone = "VGG19"\nsize = 224\nepochs = "three"\n')
    with pytest.raises(FundoscopeError, match="'epochs' in mine.toml is 'three', not a whole number"):
        load_recipe(str(file))
    with pytest.raises(FundoscopeError, match="epochs = 0 cannot be"):
        load_recipe("demo", epochs=0)
    with pytest.raises(FundoscopeError, match="no recipe called 'finetun'") as near:
        load_recipe("finetun")
    assert near.value.hint.startswith("use finetune")
    assert dataclasses.asdict(load_recipe("demo", batch=8))["batch"] == 8
