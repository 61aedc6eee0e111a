"""Which prepared photographs go into which shard, and what they are called there."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fundoscope.data.gradability import GradabilityRule
from fundoscope.data.manifest import SPLITS, Manifest, Photograph, row_number
from fundoscope.data.photo import Preparation
from fundoscope.errors import FundoscopeError

SEED = 0  # of the order of photographs, as published
PUBLISHED_SHARDS = {"train": 8, "tune": 8, "test": 4}  # tune is what they call validation
SMALLEST, LARGEST = 16, 256  # photographs in a shard: what a killed run may lose, per process
NOTES = "unfinished"  # folder of notes on finished shards; gone when all are


@dataclass(frozen=True)
class Task:
    """One photograph to prepare."""

    row: int  # in the manifest
    id: str
    patient: str  # pseudonym
    photograph: Photograph


@dataclass(frozen=True)
class Shard:
    """All a worker needs to know."""

    out: Path
    name: str
    folder: Path  # the manifest's
    preparation: Preparation
    rule: GradabilityRule
    tasks: tuple[Task, ...]

    @property
    def path(self) -> Path:
        return self.out / self.name

    @property
    def note(self) -> Path:
        return self.out / NOTES / f"{self.name}.json"


def plan(manifest: Manifest, out: Path, preparation: Preparation, rule: GradabilityRule) -> list[Shard]:
    """Which photographs go into which shard, mixed."""
    tasks = _tasks(manifest)
    shards = []
    for split in SPLITS:
        mixed = sorted((task for task in tasks if task.photograph.split == split), key=_lot)
        n = _how_many(len(mixed), split, preparation)
        for i in range(n):
            name = f"{split}-{i:05d}-of-{n:05d}.tfrecord"
            part = mixed[len(mixed) * i // n : len(mixed) * (i + 1) // n]
            shards.append(Shard(out, name, manifest.folder, preparation, rule, tuple(part)))
    return shards


def _how_many(n: int, split: str, preparation: Preparation) -> int:
    """Shards of 16 to 256 photographs: enough that many cores share the work, few enough to handle."""
    if preparation.way != "recommended":
        return PUBLISHED_SHARDS[split] if n else 0
    return -(-n // min(LARGEST, max(SMALLEST, n // 64)))


def _lot(task: Task) -> str:
    return hashlib.sha256(f"{SEED} {task.id}".encode()).hexdigest()


def _tasks(manifest: Manifest) -> list[Task]:
    patients = pseudonyms(manifest.photographs)
    times: Counter[str] = Counter()
    tasks = []
    for i, photograph in enumerate(manifest.photographs):
        if photograph.left_out:
            continue
        for column in ("grade", "split", "sha256"):
            if getattr(photograph, column) in ("", None):
                hint = "check the manifest first: fundoscope data check"
                raise FundoscopeError(f"row {row_number(i)} of the manifest has no {column}", hint)
        name = photograph.sha256[:16]
        times[name] += 1  # copies that were kept share their bytes, but not their row
        unique = name if times[name] == 1 else f"{name}-{times[name]}"
        patient = patients.get((photograph.source, photograph.patient), "")
        tasks.append(Task(row_number(i), unique, patient, photograph))
    if not tasks:
        hint = "see why each is left out: fundoscope data check"
        raise FundoscopeError("no photograph of the manifest can be used", hint)
    return tasks


def pseudonyms(photographs: Sequence[Photograph]) -> dict[tuple[str, str], str]:
    """(source, patient) -> a number. Its order is that of the photographs' digests, so no name can be told from it."""
    first: dict[tuple[str, str], str] = {}
    for photograph in photographs:
        who = (photograph.source, photograph.patient)
        if photograph.patient:
            first[who] = min(first.get(who, "g"), photograph.sha256 or "g")  # "g" comes after every digit
    return {who: f"p{number:05d}" for number, who in enumerate(sorted(first, key=lambda w: (first[w], w)), start=1)}
