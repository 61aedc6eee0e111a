"""Screening folders of drawn eyes with a real ONNX artefact, in real processes that are really killed."""

import csv
import fcntl
import json
import multiprocessing
import os
import random
import shutil
import subprocess
import sys
import tarfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fundoscope.artefact.artefact import Artefact, write
from fundoscope.artefact.runtime import open_predictor
from fundoscope.data.draw import draw_folder
from fundoscope.data.intake import import_photographs
from fundoscope.errors import FundoscopeError
from fundoscope.model.predictions import Predictions
from fundoscope.model.scores import cases_of
from fundoscope.provenance import sha256_of
from fundoscope.screen.ledger import Ledger
from fundoscope.screen.listing import list_photographs
from fundoscope.screen.log import ScreenLog, log_beside
from fundoscope.screen.patients import patient_row
from fundoscope.screen.screen import Effort, grade_all, screen
from fundoscope.screen.table import Row
from fundoscope.screen.worker import Work
from fundoscope.serve.grading import Grader

EYES = 40


@pytest.fixture(scope="module")
def artefact(exported):
    return exported["onnx"].artefact.folder


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    return draw_folder(tmp_path_factory.mktemp("eyes") / "drawn", n=EYES, seed=5, size=256, processes=1)


@pytest.fixture
def folder(drawn, tmp_path):
    """Forty drawn eyes to be spoilt at will."""
    shutil.copytree(drawn / "images", tmp_path / "photographs")
    return tmp_path / "photographs"


@pytest.fixture(scope="module")
def once(drawn, artefact, tmp_path_factory):
    """What an undisturbed screening says of the forty."""
    out = tmp_path_factory.mktemp("once") / "gradings.jsonl"
    screen(drawn / "images", artefact, out, processes=2)
    return rows_of(out)


