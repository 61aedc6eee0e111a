"""Put a target through the contract: start it in each way the platform would, try every rule, end what was started."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic, perf_counter, sleep

from fundoscope.conform import (
    rules_crowded,
    rules_end,
    rules_hostile,
    rules_load,
    rules_models,
    rules_reported,
    rules_requests,
    rules_start,
)
from fundoscope.conform.container import ImageTarget
from fundoscope.conform.contract import ATTACKS, DEFAULT_PORT, MANY_LABEL, RULES
from fundoscope.conform.finding import Finding, Outcome, broken, not_applicable, not_tried, outcomes
from fundoscope.conform.live import Live, Plan, first_invocation, later_invocations, launched, own_port
from fundoscope.conform.target import CannotStart, Setting, Target, alone_with, port_taken
from fundoscope.errors import FundoscopeError
from fundoscope.progress import Track, quiet

Check = Callable[[Live], Iterator[Finding]]
Checks = tuple[tuple[tuple[int, ...], str, Check], ...]

# In this order: what asks politely, what maltreats, what kills. Each with the rules it can find something on.
SERVING: Checks = (
    ((1,), "the start command", rules_start.command),
    ((2,), "the user", rules_start.user),
    ((3,), "the port", rules_start.told_port),
    ((7,), "the time to the first 200", rules_start.healthy_in_time),
    ((4,), "the routes", rules_requests.routes),
    ((5, 7), "the server at rest", rules_load.at_rest),
    ((16,), "the units", rules_reported.units),
    ((14,), "the stream", rules_reported.stream),
    ((11,), "the headers", rules_requests.headers),
    ((4,), "the odd photographs", rules_requests.odd_photographs),
    ((12,), "the payload", rules_requests.payload),
    ((5, 6, 7), "the load", rules_load.under_load),
    ((6,), "the time of answers", rules_load.in_time),
    ((8,), "the killed worker", rules_end.worker_killed),
    ((9,), "SIGTERM under load", rules_end.stop_under_load),
)
# Of another start, which nothing polite is tried on afterwards. The last rule needs all that is before it.
ATTACKING: Checks = (
    ((21,), "the memory before", rules_hostile.memory_before),
    ((17, 21), "the endless heads", rules_hostile.endless_heads),
    ((18, 21), "the hostile JSON", rules_hostile.hostile_json),
    ((19, 21), "the stalled uploads", rules_crowded.stalled_uploads),
    ((20, 21), "the many pixels", rules_crowded.many_pixels),
    ((21,), "the memory afterwards", rules_hostile.memory_afterwards),
)
SERVED = {rule for rules, _, _ in SERVING for rule in rules}
STEPS = len(SERVING) + len(ATTACKING) + 4
WELL_WITHIN_S = 10.0  # after maltreatment, before it is declared dead


@dataclass(frozen=True)
class Conformance:
    target: str
    kind: str
    platform: str
    payload: str
    outcomes: list[Outcome]
    seconds: float
    at: str  # when, UTC

    @property
    def tried(self) -> bool:
        """Whether anything was: where all that applies could not be tried, the run has shown nothing."""
        verdicts = {outcome.verdict for outcome in self.outcomes}
        return bool(verdicts & {"held", "broken"}) or "not tried" not in verdicts

    @property
    def holds(self) -> bool:
        return self.tried and not any(outcome.verdict == "broken" for outcome in self.outcomes)

    def count(self, verdict: str) -> int:
        return sum(outcome.verdict == verdict for outcome in self.outcomes)


def conform(target: Target, plan: Plan, *, track: Track = quiet) -> Conformance:
    began, at = monotonic(), datetime.now(UTC).isoformat(timespec="seconds")
    batches = track(_steps(target, plan), total=STEPS, label="checks")
    findings = [finding for batch in batches for finding in batch]
    lines = outcomes(findings, [number for number in RULES if number in plan.rules])
    return Conformance(target.name, target.kind, plan.platform, plan.payload.name, lines, monotonic() - began, at)


def _steps(target: Target, plan: Plan) -> Iterator[list[Finding]]:
    first_s = None
    if {8, *SERVED} & set(plan.rules):
        try:
            first_s = yield from _serving(target, plan)
        except CannotStart as problem:
            yield _never_up(target, str(problem), plan.rules)
            return
    yield list(_unwritable(target, plan))
    yield list(_again(target, plan, first_s))
    yield list(_many_models(target, plan))
    yield from _attacked(target, plan)


def _serving(target: Target, plan: Plan) -> Generator[list[Finding], None, float]:
    """The checks of one running server. Returns how long its first start took."""
    launches: list[Live] = []
    setting = Setting(port=own_port(target))
    with ExitStack() as stack:
        while not launches or (_once_more(launches[-1]) and len(launches) < plan.effort.launches):
            stack.close()
            live = stack.enter_context(launched(target, setting, plan))
            first_invocation(live)
            later_invocations(live)
            launches.append(live)
        yield [rules_start.honest_at_start(launches)]
        yield from _checks(SERVING, stack, launches[-1], setting)
    return launches[0].ready_s


def _attacked(target: Target, plan: Plan) -> Iterator[list[Finding]]:
    if not set(ATTACKS) & set(plan.rules):
        return
    setting = Setting(port=own_port(target))
    try:
        with ExitStack() as stack:
            live = stack.enter_context(launched(target, setting, plan))
            later_invocations(live)
            yield from _checks(ATTACKING, stack, live, setting)
    except CannotStart as problem:
        yield _never_up(target, str(problem), ATTACKS)


def _once_more(live: Live) -> bool:
    return live.target.kind != "address" and 8 in live.plan.rules and rules_start.suspicious(live)


def _checks(checks: Checks, stack: ExitStack, live: Live, setting: Setting) -> Iterator[list[Finding]]:
    for rules, name, check in checks:
        if not set(rules) & set(live.plan.rules):
            yield []
            continue
        found = list(check(live))
        last = check is rules_end.stop_under_load
        known = any(finding.verdict == "broken" for finding in found)
        if not last and (problem := _unwell(live, within_s=1 if known else WELL_WITHIN_S)):
            if not known:
                found.append(broken(rules[0], f"after {name}", f"after {name} {problem}"))
            stack.close()
            yield found
            try:
                live = _relaunched(stack, live, setting)
            except CannotStart as cannot:
                left = {rule for rules, _, other in checks for rule in rules if other is not check}
                yield [not_tried(rule, "the rest", f"it could not be started again: {cannot}") for rule in left]
                return
        else:
            yield found


def _unwell(live: Live, *, within_s: float) -> str:
    """What is wrong with the server after a check, if anything is."""
    began = perf_counter()
    while True:
        if not live.started.running():
            return f"the server has ended, {live.started.ending()}: {live.started.last_words()[-200:]}"
        ping = live.ping()
        # Where not even the plain photograph is taken, that has been said; and a slow server is spared.
        works = not live.invocations[0].ok or live.median_s > 1 or live.invoke().ok
        if ping.status == 200 and works:
            return ""
        if perf_counter() - began > within_s:
            return f"/ping: {ping}" if ping.status != 200 else "invocations fail"
        sleep(0.05)


def _relaunched(stack: ExitStack, live: Live, setting: Setting) -> Live:
    fresh = stack.enter_context(launched(live.target, setting, live.plan))
    fresh.invocations += live.invocations
    return fresh


def _never_up(target: Target, why: str, rules: Sequence[int]) -> list[Finding]:
    if target.kind == "address":
        return [not_tried(rule, "all of it", f"nothing answers there: {why}") for rule in rules]
    if 1 not in rules:
        return [not_tried(rule, "all of it", f"the server never came up: {why}") for rule in rules]
    rest = [not_tried(rule, "all of it", "the server never came up") for rule in rules if rule != 1]
    return [broken(1, "start command", f"the server never came up: {why}"), *rest]


def _unwritable(target: Target, plan: Plan) -> Iterator[Finding]:
    if 10 not in plan.rules:
        return
    if target.kind == "address":
        yield not_applicable(10, "nothing writable", "an address has been started by somebody else")
        return
    yield rules_start.symlinks(target)
    try:
        with launched(target, Setting(port=own_port(target), unwritable=True), plan) as live:
            yield rules_start.unwritable(live)
    except CannotStart as problem:
        if problem.blame == "machine":
            yield not_tried(10, "nothing writable", str(problem))
        else:
            yield broken(10, "nothing writable", f"where nothing can be written {problem}")


def _again(target: Target, plan: Plan, first_s: float | None) -> Iterator[Finding]:
    """Started, killed outright, started again without being told a port, and stopped at rest."""
    if not {3, 9, 15} & set(plan.rules):
        return
    if target.kind == "address":
        yield not_applicable(15, "start after SIGKILL", "an address is not ours to kill")
        yield not_applicable(9, "SIGTERM at rest", "an address is not ours to stop")
        return
    told = Setting(port=own_port(target))
    try:
        with launched(target, told, plan) as live:
            first_s = first_s or live.ready_s
    except CannotStart:
        return  # said by those who tried it first
    if target.takes_port:
        yield not_tried(3, "default port", "the command line says the port ({port})")
        yield from _after_the_kill(target, plan, told, told, first_s)
        return
    with alone_with(DEFAULT_PORT):
        if port_taken(DEFAULT_PORT):
            yield not_tried(3, "default port", f"port {DEFAULT_PORT} is in use on this machine")
            yield from _after_the_kill(target, plan, told, told, first_s)
        else:
            yield from _after_the_kill(target, plan, told, Setting(), first_s)


def _after_the_kill(target: Target, plan: Plan, told: Setting, default: Setting, first_s: float) -> Iterator[Finding]:
    try:
        with launched(target, default, plan) as live:
            if default.port is None:
                yield rules_start.default_port(live)
            yield from rules_start.started_again(live, first_s)
            yield rules_end.stop_at_rest(live)
    except CannotStart as problem:
        if default is told:
            yield broken(15, "start after SIGKILL", f"killed outright and started again {problem}")
            return
        found = list(_after_the_kill(target, plan, told, told, first_s))
        if port_taken(DEFAULT_PORT):
            yield not_tried(3, "default port", f"port {DEFAULT_PORT} has come into use on this machine")
        elif not any(finding.rule == 15 and finding.verdict == "broken" for finding in found):
            yield broken(3, "default port", f"told no port, {problem}")
        yield from found


def _many_models(target: Target, plan: Plan) -> Iterator[Finding]:
    check = "SAGEMAKER_MULTI_MODEL=true"
    if 13 not in plan.rules:
        return
    labels = target.labels()
    if plan.platform == "serverless":
        yield not_applicable(13, check, "serverless endpoints serve one model")
    elif isinstance(target, ImageTarget) and (labels or {}).get(MANY_LABEL) != "true":
        yield not_applicable(13, check, f"the image has no label …{MANY_LABEL}=true, so it is never asked to")
    else:
        try:
            with launched(target, Setting(port=own_port(target), many_models=True), plan) as live:
                yield from rules_models.many_models(live)
        except CannotStart as problem:
            yield _not_up_for_many(target, str(problem))


def _not_up_for_many(target: Target, why: str) -> Finding:
    check = "SAGEMAKER_MULTI_MODEL=true"
    if target.kind == "image":
        return broken(13, check, f"the label offers many models, but with {check} {why}")
    return not_tried(13, check, f"with {check} {why}")


def chosen(rules: str) -> Sequence[int]:
    """The numbers in "1,5,9"."""
    wanted = [word.strip() for word in rules.split(",") if word.strip()]
    wrong = [word for word in wanted if not word.isdigit() or int(word) not in RULES]
    if wrong or not wanted:
        raise FundoscopeError(
            f"there is no rule {wrong[0] if wrong else rules!r}", f"use 1 to {len(RULES)}, as in 5,7,9"
        )
    return sorted({int(word) for word in wanted})
