import hashlib
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fundoscope.data.manifest import COLUMNS, GRADES, SPLITS, Manifest, Photograph
from fundoscope.data.photo import UnreadablePhoto
from fundoscope.data.split import assign_splits
from fundoscope.errors import FundoscopeError

HEADER = ",".join(COLUMNS)
text = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=12).map(str.strip)
photographs = st.builds(
    Photograph,
    path=text.filter(bool),
    grade=st.none() | st.sampled_from(GRADES),
    patient=text,
    eye=st.sampled_from(["left", "right", ""]),
    split=st.sampled_from([*SPLITS, ""]),
    sha256=st.just("") | st.binary(max_size=4).map(lambda b: hashlib.sha256(b).hexdigest()),
    width=st.none() | st.integers(1, 9999),
    height=st.none() | st.integers(1, 9999),
    gradability=st.none() | st.integers(0, 10_000).map(lambda n: n / 10_000),
    left_out=text,
    source=text,
)


def eye(name: object, grade: int, **more: str) -> Photograph:
    """A photograph whose bytes are its name."""
    sha256 = hashlib.sha256(str(name).encode()).hexdigest()
    return replace(Photograph(f"{name}.jpg", grade, sha256=sha256), **more)  # type: ignore[arg-type]


@given(st.lists(photographs, min_size=1, max_size=8))
def test_what_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, listed: list[Photograph]) -> None:
    folder = tmp_path_factory.mktemp("manifest")
    manifest = Manifest(tuple(listed), folder)
    manifest.write(folder / "m.csv")
    assert Manifest.read(folder / "m.csv") == manifest


def test_the_digest_is_that_of_the_file_and_lines_end_as_on_unix(tmp_path: Path) -> None:
    manifest = Manifest((eye("Ä", 3, patient='a "b", c'),), tmp_path)
    manifest.write(tmp_path / "m.csv")
    written = (tmp_path / "m.csv").read_bytes()
    assert manifest.digest == hashlib.sha256(written).hexdigest()
    assert written.decode("utf-8").split("\n")[0] == HEADER
    assert b"\r" not in written


def test_photographs_below_the_manifest_are_relative_and_others_absolute(tmp_path: Path) -> None:
    listed = (Photograph(str(tmp_path / "set/a.jpg"), 0), Photograph(str(tmp_path / "b.tar::images/x.jpg"), 1))
    Manifest(listed, Path("/")).write(tmp_path / "set" / "m.csv")
    moved = Manifest.read(tmp_path / "set" / "m.csv")
    assert [p.path for p in moved.photographs] == ["a.jpg", str(tmp_path / "b.tar::images/x.jpg")]