def rows_of(out):
    if out.suffix == ".jsonl":
        return [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    with out.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def answers(rows):
    """What is the same in every run: all but the time it took."""
    return [{name: value for name, value in row.items() if not name.endswith("_ms")} for row in rows]


def graded_lines(log):
    """Path and digest of everything that went through the network."""
    lines = [json.loads(line) for line in log.read_text().splitlines()[1:]]
    return [(line["path"], line["sha256"]) for line in lines if "probabilities" in line]


# Every photograph is accounted for


def test_each_row_is_what_the_grader_answers_for_that_photograph_alone(drawn, artefact, once):
    opened = Artefact.open(artefact)
    grader = Grader(opened, open_predictor(opened, threads=1))
    assert [row["path"] for row in once] == [f"{i:05}.jpg" for i in range(EYES)]
    for row in once:
        photo = (drawn / "images" / row["path"]).read_bytes()
        (alone,) = grader.grade([grader.read(photo)])
        assert row["sha256"] == sha256_of(photo)
        assert row["grade"] == alone.grade
        assert [row[f"p{i}"] for i in range(5)] == [float(f"{p:.7g}") for p in alone.probabilities]
        assert row["referral_probability"] == alone.referral_probability
        assert row["status"] == ("graded" if alone.gradability.gradable else "ungradable")
        assert row["referral"] == alone.referral
        assert row["gradability_reasons"] == "; ".join(alone.gradability.reasons)
        assert row["artefact"] == opened.digest
        assert row["decode_ms"] > 0
        assert row["predict_ms"] > 0


def test_what_cannot_be_graded_is_a_row_with_its_reason_and_other_files_are_counted(folder, artefact, tmp_path):
    whole = (folder / "00000.jpg").read_bytes()
    (folder / "00001.jpg").write_bytes(whole[: len(whole) // 2])
    (folder / "00002.jpg").write_bytes(b"")
    (folder / "00003.dcm").write_bytes(bytes(128) + b"DICM")
    (folder / "without-ending").write_bytes((folder / "00004.jpg").read_bytes() + b"\0")
    (folder / "labels.csv").write_text("file\n")
    (folder / ".hidden.jpg").write_bytes(whole)
    (folder / "below").mkdir()
    (folder / "below" / "deep.jpg").write_bytes(whole + b"\0")
    (folder / "elsewhere").symlink_to(tmp_path)
    (folder / "broken.jpg").symlink_to(folder / "nowhere.jpg")
    screened = screen(folder, artefact, tmp_path / "gradings.jsonl", processes=2)
    rows = {row["path"]: row for row in rows_of(tmp_path / "gradings.jsonl")}
    assert len(rows) == screened.counts["photographs"] == EYES + 4
    assert {path: row["reason"] for path, row in rows.items() if row["status"] == "unreadable"} == {
        "00001.jpg": "the file is truncated: part of the picture is missing",
        "00002.jpg": "the file is empty",
        "00003.dcm": "the file is a DICOM file, not a photograph",
        "broken.jpg": "the file is missing",
    }
    assert screened.counts["unreadable"] == 4
    assert rows["without-ending"]["p0"] == rows["00004.jpg"]["p0"]
    assert rows["below/deep.jpg"]["p0"] == rows["00000.jpg"]["p0"]
    assert rows["00001.jpg"]["referral"] is None
    assert screened.passed_over == {
        "hidden file or folder": 1,
        "not a picture by its name: .csv": 1,
        "link to a folder, not followed": 1,
    }


def test_the_same_bytes_are_graded_once_and_their_rows_are_linked(folder, artefact, tmp_path):
    for copy in ("99998.jpg", "99999.jpg", "00007 again.jpg"):
        shutil.copy(folder / "00007.jpg", folder / copy)
    screened = screen(folder, artefact, tmp_path / "gradings.jsonl", processes=2)
    rows = {row["path"]: row for row in rows_of(tmp_path / "gradings.jsonl")}
    first = rows["00007 again.jpg"]
    linked = {path: row["same_as"] for path, row in rows.items() if row["same_as"]}
    assert linked == dict.fromkeys(("00007.jpg", "99998.jpg", "99999.jpg"), "00007 again.jpg")
    for path in linked:
        assert answers([rows[path]])[0] | {"path": "", "same_as": ""} == answers([first])[0] | {"path": ""}
    assert screened.counts["copies"] == 3
    assert len(graded_lines(screened.asked.log)) == EYES


def test_a_name_that_is_no_text_is_shown_and_does_not_stop_anything(folder, artefact, tmp_path):
    (folder / "00000.jpg").rename(os.fsdecode(os.fsencode(folder) + b"/caf\xe9.jpg"))
    for ending in (".csv", ".jsonl", ".parquet"):
        screened = screen(folder, artefact, tmp_path / f"gradings{ending}", processes=2)
        assert screened.counts["graded"] + screened.counts["ungradable"] == EYES
    assert [row["path"] for row in rows_of(tmp_path / "gradings.csv")][-1] == "caf\\udce9.jpg"


def test_an_archive_and_a_manifest_give_the_rows_of_the_folder(drawn, artefact, tmp_path, once):
    with tarfile.open(tmp_path / "eyes.tar", "w") as tar:
        tar.add(drawn / "images", "images")
        tar.add(drawn / "labels.csv", "labels.csv")
    screened = screen(tmp_path / "eyes.tar", artefact, tmp_path / "packed.jsonl", processes=2)
    packed = [row | {"path": Path(row["path"]).name} for row in answers(rows_of(tmp_path / "packed.jsonl"))]
    assert packed == answers(once)
    assert screened.passed_over == {"not a picture by its name: .csv": 1}
    import_photographs("drawn", drawn, folder=tmp_path).write(tmp_path / "manifest.csv")
    screen(tmp_path / "manifest.csv", artefact, tmp_path / "listed.jsonl", processes=2)
    listed = answers(rows_of(tmp_path / "listed.jsonl"))
    assert [(row["patient"], row["eye"]) for row in listed[:3]] == [
        ("drawn-5-00000", "left"),
        ("drawn-5-00000", "right"),
        ("drawn-5-00001", "left"),
    ]
    assert [row | {"path": Path(row["path"]).name, "patient": "", "eye": ""} for row in listed] == answers(once)


def test_the_kind_of_table_changes_nothing_in_it_and_needs_no_grading_again(drawn, artefact, tmp_path, once):
    from pyarrow import parquet

    screen(drawn / "images", artefact, tmp_path / "gradings.jsonl", processes=2)
    for ending in (".csv", ".parquet"):
        again = screen(drawn / "images", artefact, tmp_path / f"gradings{ending}", processes=2)
        assert again.effort.photographs == 0
    in_lines, in_cells = rows_of(tmp_path / "gradings.jsonl"), rows_of(tmp_path / "gradings.csv")
    in_columns = parquet.read_table(tmp_path / "gradings.parquet").to_pylist()
    assert answers(in_lines) == answers(once)
    for line, cells, values in zip(in_lines, in_cells, in_columns, strict=True):
        assert list(line) == list(cells) == list(values)
        for name, value in line.items():
            if isinstance(value, float):
                assert float(cells[name]) == pytest.approx(value, rel=1e-6)
                assert values[name] == pytest.approx(value, rel=1e-6)
            else:
                assert values[name] == value
                assert cells[name] == (str(value).lower() if isinstance(value, bool) else str(value))


def test_parquet_says_where_it_came_from(drawn, artefact, tmp_path):
    from pyarrow import parquet

    screened = screen(drawn / "images", artefact, tmp_path / "gradings.parquet", processes=2)
    about = {
        name.decode(): value.decode() for name, value in parquet.read_metadata(screened.asked.out).metadata.items()
    }
    assert about["artefact"] == Artefact.open(artefact).digest
    assert json.loads(about["operating_point"])["name"] == "high_sensitivity"
    assert json.loads(about["counts"])["photographs"] == EYES
    assert "onnxruntime" in json.loads(about["versions"])
    assert "command" in about
    assert str(parquet.read_schema(screened.asked.out).field("grade").type) == "int8"


# It can be stopped at any moment


SCREEN = (
    "import sys; from pathlib import Path; from fundoscope.screen.screen import screen;"
    "screen(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), processes=2)"
)


def killed_when_grown(command, log, *, by_bytes, then_s):
    """Whether it was still at work a moment after its log had grown by so much, and was killed."""
    wanted = (log.stat().st_size if log.exists() else 0) + by_bytes
    deadline = time.monotonic() + 300  # or it hangs
    with subprocess.Popen(command, process_group=0) as process:
        while not log.exists() or log.stat().st_size < wanted:
            assert time.monotonic() < deadline
            with suppress(subprocess.TimeoutExpired):
                return bool(process.wait(timeout=0.005))  # finished
        with suppress(subprocess.TimeoutExpired):
            return bool(process.wait(timeout=then_s))
        process.kill()
    while group_is_alive(process.pid):  # its workers notice, and leave
        assert time.monotonic() < deadline
    return True


def group_is_alive(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_killed_at_random_moments_it_goes_on_and_neither_loses_nor_doubles_nor_repeats(drawn, artefact, tmp_path, once):
    folder, out = tmp_path / "photographs", tmp_path / "gradings.jsonl"
    folder.mkdir()
    for i in range(6):  # more work than fits between two kills; a byte behind the end makes another file of each
        for path in (drawn / "images").iterdir():
            (folder / f"{i}-{path.name}").write_bytes(path.read_bytes() + bytes(i))
    log, moments, seen = log_beside(out), random.Random(4), [0]
    command = [sys.executable, "-c", SCREEN, str(folder), str(artefact), str(out)]
    while len(seen) < 6:
        if killed_when_grown(command, log, by_bytes=moments.randrange(8000), then_s=moments.uniform(0, 0.1)):
            assert not out.exists()  # the table is whole or not there
            seen.append(len(graded_lines(log)))
        else:
            break
    assert subprocess.run(command, timeout=50).returncode == 0
    rows = rows_of(out)
    assert seen == sorted(seen)
    assert 0 < seen[-1] < 6 * EYES  # or nothing was tested
    assert len(seen) > 3
    assert [row["path"] for row in rows] == sorted(path.name for path in folder.iterdir())
    done = graded_lines(log_beside(out))
    assert len(done) == len(set(done)) == 6 * EYES
    expected = {row["path"]: row for row in answers(once)}
    for row in answers(rows):
        same = expected[row["path"].partition("-")[2]]
        assert row | {"path": "", "sha256": ""} == same | {"path": "", "sha256": ""}
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".part")] == []


def test_half_a_line_that_a_power_cut_left_is_cut_off(drawn, artefact, tmp_path, once):
    out, images = tmp_path / "gradings.jsonl", drawn / "images"
    screen(images, artefact, out, processes=2)
    log = log_beside(out)
    whole = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(whole[:22]) + whole[22][:50] + bytes(4096))
    again = screen(images, artefact, out, processes=2)
    assert again.effort.photographs == EYES - 20  # the header and the note of the run are lines too
    assert answers(rows_of(out)) == answers(once)
    log.write_bytes(b"".join([*whole[:9], b"{broken\n", *whole[10:]]))
    with pytest.raises(FundoscopeError, match="is damaged in line 10"):
        screen(images, artefact, out)


def test_a_worker_that_is_killed_loses_nothing(drawn, artefact, tmp_path, once):
    killed = []

    def kill_one(steps, **_):
        for step in steps:
            if not killed:
                (victim, *_) = multiprocessing.active_children()
                killed.append(victim.pid)
                victim.kill()
            yield step

    screened = screen(drawn / "images", artefact, tmp_path / "gradings.jsonl", processes=2, track=kill_one)
    assert len(killed) == 1
    assert answers(rows_of(tmp_path / "gradings.jsonl")) == answers(once)
    assert screened.counts["failed"] == 0
    assert len(graded_lines(screened.asked.log)) == EYES


def test_a_photograph_that_ends_every_process_has_failed_and_is_tried_again_by_the_next_run(folder, artefact, tmp_path):
    class Deadly(Ledger):
        def claim(self, opened):
            wanted = super().claim(opened)
            if any(self.listing.names[one.place] == "00011.jpg" for one in opened):
                for child in multiprocessing.active_children():  # as the kernel does when memory runs out
                    child.kill()
            return wanted

    shutil.copy(folder / "00011.jpg", folder / "copy.jpg")
    out, listing = tmp_path / "gradings.jsonl", list_photographs(folder)
    work = Work(listing.root, False, artefact, "high_sensitivity")
    belongs_to = {
        "artefact": Artefact.open(artefact).digest,
        "operating_point": "high_sensitivity",
        "folder": str(folder.resolve()),
    }
    with ScreenLog(log_beside(out), belongs_to) as log:
        ledger = Deadly(listing, log)
        assert len(list(grade_all(ledger, work, ledger.todo(), Effort(processes=2)))) == EYES + 1
        assert ledger.todo() == []
    failed = [line for line in map(json.loads, log_beside(out).read_text().splitlines()) if "failed" in line.values()]
    assert {line["path"] for line in failed} <= {"00011.jpg", "copy.jpg"}
    assert "ended from outside" in failed[0]["reason"]
    again = screen(folder, artefact, out, processes=2)
    assert again.counts["failed"] == 0
    assert again.effort.photographs == len(failed)
    assert len(rows_of(out)) == EYES + 1


def test_what_is_new_or_changed_is_graded_and_the_rest_is_not(folder, artefact, tmp_path):
    out = tmp_path / "gradings.jsonl"
    screen(folder, artefact, out, processes=2)
    before = {row["path"]: row for row in answers(rows_of(out))}
    (folder / "00003.jpg").write_bytes((folder / "00004.jpg").read_bytes() + b"\0")
    (folder / "new.jpg").write_bytes((folder / "00005.jpg").read_bytes() + b"\0")
    (folder / "00006.jpg").rename(folder / "renamed.jpg")
    (folder / "00008.jpg").unlink()
    again = screen(folder, artefact, out, processes=2)
    after = {row["path"]: row for row in answers(rows_of(out))}
    assert again.effort.photographs == 3
    assert after["00003.jpg"]["p0"] == before["00004.jpg"]["p0"]
    assert after["new.jpg"]["p0"] == before["00005.jpg"]["p0"]
    assert after["renamed.jpg"] | {"path": "00006.jpg"} == before["00006.jpg"]
    assert set(after) == {*before, "new.jpg", "renamed.jpg"} - {"00006.jpg", "00008.jpg"}
    assert len(graded_lines(again.asked.log)) == EYES + 2  # the renamed one had been graded under its old name


def test_a_photograph_that_was_missing_is_looked_for_again(drawn, artefact, tmp_path):
    manifest = import_photographs("drawn", drawn, folder=tmp_path)
    shutil.copytree(drawn / "images", tmp_path / "images")
    moved = tuple(replace(p, path=f"images/{Path(p.path).name}") for p in manifest.photographs)
    replace(manifest, photographs=moved).write(tmp_path / "manifest.csv")
    (tmp_path / "images" / "00001.jpg").rename(tmp_path / "kept.jpg")
    first = screen(tmp_path / "manifest.csv", artefact, tmp_path / "gradings.csv", processes=2)
    assert first.reasons["unreadable", "the file is missing"] == 1
    (tmp_path / "kept.jpg").rename(tmp_path / "images" / "00001.jpg")
    second = screen(tmp_path / "manifest.csv", artefact, tmp_path / "gradings.csv", processes=2)
    assert (second.effort.photographs, second.counts["unreadable"]) == (1, 0)


# One screening, one log


def test_another_artefact_operating_point_or_folder_is_refused(folder, artefact, tmp_path):
    out = tmp_path / "gradings.csv"
    screen(folder, artefact, out, processes=2)
    other = tmp_path / "other"
    shutil.copytree(artefact, other)
    changed = write(replace(Artefact.open(other), referral_from=3))
    shutil.copytree(folder, tmp_path / "moved")
    for source, model, point, what in (
        (
            folder,
            other,
            "high_sensitivity",
            f"another artefact, {Artefact.open(artefact).digest[:12]}…, not {changed.digest[:12]}…",
        ),
        (folder, artefact, "high_specificity", "another operating point, high_sensitivity, not high_specificity"),
        (tmp_path / "moved", artefact, "high_sensitivity", f"another folder, {folder}, not {tmp_path / 'moved'}"),
    ):
        with pytest.raises(FundoscopeError) as refused:
            screen(source, model, out, operating_point=point)
        assert f"belongs to a screening with {what}" in refused.value.message
        assert "delete" in refused.value.hint


def test_two_at_a_time_are_refused(drawn, artefact, tmp_path):
    with log_beside(tmp_path / "gradings.csv").open("ab") as log:
        fcntl.flock(log, fcntl.LOCK_EX)
        with pytest.raises(FundoscopeError, match="another screening is writing to"):
            screen(drawn / "images", artefact, tmp_path / "gradings.csv")


def test_a_file_of_somebody_elses_is_never_overwritten(folder, artefact, tmp_path):
    (tmp_path / "mine.csv").write_text("path,grade\n")
    with pytest.raises(FundoscopeError, match="mine.csv exists and no screening has written it"):
        screen(folder, artefact, tmp_path / "mine.csv")
    (tmp_path / "x.screening.jsonl").write_text("dear diary\n")
    with pytest.raises(FundoscopeError, match="is not the log of a screening"):
        screen(folder, artefact, tmp_path / "x.csv")
    assert (tmp_path / "mine.csv").read_text() == "path,grade\n"
    assert (tmp_path / "x.screening.jsonl").read_text() == "dear diary\n"


def test_a_refused_artefact_is_used_only_when_somebody_insists(folder, artefact, tmp_path):
    shutil.copytree(artefact, tmp_path / "refused")
    write(replace(Artefact.open(tmp_path / "refused"), guard={"passed": False, "why": "it misses more"}))
    with pytest.raises(FundoscopeError, match="was refused: it misses more"):
        screen(folder, tmp_path / "refused", tmp_path / "gradings.csv")
    assert screen(folder, tmp_path / "refused", tmp_path / "gradings.csv", unsafe=True).counts["photographs"] == EYES


# Patients


def row(path="x.jpg", patient="p", eye="left", status="graded", grade=0, chance=0.1, referral=False):
    known = status in ("graded", "ungradable")
    return Row(
        path=path, sha256="", same_as="", patient=patient, eye=eye, status=status,
        reason="" if status == "graded" else f"{status} for a reason", grade=grade if known else None,
        p0=None, p1=None, p2=None, p3=None, p4=None, referral_probability=chance if known else None,
        referral=(referral or status == "ungradable") if known else None, gradability=0.9 if known else None,
        gradability_reasons="", decode_ms=None, predict_ms=None, artefact="",
    )  # fmt: skip


def test_an_eye_has_its_worst_photograph_and_a_patient_the_worse_eye():
    found = patient_row(
        "p",
        [
            row("a", eye="left", grade=1, chance=0.2),
            row("b", eye="left", grade=3, chance=0.8, referral=True),
            row("c", eye="right", grade=2, chance=0.9, referral=True),
        ],
    )
    assert (found.result, found.grade, found.referral_probability, found.worst) == ("refer", 3, 0.9, "b")
    assert (found.left, found.left_grade, found.right, found.right_grade) == ("refer", 3, "refer", 2)


def test_one_photograph_that_was_not_graded_makes_retake_or_refer_unless_another_is_referred():
    for status in ("ungradable", "unreadable", "failed"):
        spoilt = row("b", eye="right", status=status, grade=4, chance=0.99)
        found = patient_row("p", [row("a", grade=1, chance=0.3), spoilt])
        assert (found.result, found.referral, found.worst) == ("retake or refer", True, "b")
        assert (found.left, found.right, found.reason) == ("no referral", "retake or refer", f"{status} for a reason")
        assert (found.grade, found.referral_probability) == (1, 0.3)  # what cannot be graded has no say in these
        found = patient_row("p", [row("a", grade=2, chance=0.7, referral=True), spoilt])
        assert (found.result, found.worst) == ("refer", "a")
    assert patient_row("p", [row("a"), row("b", eye="right")]).result == "no referral"


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from(["left", "right"]), st.booleans(), st.floats(0, 1)),
        min_size=1,
        max_size=12,
    )
)
def test_patients_are_referred_as_the_scores_count_them_under_intention_to_screen(photographs):
    patients, eyes, gradable, chances = zip(*photographs, strict=True)
    n, threshold = len(photographs), 0.5
    predictions = Predictions(
        id=np.arange(n).astype(str), patient=np.array(patients), eye=np.array(eyes), grade=np.zeros(n, np.int64),
        split=np.full(n, "test"), gradable=np.array(gradable), probabilities=None, referral=np.array(chances),
    )  # fmt: skip
    scored = cases_of(predictions, level="patient", way="all").score >= threshold
    rows = [
        row(patient=p, eye=e, status="graded" if g else "ungradable", grade=None, chance=c, referral=c >= threshold)
        for p, e, g, c in photographs
    ]
    ours = [patient_row(p, [one for one in rows if one.patient == p]).referral for p in sorted(set(patients))]
    assert ours == scored.tolist()


