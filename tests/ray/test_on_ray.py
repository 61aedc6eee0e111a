"""Studies over a real Ray cluster: a head that only coordinates, and nodes that come and go; all on loopback."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Any

import pytest

from fundoscope.errors import FundoscopeError
from fundoscope.experiment.design import Design
from fundoscope.experiment.machine import this_machine
from fundoscope.experiment.outcome import Failed, Measured, Outcome, OutcomeLog, read_outcomes
from fundoscope.experiment.ray import on_ray
from fundoscope.experiment.runner import run
from fundoscope.experiment.sampler import descendants
from fundoscope.experiment.study import Study
from fundoscope.experiment.watched import MARK
from fundoscope.experiment.workloads import Place

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("default")]  # Ray's own warnings are Ray's

# A trial knows its node by the node's raylet, and tells when it ran. What it is to do is in files beside it.
SCRIPT = """
import json, os, signal, subprocess, sys, time
from pathlib import Path
began, node = time.time(), os.environ.get("RAY_RAYLET_PID", "")
lines = lambda name: Path(name).read_text().split() if Path(name).exists() else []
if sys.argv[1] in lines("deadly"):
    os.kill(os.getppid(), signal.SIGKILL)  # the actor, as a node that dies does
if {node, sys.argv[1], "all"} & set(lines("stuck")):
    Path("met").touch()
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    print("stuck", flush=True)
    time.sleep(600)
while {node, sys.argv[1]} & set(lines("waits")) and not Path("met").exists():
    time.sleep(0.02)
Path("met").touch()
time.sleep(float(sys.argv[2]))
about = {"node": node, "began": began, "ended": time.time(), "level": sys.argv[1], "nice": os.nice(0)}
about["threads"] = os.environ.get("OMP_NUM_THREADS", "not set")
about["held_back"] = len(signal.pthread_sigmask(signal.SIG_BLOCK, []))
json.dump(about, open(os.environ["FUNDOSCOPE_READINGS"], "w"))
"""
LEVELS = ("one", "two", "three")
DESIGN = f"""
name = "over-ray"
workload = "command"
repetitions = 2
sample_s = 0.1
[factors]
level = {list(LEVELS)}
[settings]
command = [{json.dumps(sys.executable)}, "trial.py", "{{level}}", "{{seconds}}"]
seconds = "0.05"
"""


@pytest.fixture(scope="module")
def ray_folder() -> Iterator[Path]:
    """Ray keeps its sockets there, whose paths must be short."""
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def cluster(ray_folder: Path) -> Iterator[Any]:
    """A head without processors, two nodes."""
    patch = pytest.MonkeyPatch()
    patch.setenv("RAY_TMPDIR", str(ray_folder))
    patch.setenv("RAY_AUTH_MODE", "disabled")
    patch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # loopback alone
    patch.delenv("OMP_NUM_THREADS", raising=False)
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "include_dashboard": False, "ray_client_server_port": free_port()}
    found = Cluster(initialize_head=True, head_node_args=head)
    found.client = f"127.0.0.1:{head['ray_client_server_port']}"
    try:
        found.add_node(num_cpus=1)
        found.add_node(num_cpus=1)
        yield found
    finally:
        found.shutdown()
        patch.undo()


def free_port() -> int:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def answers(address: str) -> bool:
    host, port = address.split(":")
    with closing(socket.socket()) as caller:
        return caller.connect_ex((host, int(port))) == 0


def study_at(folder: Path, *, repetitions: int = 4, seconds: float = 0.2, order: Any = "random") -> Study:
    settings = {"command": [sys.executable, "trial.py", "{level}", "{seconds}"], "seconds": str(seconds)}
    design = Design("x", "command", {"level": LEVELS}, repetitions, settings, order=order, sample_s=0.05)
    study = Study(folder / "study", design)
    study.folder.mkdir()
    (folder / "trial.py").write_text(SCRIPT)
    return study


def outcomes_of(
    study: Study, *, per_node: int = 1, after_first: Callable[[], None] = lambda: None
) -> dict[str, Outcome]:
    """By trial, each of which must have exactly one."""
    with OutcomeLog(study.log, study.design) as log:
        place = Place(environments="", scratch="", folder=str(study.folder.parent))
        running = run(study, log, place, on_ray("ray://auto", per_node=per_node))
        found = [next(running)]
        after_first()
        found += running
    ids = [outcome.trial.id for outcome in found]
    assert sorted(ids) == sorted(trial.id for trial in study.design.trials)
    assert [outcome.trial.id for outcome in read_outcomes(study.log)] == ids
    assert list(read_outcomes(study.log)) == found
    until(lambda: marked(study) == {})
    return dict(zip(ids, found, strict=True))


def readings_of(outcomes: dict[str, Outcome]) -> list[dict[str, Any]]:
    assert all(isinstance(outcome, Measured) for outcome in outcomes.values())
    return [dict(outcome.readings) for outcome in outcomes.values() if isinstance(outcome, Measured)]


def most_at_once(readings: list[dict[str, Any]]) -> int:
    return max(sum(a["began"] <= b["began"] < a["ended"] for a in readings) for b in readings)


def by_node(readings: list[dict[str, Any]]) -> dict[int, list[dict[str, Any]]]:
    nodes = {reading["node"] for reading in readings}
    return {int(node): [reading for reading in readings if reading["node"] == node] for node in nodes}


def marked(study: Study) -> dict[int, dict[str, str]]:
    """Processes of its trials, with their environment."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                entries = (folder / "environ").read_text(errors="replace").split("\0")
            except OSError:
                continue
            if any(entry.startswith(f"{MARK}={study.mark}/") for entry in entries):
                found[int(folder.name)] = dict(entry.split("=", 1) for entry in entries if "=" in entry)
    return found


