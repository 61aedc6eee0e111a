"""Each single fault in how a server starts, bears load and ends breaks the rule it belongs to, and no other."""

import shlex
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from double_trials import DOUBLE, SHORT, Trials, broken, command, line_of, side_by_side, tried, verdicts

from fundoscope.conform.contract import RULES
from fundoscope.conform.target import free_port, port_taken

IGNORING = free_port()

FAULTS: dict[str, tuple[int, str, dict[str, int]]] = {
    "blocking": (7, "took longer than 2 s", {}),
    "lazy": (8, "before the model was loaded", {"load_ms": 400}),
    "no-replacement": (8, "/ping says 200 but invocations get: 500", {}),
    "second-port": (3, "outside SAGEMAKER_SAFE_PORT_RANGE", {}),
    "drops": (9, "requests in flight were not answered", {}),
    "patient": (9, "SIGTERM at rest, a connection idle and a request half sent: still running", {}),
    "deaf": (9, "SIGTERM under load: still running", {}),
}


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trials]:
    model = tmp_path_factory.mktemp("model")
    asked = {fault: {"line": command(fault, **options), "model": model} for fault, (_, _, options) in FAULTS.items()}
    for fault in ("no-replacement", "patient", "deaf"):  # those that are waited for in vain
        asked[fault]["limits"] = replace(SHORT, stop_s=5)
    state = tmp_path_factory.mktemp("state")
    asked["port-ignored"] = {"line": command("port-ignored", port=IGNORING), "model": model}
    asked["writes"] = {"line": command("writes", state=state / "written"), "model": model}
    # Without a model no other way of starting it is tried after the lock was left.
    others = tuple(number for number in RULES if number != 13)
    asked["stale-lock"] = {"line": command("stale-lock", state=state / "lock"), "rules": others}
    with side_by_side(asked) as found:
        yield found


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_the_process_breaks_its_rule_and_no_other(fault: str, trials: Trials) -> None:
    rule, reason, _ = FAULTS[fault]
    found = trials[fault]
    assert set(broken(found)) == {rule}, broken(found)
    assert reason in broken(found)[rule]


def test_a_server_that_ignores_the_port_it_is_told_is_found_where_it_is(trials: Trials) -> None:
    found = trials["port-ignored"]
    assert set(broken(found)) == {3}, broken(found)
    assert f"by SAGEMAKER_BIND_TO_PORT, it listens on {IGNORING}" in broken(found)[3]


def test_another_default_than_8080_is_found(tmp_path: Path) -> None:
    if port_taken(8080):
        pytest.skip("port 8080 is in use on this machine")
    found = tried(command("other-default"), model=tmp_path, rules=(3, 9, 15))
    assert set(broken(found)) == {3}
    assert "not 8080" in broken(found)[3]


def test_a_port_on_the_command_line_is_used_and_the_environment_is_left_untried(tmp_path: Path) -> None:
    found = tried(command("port-ignored") + " --port {port}", model=tmp_path, rules=(3, 7))
    assert verdicts(found) == {3: "held", 7: "held"}
    assert "the command line says the port" in line_of(found, 3).reason


def test_a_server_that_must_write_breaks_the_rule_on_the_model(trials: Trials) -> None:
    found = trials["writes"]
    assert set(broken(found)) == {10}, broken(found)
    assert "Read-only file system" in broken(found)[10]


def test_a_lock_left_by_a_killed_server_breaks_the_rule_on_starting_again(trials: Trials) -> None:
    found = trials["stale-lock"]
    assert set(broken(found)) == {15}, broken(found)
    assert "is another server running?" in broken(found)[15]


def test_a_full_queue_of_connections_breaks_the_rule_on_the_socket(tmp_path: Path) -> None:
    limits = replace(SHORT, response_s=60)
    found = tried(command("short-backlog", predict_ms=60), model=tmp_path, rules=(5, 6, 7), limits=limits)
    # The kernel tries a dropped connection again after 1, 3, 7 s: now and then a ping or an answer is late with it.
    assert 5 in broken(found)
    assert set(broken(found)) <= {5, 6, 7}, broken(found)
    assert "took longer than 250 ms" in broken(found)[5]


def test_an_answer_after_its_time_breaks_the_rule_on_responses(tmp_path: Path) -> None:
    limits = replace(SHORT, response_s=0.3)
    found = tried(command(predict_ms=500), model=tmp_path, rules=(6,), limits=limits)
    assert "got no answer" in broken(found)[6]


def test_a_shell_before_the_server_breaks_the_rule_on_the_start_command() -> None:
    line = shlex.join(["sh", "-c", f"{sys.executable} -I {DOUBLE} serve; true"])
    found = tried(line, rules=(1,))
    assert "a shell (sh -c" in broken(found)[1]


def test_symbolic_links_in_the_model_are_found(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").symlink_to("elsewhere.onnx")
    found = tried(command(), model=tmp_path, rules=(10,))
    assert "symbolic links (model.onnx)" in broken(found)[10]
