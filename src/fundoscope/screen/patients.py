"""Whose photographs they are, and what follows for each patient.

An eye has its worst photograph, a patient the worse eye. The result, as model/scores.py counts under "all":

    refer              a photograph that can be graded is referred at the operating point
    retake or refer    none is, but one could not be graded (ungradable, unreadable or failed): what it would have
                       shown is not known, and by the intention-to-screen rule it counts as referred until it is
    no referral        every photograph could be graded, and none is referred
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fundoscope.data.sources import EYE_NAMES, patient_and_eye
from fundoscope.data.table import Row as TableRow
from fundoscope.data.table import read_table
from fundoscope.errors import FundoscopeError, nearest
from fundoscope.screen.listing import Listing
from fundoscope.screen.table import PatientRow, Row

REFER, RETAKE, NO_REFERRAL = "refer", "retake or refer", "no referral"
RESULTS = (REFER, RETAKE, NO_REFERRAL)  # most urgent first
SIDES = ("left", "right")


def name_patients(listing: Listing, path: Path) -> None:
    """Fill in patients and eyes from a table with a column of files (path or file), patient, and eye if known."""
    table = read_table(path)
    column = table.first_of("path", "file", "image", "filename")
    table.need("patient")
    places = _places(listing)
    given: dict[int, tuple[str, str]] = {}
    unknown = []
    for row in table.rows:
        found = places.get(row.cells[column], ())
        if not found:
            unknown.append(row.cells[column])
            continue
        if len(found) > 1:
            message = f"{len(found)} photographs are called '{row.cells[column]}' (line {row.line} of {path.name})"
            raise FundoscopeError(message, f"give their paths in its column '{column}'")
        owner = (row.cells["patient"], _eye(row, path.name))
        if given.setdefault(found[0], owner) != owner:
            message = f"line {row.line} of {path.name} gives '{row.cells[column]}' a second time, to somebody else"
            raise FundoscopeError(message, "correct that line")
    if unknown:
        n, them = len(unknown), "name" if len(unknown) == 1 else "names"
        message = f"{n:,} {them} in {path.name} {'is' if n == 1 else 'are'} not among the photographs: '{unknown[0]}'"
        raise FundoscopeError(message + (" is the first" if n > 1 else ""), "names are relative to the folder screened")
    for i, (patient, eye) in given.items():
        listing.patients[i], listing.eyes[i] = patient, eye


def _places(listing: Listing) -> Mapping[str, list[int]]:
    """By path; and by file name alone, where that is not the path of another."""
    places: dict[str, list[int]] = {}
    for i, name in enumerate(listing.names):
        if "/" in name:
            places.setdefault(PurePosixPath(name).name, []).append(i)
    return places | {name: [i] for i, name in enumerate(listing.names)}


def _eye(row: TableRow, name: str) -> str:
    cell = row.cells.get("eye", "")
    if cell.lower() not in EYE_NAMES:
        hint = f"use {nearest(cell, {eye: 0 for eye in EYE_NAMES if eye})}"
        raise FundoscopeError(f"the eye in line {row.line} of {name} is '{cell}'", hint)
    return EYE_NAMES[cell.lower()]


def patients_from_names(listing: Listing) -> None:
    """As EyePACS names its files: 10_left.jpeg is the left eye of patient 10. Numbers are per folder."""
    for i, name in enumerate(listing.names):
        patient, eye = patient_and_eye(name)
        if patient:
            folder = str(PurePosixPath(name).parent)
            listing.patients[i], listing.eyes[i] = patient if folder == "." else f"{folder}/{patient}", eye
    if not listing.has_patients:
        message = f"no photograph is named like 10_left.jpeg; the first is {listing.names[0]}"
        raise FundoscopeError(message, "name the patients in a table: --patients FILE.csv")


@dataclass(frozen=True)
class Case:
    """The photographs of an eye or of a patient, together."""

    result: str
    worst: Row


def case_of(rows: Iterable[Row]) -> Case:
    together = sorted(rows, key=severity, reverse=True)
    results = {result_of(row) for row in together}
    return Case(next(result for result in RESULTS if result in results), together[0])


def result_of(row: Row) -> str:
    if row.status != "graded":
        return RETAKE
    return REFER if row.referral else NO_REFERRAL


def severity(row: Row) -> tuple[int, int, float]:
    """Higher is worse: what is referred, then by grade and probability; what was not graded only where nothing is."""
    grade, chance = (row.grade, row.referral_probability) if row.status == "graded" else (None, None)
    return -RESULTS.index(result_of(row)), -1 if grade is None else grade, -1.0 if chance is None else chance


def patient_row(patient: str, rows: list[Row]) -> PatientRow:
    """What the photographs of one patient say."""
    whole, graded = case_of(rows), [row for row in rows if row.status == "graded"]
    sides = {side: [row for row in rows if row.eye == side] for side in SIDES}
    cases = {side: case_of(found) if found else None for side, found in sides.items()}
    counts = Counter(row.status for row in rows)
    chances = [row.referral_probability for row in graded if row.referral_probability is not None]
    return PatientRow(
        patient=patient,
        result=whole.result,
        referral=whole.result != NO_REFERRAL,
        grade=max((row.grade for row in graded if row.grade is not None), default=None),
        referral_probability=max(chances, default=None),
        worst=whole.worst.path,
        reason="; ".join(dict.fromkeys(row.reason for row in rows if row.reason)),
        left=cases["left"].result if cases["left"] else "",
        left_grade=_grade(sides["left"]),
        right=cases["right"].result if cases["right"] else "",
        right_grade=_grade(sides["right"]),
        photographs=len(rows),
        graded=counts["graded"],
        ungradable=counts["ungradable"],
        unreadable=counts["unreadable"],
        failed=counts["failed"],
    )


def _grade(rows: list[Row]) -> int | None:
    """The highest of those that can be graded."""
    return max((row.grade for row in rows if row.status == "graded" and row.grade is not None), default=None)
