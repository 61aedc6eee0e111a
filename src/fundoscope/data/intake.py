"""From what a source lists to a Manifest: every file read once for its digest, then the split drawn."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from fundoscope.data.manifest import Manifest, Photograph, read_photo_bytes, row_number
from fundoscope.data.photo import UnreadablePhoto
from fundoscope.data.sources import Columns, read_source
from fundoscope.data.split import assign_splits
from fundoscope.progress import Track, quiet
from fundoscope.provenance import sha256_of

READERS = 8  # threads: reading waits for the disk, and digesting releases the interpreter


def import_photographs(
    source: str, path: Path, *, folder: Path, seed: int = 0, columns: Columns | None = None, track: Track = quiet
) -> Manifest:
    """The source's photographs as a manifest for `folder`."""
    listed = listed_once(read_source(source, path, columns))
    digested = list(track(_digested(listed), total=len(listed), label="reading"))
    manifest = Manifest(assign_splits(digested, seed=seed), Path("/"))
    return manifest.moved_to(folder.resolve())


def listed_once(photographs: list[Photograph]) -> list[Photograph]:
    """Leave out what is listed a second time; both, where the grades differ."""
    first: dict[str, int] = {}
    found = list(photographs)
    for i, photograph in enumerate(photographs):
        before = first.setdefault(photograph.path, i)
        if before == i:
            continue
        if photographs[before].grade == photograph.grade:
            found[i] = replace(photograph, left_out=f"listed before, in row {row_number(before)}")
        else:
            found[i] = _contradicted(photograph, photographs[before], row_number(before))
            found[before] = _contradicted(photographs[before], photograph, row_number(i))
    return found


def _contradicted(photograph: Photograph, other: Photograph, row: int) -> Photograph:
    reason = f"listed twice: graded {_said(photograph)} here and {_said(other)} in row {row}"
    return replace(photograph, left_out=reason)


def _said(photograph: Photograph) -> str:
    return "nothing" if photograph.grade is None else str(photograph.grade)


def _digested(photographs: list[Photograph]) -> Iterable[Photograph]:
    with ThreadPoolExecutor(READERS) as pool:
        yield from pool.map(_with_digest, photographs)


def _with_digest(photograph: Photograph) -> Photograph:
    try:
        return replace(photograph, sha256=sha256_of(read_photo_bytes(Path("/"), photograph.path)))
    except UnreadablePhoto as problem:
        return replace(photograph, left_out=photograph.left_out or problem.message)