def test_patients_come_from_a_table_by_path_or_by_name(folder, artefact, tmp_path):
    (folder / "sub").mkdir()
    (folder / "00002.jpg").rename(folder / "sub" / "00002.jpg")
    (tmp_path / "who.csv").write_text("file;patient;eye\n00000.jpg;ana;OS\n00001.jpg;ana;od\nsub/00002.jpg;rui;\n")
    screened = screen(folder, artefact, tmp_path / "g.csv", patients=tmp_path / "who.csv", processes=2)
    rows = {one["path"]: one for one in rows_of(tmp_path / "g.csv")}
    known = {path: (one["patient"], one["eye"]) for path, one in rows.items() if one["patient"]}
    assert known == {"00000.jpg": ("ana", "left"), "00001.jpg": ("ana", "right"), "sub/00002.jpg": ("rui", "")}
    people = rows_of(tmp_path / "g.patients.csv")
    assert [(one["patient"], one["photographs"]) for one in people] == [("ana", "2"), ("rui", "1")]
    assert screened.counts["patients"]["n"] == 2
    assert screened.counts["without_patient"] == EYES - 3


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("file,patient\n00000.jpg,a\nx.jpg,b\ny.jpg,c\n", "2 names in who.csv are not among the photographs: 'x.jpg'"),
        ("file,patient\nx.jpg,b\n", "1 name in who.csv is not among the photographs: 'x.jpg'"),
        ("file,patient\n00001.jpg,b\n", "2 photographs are called '00001.jpg'"),
        ("file,patient\n00000.jpg,a\n00000.jpg,b\n", "line 3 of who.csv gives '00000.jpg' a second time"),
        ("file,patient,eye\n00000.jpg,a,middle\n", "the eye in line 2 of who.csv is 'middle'"),
        ("file,who\n00000.jpg,a\n", "who.csv has no column 'patient'"),
    ],
)  # fmt: skip
def test_a_table_of_patients_with_a_mistake_is_refused(folder, artefact, tmp_path, table, message):
    for clinic in ("north", "south"):
        (folder / clinic).mkdir()
        shutil.copy(folder / "00001.jpg", folder / clinic)
    (folder / "00001.jpg").unlink()
    (tmp_path / "who.csv").write_text(table)
    with pytest.raises(FundoscopeError) as refused:
        screen(folder, artefact, tmp_path / "g.csv", patients=tmp_path / "who.csv")
    assert message in refused.value.message
    assert not log_beside(tmp_path / "g.csv").exists()


