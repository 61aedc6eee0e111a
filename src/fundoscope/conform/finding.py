"""What a check found, and what the checks of a rule come to."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from statistics import median
from typing import Any, Literal

from fundoscope.conform.contract import RULES, Rule

Verdict = Literal["held", "broken", "not applicable", "not tried"]
LINE = 220  # characters of reasons after which a line stops
WORDS: dict[Verdict, str] = {
    "held": "held",
    "broken": "BROKEN",
    "not applicable": "not applicable",
    "not tried": "could not be tried",
}


@dataclass(frozen=True)
class Finding:
    rule: int
    check: str  # what was done, in a few words
    verdict: Verdict
    reason: str  # one plain sentence, without a full stop
    measured: str = ""
    values: dict[str, Any] = field(default_factory=dict)  # the same for machines, units in the names


def held(rule: int, check: str, reason: str, measured: str = "", **values: Any) -> Finding:
    return Finding(rule, check, "held", reason, measured, values)


def broken(rule: int, check: str, reason: str, measured: str = "", **values: Any) -> Finding:
    return Finding(rule, check, "broken", reason, measured, values)


def not_applicable(rule: int, check: str, reason: str, measured: str = "", **values: Any) -> Finding:
    return Finding(rule, check, "not applicable", reason, measured, values)


def not_tried(rule: int, check: str, reason: str, **values: Any) -> Finding:
    return Finding(rule, check, "not tried", reason, "", values)


def judged(good: bool, rule: int, check: str, yes: str, no: str, measured: str = "", **values: Any) -> Finding:
    """Held, for the reason `yes`, or broken, for the reason `no`."""
    return Finding(rule, check, "held" if good else "broken", yes if good else no, measured, values)


@dataclass(frozen=True)
class Outcome:
    """One line of the report: a rule and its findings."""

    rule: Rule
    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> Verdict:
        """The worst that was found; a rule holds where a check of it held and none broke."""
        verdicts = {finding.verdict for finding in self.findings}
        order: tuple[Verdict, ...] = ("broken", "held", "not tried")
        return next((verdict for verdict in order if verdict in verdicts), "not applicable")

    @property
    def reason(self) -> str:
        """Why the verdict is what it is, in one line; every finding has more to say."""
        said = self.reasons()
        kept = list(accumulate(said, lambda line, more: f"{line}; {more}"))
        short = [line for line in kept if len(line) <= LINE] or kept[:1]
        left = len(said) - len(short)
        return short[-1] + (f"; and {left} more" if left else "")

    def reasons(self) -> list[str]:
        """What could not be tried is said beside what held."""
        leading = [finding for finding in self.findings if finding.verdict == self.verdict]
        said = [_sentence(finding) for finding in leading]
        if self.verdict == "held":
            said += [
                f"not tried, {finding.check}: {finding.reason}"
                for finding in self.findings
                if finding.verdict == "not tried"
            ]
        return said


def _sentence(finding: Finding) -> str:
    return f"{finding.reason} ({finding.measured})" if finding.measured else finding.reason


def outcomes(findings: Iterable[Finding], rules: Sequence[int]) -> list[Outcome]:
    """Every rule asked for has a line; one that nothing was found on says so."""
    found = list(findings)
    lines = []
    for number in rules:
        own = tuple(finding for finding in found if finding.rule == number)
        nothing = (not_tried(number, "all of it", "nothing of it came to be tried"),)
        lines.append(Outcome(RULES[number], own or nothing))
    return lines


def as_values(outcome: Outcome) -> dict[str, Any]:
    return {
        "rule": outcome.rule.number,
        "title": outcome.rule.title,
        "source": outcome.rule.source,
        "verdict": outcome.verdict,
        "reason": outcome.reason,
        "findings": [asdict(finding) for finding in outcome.findings],
    }


def milliseconds(seconds: Sequence[float]) -> str:
    """How a row of times is reported: their middle and their worst."""
    if not seconds:
        return "none measured"
    if len(seconds) == 1:
        return duration(seconds[0])
    return f"median {duration(median(seconds))}, worst {duration(max(seconds))} of {len(seconds)}"


def duration(seconds: float) -> str:
    if seconds < 0.01:
        return f"{1000 * seconds:.2g} ms"
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
