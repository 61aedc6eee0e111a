"""A study in a real MLflow: a database in a file, and the server that people look at it with."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest

from fundoscope.errors import FundoscopeError
from fundoscope.experiment.design import Trial
from fundoscope.experiment.mlflow import export
from fundoscope.experiment.outcome import Failed, Measured, Outcome, OutcomeLog, Ran
from fundoscope.experiment.study import Study, open_study, plan_study

pytestmark = [pytest.mark.mlflow, pytest.mark.filterwarnings("default")]  # MLflow's own warnings are MLflow's

DESIGN = """
name = "training"
workload = "command"
repetitions = 2
[factors]
framework = ["jax", "mxnet"]
batch = [8, 64]
[settings]
command = ["true", "{framework}", "{epochs}"]
epochs = 3
"""
MACHINE = "0123456789abcdef"
STARTED_MS = 1_767_225_600_000  # 2026-01-01 in UTC, by `date -d 2026-01-01T00:00:00Z +%s`
SERIES = """at_s,cpu_percent,memory_mb,processes,gpu_percent,gpu_memory_mb,gpu_watts
0.0,0,100,1,,,
10.0,150,250,2,40,1000,75.5
"""


def ran(wall_s: float = 12.5, *flags: str) -> Ran:
    return Ran("2026-01-01T00:00:00+00:00", wall_s, MACHINE, flags)


def measured(trial: Trial) -> Measured:
    readings = {
        "train_s": 9.0,
        "epoch_s": [4.0, 3.0, 2.0],
        "losses": [1.5, 0.75, 0.5],
        "accuracy": 0.875,
        "parameters": 1234,
        "device_name": "a processor",
        "versions": {"jax": "0.10.2"},
    }
    return Measured(trial, ran(12.5, "busy"), readings, {"cpu_percent_mean": 150.0, "memory_mb_max": 250.0})


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """Eight trials, one of which failed and was tried again, and one of which failed for good."""
    folder = tmp_path / "study"
    folder.mkdir()
    (folder / "design.toml").write_text(DESIGN)
    found = plan_study(folder)
    first, second, *others = found.design.trials
    keep(found, Failed(first, ran(), "timed out", "it had not ended after 12.5 s"))
    keep(
        found, Failed(second, ran(3.25), "out of memory", "the system ended it for want of memory", "allocating\nmore")
    )
    for trial in (first, *others):
        keep(found, measured(trial))
    found.keep_series(first.id, SERIES)
    (folder / "machines").mkdir()
    (folder / "machines" / f"{MACHINE}.json").write_text(json.dumps({"processor": "A Processor", "processors": 2}))
    return open_study(folder)


def keep(study: Study, outcome: Outcome) -> None:
    with OutcomeLog(study.log, study.design) as log:
        log.append(outcome)


@pytest.fixture
def tracking(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/mlflow.db"


def runs_of(tracking: str, name: str = "training") -> dict[str, Any]:
    """By the name of the run, of which there must be one each."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking)
    found = client.search_runs([client.get_experiment_by_name(name).experiment_id])
    assert len({run.info.run_name for run in found}) == len(found)
    return {run.info.run_name: run for run in found}


def history(tracking: str, run: Any, name: str) -> list[tuple[int, int, float]]:
    from mlflow.tracking import MlflowClient

    found = MlflowClient(tracking).get_metric_history(run.info.run_id, name)
    return sorted((m.step, m.timestamp - STARTED_MS, m.value) for m in found)


def test_a_trial_is_a_run_with_its_levels_readings_and_times(study: Study, tracking: str) -> None:
    assert export(study, tracking) == 8
    runs = runs_of(tracking)
    assert sorted(runs) == sorted(trial.id for trial in study.design.trials)
    first = study.design.trials[0]
    run = runs[first.id]
    assert run.info.status == "FINISHED"
    assert (run.info.start_time, run.info.end_time) == (STARTED_MS, STARTED_MS + 12_500)
    assert run.data.params == {
        "framework": first.cell.levels["framework"],
        "batch": str(first.cell.levels["batch"]),
        "epochs": "3",
        "command": '["true", "{framework}", "{epochs}"]',
    }
    scalars = {name: value for name, value in run.data.metrics.items() if not name.startswith("system/")}
    assert scalars == {
        "train_s": 9.0,
        "epoch_s": 2.0,  # the last
        "losses": 0.5,
        "accuracy": 0.875,
        "parameters": 1234.0,
        "wall_s": 12.5,
        "cpu_percent_mean": 150.0,
        "memory_mb_max": 250.0,
    }
    assert [(step, value) for step, _, value in history(tracking, run, "epoch_s")] == [(1, 4.0), (2, 3.0), (3, 2.0)]
    tags = {
        "cell": first.cell.name,
        "repetition": str(first.repetition),
        "machine": MACHINE,
        "processor": "A Processor",
        "flags": "busy",
        "fundoscope.design": study.design.digest,
        "said.device_name": "a processor",
        "versions.jax": "0.10.2",
    }
    assert {name: run.data.tags[name] for name in tags} == tags
    assert run.data.tags["fundoscope.trial"].endswith(f"/{first.id}")


