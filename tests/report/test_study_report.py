"""The page of a study as a reader gets it: parsed, not grepped."""

import csv
import dataclasses
import io
import re
from html.parser import HTMLParser
from math import exp
from time import process_time
from urllib.parse import unquote

import pytest
from fabricated_study import NO_GPU, PAPER, fabricate_study

from fundoscope.analysis.findings import FailureFinding
from fundoscope.report.study import render, write_study_report

VOID = {"meta", "img", "br", "link", "input", "hr", "col"}


class StudyPage(HTMLParser):
    """Elements with their attributes, text by section, tables by name; complains about tags that do not match."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open, self.sections, self.section, self.data = [], [], {}, "", []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.elements.append((tag, found))
        if tag == "section":
            self.section = found["id"]
        if tag == "data":
            self.data.append((self.section, float(found["value"])))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data):
        if not {"style", "script"} & set(self.open):
            self.sections.setdefault(self.section, []).append(data)

    def words(self, section):
        return " ".join("".join(self.sections.get(section, [])).split())

    def numbers(self, section):
        return {value for where, value in self.data if where == section}

    def csv(self, name):
        link = next(a for tag, a in self.elements if tag == "a" and a.get("download") == f"{name}.csv")
        head, data = link["href"].split(",", 1)
        assert head == "data:text/csv;charset=utf-8"
        return list(csv.DictReader(io.StringIO(unquote(data))))


@pytest.fixture(scope="module")
def findings():
    return fabricate_study(failing=())


@pytest.fixture(scope="module")
def small():
    return fabricate_study({name: PAPER[name] for name in ("device", "size")}, failing=())


@pytest.fixture(scope="module")
def text(findings):
    return render(findings)


@pytest.fixture(scope="module")
def page(text):
    return StudyPage(text)


def test_the_same_findings_give_the_same_bytes(findings, text, tmp_path):
    out = write_study_report(findings, tmp_path / "report.html")
    assert out.read_bytes() == text.encode()
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_nothing_is_loaded_from_anywhere(page, text):
    assert [tag for tag, _ in page.elements if tag in ("link", "iframe", "object", "embed", "base", "img")] == []
    for tag, attributes in page.elements:
        for name in ("src", "srcset", "href", "data", "poster", "action", "background"):
            if name in attributes:
                assert attributes[name].startswith(("#", "data:text/csv;")), (tag, attributes[name][:60])
    assert "@import" not in text
    assert set(re.findall(r"url\((.)", text)) <= {"#"}
    assert set(re.findall(r"https?://[^\s\"'<>)]*", text)) <= {"http://www.w3.org/2000/svg"}  # a name, never asked for


def test_every_section_can_be_reached(page):
    names = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    links = [a["href"][1:] for tag, a in page.elements if tag == "a" and a["href"].startswith("#") and a["href"] != "#"]
    assert len(names) == len(set(names))
    assert set(links) <= set(names)
    assert {a["id"] for tag, a in page.elements if tag == "section"} <= set(links)


def test_means_and_costs_of_cells_are_those_of_the_findings(findings, page):
    shown = page.numbers("cells")
    for found in findings.cells:
        assert found.readings["train_s"].mean in shown
        assert found.readings["accuracy"].mean in shown
    assert {found.usd.mean for found in findings.costs.cells} <= shown


def test_shares_effects_and_ratios_are_those_of_the_findings(findings, page):
    effects = findings.response.effects
    shown = page.numbers("effects")
    assert {part.share for part in effects.parts.values()} | {effects.unexplained} <= shown
    assert {exp(effect.value) for effect in effects.parts[("device",)].effects.values()} <= shown
    assert {one.ratio.value for one in findings.comparisons} <= page.numbers("comparisons")
    assert {one.usd for one in findings.costs.elsewhere} <= page.numbers("cost")


def test_the_answer_comes_first_with_its_numbers(findings, page):
    top = page.words("")
    share = 100 * findings.response.effects.parts[("device",)].share
    fastest = min(findings.cells, key=lambda found: found.readings["train_s"].mean)
    cheapest = min(findings.costs.cells, key=lambda found: found.usd.mean)
    assert f"What mattered most for training time is device: {share:.1f} % of its variation" in top
    assert f"The fastest cell is {fastest.cell.name} (gpu, mxnet, cifar10, 32, rede1)" in top
    assert fastest.cell == cheapest.cell
    assert "the cheapest is the same one" in top
    assert f"US$ {findings.costs.total_usd:.2f}" in top
    assert "None of 240 trials failed." in top


def test_the_portuguese_summary_has_three_to_six_sentences_with_decimal_commas(findings, page):
    said = page.words("resumo").removeprefix("Resumo em português ")
    share = f"{100 * findings.response.effects.parts[('device',)].share:.1f}".replace(".", ",")
    assert f"com {share} % da variação" in said
    assert "240 foram medidos e 0 falharam" in said
    assert 3 <= len(re.findall(r"\.(?: |$)", said)) <= 6


def test_the_csv_of_cells_has_every_metric_of_every_cell(findings, page):
    rows = page.csv("training-cost-cells")
    assert [row["cell"] for row in rows] == [f"C{i}" for i in range(1, 49)]
    for found, row in zip(findings.cells, rows, strict=True):
        assert {name: row[name] for name in PAPER} == {name: str(level) for name, level in found.cell.levels.items()}
        for name in found.readings:
            assert float(row[name]) == pytest.approx(found.readings[name].mean, rel=1e-6)
            assert float(row[f"{name}_low"]) == pytest.approx(found.readings[name].low, rel=1e-6)


def test_every_table_has_a_csv_and_every_figure_a_link(page):
    tables = [a for tag, a in page.elements if tag == "table" and "data-name" in a]
    links = [a["download"] for tag, a in page.elements if tag == "a" and "download" in a]
    assert len(tables) == len([name for name in links if name.endswith(".csv")]) == 12
    figures = [tag for tag, _ in page.elements if tag == "figure"]
    assert len(figures) == len([name for name in links if name.endswith(".svg")])
    assert len(links) == len(set(links))


def test_statements_are_beside_what_was_found(findings, page):
    said = page.words("published")
    for one in findings.statements:
        assert one.said in said
        assert one.original in said
        assert one.found in said
        assert one.note in said
    assert "1 holds, 1 does not hold, 1 not measured" in said


def test_failed_cells_are_counted_with_their_reason_and_enter_no_mean():
    findings = fabricate_study()
    page = StudyPage(render(findings))
    assert f"120 of 240 trials failed: {NO_GPU} (120)." in page.words("")
    assert f"device gpu: none of 24 cells has a reading ({NO_GPU})" in page.words("figures")
    assert f"0 of 5 failed: {NO_GPU}" in page.words("cells")
    assert page.csv("training-cost-cells")[24]["train_s"] == ""
    assert "Nothing can be said of device: one level alone was measured." in page.words("effects")
    assert "RuntimeError: no CUDA-capable device is detected" in page.words("failures")
    assert page.csv("training-cost-failures")[0]["trials"].split()[0] == "C25-1"


def test_a_study_in_which_everything_failed_still_has_a_page():
    page = StudyPage(render(fabricate_study(failing=("cpu", "gpu"))))
    assert "240 of 240 trials failed" in page.words("")
    assert "Nothing was measured: all 240 trials failed." in page.words("")
    assert "There is nothing to explain: no trial was measured." in page.words("effects")
    assert "The study was not priced." in page.words("cost")
    assert [tag for tag, _ in page.elements if tag == "svg"] == []
    assert len(page.csv("training-cost-cells")) == 48


def test_a_study_without_prices_statements_or_failures_says_so(small):
    bare = dataclasses.replace(small, costs=None, statements=(), precision=(), comparisons=(), warnings=())
    page = StudyPage(render(bare))
    assert "The study was not priced." in page.words("cost")
    assert "No published statement is about what this study varies." in page.words("published")
    assert "No trial failed." in page.words("failures")
    assert "US$" not in page.words("")


def test_what_is_read_but_not_explained_is_still_shown(small):
    page = StudyPage(render(dataclasses.replace(small, response=None, no_response="there is one cell")))
    assert "Nothing can be said of what matters: there is one cell." in page.words("")
    assert small.cells[0].readings["train_s"].mean in page.numbers("cells")


def test_an_unfinished_study_says_what_is_missing(small):
    page = StudyPage(render(dataclasses.replace(small, planned=250, not_run=10)))
    assert "This study is not finished: 10 of 250 trials have not been run." in page.words("")


def test_one_reading_per_cell_has_no_intervals_and_two_cells_are_enough():
    findings = fabricate_study({"machine": ("a", "b")}, repetitions=2)
    alone = [
        dataclasses.replace(
            found,
            readings={
                name: dataclasses.replace(reading, low=None, high=None, deviation=None, variation=None)
                for name, reading in found.readings.items()
            },
        )
        for found in findings.cells
    ]
    page = StudyPage(render(dataclasses.replace(findings, cells=tuple(alone), costs=None)))
    assert page.csv("training-cost-cells")[0]["train_s_low"] == ""
    assert "(" not in page.words("cells").split("C1", 1)[1].split("C2")[0]


def test_hostile_names_and_last_words_stay_text():
    script = "<script>alert(1)</script>"
    factors = {f"{script}&": (f'"{script}', "$\\frac{1"), "b": ("x" * 300, "\u0007é\u4e2d😀")}
    findings = fabricate_study(
        factors, failing=("x" * 300,), last_words=f"</pre>{script}\x1b[31m", reason=f"{script}'\""
    )
    text = render(dataclasses.replace(findings, study=f"a{script}", warnings=(script,)))
    page = StudyPage(text)
    assert len([tag for tag, _ in page.elements if tag == "script"]) == 1  # ours
    assert script not in text
    assert f"</pre>{script}" in page.words("failures")
    assert page.csv(f"a{script}-factors")[0]["factor"] == f"{script}&"


def test_twenty_thousand_cells_are_drawn_in_half_a_minute_of_cpu_and_what_is_left_off_is_counted():
    factors = {"a": [f"a{i}" for i in range(20)]} | {name: [f"{name}{i}" for i in range(10)] for name in "bcd"}
    findings = fabricate_study(factors, repetitions=2)
    began = process_time()
    text = render(findings)
    assert process_time() - began < 30
    assert len(text.encode()) < 5_000_000
    page = StudyPage(text)
    assert "19,960 cells not drawn." in page.words("figures")
    assert "100 of 20,000 cells are listed" in page.words("cells")
    rows = page.csv("training-cost-cells")
    assert len(rows) == 20_000
    assert float(rows[777]["train_s"]) == pytest.approx(findings.cells[777].readings["train_s"].mean, rel=1e-6)


def test_many_reasons_are_named_by_the_commonest(small):
    failures = tuple(FailureFinding("crashed", f"reason {i}", ("C1-1",) * i, f"words {i}") for i in range(1, 31))
    page = StudyPage(render(dataclasses.replace(small, failed=465, failures=failures)))
    assert "reason 30 (30); reason 29 (29); reason 28 (28); 27 other reasons." in page.words("")
    assert len(page.csv("training-cost-failures")) == 30


def test_series_are_drawn_where_given(small):
    series = {"C1-1": [{"at_s": 10.0 * i, "cpu_percent": 390.0, "memory_mb": 4000.0 + i} for i in range(5)]}
    page = StudyPage(render(small, series))
    assert "Over time" in page.words("figures")
    assert "Memory, MB, seen from outside." in page.words("figures")