def test_names_like_eyepacs_are_patients_only_when_asked_and_within_their_folder(folder, artefact, tmp_path):
    for i, name in enumerate(("10_left.jpg", "10_right.jpg", "sub/10_left.jpg")):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / f"{i:05}.jpg").rename(folder / name)
    assert screen(folder, artefact, tmp_path / "a.csv", processes=2).patients is None
    screen(folder, artefact, tmp_path / "b.csv", names_are_patients=True, processes=2)
    people = [(one["patient"], one["photographs"]) for one in rows_of(tmp_path / "b.patients.csv")]
    assert people == [("10", "2"), ("sub/10", "1")]


def test_one_file_under_two_patients_is_pointed_out(folder, artefact, tmp_path):
    for name in ("10_left.jpg", "10_right.jpg", "11_left.jpg"):
        shutil.copy(folder / "00000.jpg", folder / name)
    (folder / "00000.jpg").unlink()
    screened = screen(folder, artefact, tmp_path / "g.csv", names_are_patients=True, processes=2)
    assert screened.counts["conflicting_copies"] == 2
    assert [(one.path, one.same_as) for one in screened.conflicts] == [
        ("10_right.jpg", "10_left.jpg"),
        ("11_left.jpg", "10_left.jpg"),
    ]


# Order, and what it may cost


