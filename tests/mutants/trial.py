"""One mutant against the tests that run it."""

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from mutant import Mutant
from reach import Reach, Test
from tree import ROOT, SOURCE, Ran, Tree

Verdict = Literal["caught", "hangs", "survived", "unreached"]
SPARE_S = 90.0  # for pytest to start on a busy machine
STALL_S = 240.0  # for one test, with what it takes from fixtures: many wait a minute for what does not come, then fail


@dataclass(frozen=True)
class Outcome:
    id: str
    verdict: Verdict
    by: str  # the test that failed, or that never ended
    tests: int
    seconds: float
    path: str
    function: str
    line: int
    was: str
    now: str
    module_sha256: str
    tests_sha256: str  # of the file of the test that failed; of all where none did

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def sha256_of(*paths: Path) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def module_sha256(mutant: Mutant) -> str:
    return sha256_of(SOURCE / mutant.path)


def try_mutant(tree: Tree, mutant: Mutant, reach: Reach, files: Sequence[str], kept: Path, *, turn: int) -> Outcome:
    """`files`: the tests of its part."""
    sha256 = module_sha256(mutant)
    tests = [test for test in reach.tests_of(mutant, sha256) if test.file in files and test.passed]
    fresh = {f for test in tests for f in test.fixtures if reach.runs(f"fixture {f}", mutant, sha256)}
    tests = in_order(tests, fresh, reach)
    seconds, verdict, by = 0.0, "unreached", ""
    if tests:
        fixtures = {f for test in tests for f in test.fixtures}
        limit_s = SPARE_S + 3 * sum(t.seconds for t in tests) + 3 * sum(reach.fixture_s.get(f, 0.0) for f in fixtures)
        try:
            tree.spoil(mutant.path, mutant.source((SOURCE / mutant.path).read_bytes()), turn)
            ran = _run(tree, tests, fresh, kept, limit_s=limit_s)
            verdict, by, seconds = _verdict(ran), _failed(ran), ran.seconds
            if ran.status is None:
                by = tree.now
                again = _run(tree, [reach.tests[by]], fresh, kept, limit_s=limit_s)
                # A busy machine is not a hang: the test must fail to end alone, too.
                verdict = "hangs" if again.status is None else _verdict(again)
                seconds += again.seconds
        finally:
            tree.mend(mutant.path)
    seen = [by.partition("::")[0]] if by.startswith("tests/") else files
    return Outcome(
        mutant.id,
        verdict,  # type: ignore[arg-type]
        by,
        len(tests),
        round(seconds, 1),
        mutant.path,
        mutant.function,
        mutant.first,
        mutant.was,
        mutant.now,
        sha256,
        sha256_of(*(ROOT / file for file in seen)),
    )


def in_order(tests: Sequence[Test], fresh: set[str], reach: Reach) -> list[Test]:
    """Files whose tests cost least first, and in each the shortest: a file's servers are started once."""
    cost: dict[str, float] = defaultdict(float)
    for test in tests:
        cost[test.file] += test.seconds
    for file in cost:
        used = {fixture for test in tests if test.file == file for fixture in test.fixtures}
        cost[file] += sum(reach.fixture_s.get(fixture, 0.0) for fixture in used & fresh)
    return sorted(tests, key=lambda test: (cost[test.file], test.file, test.seconds))


def still_holds(row: Mapping[str, Any], mutant: Mutant, files: Sequence[str]) -> bool:
    """Neither the module has changed since, nor the test that caught it; where none did, no test of the part."""
    if row["module_sha256"] != module_sha256(mutant):
        return False
    seen = [row["by"].partition("::")[0]] if row["by"].startswith("tests/") else files
    return set(seen) <= set(files) and row["tests_sha256"] == sha256_of(*(ROOT / f for f in seen))


def _run(tree: Tree, tests: Sequence[Test], fresh: set[str], kept: Path, *, limit_s: float) -> Ran:
    options = ("-x", "--tb=line", f"--basetemp={tree.folder / 'tmp'}")
    ids, order = [test.id for test in tests], tree.folder / "order"
    order.write_text("\n".join(ids))
    made = {
        "MADE": str(kept / "made"),
        "MADE_FRESH": " ".join(fresh),
        "WATCH_ORDER": str(order),
    }
    allowed_s = {test.id: STALL_S + 5 * test.seconds for test in tests}
    ran = tree.test(ids, *options, limit_s=limit_s, stall_s=lambda now: allowed_s.get(now, STALL_S), **made)
    if ran.status == 4 and "not found: " in ran.output:  # a test is named after a value that the mutant changes
        ran = tree.test(sorted({test.partition("::")[0] for test in ids}), *options, limit_s=limit_s, **made)
    return ran


def _verdict(ran: Ran) -> Verdict:
    if ran.status == 3 and "UnhandledThreadException" not in ran.output:  # that is of the mutant, after the last test
        raise RuntimeError(f"pytest itself failed:\n{ran.output[-3000:]}")
    return "survived" if ran.status in (0, 5) else "caught"


def _failed(ran: Ran) -> str:
    lines = [line for line in ran.output.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    if not lines:
        return ""
    return lines[0].partition(" ")[2].partition(" - ")[0].strip()
