"""The report as a reader gets it: parsed, not grepped."""

import argparse
import json
import re
from html.parser import HTMLParser

import pytest
from fabricated_run import fabricate

from fundoscope.cli.report import add_commands
from fundoscope.errors import FundoscopeError
from fundoscope.report.page import write_report
from fundoscope.report.published import published_results

VOID = {"meta", "img", "br", "link", "input", "hr", "col"}
DRAWN = "nothing about medicine is concluded"


class Page(HTMLParser):
    """Elements with their attributes and text; complains about tags that do not match."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open, self.text = [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data):
        if "style" not in self.open:
            self.text.append(data)

    def of(self, *tags):
        return [attributes for tag, attributes in self.elements if tag in tags]

    @property
    def words(self):
        return " ".join("".join(self.text).split())


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return fabricate(tmp_path_factory.mktemp("runs") / "x")


@pytest.fixture(scope="module")
def page(run):
    return Page(write_report(run).read_text(encoding="utf-8"))


def test_nothing_is_loaded_from_anywhere(run, page):
    text = (run / "report.html").read_text(encoding="utf-8")
    assert page.of("script", "link", "iframe", "object", "embed", "base") == []
    for tag, attributes in page.elements:
        for name in ("src", "srcset", "href", "data", "poster", "action", "background"):
            if tag != "a" and name in attributes:
                assert attributes[name].startswith(("data:image/", "#")), (tag, attributes[name][:80])
    assert "@import" not in text
    assert set(re.findall(r"url\((.)", text)) <= {"#"}


def test_links_lead_to_sources_or_within_the_page(page):
    names = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    for link in page.of("a"):
        assert link["href"].startswith("https://") or link["href"][1:] in names
    assert {result.url for result in published_results()} <= {link["href"] for link in page.of("a")}


def test_every_number_on_the_page_is_one_of_the_scores(run, page):
    known = set(numbers(json.loads((run / "scores.json").read_text())))
    known |= set(numbers(json.loads((run / "on/idrid/scores.json").read_text())))
    shown = [float(attributes["value"]) for attributes in page.of("data")]
    assert len(shown) > 100
    assert set(shown) <= known


def numbers(node):
    if isinstance(node, dict):
        node = list(node.values())
    if isinstance(node, list):
        for child in node:
            yield from numbers(child)
    elif isinstance(node, int | float):
        yield float(node)


def test_the_summary_says_the_result_in_english_and_in_portuguese(run, page):
    image = json.loads((run / "scores.json").read_text())["test"]["image"]["gradable"]
    area, kappa = image["auc"], image["kappa"]
    sensitivity = image["operating_points"]["high_sensitivity"]["sensitivity"]
    english = f"an AUC of {area['value']:.3f} ({area['low']:.3f}–{area['high']:.3f})"
    assert f"On {image['n']} gradable test photographs" in page.words
    assert english in page.words
    assert f"it refers {100 * sensitivity['value']:.1f} % ({100 * sensitivity['low']:.1f}–" in page.words
    assert f"quadratic kappa of {kappa['value']:.3f}" in page.words
    assert f"a área sob a curva ROC foi de {area['value']:.3f}".replace(".", ",") in page.words
    assert {"lang": "pt-BR"}.items() <= next(s for s in page.of("section") if s["id"] == "resumo").items()


def test_it_says_plainly_and_once_that_it_is_not_a_medical_device(page):
    assert page.words.count("not a medical device") == 1
    assert page.words.count("não um dispositivo médico") == 1


def test_what_a_supervisor_asks_for_is_there(page):
    for wanted in (
        "MobileNet-0.75", "1,950,000 parameters", "learning_rate", "no better tuning score in 6 epochs",
        "fundoscope train records/ --recipe finetune --out runs/x --seed 1",
        "fundoscope data prepare manifest.csv --size 224 --out records/", "3f3f3f3f", "keras", "3.12.0",
        "Gulshan et al. 2016", "IDx-DR", "EyeArt", "intention to screen", "idrid", "Meant for", "missed".capitalize(),
    ):  # fmt: skip
        assert wanted in page.words, wanted


def test_the_page_can_be_read_aloud(page):
    assert page.of("html") == [{"lang": "en"}]
    assert all(image["alt"] for image in page.of("img"))
    assert len(page.of("img")) == 24
    charts = page.of("svg")
    assert len(charts) == 8
    assert all(chart["role"] == "img" and len(chart["aria-label"]) > 10 for chart in charts)
    assert "AUC 0.9" in charts[4]["aria-label"]
    assert {cell["scope"] for cell in page.of("th")} == {"row", "col", "colgroup", "rowgroup"}
    assert page.words.count("Expected calibration error") == 1
    names = [
        attributes["id"] for tag, attributes in page.elements if "id" in attributes and tag not in ("path", "clippath")
    ]
    assert len(names) == len(set(names))


def test_charts_take_their_colours_from_the_page(run):
    text = (run / "report.html").read_text(encoding="utf-8")
    charts = " ".join(re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL))
    assert set(re.findall(r"#[0-9a-f]{6}\b", charts)) <= {"#ffffff"}  # matplotlib's own default, never drawn
    assert "var(--ink)" in charts
    assert "DejaVu" not in charts
    assert "purl.org" not in charts


def test_the_same_run_gives_the_same_bytes(run, tmp_path):
    first = write_report(run, tmp_path / "first.html").read_bytes()
    assert write_report(run, tmp_path / "second.html").read_bytes() == first
    assert len(first) < 1_000_000


def test_only_drawn_eyes_get_the_banner_and_no_published_marks_beside_them(page, tmp_path):
    assert DRAWN not in page.words
    drawn_run = fabricate(tmp_path / "drawn", drawn=True, n=300)
    drawn = Page(write_report(drawn_run).read_text(encoding="utf-8"))
    assert drawn.words.count(DRAWN) == 1
    assert "nada se conclui sobre medicina" in drawn.words
    assert "Gulshan 2016, EyePACS-1" in page.words  # the legend of the chart
    assert "Gulshan 2016, EyePACS-1" not in drawn.words


def test_names_from_elsewhere_cannot_write_into_the_page(tmp_path):
    evil = '"><script>alert(1)</script><img src=x onerror=alert(1)>'
    folder = fabricate(tmp_path / "x", n=200)
    facts = json.loads((folder / "run.json").read_text())
    facts["recipe"] |= {"backbone": evil, "name": evil, evil: evil}
    facts["records"] |= {"source": evil, "commands": [evil]}
    facts |= {"device": evil, "command": evil, "artefacts": [{evil: evil}], "stopped_because": evil}
    (folder / "run.json").write_text(json.dumps(facts))
    gallery = json.loads((folder / "gallery.json").read_text())
    gallery[0] |= {"id": evil, "story": evil}
    (folder / "gallery.json").write_text(json.dumps(gallery))
    page = Page(write_report(folder).read_text(encoding="utf-8"))
    assert page.of("script") == []
    assert all("onerror" not in attributes for _, attributes in page.elements)
    assert evil in page.words


def test_a_referral_model_without_patients_has_no_kappa_and_no_patient_rows(tmp_path):
    folder = fabricate(tmp_path / "x", head="referral", patients=False, n=400)
    words = Page(write_report(folder).read_text(encoding="utf-8")).words
    assert "There is no confusion matrix: the model answers referral only, not grades." in words
    assert "The photographs do not say whose they are" in words
    assert "quadratic kappa of" not in words


@pytest.mark.parametrize(
    ("absent", "said"),
    [
        ("scores.json", "There are no scores yet. Run fundoscope evaluate"),
        ("history.jsonl", "No epoch has been recorded. Run fundoscope train records/"),
        ("predictions.csv", "There is no table of predictions to draw the curve from."),
        ("gallery.json", "There is no gallery yet. Run fundoscope evaluate"),
        ("on/idrid/scores.json", "has not been tried on any other set. Run fundoscope evaluate"),
    ],
)
def test_what_is_missing_is_named_with_the_command_that_makes_it(tmp_path, absent, said):
    folder = fabricate(tmp_path / "x", n=300)
    (folder / absent).unlink()
    assert said in Page(write_report(folder).read_text(encoding="utf-8")).words


def test_a_training_that_just_began_has_a_report_that_says_how_to_go_on(tmp_path):
    (tmp_path / "run.json").write_text(
        '{"status": "running", "recipe": {"name": "demo"}, "command": "fundoscope train r/"}'
    )
    (tmp_path / "history.jsonl").write_text(
        '{"epoch": 1, "phase": "head", "loss": 0.9, "seconds": 2.0}\n{"epoch": 2, "ph'
    )
    page = Page(write_report(tmp_path).read_text(encoding="utf-8"))
    assert "This training is not finished (status: running). Go on with: fundoscope train r/" in page.words
    assert "There are no scores yet. Run fundoscope train r/" in page.words
    assert len(page.of("svg")) == 4


def test_a_test_part_of_one_class_is_said_not_drawn(tmp_path):
    folder = fabricate(tmp_path / "x", n=400)
    scores = json.loads((folder / "scores.json").read_text())
    nothing = {
        "value": None,
        "low": None,
        "high": None,
        "method": "",
        "n": 9,
        "reason": "no photograph here needs referral",
    }
    scores["test"]["image"]["gradable"]["auc"] = nothing
    (folder / "scores.json").write_text(json.dumps(scores))
    words = Page(write_report(folder).read_text(encoding="utf-8")).words
    assert "There is no ROC curve: no photograph here needs referral." in words


def test_pictures_outside_the_run_stay_outside_the_page(tmp_path):
    folder = fabricate(tmp_path / "x", n=200)
    (tmp_path / "secret.jpg").write_bytes((folder / "gallery/00.jpg").read_bytes())
    gallery = json.loads((folder / "gallery.json").read_text())
    gallery[0]["picture"] = "../secret.jpg"
    (folder / "gallery.json").write_text(json.dumps(gallery))
    (folder / "gallery/01.jpg").write_text("not a picture")
    images = Page(write_report(folder).read_text(encoding="utf-8")).of("img")
    assert len(images) == 2 * (len(gallery) - 2)


def test_a_folder_that_is_no_run_is_an_error_with_a_hint(tmp_path):
    with pytest.raises(FundoscopeError, match="is not a training run") as caught:
        write_report(tmp_path)
    assert "fundoscope train" in caught.value.hint
    (tmp_path / "run.json").write_text('{"recipe": {"backb')
    with pytest.raises(FundoscopeError, match="is damaged: it is not JSON"):
        write_report(tmp_path)


def test_the_command_writes_the_report_and_names_the_next_command(run, tmp_path):
    parser = argparse.ArgumentParser()
    add_commands(parser.add_subparsers())
    asked = parser.parse_args(["report", str(run), "--out", str(tmp_path / "deep/page.html")])
    answer = asked.run(asked)
    assert answer.values["report"] == str(tmp_path / "deep/page.html")
    assert answer.values["bytes"] == (tmp_path / "deep/page.html").stat().st_size
    assert answer.next == f"fundoscope export {run} --format onnx --out artefacts/x"
