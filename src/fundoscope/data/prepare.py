"""Manifest -> Records, on all cores, a shard at a time.

What goes into which shard follows from the manifest alone, so the same manifest gives the same bytes whatever the
number of processes. A shard appears whole or not at all, then a note about it; a command that was killed is run
again and goes on with the shards that have no note. The index is written last: without it nothing is finished.
"""

import hashlib
import io
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from fundoscope.config import build
from fundoscope.data.gradability import Gradability, GradabilityRule, assess_photo
from fundoscope.data.manifest import Manifest, counts, read_photo_bytes
from fundoscope.data.parallel import spread
from fundoscope.data.photo import Preparation, Prepared, UnreadablePhoto, encode_png, prepare
from fundoscope.data.records import BEGUN, FORMAT, INDEX, LEFT_OUT, PHOTOGRAPHS, Record, Records, digest_of, records_csv
from fundoscope.data.shards import NOTES, Shard, Task, plan
from fundoscope.data.table import read_table, to_csv
from fundoscope.data.tfrecord import encode_example, frame
from fundoscope.errors import FundoscopeError
from fundoscope.progress import Track, quiet
from fundoscope.provenance import command, sha256_file, sha256_of, versions, write_json, write_whole

CHANGED = "the file changed since it was imported"


@dataclass(frozen=True)
class Failure:
    """A photograph that could not be prepared; its row in the manifest, never its name."""

    row: int
    id: str
    reason: str


@dataclass(frozen=True)
class Note:
    """What became of a shard."""

    sha256: str
    records: tuple[Record, ...]
    failures: tuple[Failure, ...]


def prepare_records(
    manifest: Manifest,
    out: Path,
    preparation: Preparation,
    *,
    rule: GradabilityRule = GradabilityRule(),  # noqa: B008  (frozen)
    history: Sequence[str] = (),
    processes: int | None = None,
    track: Track = quiet,
) -> tuple[Records, tuple[Failure, ...]]:
    """Every photograph in use, prepared; and those that could not be. Goes on where an earlier run stopped.

    `history` is the commands that made the manifest, kept so that a report can say how to repeat everything.
    """
    shards = plan(manifest, out, preparation, rule)
    try:
        begin(out, {"preparation": asdict(preparation), "rule": asdict(rule), "manifest_sha256": manifest.digest})
        if not (out / INDEX).is_file():
            total = sum(len(shard.tasks) for shard in shards)
            for _ in track(_write(shards, processes), total=total, label="preparing"):
                pass
            _finish(manifest, out, preparation, rule, shards, [*history, command()])
        _clear(out)
    except OSError as problem:  # a photograph that cannot be read is no OSError here
        hint = "make room or choose another --out; finished shards are kept"
        raise FundoscopeError(f"{out} cannot be written to: {problem.strerror or problem}", hint) from None
    return Records.open(out), read_failures(out)


def _write(shards: list[Shard], processes: int | None) -> Iterator[int]:
    """Write what is not there yet; a step for every photograph."""
    finished = [_is_finished(shard) for shard in shards]
    yield from range(sum(len(shard.tasks) for shard, done in zip(shards, finished, strict=True) if done))
    todo = [shard for shard, done in zip(shards, finished, strict=True) if not done]
    for n in spread(write_shard, todo, processes=processes):
        yield from range(n)


def begin(out: Path, parameters: dict[str, Any]) -> None:
    """Claim the folder, or find that it is ours; refuse one that holds anything else."""
    libraries = {name: versions()[name] for name in ("fundoscope", "numpy", "pillow", "simplejpeg")}
    if (out / INDEX).is_file():
        _compare(out, Records.open(out).index, parameters)
        _refuse_damaged(Records.open(out))
    elif (out / BEGUN).is_file():
        _compare(out, json.loads((out / BEGUN).read_bytes()), parameters | {"versions": libraries})
    elif out.is_dir() and any(out.iterdir()):
        raise FundoscopeError(f"{out} is not empty, and not made by data prepare", "choose another folder: --out")
    elif out.exists() and not out.is_dir():
        raise FundoscopeError(f"{out} is a file", "choose another folder: --out")
    else:
        write_json(out / BEGUN, parameters | {"versions": libraries})


def _compare(out: Path, there: Any, wanted: dict[str, Any]) -> None:
    for name, value in json.loads(json.dumps(wanted)).items():
        if there.get(name) == value:
            continue
        if name == "manifest_sha256":
            what = "of another manifest, or of this one before it was changed"
        else:
            differ = [key for key in value if there.get(name, {}).get(key) != value[key]]
            what = f"with another {', '.join(differ)}" + (f" ({name})" if name != "preparation" else "")
        raise FundoscopeError(f"{out} holds photographs prepared {what}", "choose another --out, or delete that folder")


