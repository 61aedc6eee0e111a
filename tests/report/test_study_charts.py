"""Charts of a study: what they say to those who read them aloud, and that none is too much."""

import dataclasses
import re
import xml.etree.ElementTree as ET

import pytest
from fabricated_study import MACHINE, fabricate_study

from fundoscope.analysis.findings import Residuals
from fundoscope.analysis.summaries import Ratio
from fundoscope.report import study_cells as cells
from fundoscope.report import study_charts as charts


@pytest.fixture(scope="module")
def findings():
    return fabricate_study(failing=())


def words(svg):
    return [element.text for element in ET.fromstring(svg).iter() if element.tag.endswith("text") and element.text]


def marks(svg):
    return len(re.findall("<use ", svg))


def test_the_papers_figures_come_back_from_the_papers_factors(findings):
    pictures = cells.cell_pictures(findings)
    assert [picture.title for picture in pictures] == [
        "Training time and cost: device cpu",
        "Utilisation of processor and memory: device cpu",
        "Training time and cost: device gpu",
        "Utilisation of processor and GPU: device gpu",
        "Memory and GPU memory: device gpu",
    ]
    names = [name for name in words(pictures[2].svg) if name.endswith(" C25")]
    assert names == ["mxnet · mnist · 32 · rede1  C25"]
    assert "training time, s" in words(pictures[2].svg)
    assert "US$ a trial" in words(pictures[2].svg)
    assert "GPU memory, % of the machine's" in words(pictures[4].svg)


def test_memory_is_in_megabytes_where_machines_differ(findings):
    twins = {"one": MACHINE, "other": MACHINE | {"memory_gb": 16.0}}
    pictures = cells.cell_pictures(dataclasses.replace(findings, machines=twins))
    said = words(pictures[4].svg)
    assert "memory, MB" in said
    assert "GPU memory, % of the machine's" in said


def test_cells_with_a_gpu_are_measured_against_the_machine_that_has_one(findings):
    two = {"cpu": MACHINE | {"gpus": [], "processors": 2}, "gpu": MACHINE}
    pictures = cells.cell_pictures(dataclasses.replace(findings, machines=two))
    assert "processors, % of the machine's" in words(pictures[1].svg)
    assert "processors, % of the machine's" in words(pictures[3].svg)


def test_other_factors_are_grouped_by_the_first():
    findings = fabricate_study({"region": ("east", "west"), "cache": tuple(range(10))}, repetitions=2)
    pictures = cells.cell_pictures(findings)
    assert [picture.title.split(": ")[1] for picture in pictures] == ["region east"] * 2 + ["region west"] * 2


def test_a_failed_cell_keeps_its_row_and_says_why():
    findings = fabricate_study({"device": ("cpu", "gpu"), "size": (32, 64)}, repetitions=3)
    [picture, _] = cells.cell_pictures(findings)
    assert words(picture.svg).count("failed: no GPU on this machine") == 2
    assert "2 cells without a reading." in picture.caption


def test_main_effects_share_one_scale_and_tell_their_shares(findings):
    pictures = charts.effect_pictures(findings, findings.response)
    parts = findings.response.effects.parts
    assert len(pictures) == 5
    assert pictures[0].caption == f"device: {100 * parts[('device',)].share:.1f}\u00a0% of the variation."
    scales = {tuple(word for word in words(picture.svg) if word in ("100", "200", "500")) for picture in pictures}
    assert scales == {("100", "200", "500")}


def test_interactions_are_drawn_the_strongest_first_and_at_most_six(findings):
    parts = findings.response.effects.parts
    noisy = {term: dataclasses.replace(part, p=0.001) for term, part in parts.items()}
    response = dataclasses.replace(
        findings.response, effects=dataclasses.replace(findings.response.effects, parts=noisy)
    )
    pairs = charts.strongest_pairs(response)
    assert len(pairs) == 6
    assert pairs[0] == ("device", "framework")
    assert len(charts.interaction_pictures(findings, response)) == 6
    assert len(charts.interaction_pictures(findings, findings.response)) == 2  # one is more than noise


def test_the_allocation_of_variation_tells_every_large_share(findings):
    picture = charts.variation_picture(findings, findings.response)
    said = words(picture.svg)
    for factor in ("device", "size", "framework", "network"):
        share = findings.response.effects.parts[(factor,)].share
        assert factor in said
        assert f"{100 * share:.1f}\u00a0%" in said
    assert "not explained" in said


def test_residuals_beyond_what_can_be_seen_are_counted(findings):
    n = 5000
    many = Residuals(tuple(range(n)), (1.0,) * n, tuple(i / n - 0.5 for i in range(n)), tuple(i / n for i in range(n)))
    pictures = charts.residual_pictures(findings, many)
    assert len(pictures) == 3
    for picture in pictures:
        assert "3,800 residuals of 5,000 not drawn." in picture.caption
        assert 1200 <= marks(picture.svg) < 1300  # and the ticks


def test_the_front_is_named(findings):
    picture = charts.pareto_picture(findings)
    assert findings.costs.pareto[0] in words(picture.svg)
    assert f"On the front: {', '.join(findings.costs.pareto)}." in picture.caption
    assert charts.pareto_picture(dataclasses.replace(findings, costs=None)) is None


def test_ratios_are_drawn_with_their_intervals_and_without_where_there_is_none(findings):
    first, *rest = findings.comparisons
    alone = dataclasses.replace(first, ratio=Ratio(0.125, None, None, None), p_holm=None)
    [picture] = charts.comparison_pictures(dataclasses.replace(findings, comparisons=(alone, *rest)))
    said = words(picture.svg)
    assert "device: gpu / cpu" in said
    assert "0.125" in said
    ratio = rest[0].ratio
    assert f"{ratio.value:.3f} ({ratio.low:.3f}–{ratio.high:.3f})" in said


def test_many_cells_are_drawn_as_their_distribution_and_its_ends():
    findings = fabricate_study({"a": tuple(range(40)), "b": tuple(range(50, 55))}, repetitions=2)
    distribution, *ends = cells.cell_pictures(findings)
    assert distribution.caption == "Mean of each of 200 measured cells."
    assert "160 cells not drawn." in ends[0].caption
    assert len([word for word in words(ends[0].svg) if re.search(r"  C\d+$", word)]) == 40


def test_a_response_that_never_varies_is_drawn():
    findings = fabricate_study({"a": tuple(range(61))}, repetitions=2)
    same = tuple(dataclasses.replace(found, readings=findings.cells[0].readings) for found in findings.cells)
    assert len(cells.cell_pictures(dataclasses.replace(findings, cells=same))) == 3


def test_names_are_never_taken_for_formulas():
    findings = fabricate_study({"$x$": ("$a_b$", "US$", "\\frac$")}, repetitions=2)
    said = words(cells.cell_pictures(findings)[0].svg)
    assert {"$a_b$  C1", "US$  C2", "\\frac$  C3"} <= set(said)


def test_charts_are_the_same_bytes_every_time(findings):
    again = [picture.svg for picture in cells.cell_pictures(findings)]
    assert again == [picture.svg for picture in cells.cell_pictures(findings)]
