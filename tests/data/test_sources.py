import io
import tarfile
from pathlib import Path

import pytest

from fundoscope.data.draw import draw_folder
from fundoscope.data.intake import import_photographs
from fundoscope.data.manifest import Manifest, Photograph
from fundoscope.data.sources import SOURCES, Columns, grade_of_folder, read_source
from fundoscope.data.table import read_table
from fundoscope.errors import FundoscopeError


def write(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


def pack(path: Path, files: dict[str, bytes], mode: str = "w:") -> Path:
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def found(photographs: list[Photograph]) -> list[tuple[object, ...]]:
    return [(Path(p.path).name, p.grade, p.patient, p.eye, p.split, p.left_out) for p in photographs]


def test_aptos_2019(tmp_path: Path) -> None:
    images = {"train_images/0a.png": "1", "train_images/0b.jpg": "2"}
    write(tmp_path, images | {"train.csv": "id_code,diagnosis\n0a,2\n0b,0\n0c,4\n../../train,1\n0a,x\n"})
    assert found(read_source("aptos2019", tmp_path)) == [
        ("0a.png", 2, "", "", "", ""),
        ("0b.jpg", 0, "", "", "", ""),
        ("0c", 4, "", "", "", "the file is missing"),
        ("train", 1, "", "", "", "the file is missing"),  # never looked for outside the folder
        ("0a.png", None, "", "", "", "its grade 'x' is not 0 to 4"),
    ]


def test_eyepacs_2015_has_patient_and_eye_in_the_name(tmp_path: Path) -> None:
    write(tmp_path, {"trainLabels.csv": "image,level\n10_left,0\n10_right,3\n", "train/10_left.jpeg": ""})
    write(tmp_path, {"retinopathy_solution.csv": "image,level,Usage\n1_left,4,Private\n", "test/1_left.jpeg": ""})
    assert found(read_source("eyepacs2015", tmp_path)) == [
        ("10_left.jpeg", 0, "10", "left", "", ""),
        ("10_right", 3, "10", "right", "", "the file is missing"),
        ("1_left.jpeg", 4, "1", "left", "", ""),
    ]


def test_messidor_2_keeps_its_ungradable_ones_and_pairs_its_eyes(tmp_path: Path) -> None:
    # The grades name IM000002.jpg, the disk holds IM000002.JPG: as published.
    grades = "image_id,adjudicated_dr_grade,adjudicated_dme,adjudicated_gradable\n"
    grades += "20051020_1_0100_PP.png,1,0,1\nIM000002.jpg,,,0\nIM000003.jpg,2.0,1,1\n"
    pairs = "left;right\n20051020_1_0100_PP.png;IM000002.JPG\nIM000003.JPG;IM000004.JPG\n"
    write(tmp_path, {"messidor_data.csv": grades, "messidor-2.csv": pairs, "IMAGES/20051020_1_0100_PP.png": ""})
    write(tmp_path, {"IMAGES/IM000002.JPG": "", "IMAGES/IM000003.JPG": ""})
    assert found(read_source("messidor2", tmp_path)) == [
        ("20051020_1_0100_PP.png", 1, "exam 2", "left", "", ""),
        ("IM000002.JPG", None, "exam 2", "right", "", "it has no grade: its graders found it ungradable"),
        ("IM000003.JPG", 2, "exam 3", "left", "", ""),
    ]


IDRID = "B. Disease Grading/2. Groundtruths/{}. IDRiD_Disease Grading_{} Labels.csv"
IDRID_IMAGE = "B. Disease Grading/1. Original Images/{}. {} Set/IDRiD_001.jpg"


def test_idrid_keeps_its_official_split_and_tells_its_two_number_ones_apart(tmp_path: Path) -> None:
    header = "Image name,Retinopathy grade,Risk of macular edema ,,,\n"  # with the blank and the empty columns
    write(tmp_path, {IDRID.format("a", "Training"): header + "IDRiD_001,3,2,,,\nIDRiD_002,1,0,,,\n"})
    write(tmp_path, {IDRID.format("b", "Testing"): header + "IDRiD_001,4,0\n"})
    write(tmp_path, {IDRID_IMAGE.format("a", "Training"): "1", IDRID_IMAGE.format("b", "Testing"): "2"})
    photographs = read_source("idrid", tmp_path)
    assert found(photographs) == [
        ("IDRiD_001.jpg", 3, "", "", "train", ""),
        ("IDRiD_002", 1, "", "", "train", "the file is missing"),
        ("IDRiD_001.jpg", 4, "", "", "test", ""),
    ]
    assert Path(photographs[2].path).read_text() == "2"


@pytest.mark.parametrize(
    ("name", "grade"),
    [
        *[("0", 0), ("4", 4), ("No_DR", 0), ("Mild", 1), ("moderate", 2), ("Severe", 3), ("Proliferate_DR", 4)],
        *[("0_No_DR", 0), ("3. severe", 3), ("4-Proliferative DR", 4), ("no dr", 0)],
    ],
)
def test_a_folder_is_a_grade_by_its_name(name: str, grade: int) -> None:
    assert grade_of_folder(name) == grade


@pytest.mark.parametrize("name", ["5", "train", "1_severe", "12", "grade", "", "2 photographs"])
def test_a_folder_that_names_no_grade_or_two_is_refused(name: str) -> None:
    with pytest.raises(FundoscopeError, match="does not name one grade"):
        grade_of_folder(name)


def test_a_folder_per_grade(tmp_path: Path) -> None:
    write(tmp_path, {"No_DR/a.png": "", "Severe/10_left.JPG": "", "Severe/notes.txt": "", "Severe/.hidden": ""})
    write(tmp_path, {".thumbnails/x.png": "", "readme.md": ""})
    (tmp_path / "No_DR" / "dangling.png").symlink_to("/nowhere/x.png")
    assert found(read_source("folders", tmp_path)) == [
        ("a.png", 0, "", "", "", ""),
        ("dangling.png", 0, "", "", "", ""),
        ("10_left.JPG", 3, "10", "left", "", ""),
        ("notes.txt", 3, "", "", "", "no picture by its name: .txt"),
    ]
    imported = import_photographs("folders", tmp_path, folder=tmp_path).photographs
    assert [p.left_out for p in imported] == ["", "the file is missing", "", "no picture by its name: .txt"]


def test_a_file_name_that_is_no_text_is_refused_by_name(tmp_path: Path) -> None:
    write(tmp_path, {"No_DR/a.png": ""})
    (tmp_path / "No_DR" / "\udcff.png").touch()
    with pytest.raises(FundoscopeError, match=r"not valid UTF-8 text: 'No_DR/\\udcff\.png'"):
        import_photographs("folders", tmp_path, folder=tmp_path).write(tmp_path / "m.csv")


def test_any_table_with_named_columns(tmp_path: Path) -> None:
    table = "Datei;Stufe;Wer;Auge;Teil\nx/a.jpg;2;Müller;OD;validation\nx/b.jpg;;Müller;L;\n"
    write(tmp_path, {"t.csv": table, "x/a.jpg": "", "x/b.jpg": ""})
    columns = Columns(path="Datei", grade="Stufe", patient="Wer", eye="Auge", split="Teil")
    assert found(read_source("csv", tmp_path / "t.csv", columns)) == [
        ("a.jpg", 2, "Müller", "right", "tune", ""),
        ("b.jpg", None, "Müller", "left", "", "it has no grade"),
    ]


def test_a_table_with_our_own_column_names_needs_none_named(tmp_path: Path) -> None:
    write(tmp_path, {"t.csv": "image,level\na.jpg,2\n", "a.jpg": ""})
    assert found(read_source("csv", tmp_path / "t.csv", Columns())) == [("a.jpg", 2, "", "", "", "")]


def test_drawn_eyes(tmp_path: Path) -> None:
    draw_folder(tmp_path / "eyes", n=4, seed=1, size=64, processes=1)
    manifest = import_photographs("drawn", tmp_path / "eyes", folder=tmp_path)
    rows = read_table(tmp_path / "eyes" / "labels.csv").rows
    listed = [(f"eyes/images/{r.cells['file']}", int(r.cells["grade"]), r.cells["patient"]) for r in rows]
    assert [(p.path, p.grade, p.patient) for p in manifest.photographs] == listed
    assert {(p.eye, p.source) for p in manifest.photographs} == {("left", "drawn"), ("right", "drawn")}
    assert len({p.patient for p in manifest.photographs}) == 2


def test_photographs_are_read_from_inside_an_archive(shared_data: Path, tmp_path: Path) -> None:
    archive = shared_data / "fundus" / "eyepacs2015_fullres.tar"
    manifest = import_photographs("tar", archive, folder=tmp_path)
    with tarfile.open(archive) as tar:
        unpacked = {f"{archive}::{m.name}": tar.extractfile(m).read() for m in tar if m.isreg()}  # type: ignore[union-attr]
    assert len(manifest.used) == 8
    assert all(manifest.read_bytes(p) == unpacked[p.path] for p in manifest.photographs)
    known = {Path(p.path).name: (p.grade, p.patient, p.eye, p.sha256) for p in manifest.photographs}
    digest = "f9efa9d2a3ed0334db65cd54aaae547c61d8574350ee27445db00b0a43a8e56d"  # of shared/data/manifest.csv
    assert known["15_left.jpg"] == (1, "15", "left", digest)
    sides = {p.patient: {q.split for q in manifest.photographs if q.patient == p.patient} for p in manifest.photographs}
    assert all(len(side) == 1 for side in sides.values())


def test_a_whole_public_set_is_imported_with_its_grades(shared_data: Path, tmp_path: Path) -> None:
    manifest = import_photographs("tar", shared_data / "fundus" / "idrid_640.tar", folder=tmp_path)
    grades = [sum(p.grade == grade for p in manifest.used) for grade in range(5)]
    assert grades == [133, 18, 133, 73, 48]  # shared/data/README.md
    assert import_photographs("tar", shared_data / "fundus" / "idrid_640.tar", folder=tmp_path) == manifest


LABELS = b"file,grade,patient\na.jpg,1,p1\nb.jpg,2,p1\n"


def test_an_archive_may_miss_a_file_but_not_end_in_the_middle_of_one(tmp_path: Path) -> None:
    path = pack(tmp_path / "x.tar", {"./labels.csv": LABELS, "./images/a.jpg": b"picture" * 1000})
    assert found(read_source("tar", path)) == [
        ("a.jpg", 1, "p1", "", "", ""),
        ("b.jpg", 2, "p1", "", "", "the file is missing"),
    ]
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(FundoscopeError, match="is not a whole tar archive: unexpected end of data"):
        read_source("tar", path)


@pytest.mark.parametrize("mode", ["w:gz", "w:bz2", "w:xz"])
def test_a_compressed_archive_is_refused_with_the_way_out(tmp_path: Path, mode: str) -> None:
    path = pack(tmp_path / "x.tar", {"labels.csv": LABELS}, mode)
    with pytest.raises(FundoscopeError, match="is compressed") as refused:
        read_source("tar", path)
    assert refused.value.hint.endswith(f"--keep {path}")


@pytest.mark.parametrize("name", ["../evil.jpg", "/etc/evil.jpg", "images/../../evil.jpg"])
def test_an_archive_that_reaches_outside_itself_is_refused(tmp_path: Path, name: str) -> None:
    path = pack(tmp_path / "x.tar", {"labels.csv": LABELS, name: b""})
    with pytest.raises(FundoscopeError, match="has a member outside itself"):
        read_source("tar", path)


def test_a_label_that_reaches_outside_the_archive_finds_nothing(tmp_path: Path) -> None:
    (tmp_path / "secret.jpg").write_bytes(b"secret")
    labels = b"file,grade\n../../secret.jpg,1\n"
    manifest = import_photographs("tar", pack(tmp_path / "x.tar", {"labels.csv": labels}), folder=tmp_path)
    assert manifest.photographs[0].left_out == "the file is missing"
    assert manifest.photographs[0].sha256 == ""


def test_a_photograph_listed_twice_is_used_once_or_not_at_all(tmp_path: Path) -> None:
    images = {f"train_images/{name}.png": name for name in "abc"}
    write(tmp_path, images | {"train.csv": "id_code,diagnosis\na,1\nb,2\na,1\nb,3\nc,0\n"})
    manifest = import_photographs("aptos2019", tmp_path, folder=tmp_path)
    assert [p.left_out for p in manifest.photographs] == [
        "",
        "listed twice: graded 2 here and 3 in row 5",
        "listed before, in row 2",
        "listed twice: graded 3 here and 2 in row 3",
        "",
    ]


@pytest.mark.parametrize(
    ("source", "files", "message", "hint"),
    [
        ("aptos2019", {"x.csv": ""}, "there is no train.csv in", "right folder"),
        (
            "aptos2019",
            {"train.csv": "id,diagnosis\na,1\n", "train_images/a.png": ""},
            "no column 'id_code'",
            "its columns are id, d",
        ),
        ("aptos2019", {"train.csv": "id_code,diagnosis\na,1\n"}, "there is no train_images or images in", "right"),
        ("aptos2019", {"train.csv": "id_code,diagnosis\n", "train_images/a.png": ""}, "no photograph in", "--help"),
        ("eyepacs2015", {"trainLabels.csv": "image,level\na,1\n"}, "there is no train in", "right folder"),
        (
            "messidor2",
            {"messidor_data.csv": "a,b\n1,2\n", "IMAGES/x": ""},
            "no column 'image_id'",
            "its columns are a, b",
        ),
        ("idrid", {"x": ""}, "Training Labels.csv' below", "B. Disease Grading"),
        (
            "idrid",
            {IDRID.format("a", "Training"): "Image name,Retinopathy grade\na,1\n"},
            "no folder 'Training Set'",
            "own",
        ),
        ("folders", {"readme.md": ""}, "no photograph in", "--help"),
        ("folders", {"train/0/a.png": ""}, "the sub-folder 'train' does not name one grade", "No_DR"),
        ("drawn", {"x": ""}, "there is no labels.csv in", "right folder"),
        ("aptos", {"x": ""}, "there is no source called 'aptos'", "use aptos2019"),
    ],
)
def test_a_set_that_is_not_what_it_should_be_is_refused(
    tmp_path: Path, source: str, files: dict[str, str], message: str, hint: str
) -> None:
    with pytest.raises(FundoscopeError) as refused:
        read_source(source, write(tmp_path, files))
    assert message in refused.value.message
    assert hint in refused.value.hint


@pytest.mark.parametrize(
    ("table", "columns", "message", "hint"),
    [
        ("file,grade\na.jpg,1\n", Columns(grade="grde"), "t.csv has no column 'grde'", "use grade"),
        ("file,patients\na.jpg,1\n", Columns(), "t.csv has no column 'grade'", "its columns are file, patients"),
        ("file,grade\na.jpg,severe\n", Columns(), "has a grade from 0 to 4", "--grade-column"),
        ("file,grade\n,1\n", Columns(), "line 2 of t.csv names no file", "fill its file"),
        ("file,grade,eye\na.jpg,1,both\n", Columns(), "the eye in line 2 of t.csv is 'both'", "use one of left"),
        ("file,grade,split\na.jpg,1,tst\n", Columns(), "the split in line 2 of t.csv is 'tst'", "use test"),
    ],
)
def test_a_table_that_is_not_what_it_should_be_is_refused(
    tmp_path: Path, table: str, columns: Columns, message: str, hint: str
) -> None:
    with pytest.raises(FundoscopeError) as refused:
        read_source("csv", write(tmp_path, {"t.csv": table}) / "t.csv", columns)
    assert message in refused.value.message
    assert hint in refused.value.hint


def test_a_file_where_a_folder_should_be_and_the_other_way_round(tmp_path: Path) -> None:
    write(tmp_path, {"train.csv": "id_code,diagnosis\na,1\n"})
    for source in ("aptos2019", "eyepacs2015", "messidor2", "drawn", "folders"):
        with pytest.raises(FundoscopeError, match=r"folder"):
            read_source(source, tmp_path / "train.csv")
    for source in ("tar", "csv"):
        with pytest.raises(FundoscopeError, match="is a folder, not a"):
            read_source(source, tmp_path)
    with pytest.raises(FundoscopeError, match="is not a whole tar archive"):
        read_source("tar", tmp_path / "train.csv")
    with pytest.raises(FundoscopeError, match="there is nothing at"):
        read_source("tar", tmp_path / "absent.tar")


def test_every_source_is_named_in_the_help() -> None:
    from fundoscope.cli.data import SOURCES as named

    assert list(named) == list(SOURCES)


def test_where_the_files_lie_does_not_change_the_split(tmp_path: Path) -> None:
    for folder in ("one", "two/deeper"):
        draw_folder(tmp_path / folder, n=20, seed=1, size=64, processes=1)
    splits = [
        [p.split for p in import_photographs("drawn", tmp_path / folder, folder=tmp_path).photographs]
        for folder in ("one", "two/deeper")
    ]
    assert splits[0] == splits[1]
    assert isinstance(import_photographs("drawn", tmp_path / "one", folder=tmp_path), Manifest)
