"""Trials over the nodes of a Ray cluster: one at a time on each node, or as many as asked for.

Ray carries tasks out and observations back; on its node a trial is measured as it is anywhere, and sees the environment
that the node was started in, not what Ray makes of it. A node may join or die at any time: a trial that was lost with
its node is handed out again, and no trial has two outcomes. When an actor ends, however it ends, so do the processes of
its trial.
"""

import logging
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

from fundoscope.errors import FundoscopeError
from fundoscope.experiment.machine import Machine, this_machine
from fundoscope.experiment.measure import Observation, Task, measure
from fundoscope.experiment.outcome import Failed, FailureKind, Ran
from fundoscope.experiment.ray_cluster import alive_nodes, connected, import_ray, running_here
from fundoscope.experiment.runner import Lab
from fundoscope.experiment.watched import LAST_WORDS, adopting_orphans
from fundoscope.provenance import versions

LOOK_S = 1.0  # between two looks at which nodes there are
MOST_LOSSES = 3
MOST_STARTS = 3  # of actors on one node that never came up


def on_ray(address: str, *, per_node: int = 1) -> Lab:
    """`address` as typed: "ray" (join the cluster that runs here, or start one), "ray://auto", "ray://HOST:PORT"."""
    if per_node < 1:
        raise FundoscopeError(f"{per_node} trials at once on a node are none", "use --per-node 1 or more")
    scheme, _, where = address.partition("://")
    if scheme != "ray" or address == "ray://":
        raise FundoscopeError(f"--on cannot be '{address}'", "use ray, ray://auto or ray://HOST:PORT")
    at = running_here() if where in ("", "auto") else where
    import_ray(loopback=not at or at.startswith(("127.", "localhost:")))

    def lab(tasks: Iterable[Task]) -> Iterator[Observation]:
        left = iter(tasks)
        for first in left:  # no cluster for nothing
            with connected(where, at):
                yield from _observe(chain([first], left), per_node, first.study)

    return lab


def _observe(tasks: Iterator[Task], per_node: int, study: str) -> Iterator[Observation]:
    crew = _Crew(tasks, per_node, study)
    try:
        while not crew.is_done():
            crew.recruit()
            crew.hand_out()
            found = crew.gather()
            crew.hand_out()  # first, so that no node waits for our disk
            yield from found
    finally:
        crew.dismiss()


@dataclass
class _Bench:
    """An actor, as the driver sees it."""

    node: str
    actor: Any
    machine: Machine | None = None  # None: it is being started


@dataclass(frozen=True)
class _Errand:
    """What a bench was sent to do."""

    bench: _Bench
    number: int  # of its task, in the order of the design
    task: Task | None  # None: to say which machine it is
    started: str
    began: float


