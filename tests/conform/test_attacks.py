"""Each single weakness under attack breaks the rule it belongs to, and no other; without any, a server bears it all."""

import shlex
import subprocess
import sys
from collections.abc import Iterator

import pytest
from double_trials import BOUNDS, DOUBLE, SMALL, Trials, broken, command, line_of, side_by_side, tried, verdicts

from fundoscope.conform.contract import ATTACKS, MIB, OURS, RULES
from fundoscope.conform.target import free_port
from fundoscope.conform.wire import ask, message

# fault: the rule, and the checks of it that break
FAULTS: dict[str, tuple[int, tuple[str, ...]]] = {
    "hoards-trailers": (17, ("endless trailers",)),
    "hoards-headers": (17, ("endless headers", "one endless header")),
    "json-blocks": (18, ("ping during",)),
    "json-hoards": (18, ("memory during",)),
    "json-500": (4, ("answer to",)),  # bad input, of which the contract speaks
    "eight-places": (19, ("12 uploads that stop after one byte", "12 slow with the headers")),
    "wide-in-line": (20, ("a photograph of 7,000 × 7,000 pixels",)),
    "many-in-line": (20, ("21 photographs of 7,000 × 7,000 pixels in one request",)),
    "keeps-memory": (21, ("memory afterwards",)),
}


@pytest.fixture(scope="module")
def trials() -> Iterator[Trials]:
    lines = {fault: command(fault) for fault in FAULTS} | {"none": command()}
    asked = {
        fault: {"line": line, "rules": ATTACKS, "limits": SMALL, "bounds": BOUNDS} for fault, line in lines.items()
    }
    asked["json-500"]["rules"] = (4, 18)
    for fault, (rule, _) in FAULTS.items():
        if rule in (17, 18, 19, 20):  # looking for what is left of it in memory afterwards would only take longer
            asked[fault]["rules"] = (17, 18, 19, 20)
    with side_by_side(asked) as outcomes:
        yield outcomes


def test_our_own_rules_are_marked_as_ours_and_have_the_numbers_of_the_audit() -> None:
    assert ATTACKS == (17, 18, 19, 20, 21)
    assert {number: RULES[number].source for number in (16, 17, 21)} == {
        16: "SageMaker",
        17: "Fundoscope",
        21: "Fundoscope",
    }
    assert (OURS.head_growth_bytes, OURS.left_bytes, OURS.stalled) == (10 * MIB, 50 * MIB, 12)
    assert (OURS.ping_s, OURS.json_factor, OURS.wait_s) == (0.25, 8, 10)


def test_a_server_without_a_weakness_holds_under_every_attack(trials: Trials) -> None:
    outcome = trials["none"]
    assert broken(outcome) == {}
    assert set(verdicts(outcome).values()) == {"held"}
    measured = {finding.check: finding.values for rule in outcome.outcomes for finding in rule.findings}
    assert measured["endless trailers"]["status"] == 411
    assert measured["memory afterwards"]["left_bytes"] < 50 * MIB


@pytest.mark.parametrize("fault", FAULTS)
def test_a_weakness_under_attack_breaks_its_rule_and_no_other(fault: str, trials: Trials) -> None:
    rule, checks = FAULTS[fault]
    outcome = trials[fault]
    assert set(broken(outcome)) == {rule}, broken(outcome)
    failed = [finding.check for finding in line_of(outcome, rule).findings if finding.verdict == "broken"]
    assert [check for check in checks if not any(name.startswith(check) for name in failed)] == []


def test_an_address_is_attacked_too_but_its_memory_is_not_seen() -> None:
    port = free_port()
    with subprocess.Popen([sys.executable, "-I", str(DOUBLE), "serve", "--port", str(port)]) as process:
        try:
            while ask(("127.0.0.1", port), message("GET", "/ping"), within_s=1).status != 200:
                assert process.poll() is None
            outcome = tried(f"http://127.0.0.1:{port}", rules=ATTACKS, limits=SMALL, bounds=BOUNDS)
        finally:
            process.kill()
    assert verdicts(outcome) == {17: "not tried", 18: "held", 19: "held", 20: "held", 21: "not tried"}
    assert "the memory of an address cannot be seen from here" in line_of(outcome, 21).reason
    assert outcome.holds


def test_a_server_that_never_comes_up_is_no_success_under_attack_either() -> None:
    outcome = tried(shlex.join([sys.executable, "-c", "raise SystemExit('no model')"]), rules=(17, 21))
    assert verdicts(outcome) == {17: "not tried", 21: "not tried"}
    assert "exit status 1: no model" in line_of(outcome, 17).reason
    assert not outcome.holds