def test_the_most_severe_come_first(drawn, artefact, tmp_path):
    import_photographs("drawn", drawn, folder=tmp_path).write(tmp_path / "manifest.csv")
    screened = screen(tmp_path / "manifest.csv", artefact, tmp_path / "g.jsonl", processes=2)
    shown = [(one.grade, one.referral_probability) for one in screened.rows]
    assert shown == sorted(shown, reverse=True)
    assert len(shown) == screened.counts["graded"]
    assert Counter(one.grade for one in screened.rows) == Counter(
        {int(grade): n for grade, n in screened.counts["grades"].items() if n}
    )
    urgency = ["refer", "retake or refer", "no referral"]
    people = [(urgency.index(p.result), -(p.grade or -1), -(p.referral_probability or -1)) for p in screened.patients]
    assert people == sorted(people)
    assert len(people) == EYES // 2
    assert {one.status for one in screened.not_graded} <= {"ungradable"}


def test_screening_imports_neither_training_code_nor_pyarrow():
    code = (
        "import sys, fundoscope.screen.screen;"
        "print([name for name in sys.modules if name.startswith(('fundoscope.model', 'pyarrow', 'keras', 'jinja2'))])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_the_rows_of_a_long_log_are_not_held_in_memory(tmp_path):
    """A few hundred bytes for each more, by the difference between 5,000 and 15,000 of them."""
    code = """
import sys, tracemalloc
from pathlib import Path
from fundoscope.screen.table import Row, write_table
from fundoscope.screen.ledger import Ledger
from fundoscope.screen.listing import Listing
from fundoscope.screen.log import ScreenLog
from fundoscope.screen.results import Results
from fundoscope.provenance import sha256_of

def peak(n):
    folder = Path(sys.argv[1], str(n)); folder.mkdir()
    listing = Listing(folder)
    for i in range(n):
        listing.add(f"clinic/{i:08}.jpg", 1, 0)
    answer = {"status": "graded", "grade": 1, "probabilities": [0.2] * 5, "referral_probability": 0.6, "gradability": 1}
    names = {name: sha256_of(name.encode()) for name in listing.names}
    lines = [{"path": name, "size": 1, "stamp": 0, "sha256": sha256, **answer} for name, sha256 in names.items()]
    with ScreenLog(folder / "log", {}) as log:
        log.append(lines)
    del lines, names
    with ScreenLog(folder / "log", {}) as log:
        tracemalloc.start()
        ledger = Ledger(listing, log)
        with log.reader() as reader:
            results = Results(ledger, reader, "")
            write_table(folder / "out.csv", Row, results.rows(), dict)
            results.most_severe()
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return found

print((peak(15_000) - peak(5_000)) / 10_000)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 400


def test_nothing_can_be_screened_where_there_is_nothing(artefact, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "notes.txt").write_text("")
    (tmp_path / "one.jpg").write_bytes(b"")
    for source, message in (
        (tmp_path / "empty", "there is no photograph in .*; 1 other file is in it"),
        (tmp_path / "nowhere", "there is nothing at"),
        (tmp_path / "one.jpg", "is not a folder, a manifest.csv or a .tar archive"),
    ):
        with pytest.raises(FundoscopeError, match=message):
            screen(source, artefact, tmp_path / "gradings.csv")
    assert not log_beside(tmp_path / "gradings.csv").exists()


def test_a_file_name_is_no_formula_in_a_table_that_people_open(folder, artefact, tmp_path):
    names = ("=HYPERLINK(A1).jpg", "+1.jpg", "-2.jpg", "@SUM(A1).jpg")
    for i, name in enumerate(names):
        (folder / f"{i:05}.jpg").rename(folder / name)
    patients = [f"=cmd|'/c calc'!A{i}" for i in range(4)]
    lines = [f"{name},{patient}" for name, patient in zip(names, patients, strict=True)]
    (tmp_path / "who.csv").write_text("\n".join(["file,patient", *lines]))
    words = (folder, artefact, tmp_path / "g.csv")
    first = screen(*words, patients=tmp_path / "who.csv", processes=2)
    for table in ("g.csv", "g.patients.csv"):
        cells = [cell for row in rows_of(tmp_path / table) for cell in row.values()]
        assert not [cell for cell in cells if cell[:1] in set("=+-@")]
    assert {row["path"] for row in rows_of(tmp_path / "g.csv")} >= {f"'{name}" for name in names}
    assert [row["patient"] for row in rows_of(tmp_path / "g.patients.csv")] == [f"'{patient}" for patient in patients]
    assert {row.path for row in (*first.rows, *first.not_graded)} >= set(names)  # the page and the log have the names
    again = screen(*words, patients=tmp_path / "who.csv", processes=2)
    assert again.effort.photographs == 0  # the log knows them
    other = screen(folder, artefact, tmp_path / "g.jsonl", processes=2)
    assert {row["path"] for row in map(json.loads, other.asked.out.read_text().splitlines())} >= set(names)
