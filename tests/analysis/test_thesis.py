"""The thesis from its raw numbers: its tables, its figures, and whether what it says of them holds."""

import re
from dataclasses import replace
from math import sqrt
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fundoscope.analysis.summaries import summarise
from fundoscope.analysis.thesis import (
    COLD,
    INSTANCES,
    MEMORY,
    MOBILENET,
    REAL_TIME,
    RESULTS,
    VGG19,
    WARM,
    Cell,
    Quantity,
    beside,
    finder,
    read_results,
    regenerate,
    said,
    thesis_results,
)
from fundoscope.analysis.thesis_exhibits import THESIS
from fundoscope.analysis.thesis_statements import STATEMENTS, statements
from fundoscope.analysis.thesis_verdicts import Number, agrees, judge
from fundoscope.errors import FundoscopeError

SHARED = Path(__file__).parents[3] / "shared" / "reference" / "seed-results.csv"


def table(name):
    return regenerate(THESIS[name], thesis_results())


def near(value, within):
    return pytest.approx(value, abs=within)


def means(name):
    return [[None if e.published is None else e.published.mean for e in row] for row in table(name).entries]


@pytest.mark.skipif(not SHARED.exists(), reason="the reference results are not beside this checkout")
def test_the_shipped_results_are_the_reference_ones_byte_for_byte():
    assert RESULTS.read_bytes() == SHARED.read_bytes()


def test_every_row_is_read_with_what_it_rests_on():
    results = thesis_results()
    assert len(results) == 178
    bases = [row.basis for row in results.values()]
    assert {basis: bases.count(basis) for basis in set(bases)} == {
        "readings": 108,
        "derived": 32,
        "printed": 26,
        "inferred": 2,
        "unsupported": 10,
    }


@pytest.mark.parametrize(
    ("old", "new", "said_so"),
    [
        ("source,scenario", "scenario,source", "has other columns"),
        (",9.488186,", ",nan,", "line 2 of .* not finite"),
        (",9.488186,", ",9.1,", "line 2 of .* not between the least and the greatest"),
        (",9.488186,", ",9.4 s,", "line 2 of .* could not convert"),
        ("9.771133,s", "9.771133,ms", "line 2 of .* unit 'ms'"),
        ("9.771133,s", "9.771133", "line 2 of .* 11 fields"),
        (
            "dr-detection-deploy@70878c1:experiments/results/memory/cold-start-MobileNet-1gb.csv,",
            "a blog,",
            "line 2 of",
        ),
        ("server_request_time,10,9.507627", "prediction_time,10,9.507627", "line 3 of .* twice"),
    ],
)
def test_a_row_that_cannot_be_trusted_is_an_error_that_names_its_line(tmp_path, old, new, said_so):
    path = tmp_path / "results.csv"
    text = RESULTS.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(FundoscopeError, match=said_so):
        read_results(path)


def test_all_tables_and_figures_of_the_results_are_there():
    assert list(THESIS) == [
        *("Table 5.1", "Table 5.2"),
        *(f"Table 6.{n}" for n in range(1, 8)),
        *(f"Figure 6.{n}" for n in range(1, 13)),
    ]
    for exhibit in THESIS.values():
        assert len(exhibit.asks) == len(exhibit.rows)
        assert {len(row) for row in exhibit.asks} == {len(exhibit.columns)}
        assert exhibit.original.endswith(".")
        assert "{" not in exhibit.original


def test_the_figures_show_what_the_csv_files_say_their_figure_is():
    """The file marks the rows that each figure draws; the selections here were made from the captions."""
    for name, exhibit in THESIS.items():
        if exhibit.is_figure:
            marked = {
                cell for cell, row in thesis_results().items() if re.search(rf"\[fig {name.split()[1]}[] ]", row.source)
            }
            assert marked == {cell for row in exhibit.asks for asked in row for cell in asked.cells}, name


