"""What a model said about each photograph, beside what is true: predictions.csv, the input of every score."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fundoscope.data.grades import referral_of
from fundoscope.data.records import Record
from fundoscope.errors import FundoscopeError
from fundoscope.provenance import write_whole

GRADES = 5
COLUMNS = ("id", "patient", "eye", "grade", "split", "gradable", "p0", "p1", "p2", "p3", "p4", "referral")


@dataclass(frozen=True, eq=False)
class Predictions:
    """One entry per photograph. `referral` is P(grade ≥ referral_from); a binary head gives nothing else."""

    id: NDArray[np.str_]
    patient: NDArray[np.str_]  # "" where unknown
    eye: NDArray[np.str_]  # left | right | ""
    grade: NDArray[np.int64]
    split: NDArray[np.str_]
    gradable: NDArray[np.bool_]
    probabilities: NDArray[np.float64] | None  # (n, 5)
    referral: NDArray[np.float64]

    @classmethod
    def of_records(
        cls, rows: Sequence[Record], probabilities: NDArray[np.float32], *, referral_from: int
    ) -> "Predictions":
        """What a model said (n, 5) or (n, 1) of these records."""
        return cls(
            id=np.array([row.id for row in rows], dtype=str),
            patient=np.array([row.patient for row in rows], dtype=str),
            eye=np.array([row.eye for row in rows], dtype=str),
            grade=np.array([row.grade for row in rows], dtype=np.int64),
            split=np.array([row.split for row in rows], dtype=str),
            gradable=np.array([row.gradable for row in rows], dtype=bool),
            probabilities=None if probabilities.shape[1] == 1 else probabilities.astype(np.float64),
            referral=referral_of(probabilities, referral_from).astype(np.float64),
        )

    def __post_init__(self) -> None:
        n = len(self.id)
        arrays = (self.patient, self.eye, self.grade, self.split, self.gradable, self.referral)
        if any(len(array) != n for array in arrays):
            raise ValueError("predictions need as many entries in every column")
        if self.probabilities is not None and self.probabilities.shape != (n, GRADES):
            raise ValueError(f"probabilities are {self.probabilities.shape}, not ({n}, {GRADES})")
        if not np.isfinite(self.referral).all():
            where = self.id[~np.isfinite(self.referral)][0]
            hint = "the network diverged: train again with a lower learning rate"
            raise FundoscopeError(f"the prediction for photograph {where} is not a number", hint)

    def __len__(self) -> int:
        return len(self.id)

    def select(self, mask: NDArray[np.bool_]) -> "Predictions":
        return Predictions(
            id=self.id[mask],
            patient=self.patient[mask],
            eye=self.eye[mask],
            grade=self.grade[mask],
            split=self.split[mask],
            gradable=self.gradable[mask],
            probabilities=None if self.probabilities is None else self.probabilities[mask],
            referral=self.referral[mask],
        )

    def of(self, split: str) -> "Predictions":
        return self.select(self.split == split)

    def write_csv(self, path: Path) -> None:
        """Numbers in their shortest form that reads back as the same number."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        for i in range(len(self)):
            grades = [""] * GRADES if self.probabilities is None else [repr(float(p)) for p in self.probabilities[i]]
            who = (self.id[i], self.patient[i], self.eye[i], int(self.grade[i]), self.split[i])
            writer.writerow((*who, int(self.gradable[i]), *grades, repr(float(self.referral[i]))))
        write_whole(path, text.getvalue().encode())

    @classmethod
    def read_csv(cls, path: Path) -> "Predictions":
        try:
            with path.open(newline="", encoding="utf-8") as file:
                return cls._from_rows(list(csv.DictReader(file)))
        except FileNotFoundError:
            hint = f"make it: fundoscope evaluate {path.parent}"
            raise FundoscopeError(f"there is no file {path}", hint) from None
        except (KeyError, TypeError, ValueError) as problem:
            hint = "make it anew with fundoscope evaluate"
            raise FundoscopeError(f"{path} is not a table of predictions: {problem}", hint) from None

    @classmethod
    def _from_rows(cls, rows: list[dict[str, str]]) -> "Predictions":
        names = [f"p{grade}" for grade in range(GRADES)]
        binary = all(not row[name] for row in rows for name in names)
        return cls(
            id=np.array([row["id"] for row in rows], dtype=np.str_),
            patient=np.array([row["patient"] for row in rows], dtype=np.str_),
            eye=np.array([row["eye"] for row in rows], dtype=np.str_),
            grade=np.array([int(row["grade"]) for row in rows], dtype=np.int64),
            split=np.array([row["split"] for row in rows], dtype=np.str_),
            gradable=np.array([_YES_NO[row["gradable"].lower()] for row in rows], dtype=np.bool_),
            probabilities=None
            if binary
            else np.array([[float(row[name]) for name in names] for row in rows], dtype=np.float64).reshape(-1, GRADES),
            referral=np.array([float(row["referral"]) for row in rows], dtype=np.float64),
        )


_YES_NO = {"1": True, "0": False, "true": True, "false": False}
