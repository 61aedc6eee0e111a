"""What conform found, for people, for continuous integration and for a browser without a network."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from fundoscope.conform.finding import WORDS, Finding, Verdict, as_values
from fundoscope.conform.run import Conformance
from fundoscope.errors import FundoscopeError
from fundoscope.provenance import command, versions, write_whole

ORDER: tuple[Verdict, ...] = ("broken", "held", "not tried", "not applicable")


def lines(found: Conformance) -> list[str]:
    """One line per rule, and what it comes to."""
    width = max(len(outcome.rule.title) for outcome in found.outcomes)
    rules = [
        f"{outcome.rule.number:>2}  {outcome.rule.title:<{width}}  {WORDS[outcome.verdict]}: {outcome.reason}"
        for outcome in found.outcomes
    ]
    return [*rules, "", f"{found.target}: {tally(found)}, in {found.seconds:.0f} s"]


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
        "rules": [as_values(outcome) for outcome in found.outcomes],
    }


def write_junit(found: Conformance, path: Path) -> None:
    """A suite per rule, a case per check; what was not tried is skipped, with its reason."""
    cases = [finding for outcome in found.outcomes for finding in outcome.findings]
    root = ElementTree.Element("testsuites", {"name": f"conform {found.target}", **_counts(cases, found.seconds)})
    for outcome in found.outcomes:
        name = f"{outcome.rule.number:02d} {outcome.rule.title}"
        suite = ElementTree.SubElement(root, "testsuite", {"name": name, **_counts(outcome.findings, 0)})
        for finding in outcome.findings:
            case = ElementTree.SubElement(suite, "testcase", {"classname": f"conform.{name}", "name": finding.check})
            if finding.verdict == "broken":
                failure = ElementTree.SubElement(case, "failure", {"message": finding.reason})
                failure.text = outcome.rule.says
            elif finding.verdict != "held":
                message = f"{WORDS[finding.verdict]}: {finding.reason}"
                ElementTree.SubElement(case, "skipped", {"message": message})
            if finding.measured:
                ElementTree.SubElement(case, "system-out").text = f"{finding.reason}: {finding.measured}"
    ElementTree.indent(root)
    write_whole(path, ElementTree.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n")


def _counts(cases: list[Finding] | tuple[Finding, ...], seconds: float) -> Mapping[str, str]:
    skipped = sum(finding.verdict in ("not applicable", "not tried") for finding in cases)
    failures = sum(finding.verdict == "broken" for finding in cases)
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
        found=found, order=ORDER, words=WORDS, versions=versions(), command=command()
    )
    write_whole(path, (page + "\n").encode())