@pytest.mark.parametrize(
    ("name", "expected"),
    [  # as the thesis prints them, where its text has the numbers
        ("Table 5.1", [[3377221, 15.7], [20107205, 77.7]]),
        ("Table 5.2", [[1798.27, 4.97], [923.99, 3.32], [517.23, 2.06]]),
        ("Table 6.3", [[10.7879], [6.8852], [6.5223]]),
        ("Table 6.4", [[10.6071], [5.6728], [5.6074]]),
        ("Table 6.5", [[22.63, near(11.07, 0.005)], [26.59, near(12.48, 0.005)]]),
        ("Table 6.6", [[0.24], [0.23], [0.1848], [0.174]]),
        ("Table 6.7", [[near(0.51572, 1e-5), near(1.5001, 1e-4)], [near(0.23606, 1e-5), near(1.1070, 1e-4)]]),
        ("Figure 6.1", [[26.59], [None], [20.67]]),
        ("Figure 6.2", [[22.63], [None], [17.05]]),
        ("Figure 6.7", [[near(20.67, 0.005)], [near(12.48, 0.005)], [near(12.46, 0.005)]]),
    ],
)
def test_tables_are_regenerated(name, expected):
    assert means(name) == expected


def test_figure_6_7_has_the_deviations_that_its_labels_print():
    found = [entry.published for entry in table("Figure 6.7")]
    assert [value.n for value in found] == [10, 10, 10]
    assert [round(value.deviation, 2) for value in found] == [
        1.18,
        0.40,
        0.28,
    ]  # divided by n; by n - 1: 1.25, 0.42, 0.29


@pytest.mark.parametrize(
    ("name", "printed"),
    [("Table 6.1", [3.76e-5, 3.44e-5, 4.08e-5]), ("Table 6.2", [9.5e-6, 1.44e-5, 2.06e-5])],
)
def test_the_cost_tables_have_the_printed_the_regenerated_and_the_billed_column(name, printed):
    found = means(name)
    assert [row[0] for row in found] == printed
    assert [row[1] for row in found] == pytest.approx(printed, rel=0.005)
    assert all(row[2] < row[1] for row in found)


def test_what_no_data_exists_for_is_said_with_the_reason():
    lacking = {name: table(name).lacking for name in THESIS}
    assert {name for name, reasons in lacking.items() if reasons} == {
        *("Table 6.3", "Table 6.4", "Table 6.5", "Figure 6.1", "Figure 6.2")
    }
    assert lacking["Table 6.3"] == (
        "1 GB; 2 GB; 3 GB: printed in the thesis; its readings are in no file of the repository.",
    )
    assert [reason.split(":")[0] for reason in lacking["Figure 6.1"]] == ["4.97 GB", "3.32 GB", "2.06 GB"]
    assert "printed nowhere" in lacking["Figure 6.1"][1]
    assert "inferred" in lacking["Figure 6.1"][2]


def found_of(where, printed, about=""):
    one = [j for j in statements(thesis_results()) if j.statement.where == where and about in j.statement.english]
    return next(j for j in one if getattr(j.statement, "printed", "") == printed)


@pytest.mark.parametrize(
    ("where", "printed", "about", "right", "true_value"),
    [  # the right labels and the values of the wrong ones: the reference's list of mislabelled statements
        ("Section 6.1.2.1", "2.3500", "", "MobileNet, warm, prediction time: 1 GB over 3 GB", 1.9046),
        ("Section 6.1.2.1", "1.3807", "", "MobileNet, warm, total latency: 1 GB over 3 GB", 1.3164),
        ("Section 6.1.3", "57.42", "", "MobileNet, total latency: 1 GB cold start over 2 GB warm", 34.53),
        ("Section 6.1.3", "19.82", "", "VGG19, total latency: 1 GB cold start over 2 GB warm", 12.83),
        ("Chapter 7", "57", "", "MobileNet, total latency: 1 GB cold start over 2 GB warm", 43.4),
        ("Section 6.2.2", "1.5001", "", "VGG19, real-time, total latency: m6g over m5", 1.3877),
        ("Section 6.2.2", "1.08972", "", "MobileNet, real-time, total latency: m6g over c7g", 1.1019),
        ("Table 6.7", "1.08972", "", "MobileNet, real-time, total latency: m6g over c7g", 1.1070),
        ("Section 6.2.2", "33.72", "", "VGG19, real-time, prediction time: m5 against c7g", 21.4),
        ("Section 6.2.2", "13.63", "", "MobileNet, real-time, prediction time: m5 against c7g", 1.6),
        ("Section 6.1.2.1", "37", "", "MobileNet, warm, 1 GB: prediction time of total latency", 37.0),
        ("Table 5.1", "6", "", "parameters: VGG19 over MobileNet", 5.95),
        ("The companion article, section 3", "1.71", "", "VGG19, real-time, prediction time: m4 over m5", None),
        ("The companion article, section 3", "1.32", "", "MobileNet, real-time, prediction time: m4 over m5", None),
        ("Section 6.2.2", "ml.m4.xlarge", "most", "m6g", None),
        ("Section 6.2.2", "ml.m6.xlarge", "fastest", "m5", None),
    ],
)
def test_a_wrong_label_is_found_out_and_the_right_one_named(where, printed, about, right, true_value):
    found = found_of(where, printed, about)
    assert (found.verdict, found.right) == ("mislabelled", right)
    if true_value is not None:
        assert round(found.value, len(str(true_value).split(".")[1])) == true_value


