"""The log of outcomes: what is in it stays in it, whatever happens to who writes it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fundoscope.errors import FundoscopeError
from fundoscope.experiment.design import Design
from fundoscope.experiment.outcome import Failed, Measured, Outcome, OutcomeLog, Ran, read_outcomes

DESIGN = Design("x", "cnn", {"image": (32, 64), "device": ("cpu", "gpu")}, repetitions=3)
RAN = Ran("2026-11-15T12:00:00+00:00", 1.5, "abc", ("busy",))


def outcomes() -> list[Outcome]:
    first, second, *_ = DESIGN.trials
    return [
        Measured(first, RAN, {"epoch_s": [1.0, 0.5], "accuracy": 0.9}, {"cpu_percent_mean": 180.0}),
        Failed(second, RAN, "crashed", "it ended with status 1", "Traceback …\nMemoryError é"),
    ]


def logged(path: Path) -> set[str]:
    return {outcome.trial.id for outcome in read_outcomes(path)}


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "outcomes.jsonl"
    with OutcomeLog(path, DESIGN) as log:
        for outcome in outcomes():
            log.append(outcome)
        assert logged(path) == {DESIGN.trials[0].id, DESIGN.trials[1].id}
    assert list(read_outcomes(path)) == outcomes()


@given(cut=st.integers(1, 400))
@settings(max_examples=40, deadline=None)
def test_a_line_cut_off_anywhere_is_dropped_and_its_trial_is_run_again(
    cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("cut") / "outcomes.jsonl"
    with OutcomeLog(path, DESIGN) as log:
        for outcome in outcomes():
            log.append(outcome)
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    lines = whole[:-cut].count(b"\n")
    with OutcomeLog(path, DESIGN) as log:
        kept = max(0, lines - 1)
        assert logged(path) == {trial.id for trial in DESIGN.trials[:kept]}
        for outcome in outcomes()[kept:]:
            log.append(outcome)
    assert path.read_bytes() == whole


def test_a_second_run_of_the_same_study_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "outcomes.jsonl"
    with OutcomeLog(path, DESIGN), pytest.raises(FundoscopeError, match="being measured by another process"):
        OutcomeLog(path, DESIGN).__enter__()
    with OutcomeLog(path, DESIGN):
        assert logged(path) == set()


def test_more_repetitions_go_on_and_another_design_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "outcomes.jsonl"
    with OutcomeLog(path, DESIGN) as log:
        log.append(outcomes()[0])
    more = Design("x", "cnn", DESIGN.factors, repetitions=9, order="listed")
    with OutcomeLog(path, more):
        assert len(logged(path)) == 1
    other = Design("x", "cnn", DESIGN.factors, repetitions=3, settings={"epochs": 2})
    with pytest.raises(FundoscopeError, match="another design called 'x'"):
        OutcomeLog(path, other).__enter__()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("photographs\n", "is not a log of outcomes"),
        ('{"format": 99}\n', "newer fundoscope"),
        ('{"format": 1}\n{"trial": 3}\n', "line 2 of"),
    ],
)
def test_what_is_no_log_says_so(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "outcomes.jsonl"
    path.write_text(text)
    with pytest.raises(FundoscopeError, match=message):
        list(read_outcomes(path))


WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_outcome import DESIGN, RAN
from fundoscope.experiment.outcome import Measured, OutcomeLog
with OutcomeLog(Path(sys.argv[1]), DESIGN) as log:
    for i in range(100_000):
        log.append(Measured(DESIGN.trials[0], RAN, {{"i": i, "padding": "x" * 5000}}, {{}}))
        print(i, flush=True)
"""


def test_whatever_was_reported_as_logged_survives_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "outcomes.jsonl"
    script = WRITER.format(tests=str(Path(__file__).parent))
    with subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(0.2)
        os.kill(writer.pid, signal.SIGKILL)
        said = [int(line) for line in writer.stdout.read().split()]
    with OutcomeLog(path, DESIGN):
        pass
    logged = [outcome.readings["i"] for outcome in read_outcomes(path) if isinstance(outcome, Measured)]
    assert logged == list(range(len(logged)))
    assert len(logged) > (said[-1] if said else 0)
    assert all(json.loads(line) for line in path.read_text().splitlines())
    assert not any(isinstance(outcome, Failed) for outcome in read_outcomes(path))
