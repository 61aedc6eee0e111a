"""fundoscope conform on the command line. What it finds is tried in tests/conform."""

import json
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

from fundoscope.cli.conform import PLATFORMS
from fundoscope.cli.main import main
from fundoscope.conform import contract, processes
from fundoscope.conform.target import free_port

DOUBLE = Path(__file__).parents[1] / "conform" / "doubles" / "server_double.py"
SERVER = shlex.join([sys.executable, "-I", str(DOUBLE), "serve"])


def test_the_platforms_offered_are_those_of_the_contract() -> None:
    assert set(PLATFORMS) == set(contract.PLATFORMS)


def test_a_broken_rule_is_exit_status_1_and_is_written_down(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, junit = tmp_path / "out" / "c.html", tmp_path / "out" / "c.xml"
    words = ["conform", f"{SERVER} --fault chatty-ping", "--rules", "7,5", "--quick"]
    assert main([*words, "--html", str(page), "--junit", str(junit)]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith(" 5  socket  held: connection at rest")
    assert said[1].startswith(" 7  ping    BROKEN: the ping's body is")
    assert "1 broken, 1 held" in said[3]
    assert "next: " in said[-1]
    assert ElementTree.parse(junit).getroot().get("failures") == "1"
    assert "The contract is broken" in page.read_text()


def test_a_held_rule_is_exit_status_0_and_json_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conform", SERVER, "--rules", "16", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["holds"] is True
    assert [rule["verdict"] for rule in found["rules"]] == ["held"]
    assert found["rules"][0]["findings"][0]["check"] == "times in /metrics"


def test_a_dead_address_is_exit_status_1_and_a_failing_junit_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    junit = tmp_path / "c.xml"
    assert main(["conform", f"http://127.0.0.1:{free_port()}", "--junit", str(junit)]) == 1
    said = capsys.readouterr().out
    assert "nothing could be tried, which is a failure" in said
    assert "21 could not be tried" in said
    assert ElementTree.parse(junit).getroot().get("failures") == "21"


def test_a_server_with_other_routes_is_asked_there(capsys: pytest.CaptureFixture[str]) -> None:
    routes = ["--ping", "/execution-parameters", "--invocations", "/invocations?x=1"]
    assert main(["conform", SERVER, "--rules", "4", "--json", *routes]) == 1
    first = json.loads(capsys.readouterr().out)["rules"][0]["findings"][0]
    assert first["verdict"] == "broken"
    assert first["reason"].startswith("it is asked at /execution-parameters and /invocations?x=1, not at /ping")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["http://example.org"], "error: example.org is not this machine"),
        (["no-such-program serve"], "error: there is no program 'no-such-program'"),
        (["http://127.0.0.1:1", "--rules", "99"], "error: there is no rule '99'"),
        (["http://127.0.0.1:1", "--ping", "health"], "error: 'health' is not the path of a route"),
        (["http://127.0.0.1:1", "--photo", "nowhere.jpg"], "error: cannot read nowhere.jpg"),
        (["python3 serve {model}"], "error: the command line says {model}"),
    ],
)
def test_bad_usage_is_exit_status_2_and_a_hint(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["conform", *words]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert "\nhint: " in said


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_run_ends_what_it_started(sent: signal.Signals) -> None:
    words = [sys.executable, "-m", "fundoscope.cli.main", "conform", f"{SERVER} --load-ms 60000"]
    running = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        while not (
            servers := [p for p in processes.descendants(running.pid) if str(DOUBLE) in processes.command_of(p)]
        ):
            assert running.poll() is None
        running.send_signal(sent)
        _, said = running.communicate(timeout=300)
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 130
    assert "interrupted" in said
    # The kernel kills what was just being started when the signal came; that may take it a moment.
    deadline = time.monotonic() + 300
    while any(processes.alive(server) for server in servers):
        assert time.monotonic() < deadline