def test_no_other_statement_is_called_mislabelled():
    assert sum(one.verdict == "mislabelled" for one in statements(thesis_results())) == 16


@pytest.mark.parametrize(
    ("where", "printed"),
    [  # the reference's list of reproduced ones
        *(("Section 6.2.1", printed) for printed in ("1.9163", "1.42009", "1.7134", "1.3176", "1.2701", "1.2264")),
        *(("Section 6.2.1", printed) for printed in ("4.1667", "5.8441")),
        *(("Table 6.7", printed) for printed in ("0.51572", "0.23605940", "1.5001")),
        *(("Section 6.1.2.2", printed) for printed in ("1.6529", "1.54019")),
        ("Section 6.1.2.1", "2.7413"),
        *(("Table 6.5", printed) for printed in ("11.07", "12.48")),
        ("Section 6.2.2", "24.34"),
        ("Chapter 7", "8.5"),
        *(("Table 6.1", printed) for printed in ("0.0000376", "0.0000344", "0.0000408")),
        *(("Table 6.2", printed) for printed in ("0.0000095", "0.0000144", "0.0000206")),
        *(("Figure 6.7", printed) for printed in ("20.67", "1.18", "12.48", "0.40", "12.46", "0.28")),
    ],
)
def test_what_the_readings_give_is_reproduced(where, printed):
    assert found_of(where, printed).verdict == "reproduced"


@pytest.mark.parametrize(
    ("where", "printed", "because"),
    [
        (
            "Section 6.1.1",
            "1.2864",
            "in no file of the repository; what is printed elsewhere in the thesis gives 1.28641",
        ),
        (
            "Section 6.1.1",
            "1.3272",
            "in no file of the repository; what is printed elsewhere in the thesis gives 1.32727",
        ),
        ("Table 6.3", "10.7879", "in no file of the repository"),
        ("Table 6.5", "26.59", "in no file of the repository"),
        ("Section 6.1.2.1", "9.4", "As labelled it is 8.45; no other label gives 9.4"),
        ("Chapter 7", "2.16", "As labelled it is 2.774 at most; no other label gives 2.16"),
    ],
)
def test_what_nothing_gives_is_not_reproducible_and_says_why(where, printed, because):
    found = found_of(where, printed)
    assert found.verdict == "not reproducible"
    assert because in found.found


def test_claims_of_no_difference_are_tested_and_not_believed():
    judged = {j.statement.english: j for j in statements(thesis_results()) if "differ" in j.statement.english}
    same = judged["Cold start of MobileNet does not differ between 2 GB and 3 GB"]
    assert (same.verdict, same.found) == ("reproduced", "One is 0.998 times the other, which chance alone explains.")
    other = judged["Cold start of VGG19 does not differ between 2 GB and 3 GB"]  # 5.6 % less, Welch's t about 4
    assert (other.verdict, other.found) == (
        "not reproducible",
        "One is 0.944 times the other, more than chance explains.",
    )
    raised = found_of("Section 6.1.1", "", "cold start does not raise")
    assert raised.found == "One is 2.76 to 67 times the other, more than chance explains in 6 of 6 pairs."


