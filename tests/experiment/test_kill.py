"""kill -9 of `study run` at any moment: resuming repeats at most the trial in flight, and loses none."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from fundoscope.experiment.outcome import Measured, read_outcomes
from fundoscope.experiment.watched import MARK

KILLS = 24
TRIALS = 60
# Each trial says that it started, starts two processes that outlive it (one without our mark's parent), and works on.
WORKER = """
import os, subprocess, sys, time
with open('started.txt', 'a') as file: file.write(sys.argv[1] + '\\n')
subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(600)'], start_new_session=True)
time.sleep(0.05)
open(os.environ['FUNDOSCOPE_READINGS'], 'w').write('{"level": %s}' % sys.argv[1])
"""


def marked() -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if f"{MARK}=".encode() in (folder / "environ").read_bytes():
                    found.append(int(folder.name))
            except OSError:
                continue
    return found


def test_killed_at_random_moments_a_study_loses_nothing_and_repeats_at_most_the_trial_in_flight(tmp_path: Path) -> None:
    before = set(marked())
    (tmp_path / "worker.py").write_text(WORKER)
    levels = list(range(TRIALS // 2))
    (tmp_path / "x.toml").write_text(
        f'name = "x"\nworkload = "command"\nrepetitions = 2\n[factors]\nlevel = {levels}\n'
        f"[settings]\ncommand = {json.dumps([sys.executable, '-S', 'worker.py', '{level}'])}\n"
    )
    command = [sys.executable, "-m", "fundoscope.cli.main", "study", "run", "x.toml"]
    moments, kills, start_s = random.Random(11), 0, 0.0
    while kills < KILLS:
        began = time.monotonic()
        running = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if not start_s:  # how long it takes to begin depends on the machine
            while not (tmp_path / "started.txt").exists():
                assert running.poll() is None
                time.sleep(0.005)
            start_s = time.monotonic() - began
        try:  # from before the study is read to some way into its trials
            running.wait(start_s * (0.5 + moments.random()))
            break
        except subprocess.TimeoutExpired:
            running.send_signal(signal.SIGKILL)
            kills += 1
        finally:
            running.wait()
    assert kills == KILLS, "the study ended before it was killed often enough"
    assert 0 < len(list(read_outcomes(tmp_path / "studies/x/outcomes.jsonl"))) < TRIALS
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    outcomes = list(read_outcomes(tmp_path / "studies/x/outcomes.jsonl"))
    assert len(outcomes) == TRIALS
    assert len({outcome.trial.id for outcome in outcomes}) == TRIALS
    assert all(isinstance(o, Measured) and o.readings == {"level": o.trial.cell.levels["level"]} for o in outcomes)
    started = (tmp_path / "started.txt").read_text().split()
    assert TRIALS <= len(started) <= TRIALS + KILLS
    assert set(marked()) <= before
    assert not (tmp_path / "studies/x/work").exists()


def test_two_runs_of_one_study_at_once_are_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(
        'name = "x"\nworkload = "command"\nrepetitions = 1\n[factors]\nlevel = [1, 2]\n'
        '[settings]\ncommand = ["sleep", "30"]\n'
    )
    command = [sys.executable, "-m", "fundoscope.cli.main", "study", "run", "x.toml"]
    first = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not (tmp_path / "studies/x/work").exists():
            assert first.poll() is None
            time.sleep(0.02)
        second = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert second.returncode == 2
        assert second.stderr.startswith("error: studies/x is being measured by another process\nhint: ")
        assert first.poll() is None
    finally:
        first.send_signal(signal.SIGINT)
        assert first.wait(20) == 130  # Ctrl-C ends it, and what it measured
    assert not [pid for pid in marked() if os.path.realpath(f"/proc/{pid}/cwd").startswith(str(tmp_path))]
