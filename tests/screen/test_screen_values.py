"""Screening, to the number: what is listed and counted, and lines of the log of any length."""

import importlib.util
import io
import tarfile
from pathlib import Path

import pytest

from fundoscope.errors import FundoscopeError
from fundoscope.screen.listing import ABSENT, list_photographs
from fundoscope.screen.log import LogReader, ScreenLog
from fundoscope.screen.patients import patient_row
from fundoscope.screen.table import Row, Status, check_ending


def test_hidden_members_and_texts_of_an_archive_are_counted_and_the_rest_is_listed(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "eyes.tar", "w") as tar:
        for name in ("a.jpg", ".b.jpg", ".c/d.jpg", "notes.TXT", "e"):
            member = tarfile.TarInfo(name)
            member.size = 3
            tar.addfile(member, io.BytesIO(b"eye"))
    listing = list_photographs(tmp_path / "eyes.tar")
    assert listing.names == ["a.jpg", "e"]
    assert list(listing.sizes) == [3, 3]
    assert listing.passed_over == {"hidden file or folder": 2, "not a picture by its name: .txt": 1}


def test_lines_of_the_log_are_read_whatever_their_length(tmp_path: Path) -> None:
    lines = [{"path": "x" * length} for length in (1, 1000, 1024, 5000, 70_000)]
    with ScreenLog(tmp_path / "log.jsonl", {"artefact": "a"}) as log:
        offsets = log.append(lines)
    with LogReader(tmp_path / "log.jsonl") as reader:
        assert [reader.at(offset) for offset in offsets] == lines


@pytest.mark.parametrize("length", [10, 3000])
def test_a_log_that_was_cut_short_is_said_to_be(tmp_path: Path, length: int) -> None:
    path = tmp_path / "log.jsonl"
    with ScreenLog(path, {"artefact": "a"}) as log:
        (offset,) = log.append([{"path": "x" * 5000}])
    with path.open("r+b") as file:
        file.truncate(offset + length)
    with LogReader(path) as reader, pytest.raises(FundoscopeError) as caught:
        reader.at(offset)
    assert caught.value.message == f"{path} was cut short meanwhile"
    assert caught.value.hint == "give the same command again"


def test_the_first_line_says_what_the_log_belongs_to(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    belongs_to = {"artefact": "0" * 64, "operating_point": "high_sensitivity", "folder": "/eyes"}
    with ScreenLog(path, belongs_to):
        pass
    with LogReader(path) as reader:
        assert reader.at(0) == {"screening": 1, **belongs_to}
    with pytest.raises(FundoscopeError) as caught, ScreenLog(path, belongs_to | {"artefact": "1" * 64}):
        pass
    assert caught.value.message == (
        f"{path} belongs to a screening with another artefact, 000000000000…, not 111111111111…"
    )
    assert caught.value.hint == f"choose another --out, or delete {path} to begin anew"


def test_photographs_that_a_manifest_names_inside_an_archive_have_their_own_size(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "eyes.tar", "w") as tar:
        member = tarfile.TarInfo("a.jpg")
        member.size = 3
        tar.addfile(member, io.BytesIO(b"eye"))
    lines = ["path,grade", "eyes.tar::a.jpg,0", "eyes.tar::b.jpg,1", "c.jpg,2"]
    (tmp_path / "manifest.csv").write_text("\n".join(lines) + "\n")
    listing = list_photographs(tmp_path / "manifest.csv")
    assert dict(zip(listing.names, listing.sizes, strict=True)) == {
        "eyes.tar::a.jpg": 3,
        "eyes.tar::b.jpg": ABSENT,
        "c.jpg": ABSENT,
    }


def test_a_patients_row_counts_the_photographs_by_what_became_of_them() -> None:
    statuses: list[Status] = ["graded", "ungradable", "ungradable", "unreadable", "unreadable", "unreadable", "failed"]
    row = patient_row("10", [photograph(f"{place}.jpg", status) for place, status in enumerate(statuses)])
    counted = (row.photographs, row.graded, row.ungradable, row.unreadable, row.failed)
    assert counted == (7, 1, 2, 3, 1)
    assert (row.result, row.referral, row.grade, row.worst) == ("refer", True, 3, "0.jpg")


def photograph(path: str, status: Status) -> Row:
    chances = (0.1, 0.1, 0.1, 0.6, 0.1) if status == "graded" else (None,) * 5
    return Row(
        path, "0" * 64, "", "10", "left", status, "", 3 if status == "graded" else None, *chances,
        referral_probability=0.8 if status == "graded" else None,
        referral=True if status == "graded" else None,
        gradability=None, gradability_reasons="", decode_ms=None, predict_ms=None, artefact="",
    )  # fmt: skip


def test_a_parquet_table_without_pyarrow_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(FundoscopeError) as caught:
        check_ending(tmp_path / "gradings.parquet")
    assert caught.value.message == "writing Parquet needs pyarrow, which is not installed"
    assert caught.value.hint == (
        f"pip install pyarrow, or write another kind of table: --out {tmp_path / 'gradings.csv'}"
    )
    check_ending(tmp_path / "gradings.csv")
