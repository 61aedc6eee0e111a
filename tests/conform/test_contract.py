"""A server that keeps the contract holds every rule that applies; one like the published one breaks what that broke."""

import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from double_trials import DOUBLE, SHORT, broken, command, line_of, tried, verdicts

from fundoscope.conform import processes
from fundoscope.conform.contract import CONTRACT, MIB, RULES, limits_of
from fundoscope.conform.target import free_port
from fundoscope.conform.wire import ask, message


def test_the_limits_are_the_contract_s() -> None:
    # AWS developer guide: "Use your own inference code with hosting services", "Serverless Inference", hosting FAQ.
    limits = limits_of("real-time")
    assert (limits.connect_s, limits.ping_s, limits.response_s, limits.stop_s) == (0.25, 2, 60, 30)
    assert (limits.payload_bytes, limits.start_s, limits.attributes) == (25 * MIB, 480, 1024)
    assert (limits_of("serverless").payload_bytes, limits_of("serverless").start_s) == (4 * MIB, 180)
    assert sorted(RULES) == list(range(1, 22))
    assert list(range(1, 17)) == list(CONTRACT)


def test_a_server_that_keeps_the_contract_holds_every_rule_that_applies(tmp_path: Path) -> None:
    found = tried(command(), model=tmp_path, rules=tuple(RULES))
    assert broken(found) == {}
    # A command has no image to name its user, and no label to offer a stream.
    assert {rule for rule, verdict in verdicts(found).items() if verdict != "held"} == {2, 14}
    assert found.holds
    assert "507" not in line_of(found, 13).reason
    checks = {finding.check: finding.verdict for outcome in found.outcomes for finding in outcome.findings}
    assert checks["no memory left"] == "held"  # the double has room for four models
    assert checks["nothing writable"] == "held"
    assert checks["worker killed"] == "held"


def test_the_published_server_s_breaches_are_found_together(tmp_path: Path) -> None:
    line = command("lazy", "blocking", "grey-500", "deaf", "five-mb", load_ms=2400)
    found = tried(line, model=tmp_path, rules=(4, 7, 8, 9, 12), limits=replace(SHORT, stop_s=3))
    assert set(broken(found)) == {4, 7, 8, 9, 12}
    assert "before the model was loaded" in broken(found)[8]
    assert "grey: 500" in broken(found)[4]
    assert "took longer than 2 s" in broken(found)[7]
    assert "still running 3 s after it" in broken(found)[9]
    assert "25 MB" in broken(found)[12]


def test_an_address_is_tried_as_far_as_it_can_be() -> None:
    port = free_port()
    with subprocess.Popen([sys.executable, "-I", str(DOUBLE), "serve", "--port", str(port)]) as process:
        try:
            while ask(("127.0.0.1", port), message("GET", "/ping"), within_s=1).status != 200:
                assert process.poll() is None
            found = tried(f"http://127.0.0.1:{port}")
            assert process.poll() is None  # it is not ours to stop
        finally:
            process.kill()
    assert broken(found) == {}
    verdict = verdicts(found)
    assert {rule for rule in verdict if verdict[rule] == "held"} == {4, 5, 6, 7, 11, 12, 16}
    assert {rule for rule in verdict if verdict[rule] == "not applicable"} == {1, 2, 3, 8, 9, 10, 13, 14, 15}
    assert "not ours to stop" in line_of(found, 9).reason


def test_nobody_at_the_address_is_said_once_per_rule() -> None:
    found = tried(f"http://127.0.0.1:{free_port()}")
    assert set(verdicts(found).values()) == {"not tried"}
    assert "refused the connection" in line_of(found, 7).reason
    assert not found.holds  # nothing was tried, so nothing was shown


def test_a_command_that_ends_at_once_breaks_the_first_rule_and_says_its_last_words() -> None:
    found = tried(shlex.join([sys.executable, "-c", "raise SystemExit('no model at /opt/ml/model')"]))
    assert set(broken(found)) == {1}
    assert "exit status 1: no model at /opt/ml/model" in broken(found)[1]
    assert verdicts(found)[7] == "not tried"


def test_everything_that_was_started_is_ended(tmp_path: Path) -> None:
    before = set(processes.marked("FUNDOSCOPE_CONFORM="))
    tried(command("deaf"), model=tmp_path, rules=(1, 10))
    assert set(processes.marked("FUNDOSCOPE_CONFORM=")) <= before


@pytest.mark.parametrize("kind", ["idle", "busy"])
def test_a_killed_conform_leaves_no_server_behind(kind: str, tmp_path: Path) -> None:
    mark = tmp_path / f"{kind}-mark"
    line = command(state=mark, load_ms=100 if kind == "busy" else 60_000)
    code = f"from double_trials import tried; tried({line!r})"
    running = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parent)
    try:
        while not (
            found := [pid for pid in processes.descendants(running.pid) if str(mark) in processes.command_of(pid)]
        ):
            assert running.poll() is None
        running.kill()
        running.wait()
        while processes.alive(found[0]):
            pass
    finally:
        running.kill()
        running.wait()
    assert not any(processes.alive(pid) for pid in found)
