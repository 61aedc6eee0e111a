"""With the TensorFlow of the development environment; the four together are in tests/frameworks."""

import dataclasses
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from fundoscope.experiment.cnn import CnnJob, batches
from fundoscope.experiment.images import load
from fundoscope.experiment.networks import NETWORKS, initial_weights, parameter_count

SMALL = CnnJob("tensorflow", "mnist", 32, "rede1", epochs=2, images=300, threads=1, data="drawn")
JOBS = {
    "small": SMALL,
    "learning": dataclasses.replace(SMALL, images=1024, epochs=6, dataset="cifar10"),
    "one epoch": dataclasses.replace(SMALL, epochs=1),
    "by the clock": dataclasses.replace(SMALL, epochs=1, at_least_s=1.5),
    "not installed": dataclasses.replace(SMALL, framework="mxnet"),
    "no GPU": dataclasses.replace(SMALL, device="gpu"),
    "no processors": dataclasses.replace(SMALL, threads=5000),
    "no number": dataclasses.replace(SMALL, learning_rate=1e9),
    "no folder": dataclasses.replace(SMALL, data="files"),
}
# In a process of its own: threads and processors are fixed for the whole of it. One for all of them: TensorFlow takes
# seconds to start. The clock of one job moves on by a quarter of a second whenever it is looked at.
TRIALS = """
import itertools, json, os, sys
from fundoscope.errors import FundoscopeError
from fundoscope.experiment import cnn
from fundoscope.experiment.unavailable import Unavailable
found, clock = {}, cnn.perf_counter
for name, job in json.loads(sys.argv[1]).items():
    cnn.perf_counter = itertools.count(0, 0.25).__next__ if name == "by the clock" else clock
    try:
        found[name] = cnn.run(cnn.CnnJob(**job), seed=7, data_folder=None)
        found[name] |= {"processors": len(os.sched_getaffinity(0)), "omp": os.environ["OMP_NUM_THREADS"]}
    except (Unavailable, FundoscopeError) as problem:
        found[name] = {type(problem).__name__: str(problem)}
print("\\n" + json.dumps(found))
"""


