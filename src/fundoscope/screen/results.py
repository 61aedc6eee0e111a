"""From the log of a screening to its rows: every photograph in the listing's order, then patients, most severe first.

Rows are made from the log one at a time and handed on. What is kept of each is a dozen bytes, to put them in order.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fundoscope.screen.ledger import Ledger
from fundoscope.screen.log import Line, LogReader
from fundoscope.screen.patients import RESULTS, patient_row
from fundoscope.screen.table import STATUSES, PatientRow, Row

SHOWN = 300  # photographs, and patients, that a report lists
SHOWN_CONFLICTS = 20
GRADED = STATUSES.index("graded")


@dataclass(frozen=True)
class Conflict:
    """One and the same file, given to two patients or to both eyes of one."""

    path: str
    same_as: str


class Results:
    """Iterate over `rows` and `patients` once each, to write them; then ask for counts and for the most severe."""

    def __init__(self, ledger: Ledger, reader: LogReader, artefact: str) -> None:
        n = len(ledger.listing)
        self._ledger, self._listing, self._reader, self._artefact = ledger, ledger.listing, reader, artefact
        self._first = self._first_of_the_same_bytes()
        self._status = np.zeros(n, np.int8)
        self._order = np.zeros((n, 2), np.float32)  # grade and referral probability; -1: none
        self._ranks = np.zeros((0, 3), np.float32)  # of patients: result, grade, referral probability
        self.statuses: Counter[str] = Counter(dict.fromkeys(STATUSES, 0))
        self.grades: Counter[int] = Counter()
        self.reasons: Counter[tuple[str, str]] = Counter()  # by status
        self.results: Counter[str] = Counter(dict.fromkeys(RESULTS, 0))
        self.referred = self.copies = self.conflicting = self.without_patient = 0
        self.conflicts: list[Conflict] = []

    def rows(self) -> Iterator[Row]:
        """One per photograph."""
        for place in range(len(self._listing)):
            row = self.row(place)
            self._count(place, row)
            yield row

    def patients(self) -> Iterator[PatientRow]:
        """One per patient, by name."""
        groups = self._groups()
        self._ranks = np.zeros((len(groups), 3), np.float32)
        for i in range(len(groups)):
            name, places = groups[i]
            row = patient_row(name, [self.row(place) for place in places])
            self._ranks[i] = -RESULTS.index(row.result), *_known(row.grade, row.referral_probability)
            self.results[row.result] += 1
            yield row

    def row(self, place: int) -> Row:
        listing, line = self._listing, self._line(place)
        first = int(self._first[place])
        same_as = ""
        if first != place and self._line(first).get("sha256") == line.get("sha256"):
            same_as = _shown(listing.names[first])
        answers = line.get("probabilities", ())
        p0, p1, p2, p3, p4 = answers if len(answers) == 5 else (None,) * 5  # a referral head gives one alone
        return Row(
            path=_shown(listing.names[place]),
            sha256=line.get("sha256", ""),
            same_as=same_as,
            patient=listing.patients[place],
            eye=listing.eyes[place],
            status=line["status"],
            reason=line.get("reason", ""),
            grade=line.get("grade"),
            p0=p0,
            p1=p1,
            p2=p2,
            p3=p3,
            p4=p4,
            referral_probability=line.get("referral_probability"),
            referral=line.get("referral"),
            gradability=line.get("gradability"),
            gradability_reasons=line.get("reason", "") if "gradability" in line else "",
            decode_ms=line.get("decode_ms"),
            predict_ms=line.get("predict_ms"),
            artefact=self._artefact if "gradability" in line else "",
        )

    def most_severe(self, n: int = SHOWN) -> list[Row]:
        """Of those that could be graded: by grade, then by referral probability."""
        graded = np.flatnonzero(self._status == GRADED)
        return [self.row(int(graded[i])) for i in _worst_first(self._order[graded])[:n]]

    def not_graded(self, n: int = SHOWN) -> list[Row]:
        """Failed first, then unreadable, then ungradable; each in the order of the listing."""
        places = np.argsort(-self._status, kind="stable")
        return [self.row(int(place)) for place in places[:n] if self._status[place] != GRADED]

    def most_severe_patients(self, n: int = SHOWN) -> list[PatientRow]:
        groups = self._groups()
        worst = [groups[i] for i in _worst_first(self._ranks)[:n]]
        return [patient_row(name, [self.row(place) for place in places]) for name, places in worst]

    def _line(self, place: int) -> Line:
        """The photograph's own line, with the grading of its bytes where another's line holds it."""
        line = self._reader.at(self._ledger.offsets[place])
        if "status" in line:
            return line
        return self._reader.at(self._ledger.gradings[bytes.fromhex(line["sha256"][:32])]) | line

    def _count(self, place: int, row: Row) -> None:
        self._status[place] = STATUSES.index(row.status)
        self._order[place] = _known(row.grade, row.referral_probability)
        self.statuses[row.status] += 1
        self.referred += bool(row.referral)
        self.without_patient += not row.patient
        if row.status == "graded" and row.grade is not None:
            self.grades[row.grade] += 1
        if row.status != "graded":
            self.reasons[row.status, row.reason] += 1
        if row.same_as:
            self.copies += 1
            self._compare_owners(place, row)

    def _compare_owners(self, place: int, row: Row) -> None:
        listing, first = self._listing, int(self._first[place])
        if (listing.patients[first], listing.eyes[first]) != (row.patient, row.eye):
            self.conflicting += 1
            if len(self.conflicts) < SHOWN_CONFLICTS:
                self.conflicts.append(Conflict(row.path, row.same_as))

    def _first_of_the_same_bytes(self) -> NDArray[np.int64]:
        """The place of the first photograph with the same bytes: as a rule, its own."""
        keys = np.array(self._ledger.keys)
        first = np.arange(len(keys))
        known = np.flatnonzero(keys)
        _, at, inverse = np.unique(keys[known], return_index=True, return_inverse=True)
        first[known] = known[at[inverse]]
        return first

    def _groups(self) -> "_Groups":
        return _Groups(self._listing.patients)


class _Groups:
    """The places of each known patient, by name, without a list for each of them."""

    def __init__(self, patients: list[str]) -> None:
        self._names = sorted(set(patients) - {""})
        numbers = {name: number for number, name in enumerate(self._names)}
        codes = np.fromiter((numbers.get(name, -1) for name in patients), np.int64, len(patients))
        self._places = np.argsort(codes, kind="stable")
        self._starts = np.searchsorted(codes[self._places], np.arange(len(self._names) + 1))

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, i: int) -> tuple[str, list[int]]:
        places: list[int] = self._places[self._starts[i] : self._starts[i + 1]].tolist()
        return self._names[i], places


def _worst_first(keys: NDArray[np.float32]) -> NDArray[np.int64]:
    """Highest first, the first column counting most; equals in the order they are in."""
    return np.lexsort(-keys.T[::-1])


def _known(grade: int | None, chance: float | None) -> tuple[float, float]:
    return -1 if grade is None else grade, -1 if chance is None else chance


def _shown(name: str) -> str:
    """A file may be named by any bytes; a table may not hold them."""
    return name.encode("utf-8", "backslashreplace").decode()


def as_counts(results: Results, patients: bool) -> dict[str, Any]:
    """What a summary says."""
    found: dict[str, Any] = {
        "photographs": sum(results.statuses.values()),
        **results.statuses,
        "referred": results.referred,
        "grades": {str(grade): results.grades[grade] for grade in range(5)} if results.grades else None,
        "copies": results.copies,
        "conflicting_copies": results.conflicting,
    }
    if patients:
        found["patients"] = {"n": sum(results.results.values()), **results.results}
        found["without_patient"] = results.without_patient
    return found
