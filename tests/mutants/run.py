"""python tests/mutants/run.py: a seeded sample of mutants, each against the tests that run it.

Outcomes are appended to FOLDER/outcomes.jsonl as they come: ended at any moment, the same command goes on from there,
and tries a mutant again only where its module has changed, or the tests that judged it. The checkout is copied to
FOLDER, and mutated there. Exit status 1: fewer were caught than asked for, or a survivor is not in survivors.toml.
"""

import argparse
import json
import os
import pickle
import shutil
import sys
import threading
import time
import tomllib
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import reach as reaching
from mutant import Mutant, mutants_of, sample
from tree import ROOT, SOURCE, Tree
from trial import sha256_of, still_holds, try_mutant

HERE = Path(__file__).parent
CAUGHT = ("caught", "hangs")


@dataclass(frozen=True)
class Part:
    modules: tuple[str, ...]
    files: tuple[str, ...]  # of tests


def parts(scope: dict[str, Any], without: str = "") -> list[Part]:
    found = []
    for part in scope["part"]:
        modules = [path for pattern in part["modules"] for path in sorted(SOURCE.glob(pattern))]
        names = [path.relative_to(SOURCE).as_posix() for path in modules if path.stat().st_size]
        files = []
        for name in part["tests"]:
            path = ROOT / "tests" / name
            files += sorted(path.glob("test_*.py")) if path.is_dir() else [path] if path.is_file() else []
        files = [path for path in files if not fnmatch(path.name, without)]
        found.append(Part(tuple(names), tuple(path.relative_to(ROOT).as_posix() for path in files)))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--least", type=float, default=90, help="percent that must be caught")
    parser.add_argument("--only", default="", help="modules whose path begins so, of the same sample")
    parser.add_argument("--python", default=str(ROOT / ".venv/bin/python"), help="that of the tests")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "mutants")
    parser.add_argument("--without", default="", help="leave out the tests of files named so: what the others catch")
    parser.add_argument("--frozen", action="store_true", help="this is the copy of a checkout, and nobody edits it")
    parser.add_argument("--report", action="store_true", help="try none; tell what is known")
    arguments = parser.parse_args()
    folder: Path = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if not arguments.frozen:  # go on in a copy: somebody may work on the checkout meanwhile
        copy = Tree(folder / "checkout", arguments.python).copy()
        options = ["--frozen", "--python", arguments.python, "--folder", str(folder)]
        os.execv(sys.executable, [sys.executable, str(copy.root / "tests/mutants/run.py"), *sys.argv[1:], *options])
    scope = tomllib.loads((HERE / "scope.toml").read_text())
    files_of = {module: part.files for part in parts(scope, arguments.without) for module in part.modules}
    mutants = [mutant for module in files_of for mutant in mutants_kept(module, folder)]
    drawn = sample(mutants, SOURCE, seed=arguments.seed, count=arguments.count)
    drawn = [mutant for mutant in drawn if mutant.path.startswith(arguments.only)]
    print(f"{len(drawn)} of {len(mutants)} mutants, seed {arguments.seed}", flush=True)
    log = folder / "outcomes.jsonl"
    if arguments.without:
        log, whole = folder / "outcomes-without.jsonl", log
        if not log.exists():
            shutil.copy(whole, log)
    if not arguments.report:
        try_all(drawn, files_of, folder, log, scope["made"], arguments)
    return tell(drawn, files_of, log, arguments.least)


def mutants_kept(module: str, folder: Path) -> list[Mutant]:
    """Made once for each state of a module, and of what makes them."""
    state = sha256_of(SOURCE / module, HERE / "mutant.py")[:16]
    path = folder / "mutants" / f"{module.replace('/', '+')}-{state}"
    if not path.is_file():
        path.parent.mkdir(exist_ok=True)
        path.with_suffix(".part").write_bytes(pickle.dumps(mutants_of(SOURCE, module)))
        path.with_suffix(".part").rename(path)
    found: list[Mutant] = pickle.loads(path.read_bytes())
    return found