def until(condition: Callable[[], bool], *, within_s: float = 60) -> None:
    by = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < by, "it did not come to be"
        time.sleep(0.02)


def raylet_of(node: Any) -> int:
    return int(node.all_processes["raylet"][0].process.pid)


def workers(cluster: Any) -> list[int]:
    return sorted(raylet_of(node) for node in cluster.worker_nodes)


def test_every_trial_runs_once_over_all_nodes_and_never_two_at_a_time_on_one(cluster: Any, tmp_path: Path) -> None:
    study = study_at(tmp_path)
    outcomes = outcomes_of(study)
    readings = readings_of(outcomes)
    found = by_node(readings)
    assert sorted(found) == workers(cluster)  # and not the head, which offers no processor
    assert all(most_at_once(some) == 1 for some in found.values())
    assert most_at_once(readings) == 2
    assert [outcomes[trial.id].trial for trial in study.design.trials] == list(study.design.trials)
    assert {path.stem for path in (study.folder / "series").glob("*.csv")} == set(outcomes)
    assert study.machines() == {this_machine().digest: json.loads(json.dumps(this_machine().to_json()))}


@pytest.mark.usefixtures("cluster")
def test_tasks_are_handed_out_in_the_order_of_the_design(tmp_path: Path) -> None:
    study = study_at(tmp_path, repetitions=3)
    outcomes = outcomes_of(study)
    planned = [trial.id for trial in study.design.trials]
    numbered = [
        {**reading, "number": planned.index(id)} for id, reading in zip(outcomes, readings_of(outcomes), strict=True)
    ]
    for some in by_node(numbered).values():
        order = [reading["number"] for reading in sorted(some, key=lambda reading: float(reading["began"]))]
        assert order == sorted(order)


def test_a_trial_sees_its_node_s_environment_and_not_what_ray_makes_of_it(cluster: Any, tmp_path: Path) -> None:
    readings = readings_of(outcomes_of(study_at(tmp_path, repetitions=1)))
    assert {(reading["threads"], reading["held_back"]) for reading in readings} == {("not set", 0)}
    if os.geteuid() == 0:  # others may not raise a priority that was lowered
        assert {reading["nice"] for reading in readings} == {os.getpriority(os.PRIO_PROCESS, workers(cluster)[0])}


@pytest.mark.usefixtures("cluster")
def test_two_at_a_time_on_a_node_when_asked(tmp_path: Path) -> None:
    readings = readings_of(outcomes_of(study_at(tmp_path, seconds=1), per_node=2))
    assert [most_at_once(some) for some in by_node(readings).values()] == [2, 2]


def test_a_node_that_joins_is_used(cluster: Any, tmp_path: Path) -> None:
    study = study_at(tmp_path)
    joined = []

    def join() -> None:
        (tmp_path / "met").unlink()
        (tmp_path / "waits").write_text(" ".join(map(str, workers(cluster))))  # for a trial on another node
        joined.append(cluster.add_node(num_cpus=1))

    try:
        readings = readings_of(outcomes_of(study, after_first=join))
        assert raylet_of(joined[0]) in by_node(readings)
    finally:
        for node in joined:
            cluster.remove_node(node)


