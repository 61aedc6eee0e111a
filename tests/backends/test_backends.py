"""The same training under JAX and PyTorch: `make test-backends`, in an environment that has them."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.backend

RECIPE = """
backbone = "tiny"
size = 64
head = "ordinal"
weights = "random"
head_epochs = 1
epochs = 3
batch = 16
learning_rate = 2e-3
augment = "fundus"
"""


def fundoscope(*words):
    said = subprocess.run(
        [sys.executable, "-m", "fundoscope.cli.main", *map(str, words), "--json"], capture_output=True, text=True
    )
    assert said.returncode == 0, said.stdout + said.stderr
    return json.loads(said.stdout)


@pytest.fixture(scope="module", params=["jax", "torch"])
def run(request, drawn_records, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "small.toml").write_text(RECIPE)
    out = folder / "run"
    command = ("train", drawn_records.folder, "--recipe", folder / "small.toml", "--backend", request.param)
    return request.param, out, fundoscope(*command, "--out", out)


def test_a_network_trains_and_its_loss_falls(run):
    backend, out, _ = run
    facts = json.loads((out / "run.json").read_text())
    assert facts["backend"] == backend
    losses = [json.loads(line)["loss"] for line in (out / "history.jsonl").read_text().splitlines()]
    assert len(losses) == 4
    assert losses[-1] < losses[1]


def test_the_export_agrees_with_the_backend_that_trained_it(run, tmp_path):
    _, out, _ = run
    fundoscope("export", out, "--format", "onnx", "--out", tmp_path / "artefact")
    parity = json.loads((tmp_path / "artefact" / "artefact.json").read_text())["parity"]
    assert parity["largest_difference"] < 1e-4
    assert set(parity["referral_flips"].values()) == {0}


def test_another_backend_says_the_same_of_every_photograph(run):
    _backend, out, trained = run
    again = fundoscope("evaluate", out, "--backend", "tensorflow")
    assert again["scores"]["auc"]["value"] == pytest.approx(trained["scores"]["auc"]["value"], abs=1e-3)
