"""Public datasets, and your own folders and tables, as lists of photographs: one small function each.

What a dataset lists is kept, whatever is wrong with it: a row whose file is missing or whose grade makes no sense
stays in the manifest with the reason in `left_out`. Only what makes the whole set unusable is an error.
"""

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from fundoscope.data.archive import MARK, members, read_member
from fundoscope.data.manifest import EYES, GRADES, MISSING, NO_GRADE, SPLITS, Photograph
from fundoscope.data.table import Table, parse_table, read_table
from fundoscope.errors import FundoscopeError, nearest, pick

PICTURES = frozenset({".jpg", ".jpeg", ".png", ".tif", ".tiff", ".bmp", ".webp", ".ppm", ".gif"})

Source = Callable[[Path], list[Photograph]]


def read_source(name: str, path: Path, columns: "Columns | None" = None) -> list[Photograph]:
    """Every photograph the source lists, with absolute paths and the source's name."""
    read = (
        partial(table_of_photographs, columns=columns)
        if columns and name == "csv"
        else pick(SOURCES, name, kind="source")
    )
    if not path.exists():
        raise FundoscopeError(f"there is nothing at {path}", "check the path")
    photographs = [replace(photograph, source=photograph.source or name) for photograph in read(path.resolve())]
    if not photographs:
        raise FundoscopeError(
            f"there is no photograph in {path}", "see what is expected: fundoscope data import --help"
        )
    if all(photograph.grade is None for photograph in photographs):
        hint = "name the column that holds it: --grade-column" if name == "csv" else "look into its table of grades"
        raise FundoscopeError(f"no photograph in {path} has a grade from 0 to 4", hint)
    return photographs


def aptos2019(folder: Path) -> list[Photograph]:
    """Kaggle APTOS 2019: train.csv (id_code, diagnosis) and train_images/."""
    labels = read_table(_inside(folder, "train.csv"))
    labels.need("id_code", "diagnosis")
    pictures = Pictures(_inside(folder, "train_images", "images"))
    return [pictures.graded(row.cells["id_code"], row.cells["diagnosis"]) for row in labels.rows]


def eyepacs2015(folder: Path) -> list[Photograph]:
    """Kaggle 2015: trainLabels.csv (image, level) and train/; also retinopathy_solution.csv and test/ if there."""
    found = _eyepacs_part(_inside(folder, "trainLabels.csv"), _inside(folder, "train"))
    if (solution := folder / "retinopathy_solution.csv").is_file():
        found += _eyepacs_part(solution, _inside(folder, "test"))
    return found


def _eyepacs_part(labels_file: Path, images: Path) -> list[Photograph]:
    labels, pictures = read_table(labels_file), Pictures(images)
    labels.need("image", "level")
    found = []
    for row in labels.rows:
        patient, eye = patient_and_eye(row.cells["image"])
        found.append(pictures.graded(row.cells["image"], row.cells["level"], patient=patient, eye=eye))
    return found


def patient_and_eye(name: str) -> tuple[str, str]:
    """EyePACS calls its photographs "10_left": the patient, and the eye."""
    match = re.fullmatch(r"(\d+)_(left|right)", Path(name).stem)
    return (match[1], match[2]) if match else ("", "")


def messidor2(folder: Path) -> list[Photograph]:
    """Messidor-2: IMAGES/, the adjudicated grades messidor_data.csv, and messidor-2.csv for the pairs if there.

    The graders found a few photographs ungradable and gave no grade: they stay, left out for that reason, since
    nothing can be trained or tested on them.
    """
    labels = read_table(_inside(folder, "messidor_data.csv"))
    name = labels.first_of("image_id", "id_code")
    grade = labels.first_of("adjudicated_dr_grade", "diagnosis")
    pictures = Pictures(_inside(folder, "IMAGES", "images", "preprocess"))
    exams = _messidor_pairs(folder / "messidor-2.csv")
    found = []
    for row in labels.rows:
        image = row.cells[name]
        patient, eye = exams.get(Path(image).stem.lower(), ("", ""))
        photograph = pictures.graded(image, row.cells[grade], patient=patient, eye=eye)
        if photograph.grade is None and row.cells.get("adjudicated_gradable") == "0":
            photograph = replace(photograph, left_out="it has no grade: its graders found it ungradable")
        found.append(photograph)
    return found


def _messidor_pairs(path: Path) -> dict[str, tuple[str, str]]:
    """Name (without ending) -> patient and eye. One examination a line: left;right."""
    if not path.is_file():
        return {}
    exams = {}
    lines = csv.reader(io.StringIO(path.read_text("utf-8-sig", errors="replace")), delimiter=";")
    for number, cells in enumerate(lines, start=1):
        for eye, cell in zip(EYES, cells, strict=False):
            exams[Path(cell.strip()).stem.lower()] = (f"exam {number}", eye)
    return exams


