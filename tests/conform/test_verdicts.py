"""What findings come to, and how they are written down."""

import io
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

from fundoscope.conform.aim import target_of
from fundoscope.conform.finding import Finding, broken, duration, held, not_applicable, not_tried, outcomes
from fundoscope.conform.photographs import Payload, default_payload, odd_payloads, padded, read_payload
from fundoscope.conform.report import headline, lines, values, write_html, write_junit
from fundoscope.conform.run import Conformance, chosen
from fundoscope.errors import FundoscopeError

FINDINGS = [
    held(5, "at rest", "connection at rest", "0.1 ms"),
    broken(7, "empty ping", "the ping's body is <script>alert(1)</script>"),
    held(7, "ping at rest", "ping at rest: 200"),
    not_tried(3, "default port", "port 8080 is in use"),
    held(3, "second ports", "it listens on no other port"),
    not_applicable(2, "user", "a command runs as whoever started it"),
]


@pytest.fixture
def found() -> Conformance:
    lines = outcomes(FINDINGS, [2, 3, 5, 7, 9])
    return Conformance("my server", "command", "real-time", "a drawn eye", lines, 12.3, "2026-11-15T00:00:00+00:00")


def test_a_rule_is_broken_by_one_check_and_held_by_none_broken(found: Conformance) -> None:
    assert {outcome.rule.number: outcome.verdict for outcome in found.outcomes} == {
        2: "not applicable",
        3: "held",
        5: "held",
        7: "broken",
        9: "not tried",
    }
    assert not found.holds


def test_nothing_is_silent(found: Conformance) -> None:
    by_rule = {outcome.rule.number: outcome.reason for outcome in found.outcomes}
    assert by_rule[3] == "it listens on no other port; not tried, default port: port 8080 is in use"
    assert by_rule[9] == "nothing of it came to be tried"


def test_there_is_one_line_per_rule_and_a_tally(found: Conformance) -> None:
    said = lines(found)
    assert [line[:2].strip() for line in said[:5]] == ["2", "3", "5", "7", "9"]
    assert said[3].startswith(" 7  ping    BROKEN: the ping's body is")
    assert said[-1] == "my server: 1 broken, 2 held, 1 could not be tried, 1 not applicable, in 12 s"
    assert values(found)["holds"] is False


def test_a_long_line_says_how_much_it_leaves_out() -> None:
    many = [held(13, f"step {n}", "x" * 50) for n in range(9)]
    (outcome,) = outcomes(many, [13])
    assert outcome.reason.endswith("; and 5 more")
    assert len(outcome.reason) < 240


def test_junit_counts_what_was_found(found: Conformance, tmp_path: Path) -> None:
    write_junit(found, tmp_path / "conform.xml")
    root = ElementTree.parse(tmp_path / "conform.xml").getroot()
    assert (root.get("tests"), root.get("failures"), root.get("skipped")) == ("7", "1", "3")
    assert [suite.get("name") for suite in root] == ["02 user", "03 port", "05 socket", "07 ping", "09 stop"]
    failure = root.find(".//failure")
    assert failure is not None
    assert failure.get("message") == "the ping's body is <script>alert(1)</script>"


def test_the_page_is_whole_and_quotes_nothing_as_markup(found: Conformance, tmp_path: Path) -> None:
    write_html(found, tmp_path / "conform.html")
    page = (tmp_path / "conform.html").read_text()
    assert "&lt;script&gt;alert(1)" in page
    assert "<script" not in page
    assert "The contract is broken" in page
    assert page.count("<article") == 5
    assert not [word for word in ("http://", "https://", "src=", "@import", "url(") if word in page]


def conformance(*findings: Finding) -> Conformance:
    rules = sorted({finding.rule for finding in findings})
    lines = outcomes(findings, rules)
    return Conformance("my server", "address", "real-time", "a drawn eye", lines, 1.0, "2026-11-16T00:00:00+00:00")


def test_where_nothing_could_be_tried_the_run_fails_in_every_form(tmp_path: Path) -> None:
    dead = conformance(not_tried(7, "all of it", "nothing answers there"), not_applicable(9, "stop", "not ours"))
    assert (dead.tried, dead.holds) == (False, False)
    write_junit(dead, tmp_path / "conform.xml")
    root = ElementTree.parse(tmp_path / "conform.xml").getroot()
    assert (root.get("tests"), root.get("failures"), root.get("skipped")) == ("2", "1", "1")
    write_html(dead, tmp_path / "conform.html")
    assert "<h1>Nothing could be tried</h1>" in (tmp_path / "conform.html").read_text()
    assert "nothing could be tried, which is a failure" in lines(dead)


def test_what_does_not_apply_is_no_failure() -> None:
    assert conformance(not_applicable(2, "user", "an address runs as whoever started it")).holds


