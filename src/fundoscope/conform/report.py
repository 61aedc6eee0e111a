"""What conform found, for people, for continuous integration and for a browser without a network."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from fundoscope.conform.finding import WORDS, Finding, Verdict, as_values
from fundoscope.conform.run import Conformance
from fundoscope.errors import FundoscopeError
from fundoscope.provenance import command, versions, write_whole

BEYOND = "    beyond SageMaker's contract, our own: under attack"
NOTHING = "nothing could be tried, which is a failure"
ORDER: tuple[Verdict, ...] = ("broken", "held", "not tried", "not applicable")


def lines(found: Conformance) -> list[str]:
    """One line per rule, and what it comes to."""
    width = max(len(outcome.rule.title) for outcome in found.outcomes)
    rules: list[str] = []
    for outcome in found.outcomes:
        number, title = outcome.rule.number, outcome.rule.title
        if outcome.rule.source == "Fundoscope" and BEYOND not in rules:
            rules.append(BEYOND)
        rules.append(f"{number:>2}  {title:<{width}}  {WORDS[outcome.verdict]}: {outcome.reason}")
    nothing = [] if found.tried else [NOTHING]
    return [*rules, "", *nothing, f"{found.target}: {tally(found)}, in {found.seconds:.0f} s"]


def headline(found: Conformance) -> str:
    broken = {outcome.rule.source for outcome in found.outcomes if outcome.verdict == "broken"}
    if not found.tried:
        return "Nothing could be tried"
    if "SageMaker" in broken:
        return "The contract is broken"
    asked = {outcome.rule.source for outcome in found.outcomes}
    if "SageMaker" not in asked:
        return "It does not hold under attack" if broken else "It holds under attack"
    return "The contract holds, but not under attack" if broken else "The contract holds"


def tally(found: Conformance) -> str:
    counts = {verdict: found.count(verdict) for verdict in ORDER}
    return ", ".join(f"{n} {WORDS[verdict].lower()}" for verdict, n in counts.items() if n)


def values(found: Conformance) -> dict[str, Any]:
    return {
        "target": found.target,
        "kind": found.kind,
        "platform": found.platform,
        "at": found.at,
        "seconds": round(found.seconds, 1),
        "holds": found.holds,
        "tried": found.tried,
        "rules": [as_values(outcome) for outcome in found.outcomes],
    }


def write_junit(found: Conformance, path: Path) -> None:
    """A suite per rule, a case per check; what was not tried is skipped, with its reason.

    Where nothing could be tried at all, that is the failure: a green file would say that a server was put to the test.
    """
    failing: tuple[Verdict, ...] = ("broken",) if found.tried else ("broken", "not tried")
    cases = [finding for outcome in found.outcomes for finding in outcome.findings]
    counts = _counts(cases, failing, found.seconds)
    root = ElementTree.Element("testsuites", {"name": f"conform {found.target}", **counts})
    for outcome in found.outcomes:
        name = f"{outcome.rule.number:02d} {outcome.rule.title}"
        suite = ElementTree.SubElement(root, "testsuite", {"name": name, **_counts(outcome.findings, failing)})
        for finding in outcome.findings:
            case = ElementTree.SubElement(suite, "testcase", {"classname": f"conform.{name}", "name": finding.check})
            if finding.verdict in failing:
                failure = ElementTree.SubElement(case, "failure", {"message": finding.reason})
                failure.text = outcome.rule.says
            elif finding.verdict != "held":
                message = f"{WORDS[finding.verdict]}: {finding.reason}"
                ElementTree.SubElement(case, "skipped", {"message": message})
            if finding.measured:
                ElementTree.SubElement(case, "system-out").text = f"{finding.reason}: {finding.measured}"
    ElementTree.indent(root)
    write_whole(path, ElementTree.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n")


def _counts(cases: Sequence[Finding], failing: Sequence[Verdict], seconds: float = 0) -> Mapping[str, str]:
    failures = sum(finding.verdict in failing for finding in cases)
    skipped = sum(finding.verdict != "held" for finding in cases) - failures
    counted = {"tests": len(cases), "failures": failures, "errors": 0, "skipped": skipped}
    return {name: str(n) for name, n in counted.items()} | ({"time": f"{seconds:.1f}"} if seconds else {})


def write_html(found: Conformance, path: Path) -> None:
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    except ModuleNotFoundError:
        raise FundoscopeError("writing HTML needs jinja2", "pip install 'fundoscope[report]'") from None
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,  # reasons quote what a server said
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = environment.get_template("page.html").render(
        found=found, headline=headline(found), order=ORDER, words=WORDS, versions=versions(), command=command()
    )
    write_whole(path, (page + "\n").encode())
