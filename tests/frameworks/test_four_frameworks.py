"""The same network in four frameworks, each in its real environment: 4 GB, made once and kept.

They start from the same weights and see the same pictures in the same order, so what differs is the order in which
each adds its floats. That sets the tolerances: a first loss, which no training has touched, to 1e-4; the mean loss of
the first epoch to 1 %; the accuracy to what two independent samples of 2,000 test pictures could differ by.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fundoscope.experiment.environments import Environment, create, default_folder
from fundoscope.experiment.images import SHAPES
from fundoscope.experiment.networks import NETWORKS, parameter_count

pytestmark = pytest.mark.frameworks

FRAMEWORKS = ("tensorflow", "pytorch", "mxnet", "jax")
SEEDS = (0, 1, 2, 3, 4)
# Several jobs in one process: starting it takes longer than they do.
TRIALS = """
import json, sys
from pathlib import Path
from fundoscope.experiment.cnn import CnnJob, run
found = [run(CnnJob(**job), seed=seed, data_folder=Path(sys.argv[2])) for job, seed in json.loads(sys.argv[1])]
print("\\n" + json.dumps(found))
"""
Job = dict[str, Any]
CELLS: list[Job] = [
    {"dataset": dataset, "image": image, "network": network}
    for dataset in ("mnist", "cifar10")
    for image in (32, 64)
    for network in ("rede1", "rede2")
]


@pytest.fixture(scope="module")
def environments() -> dict[str, Environment]:
    chosen = os.environ.get("FUNDOSCOPE_TEST_ENVIRONMENTS", "")
    folder = Path(chosen) if chosen else default_folder()
    return {name: create(name, "cpu", folder) for name in FRAMEWORKS}


def trials(environment: Environment, jobs: list[tuple[Job, int]], data: Path) -> list[dict[str, Any]]:
    tasks = json.dumps([({"framework": environment.framework, "threads": 2} | job, seed) for job, seed in jobs])
    variables = os.environ | {"PYTHONPATH": str(environment.code)}
    command = [environment.python, "-c", TRIALS, tasks, data]
    done = subprocess.run(command, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def by_cell(environments, tmp_path_factory) -> dict[str, list[dict[str, Any]]]:
    """One batch in every cell."""
    jobs = [(cell | {"data": "drawn", "images": 128, "epochs": 1}, 0) for cell in CELLS]
    return {name: trials(env, jobs, tmp_path_factory.mktemp("none")) for name, env in environments.items()}


@pytest.fixture(scope="module")
def by_seed(environments, tmp_path_factory) -> dict[str, list[dict[str, Any]]]:
    job = {"dataset": "cifar10", "image": 32, "network": "rede1", "data": "drawn", "images": 1024, "epochs": 1}
    jobs = [(job, seed) for seed in SEEDS]
    return {name: trials(env, jobs, tmp_path_factory.mktemp("none")) for name, env in environments.items()}


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_every_framework_has_the_parameters_that_were_written_down(by_cell, name):
    wanted = [parameter_count(NETWORKS[c["network"]], c["image"], SHAPES[c["dataset"]][2]) for c in CELLS]
    assert [found["parameters"] for found in by_cell[name]] == wanted


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_the_first_loss_is_the_same_in_every_cell(by_cell, name):
    theirs = [found["initial_loss"] for found in by_cell["tensorflow"]]
    assert [found["initial_loss"] for found in by_cell[name]] == pytest.approx(theirs, rel=1e-4)


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_the_first_loss_is_the_same_for_every_seed(by_seed, name):
    theirs = [found["initial_loss"] for found in by_seed["tensorflow"]]
    assert len(set(theirs)) == len(SEEDS)
    assert [found["initial_loss"] for found in by_seed[name]] == pytest.approx(theirs, rel=1e-4)


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_the_first_epoch_goes_the_same_way(by_seed, name):
    theirs = [found["losses"][0] for found in by_seed["tensorflow"]]
    assert [found["losses"][0] for found in by_seed[name]] == pytest.approx(theirs, rel=0.01)


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_threads_are_what_was_asked_in_every_framework(by_seed, name):
    assert {found["threads"] for found in by_seed[name]} == {2}


@pytest.mark.shared
def test_all_learn_mnist_equally_well_within_noise(environments, shared_data):
    job = {"dataset": "mnist", "image": 32, "network": "rede1", "images": 6000, "epochs": 4}
    accuracy = {name: trials(env, [(job, 0)], shared_data)[0]["accuracy"] for name, env in environments.items()}
    assert min(accuracy.values()) > 0.9
    # Three standard errors of the difference of two accuracies of 0.93, each of 2,000: 3 × √(2 × 0.93 × 0.07 / 2000).
    assert max(accuracy.values()) - min(accuracy.values()) < 0.024


@pytest.mark.parametrize("name", ["pytorch", "mxnet", "jax"])
def test_no_framework_takes_a_processor_for_a_gpu(environments, name):
    code = """
import sys
from fundoscope.experiment.cnn import CnnJob, run
from fundoscope.experiment.unavailable import Unavailable
try:
    run(CnnJob(sys.argv[1], "mnist", 32, "rede1", device="gpu", images=128, data="drawn"), seed=0, data_folder=None)
except Unavailable as reason:
    print(reason)
"""
    environment = environments[name]
    variables = os.environ | {"PYTHONPATH": str(environment.code), "CUDA_VISIBLE_DEVICES": "-1"}
    done = subprocess.run([environment.python, "-c", code, name], env=variables, capture_output=True, text=True)
    assert "sees no GPU on this machine" in done.stdout
