"""The runner with real workers: what goes well is measured, what goes badly is one outcome with its reason, and
nothing is left running."""

import json
import os
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
from pytest import approx

from fundoscope.errors import FundoscopeError
from fundoscope.experiment.design import Design, open_design
from fundoscope.experiment.limits import Limits, limited
from fundoscope.experiment.machine import this_machine
from fundoscope.experiment.measure import Task, measure
from fundoscope.experiment.outcome import Failed, Measured, Outcome, OutcomeLog, read_outcomes
from fundoscope.experiment.runner import missing, run
from fundoscope.experiment.sampler import Sampler, descendants
from fundoscope.experiment.study import Study
from fundoscope.experiment.watched import MARK, adopting_orphans
from fundoscope.experiment.workloads import Place, check_workload, environments_of

LEVELS = {"script": ("one", "two")}
SAMPLE_S = 0.05


def outcome_of(script: str, tmp_path: Path, *, timeout_s: float = 300, program: str = sys.executable) -> Outcome:
    """What a worker that runs this Python comes to."""
    settings = {"command": [program, "-c", "{code}"], "code": script}
    design = Design("x", "command", LEVELS, 1, settings=settings)
    task = Task(
        f"test-{os.getpid()}", design.trials[0], "command", design.settings, 7, timeout_s, SAMPLE_S, place(tmp_path)
    )
    observation = measure(task)
    assert observation.machine == this_machine()
    return observation.outcome


def place(tmp_path: Path) -> Place:
    return Place(environments=str(tmp_path / "environments"), scratch=str(tmp_path), folder=str(tmp_path))


def failure(script: str, tmp_path: Path, *, timeout_s: float = 300, program: str = sys.executable) -> Failed:
    found = outcome_of(script, tmp_path, timeout_s=timeout_s, program=program)
    assert isinstance(found, Failed)
    assert running() == []
    return found


def running() -> list[int]:
    """What is marked as a trial of this test process."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if f"{MARK}=test-{os.getpid()}".encode() in (folder / "environ").read_bytes():
                    found.append(int(folder.name))
            except OSError:
                continue
    return found


WRITES = "import json, os; json.dump({readings}, open(os.environ['FUNDOSCOPE_READINGS'], 'w'))"


def test_a_worker_s_readings_and_what_was_seen_of_it_are_one_outcome(tmp_path: Path) -> None:
    busy = "import time\nwhile time.process_time() < 0.6: pass\n"
    found = outcome_of(busy + WRITES.format(readings={"epoch_s": [0.25, 0.5], "accuracy": 0.75}), tmp_path)
    assert isinstance(found, Measured)
    assert found.readings == {"epoch_s": [0.25, 0.5], "accuracy": 0.75}
    assert found.ran.machine == this_machine().digest
    assert found.ran.wall_s > 0.6  # one thread
    assert 0.6 < found.usage["cpu_s"] < 5
    assert 1 < found.usage["memory_mb_max"] < 500
    assert 1 <= found.usage["samples"] <= found.ran.wall_s / SAMPLE_S + 1


def test_samples_add_up_to_the_processor_seconds_that_were_used() -> None:
    busy = """
import time
print('ready', flush=True)
input()
before = time.process_time()
while time.process_time() < before + 0.5: pass
print(time.process_time() - before, flush=True)
input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        with Sampler(process.pid, 0.02) as sampler:
            wait_for_samples(sampler, 1)
            process.stdin.write("go\n")
            used_s = float(process.stdout.readline())
            wait_for_samples(sampler, 2)
        process.stdin.write("end\n")
    rows = list(pairwise(sampler.samples))
    assert sum(after.cpu_percent / 100 * (after.at_s - row.at_s) for row, after in rows) == approx(used_s, abs=0.03)
    assert {row.processes for row in sampler.samples} == {1}
    assert sampler.usage()["samples"] == len(sampler.samples) <= sampler.samples[-1].at_s / 0.02 + 1


def wait_for_samples(sampler: Sampler, more: int) -> None:
    wanted = len(sampler.samples) + more
    while len(sampler.samples) < wanted:
        time.sleep(0.005)  # between two looks


def test_children_are_measured_with_their_parent(tmp_path: Path) -> None:
    child = "import time; x = bytearray(60 * 2**20); time.sleep(1)"
    script = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {child!r}])"
    found = outcome_of(script, tmp_path)
    assert isinstance(found, Measured)
    assert found.readings == {}  # a command need not have any: its time is one
    assert found.usage["processes_max"] == 2
    assert found.usage["memory_mb_max"] > 65


