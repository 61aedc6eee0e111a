import dataclasses
import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from pytest import approx

from fundoscope.errors import FundoscopeError
from fundoscope.model.network import open_network
from fundoscope.model.recipe import load_recipe
from fundoscope.model.run import TrainedModel, read_history, read_run
from fundoscope.model.train import train

RECIPE = load_recipe("demo", size=64, head_epochs=1, epochs=3)


def scores_of(rows):
    """What must agree: everything but the clock."""
    return [(row.epoch, row.phase, row.learning_rate, row.loss, row.tune_loss, row.tune_auc) for row in rows]


@pytest.fixture(scope="module")
def whole(drawn_records, tmp_path_factory):
    """A training that nothing interrupted."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    return out, list(train(RECIPE, drawn_records, out, seed=4))


def test_every_epoch_is_on_disk_with_its_time_and_its_tuning_scores(whole):
    out, rows = whole
    assert read_history(out) == rows
    assert [row.phase for row in rows] == ["head", "fine", "fine", "fine"]
    assert all(row.seconds > 0 and row.images_per_second > 0 for row in rows)
    facts = read_run(out)
    assert (facts["status"], facts["stopped_because"]) == ("trained", "all epochs done")
    assert facts["parameters"] == open_network(out / "model.keras").whole.count_params()
    assert list((out / "work").iterdir()) == []


def test_the_same_seed_gives_the_same_network_and_another_seed_another(whole, drawn_records, tmp_path):
    out, rows = whole
    again = list(train(RECIPE, drawn_records, tmp_path / "again", seed=4))
    other = list(train(RECIPE, drawn_records, tmp_path / "other", seed=5))
    assert scores_of(again) == scores_of(rows)
    weights = [open_network(folder / "model.keras").whole.get_weights() for folder in (out, tmp_path / "again")]
    assert all(np.array_equal(a, b) for a, b in zip(*weights, strict=True))
    assert other[-1].loss != approx(rows[-1].loss)


@pytest.mark.parametrize("after", [1, 2])  # after the head alone, and in the middle of fine-tuning
def test_a_resumed_training_ends_exactly_as_an_uninterrupted_one(after, whole, drawn_records, tmp_path):
    _, rows = whole
    begun = train(RECIPE, drawn_records, tmp_path / "run", seed=4)
    for _ in range(after):
        next(begun)
    begun.close()
    resumed = list(train(RECIPE, drawn_records, tmp_path / "run", seed=4))
    assert scores_of(resumed) == scores_of(rows)


def test_a_training_killed_in_mid_epoch_resumes_and_says_so(whole, drawn_records, tmp_path):
    out = tmp_path / "killed"
    recipe = tmp_path / "small.toml"
    settings = dataclasses.asdict(RECIPE) | {"name": "demo"}
    recipe.write_text("\n".join(f"{k} = {json.dumps(v)}" for k, v in settings.items() if v is not None))
    command = [sys.executable, "-m", "fundoscope.cli.main", "train", str(drawn_records.folder)]
    command += ["--recipe", str(recipe), "--seed", "4", "--out", str(out)]
    victim = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 600
    while len(read_history(out)) < 2 and victim.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)  # until the event, not for a time
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    kept = len(read_history(out))
    assert 2 <= kept < 4, "killed between the second epoch and the last"
    again = subprocess.run(command, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert f"resumed after epoch {kept}" in again.stdout
    assert scores_of(read_history(out)) == scores_of(whole[1])
    assert TrainedModel.open(out).recipe.epochs == 3


def test_a_finished_or_another_training_in_the_folder_is_not_overwritten(whole, drawn_records, tmp_path):
    out, _ = whole
    with pytest.raises(FundoscopeError, match="unfinished training with another seed"):
        next(train(RECIPE, drawn_records, out, seed=6))
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(FundoscopeError, match="holds other things"):
        next(train(RECIPE, drawn_records, tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_loss_that_is_no_number_stops_with_a_sentence_and_keeps_the_best(drawn_records, tmp_path):
    recipe = dataclasses.replace(RECIPE, head="referral", monitor="auc", learning_rate=1e30, warm_up_epochs=0)
    with pytest.raises(FundoscopeError, match="NaN or infinite in epoch 2; model.keras holds epoch 1") as diverged:
        list(train(recipe, drawn_records, tmp_path / "run", seed=4))
    assert diverged.value.hint == "lower the learning rate (it was 1e+30) and train into another folder"
    assert open_network(tmp_path / "run" / "model.keras").whole.output_shape == (None, 1)


def test_records_of_another_size_are_refused_before_anything_is_written(drawn_records, tmp_path):
    with pytest.raises(FundoscopeError, match="the records are 64 px and the recipe says 160") as wrong:
        next(train(load_recipe("demo"), drawn_records, tmp_path / "run"))
    assert wrong.value.hint.startswith("prepare them with --size 160")
    assert not (tmp_path / "run").exists()


def test_a_training_without_its_weights_leaves_nothing_behind(drawn_records, tmp_path):
    recipe = dataclasses.replace(RECIPE, backbone="MobileNet-0.25", weights=str(tmp_path / "none.h5"))
    with pytest.raises(FundoscopeError, match="there is no weights file"):
        next(train(recipe, drawn_records, tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_a_target_reached_ends_the_training_early(drawn_records, tmp_path):
    recipe = dataclasses.replace(RECIPE, head_epochs=0, epochs=50, target_auc=0.2)
    rows = list(train(recipe, drawn_records, tmp_path / "run", seed=4))
    assert len(rows) < 50
    assert read_run(tmp_path / "run")["stopped_because"] == "tuning AUC reached 0.2"
