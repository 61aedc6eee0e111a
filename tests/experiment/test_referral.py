"""The workload `referral`: `fundoscope train`'s own work, timed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fundoscope.data.records import Records
from fundoscope.errors import FundoscopeError
from fundoscope.experiment.design import Design, open_design
from fundoscope.experiment.referral import ReferralJob, draw_records, records_folder
from fundoscope.experiment.setup import set_up
from fundoscope.experiment.workloads import check_workload

DESIGNS = Path(__file__).resolve().parents[2] / "designs"


# The worker's own `main`, for one task after the other: TensorFlow takes seconds to start.
WORKER = """
import sys
from pathlib import Path
from fundoscope.experiment.worker import main
sys.exit(max(main(task, task.with_suffix(".readings")) for task in map(Path, sys.argv[1:])))
"""
RECIPE = 'backbone = "tiny"\nsize = 64\nweights = "random"\nhead = "referral"\nepochs = 3\nmonitor = "auc"\n'
JOBS: dict[str, dict[str, object]] = {
    "gpu": {"device": "gpu", "backend": "tensorflow"},
    "tpu": {"device": "tpu", "backend": "tensorflow"},
    "cpu": {"epochs": 2, "threads": 1},  # the last: it holds the process to one processor
}


@pytest.fixture(scope="module")
def readings(drawn_records: Records, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, object]]:
    """What came of every job."""
    folder = tmp_path_factory.mktemp("referral")
    (folder / "little.toml").write_text(RECIPE)
    for name, job in JOBS.items():
        parameters = {"recipe": str(folder / "little.toml")} | job
        task = {"workload": "referral", "parameters": parameters, "seed": 3, "data": str(drawn_records.folder)}
        (folder / f"{name}.json").write_text(json.dumps(task))
    command = [sys.executable, "-c", WORKER, *(str(folder / f"{name}.json") for name in JOBS)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {name: json.loads((folder / f"{name}.readings").read_text()) for name in JOBS}


def test_a_trial_is_a_training_with_its_epochs_and_its_score(
    readings: dict[str, dict[str, object]], drawn_records: Records
) -> None:
    found = readings["cpu"]
    epoch_s = found["epoch_s"]
    assert isinstance(epoch_s, list)
    assert len(epoch_s) == 2
    assert found["first_epoch_s"] == epoch_s[0]
    assert found["steady_epoch_s"] == epoch_s[1]
    assert found["train_s"] >= sum(epoch_s)  # type: ignore[operator]
    assert 0 <= found["auc"] <= 1  # type: ignore[operator]
    assert (found["threads"], found["device_name"], found["devices"]) == (1, "cpu", 1)
    assert (found["data"], found["records_sha256"]) == ("files", drawn_records.digest)


@pytest.mark.parametrize(("device", "reason"), [("gpu", "no GPU: tensorflow sees"), ("tpu", "no TPU: tensorflow sees")])
def test_a_device_that_is_not_there_is_said(device: str, reason: str, readings: dict[str, dict[str, object]]) -> None:
    assert str(readings[device]["unavailable"]).startswith(reason)


def test_drawn_eyes_are_made_once(tmp_path: Path) -> None:
    job = ReferralJob(recipe="demo", drawn=100)
    made = draw_records(job, tmp_path)
    assert made == records_folder(100, 160, tmp_path)
    before = (made / "index.json").stat().st_mtime_ns
    design = Design("x", "referral", {"threads": (1, 2)}, 1, settings={"recipe": "demo", "drawn": 100})
    assert set_up(design, tmp_path, tmp_path, use={}, say=lambda _: None).data == [str(made)]
    assert (made / "index.json").stat().st_mtime_ns == before
    assert sum(Records.open(made).index["n"]["train"].values()) > 40


def test_too_few_drawn_eyes_and_no_records_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text((DESIGNS / "referral-small.toml").read_text().replace("drawn = 200", "drawn = 20"))
    with pytest.raises(FundoscopeError, match="20 drawn eyes are too few"):
        check_workload(open_design(path), str(path))
    with pytest.raises(FundoscopeError, match="no folder of records was given"):
        records_folder(0, 160, None)