@pytest.mark.parametrize(
    ("script", "kind", "reason", "words"),
    [
        (
            "raise SystemExit('the network is\\nmissing')",
            "crashed",
            "it ended with status 1",
            "the network is\nmissing",
        ),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "crashed", "it was ended by SIGSEGV", ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "crashed", "it was ended by SIGKILL", ""),
        (
            "import atexit; atexit.register(print, 'bye'); raise MemoryError",
            "out of memory",
            "it ended with status 1 for want of memory",
            "MemoryError\nbye",
        ),
        (
            "open('/dev/full', 'w').write('x' * 99999)",
            "disk full",
            "it ended with status 1: no space left on device",
            "No space left on device",
        ),
        (WRITES.format(readings=[1]), "no readings", "it ended well, and left no readings that can be read", ""),
        (
            "import os; open(os.environ['FUNDOSCOPE_READINGS'], 'wb').write(os.urandom(1000))",
            "no readings",
            "it ended well, and left no readings that can be read",
            "",
        ),
        (
            "import os; open(os.environ['FUNDOSCOPE_READINGS'], 'w').write('{\"epoch_s\": NaN}')",
            "no readings",
            "it ended well, and left no readings that can be read",
            "",
        ),
        (
            "import os; open(os.environ['FUNDOSCOPE_READINGS'], 'w').write('[' * 5_000_000)",
            "no readings",
            "it ended well, and left no readings that can be read",
            "",
        ),
    ],
)
def test_whatever_goes_wrong_is_a_failure_with_its_reason(
    script: str, kind: str, reason: str, words: str, tmp_path: Path
) -> None:
    found = failure(script, tmp_path)
    assert (found.kind, found.reason) == (kind, reason)
    assert found.last_words.endswith(words)
    assert list(tmp_path.glob("trial-*")) == []


def test_a_worker_that_hangs_is_ended_when_its_time_is_up(tmp_path: Path) -> None:
    # A shell, which begins in two milliseconds: on the busiest machine it has spoken before its second is over.
    found = failure("trap '' TERM; echo waiting; sleep 600; sleep 600", tmp_path, timeout_s=1, program="sh")
    assert (found.kind, found.reason, found.last_words) == ("timed out", "it had not ended after 1 s", "waiting")
    assert 1 <= found.ran.wall_s < 300  # and not 600, as it would have by itself


def test_a_worker_that_never_stops_talking_fills_neither_disk_nor_memory(tmp_path: Path) -> None:
    script = (
        "import sys\nfor i in range(400_000): sys.stdout.buffer.write(b'\\xff\\0 epoch ' * 20)\nraise SystemExit(3)"
    )
    found = failure(script, tmp_path)
    assert found.reason == "it ended with status 3"
    assert len(found.last_words) <= 2000
    json.dumps(found.last_words)


def test_a_worker_that_the_system_ends_for_memory_says_so(tmp_path: Path) -> None:
    try:
        with limited(Limits(memory_mb=64, cpus=1.0)) as group:
            enter = f"open({str(group.memory / 'cgroup.procs')!r}, 'w').write(str(__import__('os').getpid()))\n"
            found = failure(enter + "x = [bytearray(2**20) for _ in range(500)]", tmp_path)
            assert (found.kind, found.reason) == ("out of memory", "the system ended it for want of memory")
    except FundoscopeError as problem:
        pytest.skip(problem.message)


LEAVES = """
import os, subprocess, sys
sleeper = [sys.executable, '-c', 'import time; time.sleep(600)']
subprocess.Popen(sleeper)                                                  # a child
subprocess.Popen(sleeper, start_new_session=True)                          # in a session of its own
if os.fork() == 0:
    os.setsid()
    subprocess.Popen(sleeper, env={{}})                                        # an orphan without our mark
    os._exit(0)
print('left')
{last}
"""


@pytest.mark.parametrize("last", ["", "raise SystemExit(1)", "import time; time.sleep(600)"])
def test_nothing_that_a_worker_started_is_left_running(last: str, tmp_path: Path) -> None:
    before = set(descendants(os.getpid()))
    timeout_s = 2 if "sleep" in last else 300  # what ends by itself has all the time it needs
    with adopting_orphans():
        found = outcome_of(LEAVES.format(last=last), tmp_path, timeout_s=timeout_s)
    assert isinstance(found, Measured if last == "" else Failed)
    assert set(descendants(os.getpid())) <= before
    assert running() == []