def test_a_node_that_dies_loses_no_trial_and_doubles_none(cluster: Any, tmp_path: Path) -> None:
    (tmp_path / "waits").write_text(" ".join(map(str, workers(cluster))))
    doomed = cluster.add_node(num_cpus=1)
    raylet = str(raylet_of(doomed))
    (tmp_path / "stuck").write_text(raylet)  # and the others wait until a trial is
    study = study_at(tmp_path)

    def there() -> list[int]:
        return [pid for pid, env in marked(study).items() if env.get("RAY_RAYLET_PID") == raylet]

    def kill_it() -> None:
        until(lambda: len(there()) == 2)  # the trial, and what it started in a session of its own
        cluster.remove_node(doomed, allow_graceful=False)
        until(lambda: there() == [])

    readings = readings_of(outcomes_of(study, after_first=kill_it))
    assert sorted(by_node(readings)) == workers(cluster)


@pytest.mark.usefixtures("cluster")
def test_a_trial_that_ends_its_node_three_times_has_failed(tmp_path: Path) -> None:
    (tmp_path / "deadly").write_text("two")
    outcomes = outcomes_of(study_at(tmp_path, repetitions=1))
    failed = [outcome for outcome in outcomes.values() if isinstance(outcome, Failed)]
    assert [(f.trial.cell.levels, f.kind, f.reason) for f in failed] == [
        ({"level": "two"}, "crashed", "its node died three times")
    ]
    assert failed[0].ran.machine == this_machine().digest


@pytest.mark.usefixtures("cluster")
def test_what_is_raised_on_a_node_is_raised_here(tmp_path: Path) -> None:
    study = study_at(tmp_path)
    with OutcomeLog(study.log, study.design) as log, pytest.raises(FileNotFoundError, match="no-such-folder"):
        list(run(study, log, Place("", scratch="/no-such-folder", folder=str(tmp_path)), on_ray("ray://auto")))


@pytest.mark.usefixtures("cluster")
def test_a_run_that_is_given_up_ends_its_trials(tmp_path: Path) -> None:
    (tmp_path / "waits").write_text("one")
    (tmp_path / "stuck").write_text("two three")
    study = study_at(tmp_path, repetitions=1, order="listed")
    with OutcomeLog(study.log, study.design) as log:
        running = run(study, log, Place("", folder=str(tmp_path)), on_ray("ray://auto"))
        assert next(running).trial.cell.levels == {"level": "one"}
        until(lambda: len(marked(study)) == 4)  # two trials, and what they started
        running.close()
    until(lambda: marked(study) == {})


def test_what_cannot_be_is_refused_with_a_hint() -> None:
    for address in ("spark", "ray:", "ray://", "rayon://x:1"):
        with pytest.raises(FundoscopeError, match=f"--on cannot be '{address}'"):
            on_ray(address)
    with pytest.raises(FundoscopeError, match="0 trials at once"):
        on_ray("ray", per_node=0)