def test_a_verdict_follows_the_rows_and_is_not_written_down():
    statement = found_of("Section 6.1.2.1", "2.3500").statement
    one, other = statement.of[0].cells
    results = dict(thesis_results())
    results[other] = replace(results[other], mean=results[one].mean / 2.35)
    assert judge(statement, results).verdict == "reproduced"
    results[other] = replace(results[other], basis="unsupported")
    assert judge(statement, results).verdict == "not reproducible"
    third = other._replace(level="3072MB")
    results = dict(thesis_results())
    results[third] = replace(results[third], mean=results[one].mean / 9)
    assert judge(statement, results).verdict == "not reproducible"


@settings(deadline=None)
@given(st.decimals(min_value="0.01", max_value=1000, places=4))
def test_a_number_rounded_or_cut_off_agrees_and_one_a_hundredth_off_does_not(value):
    exact = float(value)
    for printed in (f"{exact:.2f}", f"{int(exact * 100 + 1e-6) / 100:.2f}"):
        assert agrees(printed, exact)
    assert not agrees(f"{exact:.4f}", exact * 1.01 + 1e-3)


def test_few_labels_are_tried_so_that_a_coincidence_is_unlikely():
    assert max(one.tried for one in statements(thesis_results())) <= 36
    numbers = [one for one in STATEMENTS if isinstance(one, Number)]
    assert all(cell in thesis_results() for one in numbers for quantity in one.of for cell in quantity.cells)


def letters(text):
    """Cut words, and spaces inside numbers, are the PDF's."""
    return "".join(letter for letter in text if letter.isalnum())


def test_statements_and_captions_are_in_the_words_of_the_papers():
    papers = sorted(SHARED.parents[1].glob("seeds/00[23]_*.txt"))
    if not papers:
        pytest.skip("the papers are not beside this checkout")
    text = letters("".join(path.read_text(encoding="utf-8") for path in papers))
    quoted = [one.original for one in STATEMENTS if not one.where.startswith(("Table 6", "Figure 6.7"))]  # bare numbers
    for original in (*quoted, *(exhibit.original for exhibit in THESIS.values())):
        for clause in original.split(", "):
            words = clause.split()
            halves = ((letters("".join(words[:at])), letters("".join(words[at:]))) for at in range(len(words)))
            assert any(one in text and other in text for one, other in halves), clause  # cut by a figure, at most once


def test_ours_stands_beside_theirs_under_the_same_label_and_with_the_same_deviation():
    ours = {Cell(COLD, MOBILENET, "memory", level, "total_latency"): summarise([1.0, 2.0, 3.0]) for level in MEMORY[:2]}
    first, second, third = beside(table("Figure 6.7"), ours)
    assert (first.ours.mean, first.ours.n, first.ours.unit, first.ours.basis) == (2.0, 3, "s", "ours")
    assert first.ours.deviation == pytest.approx(sqrt(2 / 3))  # divided by n, as theirs
    assert second.times == pytest.approx(2.0 / 12.4793)
    assert third.ours is None
    assert third.times is None
    assert third.published.mean == pytest.approx(12.45922)
    assert not beside(table("Figure 6.8"), ours).measured


def test_ratios_of_ours_are_reckoned_as_theirs_are():
    ours = {
        Cell(REAL_TIME, VGG19, "instance_type", level, metric): summarise([seconds])
        for level, seconds in zip(INSTANCES, (0.4, 0.2, 0.3, 0.3), strict=True)
        for metric, seconds in (("prediction_time", seconds / 4), ("total_latency", seconds))
    }
    share, speed = beside(table("Table 6.7"), ours).entries[0]
    assert (share.ours.mean, speed.ours.mean) == (pytest.approx(0.25), pytest.approx(2.0))


def test_a_quantity_with_a_missing_cell_has_no_value():
    there = Cell(WARM, VGG19, "memory", "1024MB", "total_latency")
    assert Quantity("times", (there, there._replace(level="6144MB"))).of(finder(thesis_results())) is None
    assert said(Quantity("mean", (there,))) == "VGG19, warm, 1 GB, total latency"