def test_a_command_that_is_not_there_is_a_failure_too(tmp_path: Path) -> None:
    design = Design("x", "command", LEVELS, 1, settings={"command": ["no-such-program", "{script}"]})
    task = Task("x", design.trials[0], "command", design.settings, 0, 9, 1, place(tmp_path))
    found = measure(task).outcome
    assert isinstance(found, Failed)
    assert found.reason.startswith("it could not be started: ")
    assert "no-such-program" in found.reason


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """Two cells, three repetitions, each trial of a moment; one cell always fails."""
    script = "import sys; sys.exit(3 if sys.argv[1] == 'two' else 0)"
    settings = {"command": [sys.executable, "-c", script, "{script}"]}
    found = Study(tmp_path / "study", Design("x", "command", LEVELS, 3, settings=settings, sample_s=0.05))
    found.folder.mkdir()
    return found


def test_a_study_runs_every_trial_once_and_goes_on_where_it_stopped(study: Study) -> None:
    with OutcomeLog(study.log, study.design) as log:
        running_study = run(study, log, place(study.folder))
        first = [next(running_study).trial.id for _ in range(2)]
        running_study.close()
        assert [trial.id for trial in missing(study, log)] == [trial.id for trial in study.design.trials][2:]
        rest = [outcome.trial.id for outcome in run(study, log, place(study.folder))]
    assert first + rest == [trial.id for trial in study.design.trials]
    assert [outcome.trial.id for outcome in read_outcomes(study.log)] == first + rest
    assert {path.stem for path in (study.folder / "series").glob("*.csv")} == {
        trial.id for trial in study.design.trials
    }
    assert study.machines() == {this_machine().digest: json.loads(json.dumps(this_machine().to_json()))}
    assert not study.scratch.exists()


def test_failures_are_tried_again_only_when_asked(study: Study) -> None:
    with OutcomeLog(study.log, study.design) as log:
        list(run(study, log, place(study.folder)))
        assert missing(study, log) == []
        again = [outcome.trial.id for outcome in run(study, log, place(study.folder), retry=frozenset(["crashed"]))]
    assert sorted(again) == ["C2-1", "C2-2", "C2-3"]


def test_what_a_killed_run_left_is_ended_before_the_next_begins(study: Study) -> None:
    left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env={MARK: f"{study.mark}/C1-1"})
    while left.poll() is None and MARK.encode() not in Path(f"/proc/{left.pid}/environ").read_bytes():
        time.sleep(0.01)  # it is being started
    with OutcomeLog(study.log, study.design) as log:
        list(run(study, log, place(study.folder)))
    assert left.wait(120) == -9


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"workload": '"cmmand"'}, "there is no workload called 'cmmand'"),
        ({"command": '"python3 train.py"'}, "does not say which command to run"),
        ({"command": '["python3", "{sript}"]'}, "{sript} in the command of"),
        ({"command": '["python3", "{script"]'}, "has a brace without its partner"),
    ],
)
def test_a_study_whose_command_cannot_be_is_refused_before_anything_runs(
    changes: dict[str, str], message: str, tmp_path: Path
) -> None:
    values = {"workload": '"command"', "command": '["python3", "-c", "{script}"]'} | changes
    path = tmp_path / "x.toml"
    path.write_text(
        f'name = "x"\nworkload = {values["workload"]}\nrepetitions = 1\n[factors]\nscript = ["one", "two"]\n'
        f"[settings]\ncommand = {values['command']}\n"
    )
    with pytest.raises(FundoscopeError) as refused:
        check_workload(open_design(path), str(path))
    assert message in refused.value.message
    assert refused.value.hint


def test_a_command_needs_no_environment_and_a_network_one_per_framework_and_device() -> None:
    assert environments_of(Design("x", "command", LEVELS, 1, settings={"command": ["true"]})) == []
    factors = {"device": ("cpu", "gpu"), "framework": ("mxnet", "jax"), "image": (32, 64)}
    found = environments_of(Design("x", "cnn", factors, 1))
    assert found == [("mxnet", "cpu"), ("jax", "cpu"), ("mxnet", "gpu"), ("jax", "gpu")]