@pytest.mark.parametrize(
    ("findings", "said"),
    [
        ((held(5, "at rest", "quick"), held(17, "heads", "small")), "The contract holds"),
        ((held(5, "at rest", "quick"), broken(17, "heads", "large")), "The contract holds, but not under attack"),
        ((broken(5, "at rest", "slow"), broken(17, "heads", "large")), "The contract is broken"),
        ((held(17, "heads", "small"),), "It holds under attack"),
        ((broken(21, "memory", "kept"),), "It does not hold under attack"),
    ],
)
def test_the_headline_tells_the_contract_from_what_is_beyond_it(findings: tuple[Finding, ...], said: str) -> None:
    assert headline(conformance(*findings)) == said


def test_our_own_rules_stand_apart_from_the_contract_s(tmp_path: Path) -> None:
    both = conformance(held(5, "at rest", "quick"), held(17, "heads", "small"), held(18, "JSON", "read"))
    assert [line[:30] for line in lines(both)[:4]] == [
        " 5  socket         held: quick",
        "    beyond SageMaker's contrac",
        "17  endless heads  held: small",
        "18  hostile JSON   held: read",
    ]
    assert [rule["source"] for rule in values(both)["rules"]] == ["SageMaker", "Fundoscope", "Fundoscope"]
    write_html(both, tmp_path / "conform.html")
    assert (tmp_path / "conform.html").read_text().count("Beyond the contract: under attack") == 1


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.00004, "0.04 ms"), (0.0123, "12 ms"), (0.9, "900 ms"), (2.345, "2.3 s")]
)
def test_durations_read_well(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def test_findings_are_plain_values() -> None:
    assert held(5, "at rest", "it does", worst_s=0.1) == Finding(5, "at rest", "held", "it does", "", {"worst_s": 0.1})


def test_rules_are_chosen_by_number() -> None:
    assert chosen("9, 5,5") == [5, 9]
    with pytest.raises(FundoscopeError, match="there is no rule '22'"):
        chosen("5,22")


@pytest.mark.parametrize("more", [1, 3, 4, 7, 65_003, 200_000])
def test_a_padded_photograph_has_the_size_asked_for_and_the_same_pixels(more: int) -> None:
    photo = default_payload().data
    larger = padded(photo, len(photo) + more)
    assert len(larger) == len(photo) + more
    assert Image.open(io.BytesIO(larger)).tobytes() == Image.open(io.BytesIO(photo)).tobytes()


def test_a_padded_png_has_the_same_pixels() -> None:
    photo = next(payload.data for payload in odd_payloads(default_payload()) if payload.name == "16 bit")
    larger = padded(photo, 100_000)
    assert len(larger) == 100_000
    assert Image.open(io.BytesIO(larger)).tobytes() == Image.open(io.BytesIO(photo)).tobytes()


def test_the_odd_photographs_are_what_they_say() -> None:
    odd = {payload.name: payload for payload in odd_payloads(default_payload())}
    modes = {"grey": "L", "with transparency": "RGBA", "CMYK": "CMYK", "16 bit": "I;16"}
    assert {name: Image.open(io.BytesIO(odd[name].data)).mode for name in modes} == modes
    assert Image.open(io.BytesIO(odd["one pixel"].data)).size == (1, 1)
    assert odd["empty"].data == b""
    assert {payload.name for payload in odd_payloads(Payload("rows", b"1,2,3", "text/csv"))} == {
        "empty",
        "truncated",
        "text",
        "random bytes",
    }


def test_a_payload_s_type_comes_from_its_name(tmp_path: Path) -> None:
    (tmp_path / "eye.png").write_bytes(b"x")
    (tmp_path / "eye.xyz").write_bytes(b"x")
    assert read_payload(tmp_path / "eye.png", None).content_type == "image/png"
    assert read_payload(tmp_path / "eye.xyz", "image/jpeg").content_type == "image/jpeg"
    with pytest.raises(FundoscopeError, match=r"cannot tell the type of eye\.xyz"):
        read_payload(tmp_path / "eye.xyz", None)


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("http://example.org:8080", "auto", "example.org is not this machine"),
        ("http://192.0.2.1", "auto", "192.0.2.1 is not this machine"),
        ("https://127.0.0.1:8080", "auto", "is not an address"),
        ("http://127.0.0.1:8080/ping", "auto", "is not an address"),
        ("no-such-program --port 1", "auto", "there is no program 'no-such-program'"),
        ("python3 'half", "auto", "cannot read the command line: no closing quotation"),
        ("python3 serve {model}", "auto", r"the command line says \{model\}"),
    ],
)
def test_what_cannot_be_a_target_is_refused_with_a_reason(text: str, kind: str, message: str) -> None:
    with pytest.raises(FundoscopeError, match=message) as refused:
        target_of(text, kind=kind)
    assert refused.value.hint


def test_targets_are_told_apart_by_how_they_look() -> None:
    assert target_of("http://localhost:8080").kind == "address"
    assert target_of("http://[::1]:9000").host == "::1"
    assert target_of("python3 -m http.server").kind == "command"
    assert target_of("python3").kind == "command"