def test_samples_are_system_metrics_in_mlflow_s_names_and_units(study: Study, tracking: str) -> None:
    """Names as in mlflow/system_metrics/metrics/{cpu,gpu}_monitor.py; of all processors; megabytes of 10^6 bytes."""
    export(study, tracking)
    run = runs_of(tracking)[study.design.trials[0].id]
    found = {name: history(tracking, run, name) for name in run.data.metrics if name.startswith("system/")}
    assert found == {
        "system/cpu_utilization_percentage": [(0, 0, 0.0), (1, 10_000, 75.0)],
        "system/system_memory_usage_megabytes": [(0, 0, pytest.approx(104.8576)), (1, 10_000, pytest.approx(262.144))],
        "system/gpu_0_utilization_percentage": [(1, 10_000, 40.0)],
        "system/gpu_0_memory_usage_megabytes": [(1, 10_000, pytest.approx(1048.576))],
        "system/gpu_0_power_usage_watts": [(1, 10_000, 75.5)],
    }


def test_a_failure_is_a_run_that_failed_with_its_reason(study: Study, tracking: str) -> None:
    export(study, tracking)
    failed = {name: run for name, run in runs_of(tracking).items() if run.info.status == "FAILED"}
    second = study.design.trials[1]
    assert list(failed) == [second.id]
    run = failed[second.id]
    said = [run.data.tags[name] for name in ("failure", "reason", "last_words")]
    assert said == ["out of memory", "the system ended it for want of memory", "allocating\nmore"]
    assert run.data.metrics == {"wall_s": 3.25}
    assert run.data.params["framework"] == second.cell.levels["framework"]


def test_the_study_file_is_the_experiment_s_description(study: Study, tracking: str) -> None:
    from mlflow.tracking import MlflowClient

    export(study, tracking)
    tags = MlflowClient(tracking).get_experiment_by_name("training").tags
    assert tags["mlflow.note.content"] == f"```toml\n{DESIGN}\n```"
    assert tags["fundoscope.design"] == study.design.digest


def test_exporting_again_writes_only_what_is_new(study: Study, tracking: str, tmp_path: Path) -> None:
    assert export(study, tracking) == 8
    before = {name: run.info.run_id for name, run in runs_of(tracking).items()}
    assert export(study, tracking) == 0
    moved = study.folder.rename(tmp_path / "moved")
    assert export(open_study(moved), tracking) == 0
    assert {name: run.info.run_id for name, run in runs_of(tracking).items()} == before

    second = study.design.trials[1]
    keep(open_study(moved), measured(second))
    assert export(open_study(moved), tracking) == 1
    after = runs_of(tracking)
    assert after[second.id].info.status == "FINISHED"
    assert [name for name, run in after.items() if before[name] != run.info.run_id] == [second.id]


def test_a_run_that_was_cut_off_is_written_anew(study: Study, tracking: str) -> None:
    from mlflow.tracking import MlflowClient

    export(study, tracking)
    cut = runs_of(tracking)[study.design.trials[2].id]
    MlflowClient(tracking).update_run(cut.info.run_id, "RUNNING")
    assert export(study, tracking) == 1
    assert {run.info.status for run in runs_of(tracking).values()} == {"FINISHED", "FAILED"}


def test_the_same_design_measured_twice_is_two_studies(study: Study, tracking: str, tmp_path: Path) -> None:
    from mlflow.tracking import MlflowClient

    export(study, tracking)
    folder = tmp_path / "again"
    folder.mkdir()
    (folder / "design.toml").write_text(DESIGN)
    again = plan_study(folder)
    keep(again, measured(again.design.trials[0]))
    assert export(open_study(folder), tracking) == 1
    client = MlflowClient(tracking)
    assert len(client.search_runs([client.get_experiment_by_name("training").experiment_id])) == 9


