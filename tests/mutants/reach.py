"""Which tests run which lines: one run of every test file over marked source, kept until that file changes.

Kept by line, and by function for a module that has changed since.
"""

import hashlib
import json
import shutil
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from blocks import Block, blocks, marked
from mutant import Mutant
from tree import INSIDE, Tree


@dataclass(frozen=True)
class Lines:
    """Those of one module, as it was then."""

    sha256: str
    lines: frozenset[int]
    functions: frozenset[str]

    def reach(self, mutant: Mutant, sha256: str) -> bool:
        if not mutant.in_body:  # run when the module was imported, and for whoever uses it
            return not mutant.function or any(name.startswith(mutant.function) for name in self.functions)
        if self.sha256 == sha256:
            return not self.lines.isdisjoint(range(mutant.first, mutant.last + 1))
        return mutant.function in self.functions


@dataclass
class Test:
    id: str
    seconds: float = 0.0
    fixtures: tuple[str, ...] = ()
    passed: bool = True

    @property
    def file(self) -> str:
        return self.id.partition("::")[0]


@dataclass
class Reach:
    tests: dict[str, Test] = field(default_factory=dict)
    lines: dict[str, dict[str, list[Lines]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    fixture_s: dict[str, float] = field(default_factory=dict)

    def runs(self, whom: str, mutant: Mutant, sha256: str) -> bool:
        return any(lines.reach(mutant, sha256) for lines in self.lines[whom][mutant.path])

    def tests_of(self, mutant: Mutant, sha256: str) -> list[Test]:
        """Those that run it, themselves or by a fixture of theirs."""
        fixtures = {f for test in self.tests.values() for f in test.fixtures}
        reaching = {f for f in fixtures if self.runs(f"fixture {f}", mutant, sha256)}
        return [t for t in self.tests.values() if reaching & set(t.fixtures) or self.runs(t.id, mutant, sha256)]


def unknown(tree: Tree, files: Iterable[str], kept: Path) -> list[str]:
    """Test files that have changed since they were last traced."""
    return [file for file in files if not _path(kept, tree, file).is_file()]


def trace(tree: Tree, files: Sequence[str], modules: Iterable[str], kept: Path, made: Sequence[str]) -> str:
    """Runs these test files. What pytest said last."""
    out, folder = tree.folder / "reach", kept / "made"
    code = {module: (tree.source / module).read_text() for module in modules}
    if not files:
        return ""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    folder.mkdir(parents=True, exist_ok=True)
    missing = [fixture for fixture in made if not (folder / fixture.replace("/", "+")).is_file()]
    place = hashlib.sha256(" ".join(files).encode()).hexdigest()[:8]
    try:
        shutil.copy(INSIDE / "reached.py", tree.source)
        for turn, module in enumerate(code, 1):
            tree.spoil(module, marked(code[module], module), turn)
        ran = tree.test(
            files,
            f"--basetemp={kept / f'made-in-{place}'}",
            limit_s=3600,
            REACH_OUT=str(out),
            WATCH_TESTS=str(out / "tests.jsonl"),
            MADE=str(folder),
            MADE_KEEP=" ".join(missing),
        )
    finally:
        for module in code:
            tree.mend(module)
    told = [json.loads(line) for line in (out / "tests.jsonl").read_text().splitlines()]
    lines = _lines(out, code)
    for fixture in missing:
        if f"fixture {fixture}" in lines:
            _keep(
                kept / f"made-{fixture.replace('/', '+')}.json",
                {f"fixture {fixture}": lines.pop(f"fixture {fixture}")},
                [],
            )
    for file in files:
        mine = [row for row in told if "fixture" in row or row["test"].partition("::")[0] == file]
        whom = {row["test"] for row in mine if "test" in row}
        if whom and ran.status in (0, 1):
            own = {name: found for name, found in lines.items() if name in whom or name.startswith("fixture ")}
            _keep(_path(kept, tree, file), own, mine)
    return ran.output


def known(tree: Tree, files: Iterable[str], kept: Path) -> Reach:
    reach = Reach()
    for path in [*(_path(kept, tree, file) for file in files), *sorted(kept.glob("made-*.json"))]:
        if not path.is_file():
            continue
        content = json.loads(path.read_text())
        for whom, modules in content["lines"].items():
            for module, found in modules.items():
                lines = Lines(found["sha256"], frozenset(found["lines"]), frozenset(found["functions"]))
                reach.lines[whom][module].append(lines)
        for row in content["told"]:
            if "fixture" in row:
                reach.fixture_s[row["fixture"]] = max(row["seconds"], reach.fixture_s.get(row["fixture"], 0.0))
                continue
            test = reach.tests.setdefault(row["test"], Test(row["test"], fixtures=tuple(row["fixtures"])))
            test.seconds += row["seconds"] if row["when"] == "call" else 0.0
            test.passed &= row["outcome"] != "failed"
    return reach


def _path(kept: Path, tree: Tree, file: str) -> Path:
    digest = hashlib.sha256((tree.root / file).read_bytes()).hexdigest()[:12]
    return kept / f"{file.replace('/', '+')}-{digest}.json"


def _keep(path: Path, lines: Mapping[str, Any], told: list[Any]) -> None:
    whole = path.with_suffix(".part")
    whole.write_text(json.dumps({"lines": lines, "told": told}))
    whole.rename(path)


def _lines(out: Path, code: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """whom -> module -> {sha256, lines, functions}"""
    found: dict[str, dict[str, set[Block]]] = defaultdict(lambda: defaultdict(set))
    known = {module: blocks(text) for module, text in code.items()}
    for path in out.glob("*-*"):
        for row in path.read_text().splitlines():
            line, module, whom = row.split(" ", 2)
            found[whom][module].add(known[module][int(line)])
    digests = {module: hashlib.sha256(text.encode()).hexdigest() for module, text in code.items()}
    return {
        whom: {
            module: {
                "sha256": digests[module],
                "lines": sorted({line for block in run for line in block.lines}),
                "functions": sorted({block.function for block in run}),
            }
            for module, run in by_module.items()
        }
        for whom, by_module in found.items()
    }