def _refuse_damaged(records: Records) -> None:
    for shard in records.index["shards"]:
        path = records.folder / shard["name"]
        if not path.is_file() or sha256_file(path) != shard["sha256"]:
            raise FundoscopeError(f"{path} is missing or damaged", "delete the folder and prepare it again")


def _is_finished(shard: Shard) -> bool:
    if not (shard.note.is_file() and shard.path.is_file()):
        return False
    return _read_note(shard).sha256 == sha256_file(shard.path)


def _read_note(shard: Shard) -> Note:
    return build(Note, json.loads(shard.note.read_bytes()), where=str(shard.note))


def write_shard(shard: Shard) -> int:
    """Prepare the photographs of one shard, in a worker; how many it was given."""
    part = shard.path.with_name(f".{shard.name}.{os.getpid()}.part")
    records, failures = [], []
    digest, offset = hashlib.sha256(), 0
    with part.open("wb") as file:
        for task in shard.tasks:
            try:
                example, rated = _example(task, shard)
            except UnreadablePhoto as problem:
                failures.append(Failure(task.row, task.id, problem.message))
                continue
            data = frame(example)
            file.write(data)
            digest.update(data)
            records.append(_record(task, rated, shard.name, offset))
            offset += len(data)
    part.replace(shard.path)
    write_json(shard.note, asdict(Note(digest.hexdigest(), tuple(records), tuple(failures))))
    return len(shard.tasks)


def _example(task: Task, shard: Shard) -> tuple[bytes, Gradability]:
    photo = read_photo_bytes(shard.folder, task.photograph.path)
    if sha256_of(photo) != task.photograph.sha256:
        raise UnreadablePhoto(CHANGED, "import it again")
    prepared = prepare(photo, shard.preparation)
    is_recommended = shard.preparation.way == "recommended"
    rated = assess_photo(photo, prepared, shard.preparation, shard.rule)
    # Lossless, so that a network trains on the very pixels that the server will show it.
    encoded = encode_png(prepared.pixels) if is_recommended else _encode_as_published(prepared)
    height, width = prepared.pixels.shape[:2]
    values = {
        "image/encoded": encoded,
        "image/format": b"png" if is_recommended else b"jpeg",
        "image/class/label": task.photograph.grade or 0,
        "image/height": height,
        "image/width": width,
        "image/id": task.id.encode(),
    }
    return encode_example(values), rated


def _encode_as_published(prepared: Prepared) -> bytes:
    out = io.BytesIO()
    Image.fromarray(prepared.pixels).save(out, "JPEG", quality=100)
    return out.getvalue()


def _record(task: Task, rated: Gradability, shard: str, offset: int) -> Record:
    p = task.photograph
    score = round(rated.score, 4)
    return Record(task.id, task.patient, p.eye, p.grade or 0, p.split, score, rated.gradable, shard, offset)


def _finish(
    manifest: Manifest,
    out: Path,
    preparation: Preparation,
    rule: GradabilityRule,
    shards: list[Shard],
    commands: list[str],
) -> None:
    notes = [_read_note(shard) for shard in shards]
    records = [record for note in notes for record in note.records]
    failures = sorted((failure for note in notes for failure in note.failures), key=lambda failure: failure.row)
    photographs, left_out = records_csv(records), _failures_csv(failures)
    write_whole(out / PHOTOGRAPHS, photographs)
    write_whole(out / LEFT_OUT, left_out)
    sources = sorted({photograph.source for photograph in manifest.used} - {""})
    index = {
        "format": FORMAT,
        "source": " + ".join(sources),
        "drawn": "drawn" in sources,
        "manifest_sha256": manifest.digest,
        "preparation": asdict(preparation),
        "rule": asdict(rule),
        "n": counts(records),
        "left_out": len(failures),
        "left_out_before": len(manifest.photographs) - len(manifest.used),
        "shards": [
            {"name": shard.name, "n": len(note.records), "sha256": note.sha256}
            for shard, note in zip(shards, notes, strict=True)
        ],
        "photographs_sha256": sha256_of(photographs),
        "left_out_sha256": sha256_of(left_out),
    }
    write_json(out / INDEX, {"digest": digest_of(index)} | index | {"versions": versions(), "commands": commands})


def _clear(out: Path) -> None:
    """What only an unfinished folder needs."""
    shutil.rmtree(out / NOTES, ignore_errors=True)
    (out / BEGUN).unlink(missing_ok=True)
    for part in out.glob(".*.part"):
        part.unlink(missing_ok=True)


def _failures_csv(failures: Sequence[Failure]) -> bytes:
    return to_csv(("row", "id", "reason"), [[str(f.row), f.id, f.reason] for f in failures])


def read_failures(out: Path) -> tuple[Failure, ...]:
    rows = read_table(out / LEFT_OUT).rows
    return tuple(Failure(int(row.cells["row"]), row.cells["id"], row.cells["reason"]) for row in rows)