def test_without_ray_the_error_says_how_to_install_it() -> None:
    code = (
        "import sys; sys.modules['ray'] = None\n"
        "from fundoscope.experiment.ray import on_ray\n"
        "from fundoscope.errors import FundoscopeError\n"
        "try: on_ray('ray')\nexcept FundoscopeError as problem: print(problem.message, '|', problem.hint)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "Ray is not installed here | pip install 'fundoscope[ray]'"


def listening(pids: set[int]) -> list[IPv6Address | IPv4Address]:
    """Addresses that these processes accept connections on."""
    inodes = {str(link.readlink()) for pid in pids for link in open_files(pid)}
    found: list[IPv6Address | IPv4Address] = []
    for name in ("tcp", "tcp6"):
        for line in Path("/proc/net", name).read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in inodes:
                digits = words[1].partition(":")[0]  # four bytes at a time, the least significant first
                raw = b"".join(bytes.fromhex(digits[i : i + 8])[::-1] for i in range(0, len(digits), 8))
                address = ip_address(raw)
                found.append(address.ipv4_mapped or address if isinstance(address, IPv6Address) else address)
    assert found
    return found


def open_files(pid: int) -> list[Path]:
    try:
        return [link for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()]
    except OSError:
        return []


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextmanager
def ended_at_last(process: "subprocess.Popen[str]") -> Iterator["subprocess.Popen[str]"]:
    try:
        yield process
    finally:
        process.kill()
        process.wait()


class Typed:
    """`fundoscope study run` in a folder of its own, on a cluster that it starts."""

    def __init__(self, folder: Path, ray_folder: Path) -> None:
        (folder / "trial.py").write_text(SCRIPT)
        (folder / "x.toml").write_text(DESIGN)
        self.folder, self.study = folder, Study(folder / "studies" / "over-ray", None)  # type: ignore[arg-type]
        self.ray_folder = own = ray_folder / folder.name[-12:]
        own.mkdir(exist_ok=True)
        cleared = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        self._environment = cleared | {"RAY_TMPDIR": str(own), "HOME": str(folder)}

    def start(self, on: str = "ray", *, to: int = subprocess.PIPE, **environment: str) -> "subprocess.Popen[str]":
        words = [sys.executable, "-m", "fundoscope.cli.main", "study", "run", "x.toml", "--on", on, "--json"]
        known = self._environment | environment
        return subprocess.Popen(words, cwd=self.folder, env=known, stdout=to, stderr=to, text=True)

    def outcomes(self) -> list[Outcome]:
        return list(read_outcomes(self.study.log))


@pytest.fixture
def typed(tmp_path: Path, ray_folder: Path) -> Typed:
    return Typed(tmp_path, ray_folder)


def test_the_command_runs_a_study_on_a_cluster_of_its_own(typed: Typed) -> None:
    said, errors = typed.start().communicate(timeout=120)
    assert json.loads(said)["measured"] == 6, errors
    assert errors == ""
    assert list(typed.ray_folder.iterdir()) == []
    assert sorted(outcome.trial.id for outcome in typed.outcomes()) == sorted(
        f"C{cell}-{repetition}" for cell in (1, 2, 3) for repetition in (1, 2)
    )


def test_the_command_runs_a_study_on_a_cluster_elsewhere(cluster: Any, typed: Typed) -> None:
    until(lambda: answers(cluster.client))
    said, errors = typed.start(f"ray://{cluster.client}").communicate(timeout=120)
    assert json.loads(said)["measured"] == 6, errors
    nodes = {outcome.readings["node"] for outcome in typed.outcomes() if isinstance(outcome, Measured)}
    assert nodes <= set(map(str, workers(cluster)))
    assert len(typed.outcomes()) == 6


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_however_the_command_is_ended_nothing_is_left_and_the_same_command_goes_on(
    how: signal.Signals, typed: Typed
) -> None:
    (typed.folder / "stuck").write_text("all")
    with ended_at_last(typed.start(to=subprocess.DEVNULL)) as process:
        until(lambda: len(marked(typed.study)) == 2)
        started = set(descendants(process.pid))
        assert len(started) > 3  # Ray's processes too
        assert [address for address in listening(started) if not address.is_loopback] == []
        process.send_signal(how)
        assert process.wait(60) != 0
    until(lambda: marked(typed.study) == {})
    if how != signal.SIGKILL:  # Ray's agents take a minute to see that their node is gone
        until(lambda: not any(is_running(pid) for pid in started))
    (typed.folder / "stuck").unlink()
    said, errors = typed.start().communicate(timeout=120)
    assert json.loads(said)["measured"] == 6, errors
    assert len({outcome.trial.id for outcome in typed.outcomes()}) == len(typed.outcomes()) == 6


def test_a_cluster_that_is_not_there_is_an_error_and_no_traceback(typed: Typed) -> None:
    address = f"127.0.0.1:{free_port()}"
    nobody = f"no Ray cluster answers at {address}: [Errno 111] Connection refused\ngive "
    for on, environment, expected in (
        (f"ray://{address}", {}, nobody),
        ("ray", {"RAY_ADDRESS": address}, nobody),
        ("ray://nonsense", {}, "no Ray cluster answers at nonsense: "),
        ("ray://auto", {}, "no Ray cluster is running here\nrun `ray start --head`"),
    ):
        said, _ = typed.start(on, **environment).communicate(timeout=60)
        assert "{error}\n{hint}".format(**json.loads(said)).startswith(expected)


def test_when_no_node_is_left_the_study_stops_and_says_so(cluster: Any, tmp_path: Path) -> None:
    """The last test: it takes the nodes away."""
    (tmp_path / "stuck").write_text("two three")
    (tmp_path / "waits").write_text("one")
    study = study_at(tmp_path, repetitions=1, order="listed")

    def take_all() -> None:
        for node in list(cluster.worker_nodes):
            cluster.remove_node(node, allow_graceful=False)

    with pytest.raises(FundoscopeError, match="no node of the Ray cluster is left"):
        outcomes_of(study, after_first=take_all)
    until(lambda: marked(study) == {})
    assert [outcome.trial.cell.levels for outcome in read_outcomes(study.log)] == [{"level": "one"}]