def test_a_study_of_the_published_size_takes_well_under_a_minute(tmp_path: Path, tracking: str) -> None:
    """48 scenarios, five times each."""
    folder = tmp_path / "study"
    folder.mkdir()
    levels = [list(range(12)), [f"level {i}" for i in range(4)]]
    (folder / "design.toml").write_text(
        f'name = "large"\nworkload = "command"\nrepetitions = 5\n[factors]\na = {levels[0]}\nb = {levels[1]}\n'
        '[settings]\ncommand = ["true"]\n'
    )
    study = plan_study(folder)
    with OutcomeLog(study.log, study.design) as log:
        for trial in study.design.trials:
            log.append(measured(trial))
            study.keep_series(trial.id, SERIES.splitlines()[0] + "\n" + "10.0,150,250,2,40,1000,75.5\n" * 60)
    began = time.process_time()
    assert export(open_study(folder), tracking) == 240
    assert time.process_time() - began < 30


def test_the_server_shows_the_runs(study: Study, tracking: str, tmp_path: Path) -> None:
    export(study, tracking)
    with served(tracking, tmp_path) as address:
        found = asked(address, "experiments/get-by-name?experiment_name=training")
        experiment = found["experiment"]["experiment_id"]
        wanted = {"experiment_ids": [experiment], "filter": "attributes.status = 'FINISHED'", "max_results": 100}
        runs = asked(address, "runs/search", wanted)["runs"]
        assert len(runs) == 7
        run = next(run for run in runs if run["info"]["run_name"] == study.design.trials[0].id)
        metrics = {metric["key"]: metric["value"] for metric in run["data"]["metrics"]}
        assert (metrics["train_s"], metrics["accuracy"], metrics["wall_s"]) == (9.0, 0.875, 12.5)
        assert {"key": "epochs", "value": "3"} in run["data"]["params"]
        # And a server takes them as a database does.
        again = Study(study.folder, study.design)
        assert export(again, address) == 0
        keep(again, measured(study.design.trials[1]))
        assert export(again, address) == 1
        assert len(asked(address, "runs/search", wanted)["runs"]) == 8


@contextmanager
def served(tracking: str, folder: Path) -> Iterator[str]:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["-m", "mlflow", "server", "--backend-store-uri", tracking, "--host", "127.0.0.1", "--port", str(port)]
    environment = os.environ | {"MLFLOW_DISABLE_TELEMETRY": "true"}
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, *words, "--workers", "1"], cwd=folder, env=environment, stdout=log, stderr=log
        )
    try:
        address, by = f"http://127.0.0.1:{port}", time.monotonic() + 120
        while not is_up(address):
            assert process.poll() is None, (folder / "server.log").read_text()
            assert time.monotonic() < by
            time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait(30)


def is_up(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except URLError:
        return False


def asked(address: str, what: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    data = json.dumps(body).encode() if body else None
    request = urllib.request.Request(f"{address}/api/2.0/mlflow/{what}", data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return dict(json.load(answer))


def test_what_cannot_be_written_to_is_an_error_with_a_hint(study: Study, tmp_path: Path) -> None:
    (tmp_path / "other.db").write_bytes(b"not a database" * 100)
    others = f"sqlite:///{tmp_path}/other.db"
    for tracking in (others, "sqlite:////dev/null/mlflow.db", "ftp://nowhere", "http://127.0.0.1:9"):
        with pytest.raises(FundoscopeError) as refused:
            export(study, tracking)
        assert tracking in refused.value.message
        assert refused.value.hint
    from mlflow.tracking import MlflowClient

    tracking = f"sqlite:///{tmp_path}/mlflow.db"
    export(study, tracking)
    client = MlflowClient(tracking)
    client.delete_experiment(client.get_experiment_by_name("training").experiment_id)
    with pytest.raises(FundoscopeError, match="the experiment 'training' was deleted in MLflow"):
        export(study, tracking)


def test_without_mlflow_the_error_says_how_to_install_it(study: Study) -> None:
    code = (
        "import sys; sys.modules['mlflow'] = None\n"
        "from pathlib import Path\n"
        "from fundoscope.experiment.mlflow import export\n"
        "from fundoscope.experiment.study import open_study\n"
        "from fundoscope.errors import FundoscopeError\n"
        "try: export(open_study(Path(sys.argv[1])), 'sqlite:///x.db')\n"
        "except FundoscopeError as problem: print(problem.message, '|', problem.hint)"
    )
    words = [sys.executable, "-c", code, str(study.folder)]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert said.strip() == "MLflow is not installed here | pip install 'fundoscope[mlflow]'"
