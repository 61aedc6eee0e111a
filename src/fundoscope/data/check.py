"""Look at every photograph of a manifest once, and say what cannot be used and why.

Nothing is dropped: what is left out stays in the manifest with its reason. Reasons that a check wrote are weighed
anew by the next one (the file may be back), all others, yours included, are respected; so a second check of
unchanged photographs changes nothing. Memory stays the same however many photographs there are.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

from fundoscope.data.gradability import assess
from fundoscope.data.likeness import Fingerprints, Floats, Pair, fingerprint
from fundoscope.data.manifest import MISSING, NO_GRADE, SPLITS, Manifest, Photograph, read_photo_bytes, row_number
from fundoscope.data.parallel import spread
from fundoscope.data.photo import Preparation, UnreadablePhoto, prepare
from fundoscope.data.split import Group, assign_splits, linked, on_one_side
from fundoscope.data.table import to_csv
from fundoscope.progress import Track, quiet
from fundoscope.provenance import sha256_of

REFERABLE_FROM = 2
AT_A_TIME = 16  # photographs a worker is given
UNREADABLE, CHANGED, NOT_FUNDUS = "unreadable: ", "the file changed since it was imported", "not a fundus photograph"
DUPLICATE, NEAR, MIRROR = "duplicate of row ", "near-duplicate of row ", "mirror image of row "
COPIES = (DUPLICATE, NEAR, MIRROR)
OWN_REASONS = (MISSING, UNREADABLE, CHANGED, NOT_FUNDUS, *COPIES, "graded ")


@dataclass(frozen=True)
class Seen:
    """What reading one photograph told."""

    sha256: str = ""
    width: int | None = None
    height: int | None = None
    gradability: float | None = None
    gradable: bool = False
    problem: str = ""  # why it cannot be used
    fingerprint: Floats | None = None


@dataclass(frozen=True)
class Checked:
    manifest: Manifest
    ungradable: tuple[int, ...]  # places in the manifest; noted, not left out
    moved: tuple[int, ...]  # to the training side, to be with their patient or their copy
    problems: tuple[str, ...]  # why nobody could train or test on it

    @property
    def sizes(self) -> Counter[tuple[int, int]]:
        return Counter((p.width, p.height) for p in self.manifest.used if p.width and p.height)


def check(
    manifest: Manifest, *, keep_duplicates: bool = False, processes: int | None = None, track: Track = quiet
) -> Checked:
    """The manifest with digest, size, gradability, split and reasons filled in, and what to know about it."""
    before = manifest.photographs
    found = [replace(p, left_out=_given_reason(p)) for p in before]
    todo = [i for i, photograph in enumerate(found) if not photograph.left_out]
    ungradable, known = [], set[str]()
    with TemporaryDirectory() as folder:
        fingerprints = Fingerprints(Path(folder, "fingerprints.npy"), len(todo))
        looked = _look_at([found[i] for i in todo], manifest.folder, processes)
        for place, seen in enumerate(track(looked, total=len(todo), label="looking")):
            i = todo[place]
            found[i] = _noted(found[i], seen)
            if not seen.problem and not seen.gradable:
                ungradable.append(i)
            if not seen.problem and seen.fingerprint is not None and seen.sha256 not in known:
                fingerprints[place] = seen.fingerprint
            known.add(seen.sha256)
        alike = [replace(pair, first=todo[pair.first], second=todo[pair.second]) for pair in fingerprints.pairs()]
    copies = [*_same_bytes(found), *alike]
    for i, reason in _duplicates(before, found, copies, keep=keep_duplicates).items():
        found[i] = replace(found[i], left_out=reason)
    assigned = list(assign_splits(found, seed=0))
    moved = _bring_together(assigned, copies)
    checked = Manifest(tuple(assigned), manifest.folder)
    kept = (i for i in ungradable if not assigned[i].left_out)
    return Checked(checked, tuple(kept), tuple(moved), tuple(_problems(checked.used)))


def _given_reason(photograph: Photograph) -> str:
    """Why it is left out already, before anybody looks at it."""
    if photograph.grade is None:
        return photograph.left_out or NO_GRADE
    return "" if photograph.left_out.startswith(OWN_REASONS) else photograph.left_out


def _look_at(photographs: Sequence[Photograph], folder: Path, processes: int | None) -> Iterator[Seen]:
    starts = range(0, len(photographs), AT_A_TIME)
    tasks = [(folder, tuple(photographs[start : start + AT_A_TIME])) for start in starts]
    return chain.from_iterable(spread(_look_at_some, tasks, processes=processes))


def _look_at_some(task: tuple[Path, tuple[Photograph, ...]]) -> list[Seen]:
    folder, photographs = task
    return [look_at(folder, photograph) for photograph in photographs]


def look_at(folder: Path, photograph: Photograph) -> Seen:
    try:
        photo = read_photo_bytes(folder, photograph.path)
    except UnreadablePhoto as problem:
        missing = problem.message == MISSING
        return Seen(photograph.sha256, problem=MISSING if missing else UNREADABLE + problem.message)
    digest = sha256_of(photo)
    if photograph.sha256 not in ("", digest):
        return Seen(photograph.sha256, problem=CHANGED)
    try:
        prepared = prepare(photo, Preparation())
    except UnreadablePhoto as problem:
        return Seen(digest, problem=UNREADABLE + problem.message)
    rated = assess(prepared)
    return Seen(
        sha256=digest,
        width=prepared.width,
        height=prepared.height,
        gradability=rated.score,
        gradable=rated.gradable,
        problem="" if rated.is_fundus else NOT_FUNDUS,
        fingerprint=fingerprint(prepared.pixels) if rated.is_fundus else None,
    )


def _noted(photograph: Photograph, seen: Seen) -> Photograph:
    size = {"width": seen.width, "height": seen.height, "gradability": seen.gradability}
    return replace(photograph, sha256=seen.sha256, left_out=seen.problem, **size)  # type: ignore[arg-type]


def _same_bytes(photographs: Sequence[Photograph]) -> Iterator[Pair]:
    first: dict[str, int] = {}
    for i, photograph in enumerate(photographs):
        if not photograph.left_out and (earlier := first.setdefault(photograph.sha256, i)) != i:
            yield Pair(earlier, i, likeness=1.0, mirrored=False)


def _duplicates(
    before: Sequence[Photograph], found: Sequence[Photograph], copies: Iterable[Pair], *, keep: bool
) -> dict[int, str]:
    """Place -> reason. Of copies with one grade one stays; with several grades none can be trusted."""
    mirrored = {(pair.first, pair.second) for pair in copies if pair.mirrored}
    groups = [g for g in linked(len(found), ((p.first, p.second) for p in copies)) if len(g) > 1]
    reasons: dict[int, str] = {}
    for group in groups:
        if len({found[i].grade for i in group}) > 1:
            reasons |= {i: _contradiction(found, i, group) for i in group}
        elif not keep:
            kept = min(group, key=lambda i: _claim_to_stay(before[i], i))
            reasons |= {i: _copy_of(kept, i, found, mirrored) for i in group if i != kept}
    return reasons


def _claim_to_stay(photograph: Photograph, i: int) -> tuple[bool, int, int]:
    """Least first: what stayed last time; then test before tune before train, so that an official test set stays
    whole; then the first listed."""
    rank = SPLITS.index(photograph.split) if photograph.split else 0
    return photograph.left_out.startswith(COPIES), -rank, i


def _contradiction(found: Sequence[Photograph], i: int, group: Group) -> str:
    other = next(j for j in group if found[j].grade != found[i].grade)
    return f"graded {found[i].grade} here and {found[other].grade} in its duplicate, row {row_number(other)}"


def _copy_of(kept: int, i: int, found: Sequence[Photograph], mirrored: set[tuple[int, int]]) -> str:
    if found[i].sha256 == found[kept].sha256:
        kind = DUPLICATE
    else:
        kind = MIRROR if (min(i, kept), max(i, kept)) in mirrored else NEAR
    return f"{kind}{row_number(kept)}"


def _bring_together(photographs: list[Photograph], copies: Iterable[Pair]) -> list[int]:
    """Put on the training side, in place, whoever is linked across splits by patient or by copies; say whom."""
    moved = []
    links = chain(on_one_side(photographs), ((pair.first, pair.second) for pair in copies))
    for group in linked(len(photographs), links):
        used = [i for i in group if not photographs[i].left_out]
        if len({photographs[i].split for i in used}) > 1:
            for i in used:
                if photographs[i].split != "train":
                    photographs[i] = replace(photographs[i], split="train")
                    moved.append(i)
    return moved


def _problems(used: Sequence[Photograph]) -> Iterator[str]:
    if not used:
        yield "no photograph can be used"
        return
    splits = {photograph.split for photograph in used}
    for split in SPLITS if splits & {"train", "tune"} else ("test",):  # a set for testing alone is a set too
        referable = {p.grade >= REFERABLE_FROM for p in used if p.split == split and p.grade is not None}
        for wanted, name in ((True, "referable (grade 2 to 4)"), (False, "non-referable (grade 0 or 1)")):
            if wanted not in referable:
                yield f"no {name} photograph can be used in {split}"


def left_out_table(manifest: Manifest) -> bytes:
    """CSV: every photograph left out, and why."""
    rows = [
        [str(row_number(i)), p.path, "" if p.grade is None else str(p.grade), p.patient, p.left_out]
        for i, p in enumerate(manifest.photographs)
        if p.left_out
    ]
    return to_csv(("row", "path", "grade", "patient", "reason"), rows)
