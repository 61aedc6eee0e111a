"""Screening, to the letter: what an archive's members are counted as, and lines of the log of any length."""

import io
import tarfile
from pathlib import Path

import pytest

from fundoscope.errors import FundoscopeError
from fundoscope.screen.listing import list_photographs
from fundoscope.screen.log import LogReader, ScreenLog


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
