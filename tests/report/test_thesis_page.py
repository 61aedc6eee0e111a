"""The page of the thesis as a reader gets it."""

import csv
import io
import re
from urllib.parse import unquote

import pytest
from chromium import chromium
from test_page import Page

from fundoscope.analysis.summaries import summarise
from fundoscope.analysis.thesis import COLD, MEMORY, MOBILENET, WARM, Cell, thesis_results
from fundoscope.analysis.thesis_exhibits import THESIS
from fundoscope.analysis.thesis_statements import statements
from fundoscope.report.thesis import render, write_thesis_page

OURS = {Cell(COLD, MOBILENET, "memory", level, "total_latency"): summarise([1.25, 1.5, 1.75]) for level in MEMORY}
OURS[Cell(WARM, MOBILENET, "memory", "1024MB", "total_latency")] = summarise([0.125, 0.125])


def parsed(text):
    page = Page(re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL))
    page.raw = text
    return page


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    out = write_thesis_page(tmp_path_factory.mktemp("page") / "thesis.html")
    return parsed(out.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def beside(tmp_path_factory):
    out = tmp_path_factory.mktemp("page") / "thesis.html"
    return parsed(write_thesis_page(out, OURS, measured="emulated <here>.").read_text(encoding="utf-8"))


def sheet(page, name):
    """The CSV that the page carries under a name."""
    link = next(a for a in page.of("a") if a.get("download") == f"{name}.csv")
    return list(csv.DictReader(io.StringIO(unquote(link["href"].split(",", 1)[1]))))


def article(page, name):
    start = page.raw.index(f'<article id="{name}"')
    return page.raw[start : page.raw.index("</article>", start)]


def test_nothing_is_loaded_from_anywhere(page):
    assert page.of("link", "iframe", "object", "embed", "base", "img") == []
    for tag, attributes in page.elements:
        for name in ("src", "srcset", "href", "data", "poster", "action"):
            if tag != "a" and name in attributes:
                assert attributes[name].startswith("#"), (tag, attributes)
    assert "@import" not in page.raw
    assert set(re.findall(r"url\((.)", page.raw)) <= {"#"}


def test_names_on_the_page_are_used_once_and_links_lead_somewhere(page):
    names = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(names) == len(set(names))
    for link in page.of("a"):
        assert link["href"].startswith(("https://github.com/", "data:text/csv")) or link["href"][1:] in {*names, ""}


def test_every_table_and_figure_is_there_with_its_caption_and_its_csv(page):
    for name, exhibit in THESIS.items():
        key = name.replace(" ", "-").lower()
        text = article(page, key)
        assert exhibit.original in text
        assert ("<svg" in text) == exhibit.is_figure
        assert len(sheet(page, key)) == len(exhibit.rows)
    assert page.raw.count('role="img"') == 12


def test_the_csv_has_the_exact_numbers_and_what_they_rest_on(page):
    first = sheet(page, "figure-6.7")[0]
    assert first == {
        "row": "1 GB",
        "total_latency_mean": "20.665936",
        "total_latency_deviation": "1.184986",
        "total_latency_n": "10",
        "total_latency_unit": "s",
        "total_latency_basis": "readings",
    }
    assert [row["total_latency_basis"] for row in sheet(page, "figure-6.1")] == ["unsupported", "", "inferred"]


def test_a_figure_is_read_aloud_with_its_numbers(page):
    names = [svg["aria-label"] for svg in page.of("svg")]
    assert "Figure 6.7. Cold start by memory, MobileNet: 1 GB 20.67 s; 2 GB 12.48 s; 3 GB 12.46 s" in names
    assert (
        "Figure 6.1. Cold start by image size, MobileNet: 4.97 GB 26.59 s; 3.32 GB not known; 2.06 GB 20.67 s" in names
    )


def test_what_no_data_exists_for_is_said_where_it_is_missing(page):
    assert "printed in the thesis; its readings are in no file of the repository." in article(page, "table-6.3")
    assert "printed nowhere" in article(page, "figure-6.2")
    assert "missing" not in article(page, "figure-6.3")


def test_every_statement_stands_with_its_verdict_in_both_languages(page):
    judged = statements(thesis_results())
    rows = sheet(page, "thesis-statements")
    assert [row["verdict"] for row in rows] == [one.verdict for one in judged]
    assert [row["original"] for row in rows] == [one.statement.original for one in judged]
    assert page.raw.count('<q lang="pt-BR"') == len(judged)
    assert '<dt>Reproduced</dt><dd><b>38</b><span class="unit">of 72 statements</span>' in page.raw
    assert (
        "De 72 afirmações da monografia, conferidas com os dados brutos do autor: 38 reproduzidas, 16 com" in page.words
    )
    wrong = next(row for row in rows if row["printed"] == "57.42")
    assert wrong["right_label"] == "MobileNet, total latency: 1 GB cold start over 2 GB warm"


def test_cost_is_there_both_ways_and_the_bill_is_the_smaller_one(page):
    rows = sheet(page, "thesis-cost-both-ways")
    assert [(row["model"], row["memory_gb"]) for row in rows[:2]] == [("MobileNet", "1"), ("MobileNet", "2")]
    assert float(rows[0]["usd_per_thousand_as_thesis"]) == pytest.approx(0.0095157, rel=1e-4)
    # 177 ms at 1 GB, and 113 kB at 0.016 USD a GB
    assert float(rows[0]["usd_per_thousand_as_billed"]) == pytest.approx(0.177 * 0.02 + 16 * 113_000 / 2**30)
    assert all(float(row["usd_per_thousand_as_billed"]) < float(row["usd_per_thousand_as_thesis"]) for row in rows)


def test_without_measurements_the_page_says_so_and_has_no_empty_columns(page):
    assert "Nothing measured here stands beside these numbers yet" in page.words
    assert "measured here</th>" not in page.raw


def test_our_measurements_stand_in_the_next_column_where_there_are_any(beside):
    rows = sheet(beside, "figure-6.7")
    assert [row["total_latency_ours_mean"] for row in rows] == ["1.5", "1.5", "1.5"]
    assert float(rows[0]["total_latency_ours_over_published"]) == pytest.approx(1.5 / 20.665936)
    warm = sheet(beside, "figure-6.6")
    assert [row["total_latency_ours_mean"] for row in warm] == ["0.125", "", ""]
    assert "measured here</th>" not in article(beside, "figure-6.8")
    assert "beside what was measured here" in beside.words
    assert "Measured here: emulated <here>." in beside.words


def test_the_same_numbers_give_the_same_page():
    assert render(OURS) == render(dict(reversed(OURS.items())))


def test_a_measurement_that_fits_no_table_is_not_lost_in_silence():
    text = render({Cell(COLD, MOBILENET, "memory", "4096MB", "total_latency"): summarise([1.0, 2.0])})
    assert "in no table or figure of the thesis: MobileNet, cold start, 4096MB, total latency." in text


def test_on_a_telephone_nothing_but_tables_scrolls_sideways_and_figures_can_be_saved(tmp_path):
    out = write_thesis_page(tmp_path / "thesis.html", OURS)
    with chromium(tmp_path) as tab:
        tab.ask("Emulation.setDeviceMetricsOverride", width=390, height=800, deviceScaleFactor=1, mobile=True)
        tab.open(out)
        assert tab.do("document.documentElement.scrollWidth") == 390
        assert tab.do("document.querySelectorAll('figure a.get:not([hidden])').length") == 12