@pytest.fixture(scope="module")
def trials() -> dict:
    """What came of every job."""
    command = [sys.executable, "-c", TRIALS, json.dumps({name: dataclasses.asdict(job) for name, job in JOBS.items()})]
    variables = os.environ | {"CUDA_VISIBLE_DEVICES": "-1"}  # these tests say what happens without a GPU
    done = subprocess.run(command, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def readings(trials) -> dict:
    return trials["small"]


def test_the_readings_are_those_that_analysis_knows(readings):
    assert set(readings) - {"processors", "omp"} == {
        *("import_s", "data_s", "build_s", "first_step_s", "epoch_s", "first_epoch_s", "steady_epoch_s", "train_s"),
        *("epochs", "images", "images_per_s", "parameters", "initial_loss", "losses", "accuracy"),
        *("threads", "device_name", "versions", "data"),
    }


def test_times_add_up(readings):
    first, second = readings["epoch_s"]
    assert readings["train_s"] == pytest.approx(first + second)
    assert (readings["first_epoch_s"], readings["steady_epoch_s"]) == (first, second)
    assert 0 < readings["first_step_s"] < first
    assert readings["images_per_s"] == pytest.approx(256 / second)


def test_pictures_that_do_not_fill_a_batch_are_left_out(readings):
    assert readings["images"] == 256  # two batches of 128, of 300


def test_the_network_is_the_one_that_was_written_down(readings):
    assert readings["parameters"] == parameter_count(NETWORKS["rede1"], 32, 1)


def test_threads_and_processors_are_held_to_what_was_asked(readings):
    assert (readings["threads"], readings["processors"], readings["omp"]) == (1, 1, "1")


def test_versions_and_device_are_said(readings):
    assert readings["versions"]["numpy"] == np.__version__
    assert set(readings["versions"]) == {"python", "numpy", "tensorflow"}
    assert (readings["device_name"], readings["data"]) == ("cpu", "drawn")


def test_the_first_loss_is_what_numpy_computes_from_the_same_weights_and_pictures(readings):
    pictures = load("mnist", 32, None, train=300, most_test=1)
    some = next(batches(300, 128, seed=7, epoch=0))
    conv1, bias1, conv2, bias2, dense1, bias3, dense2, bias4 = initial_weights(NETWORKS["rede1"], 32, 1, seed=7)
    x = pictures.train[some].astype(np.float64) / 255
    x = pooled(convolved(x, conv1) + bias1)
    x = pooled(convolved(x, conv2) + bias2)
    x = np.maximum(x.reshape(128, -1) @ dense1 + bias3, 0) @ dense2 + bias4
    log_total = np.log(np.exp(x).sum(axis=1))
    loss = (log_total - x[np.arange(128), pictures.train_labels[some]]).mean()
    assert readings["initial_loss"] == pytest.approx(loss, rel=1e-5)


def convolved(x: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """3 × 3, same size: nine shifted pictures."""
    size = x.shape[1]
    wide = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    return sum(wide[:, i : i + size, j : j + size] @ kernel[i, j] for i in range(3) for j in range(3))


def pooled(x: np.ndarray) -> np.ndarray:
    n, size, _, channels = x.shape
    return np.maximum(x, 0).reshape(n, size // 2, 2, size // 2, 2, channels).max(axis=(2, 4))


def test_training_teaches_it_the_drawn_classes(trials):
    found = trials["learning"]
    assert found["accuracy"] > 0.7  # 0.1 by chance
    assert found["losses"][-1] < found["losses"][0] / 2


def test_one_epoch_has_no_steady_state(trials):
    found = trials["one epoch"]
    assert len(found["epoch_s"]) == 1
    assert not {"steady_epoch_s", "images_per_s"} & set(found)


def test_epochs_go_on_until_they_have_taken_as_long_as_asked(trials):
    found = trials["by the clock"]
    assert found["epoch_s"] == [0.5, 0.25, 0.25, 0.25, 0.25]  # the first step of all is timed too
    assert (found["epochs"], found["train_s"]) == (5, 1.5)


def test_a_framework_that_is_not_installed_is_unavailable(trials):
    assert trials["not installed"] == {"Unavailable": "mxnet cannot be imported here: No module named 'mxnet'"}


def test_a_machine_without_a_gpu_is_said_to_be_so(trials):
    assert trials["no GPU"] == {"Unavailable": "TensorFlow sees no GPU on this machine"}


def test_more_threads_than_processors_are_unavailable(trials):
    found = trials["no processors"]
    assert list(found) == ["Unavailable"]
    assert found["Unavailable"].startswith("the cell asks for 5000 threads")


def test_a_loss_that_is_no_number_is_an_error(trials):
    found = trials["no number"]
    assert list(found) == ["FundoscopeError"]
    assert found["FundoscopeError"].endswith("is not a number")


def test_files_without_a_folder_are_an_error(trials):
    assert trials["no folder"] == {"FundoscopeError": "the folder of mnist is not said"}


def test_every_picture_is_seen_once_in_an_epoch_and_in_another_order_in_the_next():
    first, second = (np.concatenate(list(batches(256, 64, seed=3, epoch=epoch))) for epoch in (0, 1))
    assert sorted(first) == list(range(256))
    assert (first != second).any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"framework": "caffe"}, "framework is 'caffe', not one of mxnet, pytorch, tensorflow, jax"),
        ({"image": 48}, "image is 48, not one of 32, 64"),
        ({"epochs": 0}, "epochs is 0, not 1 or more"),
        ({"batch": -1}, "batch is -1, not 1 or more"),
        ({"images": 100}, "images is 100, fewer than a batch of 128"),
        ({"threads": -2}, "threads is -2, not 0 or more"),
        ({"at_least_s": -1.0}, "at_least_s is -1.0, not 0 or more"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0, not above 0"),
        ({"learning_rate": float("nan")}, "learning_rate is nan, not above 0"),
    ],
)
def test_a_job_that_cannot_be_is_refused(change, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        dataclasses.replace(SMALL, **change)