class _Crew:
    def __init__(self, tasks: Iterator[Task], per_node: int, study: str) -> None:
        self._tasks, self._per_node, self._study = enumerate(tasks), per_node, study
        self._benches: list[_Bench] = []
        self._out: dict[Any, _Errand] = {}  # by the reference to its answer
        self._all_taken = False
        self._lost: list[tuple[int, Task]] = []  # to be handed out again
        self._losses: dict[int, int] = {}
        self._refusals: dict[str, list[str]] = {}  # why the actors of a node never came up

    def recruit(self) -> None:
        """As many actors as there should be on every node that there is."""
        nodes = alive_nodes()
        self._benches = [bench for bench in self._benches if bench.node in nodes]
        for node in nodes:
            if len(self._refusals.get(node, [])) < MOST_STARTS:
                for _ in range(self._per_node - sum(bench.node == node for bench in self._benches)):
                    self._start(node)
        if not self._benches and not self._out:
            if reasons := [refusals[-1] for node, refusals in self._refusals.items() if node in nodes]:
                hint = "install the same fundoscope on every node, for the Python that Ray runs in"
                raise FundoscopeError(f"no node of the Ray cluster can run trials: {reasons[0]}", hint)
            hint = "bring a node back and run the same command: it goes on where it stopped"
            raise FundoscopeError("no node of the Ray cluster is left", hint)

    def hand_out(self) -> None:
        """One trial to every bench that has none, in the order of the design."""
        busy = {id(errand.bench) for errand in self._out.values()}
        for bench in self._benches:
            if id(bench) not in busy and bench.machine is not None:
                chosen = self._lost.pop(0) if self._lost else next(self._tasks, None)
                if chosen is None:
                    self._all_taken = True
                    return
                number, task = chosen
                self._send(bench, bench.actor.measure.remote(task), number, task)

    def is_done(self) -> bool:
        return self._all_taken and not self._lost and all(errand.task is None for errand in self._out.values())

    def gather(self) -> list[Observation]:
        import ray

        ready = ray.wait(list(self._out), num_returns=1, timeout=LOOK_S)[0] if self._out else []
        found: list[Observation] = []
        for reference in ready:
            errand = self._out.pop(reference)
            try:
                answer = ray.get(reference)
            except ray.exceptions.RayTaskError as problem:
                if errand.task is not None:
                    raise problem.cause from problem  # what `measure` raises here, it raises there
                self._refuse(errand, str(problem))
            except ray.exceptions.RayError as problem:
                if errand.task is not None and isinstance(problem, ray.exceptions.OutOfMemoryError):
                    self._drop(errand.bench)
                    found.append(_failed(errand, "out of memory", "Ray ended it for want of memory", problem))
                else:
                    found += self._lose(errand, problem)
            else:
                found += self._accept(errand, answer)
        return found

    def dismiss(self) -> None:
        for bench in self._benches:
            _kill(bench)

    def _start(self, node: str) -> None:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        options = {"num_cpus": 0, "scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False)}
        # A mark of its own, so that what one actor leaves can be ended without harm to the others.
        actor = ray.remote(_Actor).options(**options).remote(f"{self._study}/{secrets.token_hex(4)}")
        bench = _Bench(node, actor)
        self._benches.append(bench)
        self._send(bench, actor.about.remote(), -1, None)

    def _send(self, bench: _Bench, reference: Any, number: int, task: Task | None) -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self._out[reference] = _Errand(bench, number, task, now, time.monotonic())

    def _accept(self, errand: _Errand, answer: Any) -> list[Observation]:
        if errand.task is not None:
            assert isinstance(answer, Observation)
            return [answer]
        version, machine = answer
        if version == _version():
            errand.bench.machine = machine
        else:
            self._refuse(errand, f"it has fundoscope {version}, and this is {_version()}")
        return []

    def _refuse(self, errand: _Errand, why: str) -> None:
        self._drop(errand.bench)
        reasons = self._refusals.setdefault(errand.bench.node, [])
        reasons.append(why.strip().splitlines()[-1][:300])
        if len(reasons) == MOST_STARTS:
            logging.getLogger(__name__).warning("a node is left out, for it runs no trials: %s", reasons[-1])

    def _lose(self, errand: _Errand, problem: Exception) -> list[Observation]:
        if errand.task is None:
            self._refuse(errand, str(problem))
            return []
        self._drop(errand.bench)
        self._losses[errand.number] = losses = self._losses.get(errand.number, 0) + 1
        if losses < MOST_LOSSES:
            self._lost = sorted([*self._lost, (errand.number, errand.task)], key=lambda pair: pair[0])
            return []
        return [_failed(errand, "crashed", "its node died three times", problem)]

    def _drop(self, bench: _Bench) -> None:
        """It may only seem dead: a trial that is handed out again must not go on there."""
        _kill(bench)
        self._benches = [other for other in self._benches if other is not bench]


def _failed(errand: _Errand, kind: FailureKind, reason: str, problem: Exception) -> Observation:
    assert errand.task is not None
    machine = errand.bench.machine or this_machine()
    ran = Ran(errand.started, time.monotonic() - errand.began, machine.digest)
    return Observation(Failed(errand.task.trial, ran, kind, reason, str(problem)[:LAST_WORDS].strip()), machine, "")


class _Actor:
    """On a node: measures what it is given, one trial after the other."""

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._guard = _start_guard(mark)

    def about(self) -> tuple[str, Machine]:
        return _version(), this_machine()

    def measure(self, task: Task) -> Observation:
        _undo_ray()
        with adopting_orphans():
            return measure(replace(task, study=self._mark))


# Waits for the end of the actor, which closes the pipe however it comes, and ends what its trial left. It is nobody's
# child and in a session of its own, so that what ends the actor does not end it too.
GUARD = """
import os, sys, time
from fundoscope.experiment.watched import end_marked
if os.fork():
    os._exit(0)
sys.stdin.read()
for _ in range(1000):
    if not end_marked(sys.argv[1]):
        break
    time.sleep(0.01)
"""


def _start_guard(mark: str) -> "subprocess.Popen[bytes]":
    quiet = subprocess.DEVNULL
    words = [sys.executable, "-c", GUARD, f"{mark}/"]
    guard = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, start_new_session=True)
    guard.wait()
    return guard


def _undo_ray() -> None:
    """Ray sets the number of OpenMP threads to one, lowers the priority and holds back SIGINT; trials inherit all."""
    entries = Path("/proc/self/environ").read_bytes().decode(errors="surrogateescape").split("\0")
    given = dict(entry.split("=", 1) for entry in entries if "=" in entry)
    for name in set(os.environ) - set(given):
        del os.environ[name]
    os.environ.update(given)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    with suppress(KeyError, OSError):  # only a superuser may raise it
        os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, int(os.environ["RAY_RAYLET_PID"])))


def _kill(bench: _Bench) -> None:
    import ray

    with suppress(Exception):  # it, its node or the whole cluster may be gone
        ray.kill(bench.actor)


def _version() -> str:
    return versions()["fundoscope"]