def test_a_manifest_a_person_wrote_needs_path_and_grade_only(tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_bytes("\ufeffgrade;path\r\n2;a b.jpg\r\n\r\n;c.jpg\r\n".encode())
    assert Manifest.read(tmp_path / "m.csv").photographs == (Photograph("a b.jpg", 2), Photograph("c.jpg", None))


@pytest.mark.parametrize(
    ("lines", "message", "hint"),
    [
        ([], "m.csv is empty", "its first line must name the columns"),
        (["path,grade"], "lists no photograph", "import"),
        (["path,grad", "a.jpg,1"], "m.csv has no column 'grade'", "use grad"),
        (["path,grade,split,colour", "a.jpg,1,,"], "has no column 'colour'", "data import csv"),
        (["path,grade", *["a.jpg,1"] * 5, "a.jpg,7"], "grade in line 7 of m.csv is '7'", "0, 1, 2, 3 or 4"),
        (["path,grade,split", "a.jpg,1,valid"], "split in line 2 of m.csv is 'valid'", "train, tune or test"),
        (["path,grade,eye", "a.jpg,1,both"], "eye in line 2 of m.csv is 'both'", "left or right"),
        (["path,grade,sha256", "a.jpg,1,abc"], "sha256 in line 2 of m.csv is 'abc'", "64 hexadecimal"),
        (["path,grade,gradability", "a.jpg,1,nan"], "gradability in line 2 of m.csv is 'nan'", "from 0 to 1"),
        (["path,grade,width", "a.jpg,1,-3"], "width in line 2 of m.csv is '-3'", "whole number"),
        (["path,grade", ",1"], "path in line 2 of m.csv is ''", "the file of the photograph"),
        (["path,grade", "a,b.jpg,1"], "line 2 of m.csv has 3 cells, its header 2", "quotes"),
        (["path,grade,path", "a,1,b"], "two columns called 'path'", "rename"),
        (["path,grade", 'a.jpg,"1'], "m.csv is not CSV in line 2", "correct that line"),
    ],
)
def test_a_wrong_manifest_is_refused_with_the_line_and_a_hint(
    tmp_path: Path, lines: list[str], message: str, hint: str
) -> None:
    (tmp_path / "m.csv").write_text("".join(f"{line}\n" for line in lines))
    with pytest.raises(FundoscopeError) as refused:
        Manifest.read(tmp_path / "m.csv")
    assert message in refused.value.message
    assert hint in refused.value.hint


def test_what_is_no_text_file_is_refused_too(tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_bytes(b"\xff\xd8\xff\xe0\x00")
    with pytest.raises(FundoscopeError, match="is not UTF-8 text"):
        Manifest.read(tmp_path / "m.csv")
    with pytest.raises(FundoscopeError, match="there is no file"):
        Manifest.read(tmp_path / "other.csv")
    with pytest.raises(FundoscopeError, match="is a folder, not a manifest"):
        Manifest.read(tmp_path)


def test_a_file_that_cannot_be_read_is_an_unreadable_photograph_without_a_name(tmp_path: Path) -> None:
    (tmp_path / "folder.jpg").mkdir()
    os.mkfifo(tmp_path / "pipe.jpg")
    with (tmp_path / "huge.jpg").open("wb") as file:
        file.truncate(3 * 2**30)
    manifest = Manifest((), tmp_path)
    for name, reason in [
        ("secret.jpg", "the file is missing"),
        ("secret.tar::images/x.jpg", "the file is missing"),
        ("folder.jpg", "it is a folder or a device, not a file"),
        ("pipe.jpg", "it is a folder or a device, not a file"),
        ("huge.jpg", "the file has 3.0 GB, more than a photograph"),
        ("x" * 300, "the file cannot be read: file name too long"),
    ]:
        with pytest.raises(UnreadablePhoto) as refused:
            manifest.read_bytes(Photograph(name, 0))
        assert refused.value.message == reason


# The split


def of(photographs: tuple[Photograph, ...], split: str) -> list[Photograph]:
    return [photograph for photograph in photographs if photograph.split == split]


def test_the_split_is_70_to_30_within_every_grade_and_tune_is_a_fifth_of_train() -> None:
    n = {0: 900, 1: 278, 2: 640, 3: 127, 4: 204}  # as in APTOS
    listed = [eye((grade, i), grade) for grade in n for i in range(n[grade])]
    split = assign_splits(listed, seed=1)
    for grade, all_of_grade in n.items():
        share = Counter(p.split for p in split if p.grade == grade)
        assert abs(share["test"] - 0.30 * all_of_grade) <= 1
        assert abs(share["tune"] - 0.14 * all_of_grade) <= 2
    assert len(of(split, "test")) == round(0.3 * 2149)


patients = st.lists(st.tuples(st.integers(0, 9), st.sampled_from(GRADES), st.integers(0, 20)), min_size=1, max_size=60)


@given(patients, st.integers(0, 99))
def test_a_patient_and_equal_files_are_on_one_side_whatever_the_order_of_rows(
    rows: list[tuple[int, int, int]], seed: int
) -> None:
    listed = [eye(content, grade, patient=str(patient)) for patient, grade, content in rows]
    split = assign_splits(listed, seed=seed)
    for shared in ("patient", "sha256"):
        sides = {(getattr(p, shared), p.split) for p in split}
        assert len(sides) == len({side[0] for side in sides})
    turned = assign_splits(listed[::-1], seed=seed)[::-1]
    assert [p.split for p in turned] == [p.split for p in split]
    assert {p.split for p in split} <= set(SPLITS)


def test_both_eyes_stay_together_and_the_shares_hold_all_the_same() -> None:
    grades = [(i * 7 % 5, i * 3 % 5) for i in range(400)]
    listed = [eye((i, e), pair[e], patient=f"{i}") for i, pair in enumerate(grades) for e in (0, 1)]
    split = assign_splits(listed, seed=0)
    assert len(of(split, "test")) == 240
    for grade in GRADES:
        n = Counter(p.split for p in split if p.grade == grade)
        assert n["test"] / n.total() == pytest.approx(0.30, abs=0.03)


def test_another_seed_is_another_split_of_the_same_size() -> None:
    listed = [eye(i, i % 5) for i in range(100)]
    one, other = (assign_splits(listed, seed=seed) for seed in (1, 2))
    assert one != other
    assert len(of(one, "test")) == len(of(other, "test")) == 30


def test_a_given_split_stays_and_tune_is_cut_from_its_train() -> None:
    given_train = [eye(("train", i), i % 5, split="train") for i in range(50)]
    given_test = [eye(("test", i), i % 5, split="test") for i in range(10)]
    split = assign_splits([*given_train, *given_test], seed=0)
    assert len(of(split, "tune")) == 10
    assert [p.split for p in split[50:]] == ["test"] * 10


def test_the_other_eye_joins_the_one_whose_split_is_given() -> None:
    split = assign_splits(
        [eye("l", 0, patient="7", split="test"), eye("r", 4, patient="7"), eye("t", 0, split="tune")], seed=0
    )
    assert [p.split for p in split] == ["test", "test", "tune"]


def test_what_is_left_out_gets_no_split() -> None:
    split = assign_splits([eye(i, i % 5, left_out="blurred" if i % 2 else "") for i in range(40)], seed=0)
    assert all(bool(p.split) != bool(p.left_out) for p in split)


def test_two_sources_may_both_have_a_patient_10() -> None:
    listed = [eye((s, i), i % 5, patient=str(i // 2), source=s) for s in ("a", "b") for i in range(100)]
    split = assign_splits(listed, seed=0)
    sides = {p.patient: {q.split for q in split if q.patient == p.patient} for p in split}
    assert any(len(side) > 1 for side in sides.values())
