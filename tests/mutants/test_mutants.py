"""The mutation tester itself: what it mutates, what it leaves alone, and which lines it says were run."""

from pathlib import Path

import pytest
from blocks import blocks, marked

CODE = '''"""A module."""

from math import ceil

Kind = "left" "right"
LIMIT = 7


def price(up_s: float = 1.5) -> float:
    """In dollars."""
    if up_s > LIMIT:
        return ceil(up_s)
    print("a sentence for people")
    return up_s * 2
'''


def test_a_block_is_what_runs_together() -> None:
    found = blocks(CODE)
    assert {first: (block.function, sorted(block.lines)) for first, block in found.items()} == {
        10: ("price", [10, 11, 13, 14]),
        12: ("price", [12]),
    }


def test_marked_source_does_the_same_and_tells_its_blocks() -> None:
    told: list[tuple[str, int]] = []
    code = marked(CODE, "prices.py").replace("from fundoscope.reached import mark as __reach_mark__", "")
    names = {"__reach_mark__": lambda path, line: told.append((path, line)), "print": lambda _: None}
    exec(compile(code, "prices.py", "exec"), names)
    assert names["price"](3.0) == 6.0  # type: ignore[operator]
    assert told == [("prices.py", 10)]
    assert names["price"](7.5) == 8  # type: ignore[operator]
    assert told[1:] == [("prices.py", 10), ("prices.py", 12)]


def test_mutants_are_small_faults_in_code_and_never_in_its_prose(tmp_path: Path) -> None:
    mutant = pytest.importorskip("mutant", reason="mutmut is not installed here: make mutants has it in .venv-mutants")
    (tmp_path / "prices.py").write_text(CODE)
    made = mutant.mutants_of(tmp_path, "prices.py")
    changes = {(one.function, one.was, one.now) for one in made}
    assert ("", "LIMIT = 7", "LIMIT = 8") in changes
    assert ("price", "if up_s > LIMIT:", "if up_s >= LIMIT:") in changes
    assert ("price", "return up_s * 2", "return up_s / 2") in changes
    assert ("price", 'print("a sentence for people")', "pass") in changes
    assert ("price", "def price(up_s: float = 1.5) -> float:", "def price(up_s: float = 2.5) -> float:") in changes
    assert not [one.name for one in made if "XX" in one.now or one.was.startswith(("Kind", "from"))]
    code = (tmp_path / "prices.py").read_bytes()
    assert all(one.source(code) != CODE for one in made)
    drawn = mutant.sample(made, tmp_path, seed=1, count=4)
    assert drawn == mutant.sample(reversed(made), tmp_path, seed=1, count=4)
    assert drawn != mutant.sample(made, tmp_path, seed=2, count=4)
