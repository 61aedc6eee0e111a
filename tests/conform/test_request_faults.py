"""Each single fault in what a server answers breaks the rule it belongs to, and no other."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from double_trials import SHORT, Trials, broken, command, line_of, side_by_side, tried, verdicts

from fundoscope.conform.contract import limits_of

FAULTS = {
    "grey-500": (4, "grey: 500"),
    "wordless": (4, "empty: 400 without a word"),
    "any-route": (4, "an unknown route: 200, not 404"),
    "any-method": (4, "POST /ping: 200"),
    "bad-parameters": (4, "MaxPayloadInMB is '6 MB'"),
    "chatty-ping": (7, "the ping's body is"),
    "flapping-ping": (7, "got 503"),
    "short-attributes": (11, "of 1024 only 256"),
    "strict-headers": (11, "extra headers: 400"),
    "header-500": (11, "a header of 100,000 characters: 500"),
    "five-mb": (12, "which the platform lets through: 413"),
    "oversize-crash": (12, "closed the connection without an answer"),
    "load-again-200": (13, "loaded already: 200, not 409"),
    "unload-unknown-200": (13, "DELETE /models/{unknown}: 200, not 404"),
    "no-pong": (14, "no pong within 1 s"),
    "wrong-unit": (16, "timings_ms.total says"),
    "wrong-metrics": (16, "double_predict_seconds says"),
}


SILENT = ("oversize-silence", "hangs")


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trials]:
    model = tmp_path_factory.mktemp("model")
    limits = replace(SHORT, response_s=5)
    with side_by_side({f: {"line": command(f), "model": model, "limits": limits} for f in (*SILENT, *FAULTS)}) as found:
        yield found


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_the_answers_breaks_its_rule_and_no_other(fault: str, trials: Trials) -> None:
    rule, reason = FAULTS[fault]
    found = trials[fault]
    assert set(broken(found)) == {rule}, broken(found)
    assert reason in broken(found)[rule]


def test_a_body_above_the_limit_that_gets_no_answer_breaks_the_payload_rule(trials: Trials) -> None:
    found = trials["oversize-silence"]
    assert set(broken(found)) == {12}, broken(found)
    assert "did not answer in time" in broken(found)[12]


def test_a_photograph_that_is_never_answered_breaks_two_rules(trials: Trials) -> None:
    found = trials["hangs"]
    assert set(broken(found)) == {4, 6}, broken(found)
    assert "truncated: the server did not answer in time" in broken(found)[4]


def test_five_megabytes_are_enough_for_a_serverless_endpoint(tmp_path: Path) -> None:
    line = command("five-mb", limit=4 * 2**20)
    found = tried(line, model=tmp_path, rules=(12, 13), limits=limits_of("serverless"), platform="serverless")
    assert verdicts(found) == {12: "held", 13: "not applicable"}
    assert "4 MB are taken" in line_of(found, 12).reason


@pytest.mark.parametrize(("fault", "rule"), [("no-attributes", 11), ("stream", 14)])
def test_what_the_contract_leaves_open_breaks_nothing(fault: str, rule: int) -> None:
    found = tried(command(fault), rules=(rule,))
    assert verdicts(found) == {rule: "held"}
