"""A target that is up: where it answers, how long it took, what it said to every invocation so far."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from threading import Thread
from time import perf_counter, sleep

from fundoscope.conform import processes
from fundoscope.conform.contract import BIND_LABEL, DEFAULT_PORT, OURS, RULES, SAGEMAKER, Bounds, Limits, Routes
from fundoscope.conform.photographs import Payload
from fundoscope.conform.private import CANNOT
from fundoscope.conform.target import AddressTarget, CannotStart, Setting, Started, Target, free_port, running
from fundoscope.conform.wire import Address, Answer, ask, message

POLL_S = 0.01
LOOK_ELSEWHERE_S = 0.5  # how often a target that does not answer is looked for on another port
LATER, LATER_S = 10, 3.0  # invocations that the first is compared with, and how long they may take in all


@dataclass(frozen=True)
class Effort:
    """How long to try. Thresholds are the contract's and do not depend on it."""

    load_s: float = 5.0
    launches: int = 3  # to be sure that a slow first invocation was no accident
    connections: int = 16
    watch_s: float = 35.0  # for slow senders to be cut; whether they are decides nothing


FULL, QUICK = Effort(), Effort(load_s=1.5, watch_s=0)


@dataclass(frozen=True)
class Plan:
    limits: Limits
    payload: Payload
    rules: Sequence[int] = tuple(RULES)
    effort: Effort = FULL
    platform: str = "real-time"
    bounds: Bounds = OURS
    routes: Routes = SAGEMAKER


@dataclass
class Live:
    target: Target
    started: Started
    plan: Plan
    address: Address
    expected_port: int
    ready_s: float
    refused_before: int = 0  # pings that were answered, but not with 200, before the first that was
    invocations: list[Answer] = field(default_factory=list)
    pings: list[Answer] = field(default_factory=list)  # while the first invocation ran
    resident_before: int | None = None  # bytes, before any attack

    @property
    def works(self) -> bool:
        """Whether it takes the plain photograph at all."""
        return any(answer.ok for answer in self.invocations)

    def ping(self) -> Answer:
        return ask(self.address, message("GET", self.plan.routes.ping), within_s=2.5 * self.plan.limits.ping_s)

    def is_there(self) -> bool:
        """Whether it still answers /ping: one 503 among others is rule 7's, and no sign that it is gone."""
        return any(self.ping().status == 200 for _ in range(3))

    def invocation(self, payload: Payload | None = None, headers: Iterable[tuple[str, str]] = ()) -> bytes:
        sent = payload or self.plan.payload
        kind = ("Content-Type", sent.content_type)
        return message("POST", self.plan.routes.invocations, body=sent.data, headers=[kind, *headers])

    def invoke(self, payload: Payload | None = None, headers: Iterable[tuple[str, str]] = ()) -> Answer:
        answer = ask(self.address, self.invocation(payload, headers), within_s=self.plan.limits.response_s)
        self.invocations.append(answer)
        return answer

    def request(self, method: str, path: str, *, body: bytes = b"", headers: Iterable[tuple[str, str]] = ()) -> Answer:
        asked = message(method, path, body=body, headers=headers)
        return ask(self.address, asked, within_s=self.plan.limits.response_s)

    @property
    def median_s(self) -> float:
        """Of the invocations that worked, the first left out."""
        times = [answer.seconds for answer in self.invocations[1:] if answer.ok]
        return median(times) if times else 0.0

    def tree(self) -> list[int]:
        pid = self.started.pid
        return [] if pid is None else [pid, *processes.descendants(pid)]


@contextmanager
def launched(target: Target, setting: Setting, plan: Plan) -> Iterator[Live]:
    """The target, healthy; raises CannotStart with the reason where it never was."""
    with running(target, setting) as started:
        yield _await_healthy(target, started, setting, plan)


def own_port(target: Target) -> int:
    """The port to tell the target. An image that does not say it takes one is left on the default."""
    labels = target.labels()
    return free_port() if labels is None or labels.get(BIND_LABEL) == "true" else DEFAULT_PORT


def _await_healthy(target: Target, started: Started, setting: Setting, plan: Plan) -> Live:
    told = DEFAULT_PORT if setting.port is None else setting.port
    port = target.port if isinstance(target, AddressTarget) else told
    expected, refused, looked = port, 0, perf_counter()
    while True:
        answer = ask((target.host, port), message("GET", plan.routes.ping), within_s=plan.limits.ping_s)
        if answer.status == 200 and _is_its_own(started, port):
            ready_s = answer.ended - started.began
            return Live(target, started, plan, (target.host, port), expected, ready_s, refused)
        refused += answer.status > 0
        waited = perf_counter() - started.began
        if not started.running():
            raise _ended(started)
        if waited > (plan.limits.start_s if target.kind != "address" else 2 * plan.limits.ping_s):
            raise CannotStart(f"/ping gave no 200 within {waited:.0f} s: it {_last(answer)}")
        if answer.status == 0 and perf_counter() - looked > LOOK_ELSEWHERE_S:
            looked = perf_counter()
            port = _another_port(started, target.host, expected, plan.routes.ping)
        sleep(POLL_S)


def _is_its_own(started: Started, port: int) -> bool:
    """Whether the answer came from what we started, and not from another server on the port it was to have."""
    if started.pid is None:
        return True
    return port in processes.listening_ports([started.pid, *processes.descendants(started.pid)])


def _last(answer: Answer) -> str:
    return f"answered {answer.status}" if answer.status else str(answer)


def _ended(started: Started) -> CannotStart:
    last_words = started.last_words()
    if started.exit_status() == CANNOT:
        return CannotStart(f"this machine lets us make no mounts of our own ({last_words})", blame="machine")
    return CannotStart(
        f"it ended before it was healthy, {started.ending()}" + (f": {last_words}" if last_words else "")
    )


def _another_port(started: Started, host: str, expected: int, ping: str) -> int:
    """Where else it listens and answers /ping with 200, having ignored what it was told."""
    if started.pid is None:
        return expected
    ports = processes.listening_ports([started.pid, *processes.descendants(started.pid)])
    for port in sorted(ports, key=lambda port: (port != DEFAULT_PORT, port)):
        if expected not in ports and ask((host, port), message("GET", ping), within_s=1).status == 200:
            return port
    return expected


def first_invocation(live: Live) -> Answer:
    """Sent the moment /ping said 200, with /ping asked all the while, since that is when a model would be loaded."""
    answers: list[Answer] = []
    sender = Thread(target=lambda: answers.append(live.invoke()))
    sender.start()
    while sender.is_alive():
        live.pings.append(live.ping())
        sender.join(0.05)
    return answers[0]


def later_invocations(live: Live) -> list[Answer]:
    """Some more, one at a time: what an invocation takes once everything is warm."""
    answers: list[Answer] = []
    began = perf_counter()
    while len(answers) < LATER and (len(answers) < 3 or perf_counter() - began < LATER_S):
        answers.append(live.invoke())
        if answers[-1].status == 0:
            break
    return answers
