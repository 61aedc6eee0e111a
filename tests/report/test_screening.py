"""The page of a screening as a reader gets it."""

import re
import shutil
from dataclasses import replace

import pytest
from test_page import Page

from fundoscope.artefact.artefact import Name
from fundoscope.data.draw import draw_folder
from fundoscope.data.intake import import_photographs
from fundoscope.report.screening import render, write_screening
from fundoscope.screen.results import Conflict
from fundoscope.screen.screen import screen

EYES = 24


@pytest.fixture(scope="module")
def screened(exported, tmp_path_factory):
    """Drawn eyes of twelve patients, one of them spoilt."""
    folder = tmp_path_factory.mktemp("screened")
    drawn = draw_folder(folder / "drawn", n=EYES, seed=6, size=192, processes=1)
    (drawn / "images" / "00005.jpg").write_bytes(b"%PDF-1.7")
    import_photographs("drawn", drawn, folder=folder).write(folder / "manifest.csv")
    artefact = exported["onnx"].artefact.folder
    return screen(folder / "manifest.csv", artefact, folder / "gradings.csv", processes=2)


@pytest.fixture(scope="module")
def page(screened):
    text = write_screening(screened).read_text(encoding="utf-8")
    page = Page(text)
    page.raw = text
    return page


def cells_of(page, section):
    """The text of every cell of a section's tables."""
    start = page.raw.index(f'<section id="{section}"')
    cells = re.findall(r"<t[hd][ >].*?</t[hd]>", page.raw[start : page.raw.index("</section>", start)], re.DOTALL)
    return [" ".join(re.sub(r"^[^>]*>|<[^>]*>", "", cell).split()) for cell in cells]


def test_it_stands_beside_the_table_loads_nothing_and_holds_no_photograph(screened, page):
    out = screened.asked.out.with_name("gradings.html")
    text = out.read_text(encoding="utf-8")
    assert page.of("script", "link", "iframe", "object", "embed", "base", "img") == []
    assert "data:" not in text
    assert "@import" not in text
    assert re.findall(r"url\(", text) == []
    names = {attributes["id"] for _, attributes in page.elements if "id" in attributes}
    assert {link["href"].removeprefix("#") for link in page.of("a")} <= names
    assert 'name="viewport"' in text
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text


def test_the_same_screening_gives_the_same_page(screened):
    assert render(screened) == render(replace(screened, effort=replace(screened.effort, seconds=9.0, photographs=3)))


def test_the_most_severe_patient_comes_first_with_the_photograph_that_decides(screened, page):
    patients, photographs = (cells_of(page, section) for section in ("patients", "photographs"))
    assert patients[9::8] == [
        one.patient for one in screened.patients
    ]  # eight columns, the second, behind the headings
    assert all(cell.startswith(one.worst) for cell, one in zip(patients[15::8], screened.patients, strict=True))
    places = [photographs.index(row.path) for row in screened.rows]
    assert places == sorted(places)
    assert len(places) == screened.counts["graded"]


def test_the_summary_counts_in_english_and_in_portuguese(screened, page):
    counts, people = screened.counts, screened.counts["patients"]
    assert f"{counts['graded']} of {EYES} photographs were graded; {counts['ungradable']} are ungradable" in page.words
    assert f"Of 12 patients, {people['refer']} are to be referred, {people['retake or refer']} to be" in page.words
    assert f"De {EYES} fotografias, {counts['graded']} foram avaliadas" in page.words
    assert f"De 12 pacientes: {people['refer']} a encaminhar" in page.words
    assert next(s for s in page.of("section") if s["id"] == "resumo")["lang"] == "pt-BR"


def test_what_was_not_graded_is_listed_with_its_reason(page):
    cells = cells_of(page, "not-graded")
    at = cells.index("the file is a PDF document, not a photograph")
    assert (cells[at - 1], cells[at + 1]) == ("unreadable", "1")
    at = cells.index("drawn/images/00005.jpg")
    assert cells[at + 2 : at + 5] == ["right", "unreadable", "the file is a PDF document, not a photograph"]


def test_the_operating_point_is_there_with_what_was_measured(screened, page):
    point = screened.asked.operating_point
    at = screened.asked.artefact.scores["gradable"]["operating_points"][point.name]
    assert f"is {point.threshold:.3f} or higher: the high sensitivity point" in page.words
    shown = {float(attributes["value"]) for attributes in page.of("data")}
    assert {at["sensitivity"]["value"], at["specificity"]["value"], point.threshold} <= shown


def test_the_notice_is_given_once_in_each_language(screened, page):
    notice = screened.asked.artefact.notice
    assert "drawn eyes" in notice.en
    assert page.words.count(notice.en) == page.words.count("Not a medical device") == 1
    assert page.words.count(notice.pt) == page.words.count("Não é um dispositivo médico") == 1


def test_names_cannot_smuggle_markup_in(screened):
    evil = "<script>alert(1)</script>.jpg"
    rows = tuple(replace(row, path=evil, patient=evil) for row in screened.rows)
    patients = tuple(replace(one, patient=evil, worst=evil, reason=evil) for one in screened.patients)
    changed = replace(screened, rows=rows, patients=patients, conflicts=(Conflict(evil, evil),))
    changed = replace(changed, counts=changed.counts | {"copies": 1, "conflicting_copies": 1})
    page = Page(render(changed))
    assert page.of("script") == []
    assert evil in page.words


def test_a_long_list_is_cut_and_says_where_the_rest_is(screened):
    many = screened.counts | {"graded": 1_000_000, "patients": {**screened.counts["patients"], "n": 500_000}}
    words = Page(render(replace(screened, counts=many))).words
    assert (
        f"The first {len(screened.rows)} of 1,000,000 graded photographs are listed here; all of them are in" in words
    )
    assert "The first 12 of 500,000 patients are listed here; all of them are in gradings.patients.csv" in words


def test_without_patients_and_without_grades_there_is_a_page_too(screened):
    """A referral head, and a folder of nobody known."""
    rows = tuple(replace(row, grade=None, patient="", eye="") for row in screened.rows)
    counts = {name: value for name, value in screened.counts.items() if name not in ("patients", "without_patient")}
    artefact = replace(
        screened.asked.artefact,
        output=replace(screened.asked.artefact.output, classes=(Name("refer", "encaminhar"),)),
        guard={"passed": False, "why": "it misses more", "caution": "one of 3 candidates"},
        scores={},
    )
    changed = replace(
        screened,
        asked=replace(screened.asked, artefact=artefact),
        counts=counts | {"grades": None},
        rows=rows,
        patients=None,
    )
    page = Page(render(changed))
    assert "patients" not in {section["id"] for section in page.of("section")}
    assert "This artefact was refused, and used all the same (--unsafe): it misses more" in page.words
    assert "This float32 model is one of 3 candidates." in page.words
    assert "The artefact does not say how good it is at this point." in page.words


def test_where_nothing_could_be_graded_it_says_so(screened, tmp_path):
    shutil.copy(screened.asked.source.parent / "drawn" / "images" / "00005.jpg", tmp_path / "a.jpg")
    (tmp_path / "out").mkdir()
    folder = screened.asked.artefact.folder
    nothing = screen(tmp_path, folder, tmp_path / "out" / "g.csv", processes=1)
    assert "No photograph could be graded." in Page(render(nothing)).words