def idrid(folder: Path) -> list[Photograph]:
    """IDRiD part B, Disease Grading, with its official split: its Testing Set is our test."""
    training, testing = (
        sorted(folder.rglob(f"*Disease Grading_{part} Labels.csv")) for part in ("Training", "Testing")
    )
    if not training:
        hint = "give the folder 'B. Disease Grading', with '1. Original Images' and '2. Groundtruths' in it"
        raise FundoscopeError(f"there is no 'IDRiD_Disease Grading_Training Labels.csv' below {folder}", hint)
    if not testing:  # then the training part is divided like any other set
        return _idrid_part(training[0], "Training", split="")
    return _idrid_part(training[0], "Training", split="train") + _idrid_part(testing[0], "Testing", split="test")


def _idrid_part(file: Path, part: str, *, split: str) -> list[Photograph]:
    labels = read_table(file)
    labels.need("Image name", "Retinopathy grade")
    folders = sorted(found for found in file.parent.parent.rglob(f"*{part} Set") if found.is_dir())
    if not folders:
        hint = "keep the dataset's own folders: '1. Original Images' beside '2. Groundtruths'"
        raise FundoscopeError(f"there is no folder '{part} Set' below {file.parent.parent}", hint)
    pictures = Pictures(folders[0])  # both sets have an IDRiD_001: each must be looked up in its own folder
    return [
        replace(pictures.graded(row.cells["Image name"], row.cells["Retinopathy grade"]), split=split)
        for row in labels.rows
    ]


GRADE_NAMES = dict.fromkeys(("nodr", "no", "none", "normal"), 0) | {"mild": 1, "moderate": 2, "severe": 3}
GRADE_NAMES |= dict.fromkeys(("proliferate", "proliferatedr", "proliferative", "proliferativedr", "pdr"), 4)


def folders(folder: Path) -> list[Photograph]:
    """A sub-folder per grade: 0 … 4, or No_DR, Mild, Moderate, Severe, Proliferate_DR, with or without a number."""
    if not folder.is_dir():
        raise FundoscopeError(f"{folder} is not a folder", "give the folder that holds a sub-folder per grade")
    below = sorted(found for found in folder.iterdir() if found.is_dir() and not found.name.startswith("."))
    return [photograph for part in below for photograph in _folder_of_grade(part, grade_of_folder(part.name))]


def grade_of_folder(name: str) -> int:
    number, words = re.fullmatch(r"(\d*)[\W_]*(.*)", name.lower(), re.DOTALL).groups()  # type: ignore[union-attr]
    words = re.sub(r"[\W_]", "", words)
    said = {int(number) if number else None, GRADE_NAMES.get(words)} - {None}
    if len(said) != 1 or not said <= set(GRADES) or (words and words not in GRADE_NAMES):
        hint = "name the sub-folders 0, 1, 2, 3, 4 or No_DR, Mild, Moderate, Severe, Proliferate_DR"
        raise FundoscopeError(f"the sub-folder '{name}' does not name one grade", hint)
    return int(min(grade for grade in said if grade is not None))


def _folder_of_grade(folder: Path, grade: int) -> Iterator[Photograph]:
    for file in sorted(folder.rglob("*")):
        if not file.is_dir() and not file.name.startswith("."):
            patient, eye = patient_and_eye(file.name)
            known = file.suffix.lower() in PICTURES
            left_out = "" if known else f"no picture by its name: {file.suffix or 'no ending'}"
            yield Photograph(str(file), grade, patient, eye, left_out=left_out)


@dataclass(frozen=True)
class Columns:
    """What the columns of a user's own table are called; None: as ours, if there."""

    path: str | None = None
    grade: str | None = None
    patient: str | None = None
    eye: str | None = None
    split: str | None = None


def table_of_photographs(path: Path, columns: Columns = Columns()) -> list[Photograph]:  # noqa: B008
    """Any CSV with a column of files (relative to the CSV) and one of grades."""
    labels = read_table(path)
    names = {
        "path": columns.path or labels.first_of("path", "file", "image", "filename"),
        "grade": columns.grade or labels.first_of("grade", "level", "diagnosis"),
    }
    names |= {name: getattr(columns, name) or name for name in ("patient", "eye", "split")}
    labels.need(*(getattr(columns, name) or names["path"] for name in vars(columns)))
    found = []
    for row in labels.rows:
        cells = {name: row.cells.get(column, "") for name, column in names.items()}
        if not cells["path"]:
            raise FundoscopeError(f"line {row.line} of {path.name} names no file", f"fill its {names['path']}")
        file = path.parent / cells["path"]
        photograph = _graded(str(file), cells["grade"], exists=file.is_file(), patient=cells["patient"])
        where = f"in line {row.line} of {path.name}"
        found.append(replace(photograph, eye=_eye(cells["eye"], where), split=_split(cells["split"], where)))
    return found


