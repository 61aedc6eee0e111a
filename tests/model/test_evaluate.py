import dataclasses
import json
import shutil

import keras
import numpy as np
import pytest
from PIL import Image
from pytest import approx

from fundoscope.data.grades import referral_of
from fundoscope.errors import FundoscopeError
from fundoscope.model.evaluate import SEEN, evaluate_on, evaluate_run
from fundoscope.model.gallery import choose, grad_cam, overlay, referral_log_odds
from fundoscope.model.network import build_network
from fundoscope.model.predict import predict
from fundoscope.model.predictions import Predictions
from fundoscope.model.recipe import load_recipe
from fundoscope.model.run import TrainedModel
from fundoscope.model.sweep import sweep
from fundoscope.model.train import train


@pytest.fixture(scope="module")
def run(drawn_records, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "run"
    list(train(load_recipe("demo", size=64, epochs=3), drawn_records, out, seed=1))
    return out, evaluate_run(out, drawn_records)


def test_every_tuning_and_test_photograph_is_predicted_and_none_of_training(run, drawn_records):
    out, scores = run
    predictions = Predictions.read_csv(out / "predictions.csv")
    expected = {row.id for row in drawn_records.rows if row.split != "train"}
    assert set(predictions.id) == expected
    assert scores["test"]["n"] == len(drawn_records.of("test"))
    assert predictions.probabilities.sum(axis=1) == approx(np.ones(len(predictions)), abs=1e-5)
    assert predictions.referral == approx(predictions.probabilities[:, 2:].sum(axis=1), abs=1e-5)
    assert json.loads((out / "run.json").read_text())["status"] == "done"


def test_the_gallery_shows_pictures_with_their_overlays(run):
    out, _ = run
    shown = json.loads((out / "gallery.json").read_text())
    assert 1 <= len(shown) <= 12
    for item in shown:
        for name in ("picture", "overlay"):
            with Image.open(out / item[name]) as picture:
                assert picture.size == (224, 224)
        assert (item["kind"] == "right") == (item["story"].endswith("rightly"))


def test_another_set_is_scored_without_what_was_learnt_from(run, other_manifest, tmp_path):
    out = tmp_path / "copy"
    shutil.copytree(run[0], out)
    scores = evaluate_on(TrainedModel.open(out), other_manifest, "others", processes=1)
    assert scores["about"]["left_out"] == {SEEN: 4}
    assert scores["test"]["n"] == 40
    predictions = Predictions.read_csv(out / "on" / "others" / "predictions.csv")
    assert len(predictions) == 40
    assert json.loads((out / "on" / "others" / "scores.json").read_text())["test"] == scores["test"]
    assert not (out / "on" / "others" / "records").exists()


def test_a_manifest_of_seen_photographs_only_is_refused(run, drawn_manifest):
    learnt = tuple(p for p in drawn_manifest.photographs if p.split == "train")
    only = dataclasses.replace(drawn_manifest, photographs=learnt)
    with pytest.raises(FundoscopeError, match="no photograph of this manifest is left"):
        evaluate_on(TrainedModel.open(run[0]), only, "seen")


def test_prediction_does_not_depend_on_the_batch():
    network = build_network("tiny", "ordinal", size=64, weights="random").whole
    pixels = np.random.default_rng(0).integers(0, 256, (7, 64, 64, 3)).astype(np.uint8)
    one, many = predict(network, pixels, batch=1), predict(network, pixels, batch=4)
    assert many == approx(one, abs=1e-5)
    assert predict(network, pixels[:0]).shape == (0, 5)


@pytest.mark.parametrize("head", ["published", "referral", "ordinal"])
def test_grad_cam_is_the_gradient_that_tensorflow_computes(head):
    import tensorflow as tf

    keras.utils.set_random_seed(7)
    network = build_network("tiny", head, size=64, weights="random")
    feature_map = np.random.default_rng(3).gamma(1.0, 1.0, (1, 2, 2, 96)).astype(np.float32)
    given = tf.Variable(feature_map)
    with tf.GradientTape() as tape:
        p = network.head(tf.reduce_mean(given, axis=(1, 2)))
        referral = p[:, 0] if head == "referral" else tf.reduce_sum(p[:, 2:], axis=1)
        log_odds = tf.math.log(referral / (1 - referral))
    gradient = tape.gradient(log_odds, given).numpy()[0].mean(axis=(0, 1))  # the weights of Selvaraju et al. 2017
    expected = np.maximum(feature_map[0] @ gradient, 0)
    assert grad_cam(feature_map[0].astype(np.float64), network.head, referral_from=2) == approx(
        expected / expected.max() if expected.max() > 0 else expected, abs=2e-3
    )
    pooled = feature_map.mean(axis=(1, 2)).astype(np.float64)
    assert referral_log_odds(network.head, pooled, 2) == approx(log_odds.numpy(), abs=1e-4)


def test_an_overlay_without_evidence_is_the_photograph_itself():
    photograph = np.random.default_rng(0).integers(0, 256, (32, 32, 3)).astype(np.uint8)
    assert (overlay(photograph, np.zeros((4, 4))) == photograph).all()
    glowing = overlay(photograph, np.eye(4))
    assert (glowing != photograph).any()


def test_the_gallery_takes_the_surest_mistakes():
    should = np.array([True, True, True, False, False, False])
    referral = np.array([0.9, 0.1, 0.4, 0.2, 0.99, 0.6])
    rows = choose(should, referral, 0.5, each=1)
    assert [(row, story) for row, _, story in rows] == [
        (0, "referred, rightly"),
        (3, "not referred, rightly"),
        (1, "missed"),
        (4, "referred needlessly"),
    ]


def test_referral_is_the_sum_over_referred_grades():
    p = np.array([[0.1, 0.2, 0.3, 0.25, 0.15]], np.float32)
    assert referral_of(p, 2)[0] == approx(0.7)
    assert referral_of(p, 3)[0] == approx(0.4)
    assert referral_of(np.array([[0.35]], np.float32), 2)[0] == approx(0.35)


def test_a_sweep_measures_what_it_can_and_says_why_it_cannot_the_rest(drawn_records, tmp_path):
    recipe = load_recipe("frozen", weights="random", head_epochs=2)
    entries = list(sweep(recipe, drawn_records, tmp_path, backbones=["MobileNet-0.25", "MobileNetV2-0.35"]))
    assert [entry.failed for entry in entries] == ["", ""]
    # Keras: MobileNet 0.25 has 218,544 weights without its top; 256 features into 128, 128 and 5.
    assert entries[0].parameters == 218_544 + (256 * 128 + 128) + (128 * 128 + 128) + (128 * 5 + 5)
    assert all(0 <= entry.auc <= 1 and entry.features_seconds > 0 for entry in entries)
    assert list(sweep(recipe, drawn_records, tmp_path, backbones=["MobileNet-0.25"])) == entries[:1]
    files = load_recipe("frozen", weights=str(tmp_path / "nothing"), head_epochs=2)
    failed = list(sweep(files, drawn_records, tmp_path / "failed", backbones=["VGG16"]))
    assert failed[0].auc is None
    assert "no weights file" in failed[0].failed
