"""The page of an advice as a reader gets it."""

import csv
import io
import re
from datetime import date
from urllib.parse import unquote

import pytest
from chromium import chromium
from invoked_study import REFUSED, both_studies
from test_page import Page

from fundoscope.analysis.advise import parse_objective
from fundoscope.analysis.dossier import Question, assumptions, consult
from fundoscope.analysis.prices import open_prices
from fundoscope.analysis.traffic import COUNTRIES, open_traffic
from fundoscope.experiment.study import open_study
from fundoscope.report.advice import render, write_advice_page

PRICES = open_prices("aws-sagemaker-us-east-1-2025-01-26")
TODAY = date(2026, 11, 15)


@pytest.fixture(scope="module")
def studies(tmp_path_factory):
    return [open_study(folder) for folder in both_studies(tmp_path_factory.mktemp("studies"))]


@pytest.fixture(scope="module")
def dossier(studies):
    return consult(Question(open_traffic("5000/day"), parse_objective("p95<2s"), PRICES), studies, today=TODAY)


@pytest.fixture(scope="module")
def page(dossier, tmp_path_factory):
    out = write_advice_page(dossier, tmp_path_factory.mktemp("page") / "advice.html", command="fundoscope advise <x>")
    return parsed(out.read_text(encoding="utf-8"))


def parsed(text):
    page = Page(re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL))
    page.raw = text
    return page


def sheet(page, name):
    """The CSV that the page carries under a name."""
    link = next(a for a in page.of("a") if a.get("download") == f"{name}.csv")
    return list(csv.DictReader(io.StringIO(unquote(link["href"].split(",", 1)[1]))))


def test_nothing_is_loaded_from_anywhere(page):
    assert page.of("link", "iframe", "object", "embed", "base", "img") == []
    assert "@import" not in page.raw
    assert set(re.findall(r"url\((.)", page.raw)) <= {"#"}


def test_names_on_the_page_are_used_once_and_links_lead_somewhere(page):
    names = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(names) == len(set(names))
    for link in page.of("a"):
        assert link["href"].startswith("data:text/csv") or link["href"][1:] in {*names, ""}


def test_the_advice_is_the_first_that_is_read(page):
    assert "Advised: mobilenet: serverless 1024 MB, 5 at once: 1.30 USD a month" in page.words
    assert "How sure: in " in page.words
    assert "What would change it: if " in page.words
    assert page.words.count("not a medical device") == 1
    assert "Recomendada para p95<2s: mobilenet: serverless 1024 MB, 5 at once, por 1,30 dólares por mês" in page.words


def test_the_table_has_every_way_exactly(page, dossier):
    rows = sheet(page, "advice-ways")
    assert [row["way"] for row in rows] == [each.name for each in dossier.advice.estimates]
    assert [row["usd_per_month"] for row in rows] == [
        "" if each.usd is None else str(each.usd) for each in dossier.advice.estimates
    ]
    refused = [row for row in rows if row["way"].startswith("mobilenet-int8: ")]
    assert {row["why_not"] for row in refused} == {f"its artefact failed its guard: {REFUSED}"}
    assert sheet(page, "advice-cannot")[0]["way"] == "vgg19: serverless 1024 MB"


def test_every_assumption_is_there_with_its_source_and_how_to_change_it(page, dossier):
    rows = sheet(page, "advice-assumptions")
    assert [(row["assumed"], row["option"]) for row in rows] == [
        (each.what, f"'{each.option}" if each.option.startswith("-") else each.option)  # -: or it would be a formula
        for each in assumptions(dossier.question)
    ]
    assert all(row["value"] and row["source"] for row in rows)


def test_it_can_be_walked_back_to_what_was_measured(page, dossier):
    rows = sheet(page, "advice-studies")
    assert [row["outcomes_sha256"] for row in rows] == [each.outcomes_sha256 for each in dossier.measured.sources]
    assert "fundoscope advise <x>" in page.words
    assert "Seed" in page.words
    assert "658 days old" in page.words


def test_figures_are_read_aloud_and_break_evens_are_marked(page, dossier):
    names = [svg["aria-label"] for svg in page.of("svg")]
    drawn = [each for each in dossier.advice.estimates if each.usd and each.latency_s["p95"] < 60]
    assert names == [
        f"Dollars a month and p95 of {len(drawn)} ways to serve",
        "What a month costs by its number of requests",
    ]
    assert "Rings: break-even with the advised way, " in page.words
    assert "4 that take more than 30 times as long as asked" in page.words
    known = {f"{each.requests_per_month:.6g}" for each in dossier.advice.break_evens}
    assert {f"{float(row['requests_per_month']):.6g}" for row in sheet(page, "advice-break-evens")} == known


def test_the_same_question_gives_the_same_page(dossier):
    assert render(dossier) == render(dossier)


def test_a_country_has_its_table(studies):
    brazil = COUNTRIES["brazil"]
    asked = Question(brazil.traffic(), parse_objective("p95<2s"), PRICES, screening=brazil)
    page = parsed(render(consult(asked, studies[1:], today=TODAY)))
    assert "67,200,000 photographs a year, 8.84 a second from 8 to 16 h of working days" in page.words
    rows = sheet(page, "advice-country")
    best = next(row for row in rows if row["way"] == "mobilenet: 1 × ml.c5.large")
    assert (best["takes"], best["cannot"]) == ("1 × ml.c5.large", "more than 14.2 a second wait without end")


def test_nothing_advisable_is_a_page_too(studies):
    asked = Question(open_traffic("1/hour"), parse_objective("p95<1ms"), PRICES)
    page = parsed(render(consult(asked, studies[1:], today=TODAY)))
    assert "Not advised: no way that was measured can be advised for p95<0.001s" in page.words
    assert "Nothing is advised to compare others with." in page.words


def test_in_a_browser_tables_sort_and_a_telephone_shows_all_of_it(dossier, tmp_path):
    out = write_advice_page(dossier, tmp_path / "advice.html")
    ways = "table[data-name=advice-ways]"
    with chromium(tmp_path) as tab:
        tab.ask("Emulation.setDeviceMetricsOverride", width=390, height=800, deviceScaleFactor=1, mobile=True)
        tab.open(out)
        assert tab.do("document.documentElement.scrollWidth") == 390
        tab.do(f"[...document.querySelectorAll('{ways} th button')].find(b => b.textContent == 'p95').click()")
        first = tab.do(f"document.querySelector('{ways} tbody th').textContent")
        quickest = min(dossier.advice.estimates, key=lambda each: each.latency_s["p95"])
        assert first == quickest.name
        assert tab.do("document.querySelectorAll('figure a.get:not([hidden])').length") == 2