EYE_NAMES = {"left": "left", "l": "left", "os": "left", "right": "right", "r": "right", "od": "right", "": ""}
SPLIT_NAMES = {name: name for name in SPLITS} | {"training": "train", "testing": "test", "": ""}
SPLIT_NAMES |= dict.fromkeys(("val", "valid", "validation", "tuning", "dev"), "tune")


def _eye(cell: str, where: str) -> str:
    return _known(EYE_NAMES, cell, f"the eye {where}")


def _split(cell: str, where: str) -> str:
    return _known(SPLIT_NAMES, cell, f"the split {where}")


def _known(names: Mapping[str, str], cell: str, what: str) -> str:
    if cell.lower() not in names:
        raise FundoscopeError(f"{what} is '{cell}'", f"use {nearest(cell, {name: 0 for name in names if name})}")
    return names[cell.lower()]


def tar(archive: Path) -> list[Photograph]:
    """An uncompressed tar of images/ and labels.csv (file, grade, and patient, eye if known), read in place."""
    if archive.is_dir():
        raise FundoscopeError(f"{archive} is a folder, not a tar archive", "import it as: folders, csv or drawn")
    packed = members(archive)
    labels_file = read_member(archive, "labels.csv")
    if labels_file is None:
        raise FundoscopeError(f"{archive} has no labels.csv", "pack images/ and labels.csv (file, grade) together")
    labels = parse_table(labels_file, name=f"{archive.name}{MARK}labels.csv")
    return _labelled(labels, lambda file: (f"{archive}{MARK}images/{file}", f"images/{file}" in packed))


def drawn(folder: Path) -> list[Photograph]:
    """What `fundoscope data draw` wrote: images/ and labels.csv."""
    labels = read_table(_inside(folder, "labels.csv"))
    images = _inside(folder, "images")
    return _labelled(labels, lambda file: (str(images / file), (images / file).is_file()))


def _labelled(labels: Table, find: Callable[[str], tuple[str, bool]]) -> list[Photograph]:
    labels.need("file", "grade")
    found = []
    for row in labels.rows:
        path, exists = find(row.cells["file"])
        patient, eye = patient_and_eye(row.cells["file"])
        patient = row.cells.get("patient") or patient
        eye = _eye(row.cells.get("eye") or eye, f"in line {row.line} of {labels.name}")
        photograph = _graded(path, row.cells["grade"], exists=exists, patient=patient, eye=eye)
        found.append(replace(photograph, source=row.cells.get("dataset", "")))
    return found


class Pictures:
    """The files of a folder, found by name whatever their ending and its case: datasets disagree on both."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        files = sorted((file for file in folder.iterdir() if file.suffix.lower() in PICTURES), reverse=True)
        self.by_stem = {file.stem.lower(): file for file in files}

    def graded(self, name: str, grade: str, *, patient: str = "", eye: str = "") -> Photograph:
        # Only names from the listing are ever opened, so "../../x" finds nothing.
        stem = name[: -len(suffix)] if (suffix := Path(name).suffix).lower() in PICTURES else name
        file = self.by_stem.get(stem.lower())
        path = str(file or self.folder / Path(name).name)
        return _graded(path, grade, exists=file is not None, patient=patient, eye=eye)


def _graded(path: str, grade: str, *, exists: bool, patient: str = "", eye: str = "") -> Photograph:
    known = re.fullmatch(r"([0-4])(\.0*)?", grade)  # 2.0 is what a table with an empty cell makes of 2
    if known:
        return Photograph(path, int(known[1]), patient, eye, left_out="" if exists else MISSING)
    return Photograph(path, None, patient, eye, left_out=f"its grade '{grade}' is not 0 to 4" if grade else NO_GRADE)


def _inside(folder: Path, *names: str) -> Path:
    """The first of these that the folder has."""
    if not folder.is_dir():
        raise FundoscopeError(
            f"{folder} is a file, not the folder of a dataset", f"give the folder that holds {names[0]}"
        )
    for name in names:
        if (folder / name).exists():
            return folder / name
    raise FundoscopeError(f"there is no {' or '.join(names)} in {folder}", "is it the right folder?")


SOURCES: dict[str, Source] = {
    "aptos2019": aptos2019,
    "eyepacs2015": eyepacs2015,
    "messidor2": messidor2,
    "idrid": idrid,
    "folders": folders,
    "csv": table_of_photographs,
    "tar": tar,
    "drawn": drawn,
}
