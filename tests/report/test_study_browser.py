"""The page of a study in a real browser: tables sort, figures and tables can be taken along."""

import csv
import re
import xml.etree.ElementTree as ET

import pytest
from chromium import chromium
from fabricated_study import fabricate_study

from fundoscope.report.study import light_palette, write_study_report

CELLS = "table[data-name=training-cost-cells]"


@pytest.fixture(scope="module")
def findings():
    return fabricate_study(failing=())


@pytest.fixture(scope="module")
def downloads(tmp_path_factory):
    return tmp_path_factory.mktemp("downloads")


@pytest.fixture(scope="module")
def tab(findings, downloads, tmp_path_factory):
    out = write_study_report(findings, tmp_path_factory.mktemp("page") / "report.html")
    with chromium(downloads) as tab:
        tab.open(out)
        yield tab


def names(tab):
    return tab.do(f"[...document.querySelectorAll('{CELLS} tbody th')].map(cell => cell.textContent)")


def click_heading(tab, label):
    tab.do(
        f"[...document.querySelectorAll('{CELLS} th button')].find(b => b.textContent.startsWith('{label}')).click()"
    )


def test_a_click_sorts_by_number_and_another_turns_it_round(tab, findings):
    ordered = sorted(findings.cells, key=lambda found: found.readings["train_s"].mean)
    click_heading(tab, "training time")
    assert names(tab) == [found.cell.name for found in ordered]
    click_heading(tab, "training time")
    assert names(tab) == [found.cell.name for found in reversed(ordered)]
    assert tab.do(f"document.querySelectorAll('{CELLS} th[aria-sort=descending]').length") == 1
    click_heading(tab, "Cell")
    assert names(tab) == [f"C{i}" for i in range(1, 49)]


def download(tab, downloads, name):
    tab.do(f"document.querySelector('a[download=\"{name}\"]').click()")
    guid = tab.wait_for("Browser.downloadWillBegin", suggestedFilename=name)["guid"]
    tab.wait_for("Browser.downloadProgress", guid=guid, state="completed")
    return (downloads / name).read_text(encoding="utf-8")


def test_a_table_is_saved_as_csv(tab, downloads, findings):
    rows = list(csv.DictReader(download(tab, downloads, "training-cost-variation.csv").splitlines()))
    shares = {" × ".join(term): part.share for term, part in findings.response.effects.parts.items()}
    assert {row["term"]: float(row["share"]) for row in rows} == shares | {
        "not explained": findings.response.effects.unexplained
    }


def test_a_figure_is_saved_as_svg_with_its_own_colours_by_day(tab, downloads):
    tab.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    text = download(tab, downloads, "training-cost-variation.svg")
    root = ET.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "var(" not in text
    assert light_palette()["--blue"] in text
    assert re.fullmatch(r"[\d.]+pt", root.get("width"))
    assert "device" in [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]


def test_the_page_is_no_wider_than_a_telephone(tab):
    tab.ask("Emulation.setDeviceMetricsOverride", width=400, height=800, deviceScaleFactor=1, mobile=True)
    assert tab.do("document.documentElement.scrollWidth") == 400


def test_the_script_ran_without_complaint(tab):
    errors = [event for event in tab.events if event.get("method") == "Runtime.exceptionThrown"]
    assert errors == []
