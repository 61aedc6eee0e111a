"""The ledger of attempts: who has been judged by whom, and how many that makes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from lossy_disk import LossyDisk

from fundoscope.artefact.attempts import Attempt, count_attempts
from fundoscope.errors import FundoscopeError

FIRST = Attempt("judges", "network", "candidate", 0.02, 0)


def test_each_candidate_counts_once_however_often_it_comes(tmp_path: Path) -> None:
    assert count_attempts(tmp_path, {"int8": FIRST}) == {"int8": 1}
    assert count_attempts(tmp_path, {"int8": FIRST}) == {"int8": 1}
    second, third = replace(FIRST, candidate="another"), replace(FIRST, margin=0.03)
    assert count_attempts(tmp_path, {"int8": second}) == {"int8": 2}
    assert count_attempts(tmp_path, {"int8": third}) == {"int8": 3}  # a wider margin is another try
    assert count_attempts(tmp_path, {"int8": FIRST}) == {"int8": 1}  # when it was judged it was the first


def test_candidates_that_came_together_have_the_same_number(tmp_path: Path) -> None:
    count_attempts(tmp_path, {"int8": FIRST})
    three = {name: replace(FIRST, candidate=name) for name in ("a", "b")} | {"int8": FIRST}
    assert count_attempts(tmp_path, three) == {"a": 3, "b": 3, "int8": 1}
    assert count_attempts(tmp_path, {"c": replace(FIRST, candidate="c")}) == {"c": 4}


@pytest.mark.parametrize("changes", [{"judges": "others"}, {"model": "another network"}])
def test_other_photographs_and_other_networks_are_counted_by_themselves(
    changes: dict[str, str], tmp_path: Path
) -> None:
    for candidate in ("a", "b", "c"):
        count_attempts(tmp_path, {"int8": replace(FIRST, candidate=candidate)})
    assert count_attempts(tmp_path, {"int8": replace(FIRST, **changes)}) == {"int8": 1}


def test_an_attempt_outlives_a_power_cut_and_half_a_line_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, ledger = LossyDisk(monkeypatch, tmp_path), tmp_path / "attempts.jsonl"
    count_attempts(tmp_path, {"int8": FIRST})
    assert disk.after_a_power_cut(ledger) == ledger.read_bytes()
    ledger.write_bytes(ledger.read_bytes() + b'{"judges": "jud')
    assert count_attempts(tmp_path, {"int8": replace(FIRST, candidate="another")}) == {"int8": 2}
    assert [json.loads(line)["attempts"] for line in ledger.read_text().splitlines()] == [1, 2]


def test_a_ledger_that_cannot_be_read_or_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "attempts.jsonl").write_text('{"judges": "x"}\n')
    with pytest.raises(FundoscopeError, match="line 1 of .*attempts.jsonl is not an attempt"):
        count_attempts(tmp_path, {"int8": FIRST})
    with pytest.raises(FundoscopeError, match=r"attempts.jsonl cannot be written: No such file or directory"):
        count_attempts(tmp_path / "nowhere", {"int8": FIRST})