def try_all(
    drawn: list[Mutant], files_of: dict[str, Any], folder: Path, log: Path, made: list[str], options: Any
) -> None:
    trees = [Tree(folder / f"copy-{number}", options.python).copy() for number in range(options.workers)]
    kept = folder / "reach"
    kept.mkdir(exist_ok=True)
    outcomes, named = read(log), survivors_named()
    todo = [m for m in drawn if m.id not in outcomes or not still_holds(outcomes[m.id], m, files_of[m.path])]
    todo = [mutant for mutant in todo if mutant.id not in named]
    files = sorted({file for mutant in todo for file in files_of[mutant.path]})
    missing = reaching.unknown(trees[0], files, kept)
    began = time.monotonic()
    if missing:
        print(f"tracing {len(missing)} test files", flush=True)
        shares = [missing[number :: len(trees)] for number in range(len(trees))]
        with ThreadPoolExecutor(len(trees)) as pool:
            for said in pool.map(
                lambda one: reaching.trace(*one, files_of, kept, made), zip(trees, shares, strict=True)
            ):
                print(said[-1500:], flush=True)
        print(f"traced in {time.monotonic() - began:.0f} s", flush=True)
    reach = reaching.known(trees[0], files, kept)
    for test in reach.tests.values():
        if not test.passed:
            print(f"left out, since it fails as it is: {test.id}")
    lock, queue, done = threading.Lock(), iter(todo), Counter[str]()

    def work(tree: Tree) -> None:
        while True:
            with lock:
                mutant = next(queue, None)
                done["begun"] += 1
                turn = int(time.time()) * 10 % 1_000_000_000 + done["begun"]
            if mutant is None:
                return
            outcome = try_mutant(tree, mutant, reach, files_of[mutant.path], kept, turn=turn)
            with lock, log.open("a") as file:
                file.write(json.dumps(outcome.to_json()) + "\n")
                file.flush()
                os.fsync(file.fileno())
                done[outcome.verdict] += 1
                about = f"{outcome.verdict} in {outcome.seconds:.0f} s by {outcome.by or '-'} of {outcome.tests}"
                print(f"{sum(done.values()) - done['begun']}/{len(todo)} {about}\n    {mutant.name[:300]}", flush=True)

    with ThreadPoolExecutor(len(trees)) as pool:
        list(pool.map(work, trees))


def survivors_named() -> set[str]:
    return {survivor["id"] for survivor in tomllib.loads((HERE / "survivors.toml").read_text())["survivor"]}


def read(log: Path) -> dict[str, dict[str, Any]]:
    """The last outcome of each; a line cut off by an end in its middle is none."""
    outcomes = {}
    for line in log.read_text().splitlines() if log.is_file() else []:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        outcomes[row["id"]] = row
    return outcomes


def tell(drawn: list[Mutant], files_of: dict[str, Any], log: Path, least: float) -> int:
    outcomes, named = read(log), survivors_named()
    rows = [
        (m, {"verdict": "survived", "seconds": 0.0} if m.id in named else outcomes[m.id])
        for m in drawn
        if m.id in outcomes or m.id in named
    ]
    stale = sum(m.id not in named and not still_holds(row, m, files_of[m.path]) for m, row in rows)
    by_part: dict[str, Counter[str]] = defaultdict(Counter)
    for mutant, row in rows:
        by_part[mutant.path][row["verdict"]] += 1
    for path, counts in sorted(by_part.items()):
        print(f"{sum(counts[v] for v in CAUGHT):4} of {sum(counts.values()):3}  {path}")
    survivors = [(mutant, row) for mutant, row in rows if row["verdict"] not in CAUGHT]
    unnamed = [(mutant, row) for mutant, row in survivors if mutant.id not in named]
    for mutant, row in unnamed:
        print(f"{row['verdict']}, and not in survivors.toml: {mutant.id} {mutant.name}")
    caught = len(rows) - len(survivors)
    share = 100 * caught / len(drawn) if drawn else 100.0
    hangs = sum(row["verdict"] == "hangs" for _, row in rows)
    seconds = sum(row["seconds"] for _, row in rows)
    print(
        f"{caught} of {len(drawn)} caught ({share:.1f} %), {hangs} of them since they never end; "
        f"{len(survivors)} survive, {len(unnamed)} without a reason; "
        f"{len(drawn) - len(rows)} not tried, {stale} tried before a change; "
        f"{seconds:.0f} s of tests"
    )
    return 0 if share >= least and not unnamed and len(rows) == len(drawn) and not stale else 1


if __name__ == "__main__":
    sys.exit(main())
