"""kill -9 of `study run` at any moment: resuming repeats at most the trial in flight, and loses none."""

import json
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from fundoscope.experiment.outcome import Measured, read_outcomes
from fundoscope.experiment.watched import MARK
from fundoscope.provenance import sha256_of

KILLS, HANG_S = 24, 180
TRIALS = 60
# Each trial says that it started, starts two processes that outlive it (one without our mark's parent), and works on.
WORKER = """
import os, subprocess, sys, time
with open('started.txt', 'a') as file: file.write(sys.argv[1] + '\\n')
subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(600)'], start_new_session=True)
time.sleep(0.05)
open(os.environ['FUNDOSCOPE_READINGS'], 'w').write('{"level": %s}' % sys.argv[1])
"""


def marked(study: Path) -> list[int]:
    """What is marked as a trial of this study."""
    mark = f"{MARK}={sha256_of(str(study.resolve()).encode())[:16]}/".encode()
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                if mark in (folder / "environ").read_bytes():
                    found.append(int(folder.name))
    return found


def started(folder: Path) -> list[str]:
    """The trials that have begun."""
    path = folder / "started.txt"
    return path.read_text().split() if path.exists() else []


def test_killed_at_random_moments_a_study_loses_nothing_and_repeats_at_most_the_trial_in_flight(tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text(WORKER)
    levels = list(range(TRIALS // 2))
    (tmp_path / "x.toml").write_text(
        f'name = "x"\nworkload = "command"\nrepetitions = 2\n[factors]\nlevel = {levels}\n'
        f"[settings]\ncommand = {json.dumps([sys.executable, '-S', 'worker.py', '{level}'])}\n"
    )
    command = [sys.executable, "-m", "fundoscope.cli.main", "study", "run", "x.toml"]
    moments, start_s = random.Random(11), 0.0
    for kill in range(KILLS):
        began, had = time.monotonic(), started(tmp_path)
        running = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        # From before the study is read to some way into its second trial, at most.
        trials = kill % 3
        while len(started(tmp_path)) < len(had) + trials:
            assert running.poll() is None
            time.sleep(0.005)  # between two looks
        start_s = start_s or time.monotonic() - began if trials else start_s
        time.sleep(moments.random() * (start_s if trials == 0 else 0.08))  # a moment by chance: it is the subject
        running.send_signal(signal.SIGKILL)
        assert running.wait() == -signal.SIGKILL, "the study ended before it was killed often enough"
    assert 0 < len(list(read_outcomes(tmp_path / "studies/x/outcomes.jsonl"))) < TRIALS
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    outcomes = list(read_outcomes(tmp_path / "studies/x/outcomes.jsonl"))
    assert len(outcomes) == TRIALS
    assert len({outcome.trial.id for outcome in outcomes}) == TRIALS
    assert all(isinstance(o, Measured) and o.readings == {"level": o.trial.cell.levels["level"]} for o in outcomes)
    assert TRIALS <= len(started(tmp_path)) <= TRIALS + KILLS
    assert marked(tmp_path / "studies/x") == []
    assert not (tmp_path / "studies/x/work").exists()


def test_two_runs_of_one_study_at_once_are_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(
        'name = "x"\nworkload = "command"\nrepetitions = 1\n[factors]\nlevel = [1, 2]\n'
        '[settings]\ncommand = ["sleep", "3600"]\n'
    )
    command = [sys.executable, "-m", "fundoscope.cli.main", "study", "run", "x.toml"]
    first = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not marked(tmp_path / "studies/x"):
            assert first.poll() is None
            time.sleep(0.02)  # between two looks
        second = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert second.returncode == 2
        assert second.stderr.startswith("error: studies/x is being measured by another process\nhint: ")
        assert first.poll() is None
    finally:
        first.send_signal(signal.SIGINT)
        assert first.wait(HANG_S) == 130  # Ctrl-C ends it, and what it measured
    assert marked(tmp_path / "studies/x") == []
