import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from fundoscope.data.draw import draw_folder
from fundoscope.data.intake import import_photographs
from fundoscope.data.manifest import Manifest, Photograph
from fundoscope.data.photo import Preparation
from fundoscope.data.prepare import prepare_records
from fundoscope.data.records import Records
from fundoscope.data.shards import pseudonyms
from fundoscope.data.tfrecord import decode_example, read_frames
from fundoscope.errors import FundoscopeError
from fundoscope.provenance import sha256_of

SMALL = Preparation(size=32)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def few(drawn_manifest: Manifest) -> Manifest:
    """Sixty photographs, in their folder."""
    return Manifest(drawn_manifest.photographs[:60], drawn_manifest.folder)


def test_the_number_of_processes_and_the_order_of_rows_do_not_change_a_byte(few: Manifest, tmp_path: Path) -> None:
    for processes in (1, 2):
        prepare_records(few, tmp_path / str(processes), SMALL, processes=processes)
    one, two = contents(tmp_path / "1"), contents(tmp_path / "2")
    assert one == two
    turned = Manifest(few.photographs[::-1], few.folder)
    prepare_records(turned, tmp_path / "turned", SMALL, processes=1)
    shards = {name: data for name, data in contents(tmp_path / "turned").items() if name.endswith("tfrecord")}
    assert shards == {name: data for name, data in one.items() if name.endswith("tfrecord")}


def test_a_finished_folder_holds_the_shards_the_index_and_nothing_else(few: Manifest, tmp_path: Path) -> None:
    records, failures = prepare_records(few, tmp_path / "r", SMALL, processes=1)
    names = sorted(contents(tmp_path / "r"))
    shards = [shard["name"] for shard in records.index["shards"]]
    assert names == sorted(["index.json", "left_out.csv", "photographs.csv", *shards])
    assert all(re.fullmatch(r"(train|tune|test)-\d{5}-of-\d{5}\.tfrecord", name) for name in shards)
    assert failures == ()
    assert len(records.rows) == 60
    for row in records.rows:
        photograph = next(p for p in few.photographs if p.sha256.startswith(row.id))
        assert (row.grade, row.eye, row.split) == (photograph.grade, photograph.eye, photograph.split)


def test_shards_are_mixed(drawn_records: Records) -> None:
    shard = [row.grade for row in drawn_records.of("train")][:16]
    assert shard != sorted(shard)
    assert len(set(shard)) >= 3


def test_preparing_again_changes_nothing(few: Manifest, tmp_path: Path) -> None:
    prepare_records(few, tmp_path / "r", SMALL, processes=1)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "r").iterdir()}
    records, _ = prepare_records(few, tmp_path / "r", SMALL, processes=1)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "r").iterdir()} == before
    assert records == Records.open(tmp_path / "r")


def test_a_folder_of_other_records_is_refused_and_left_alone(few: Manifest, tmp_path: Path) -> None:
    prepare_records(few, tmp_path / "r", SMALL, processes=1)
    before = contents(tmp_path / "r")
    fewer = Manifest(few.photographs[:50], few.folder)
    for manifest, preparation, message in [
        (few, Preparation(size=48), "prepared with another size"),
        (few, Preparation(size=32, way="voets"), "prepared with another way"),
        (fewer, SMALL, "prepared of another manifest, or of this one before it was changed"),
    ]:
        with pytest.raises(FundoscopeError, match=message) as refused:
            prepare_records(manifest, tmp_path / "r", preparation)
        assert refused.value.hint == "choose another --out, or delete that folder"
    assert contents(tmp_path / "r") == before


def test_a_folder_that_is_not_ours_is_refused(few: Manifest, tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "thesis.doc").write_text("mine")
    with pytest.raises(FundoscopeError, match="is not empty, and not made by data prepare"):
        prepare_records(few, tmp_path / "r", SMALL)
    with pytest.raises(FundoscopeError, match="is a file"):
        prepare_records(few, tmp_path / "r" / "thesis.doc", SMALL)
    assert contents(tmp_path / "r") == {"thesis.doc": b"mine"}


def test_a_damaged_or_missing_shard_is_found(few: Manifest, tmp_path: Path) -> None:
    records, _ = prepare_records(few, tmp_path / "r", SMALL, processes=1)
    shard = tmp_path / "r" / records.of("tune")[0].shard
    data = bytearray(shard.read_bytes())
    data[100] ^= 1
    shard.write_bytes(data)
    with pytest.raises(FundoscopeError, match=f"{shard.name} is missing or damaged"):
        prepare_records(few, tmp_path / "r", SMALL)
    with pytest.raises(FundoscopeError, match=f"{shard.name} is damaged"):
        records.pixels("tune")
    assert list((tmp_path / "r" / "cache").iterdir()) == []
    shard.unlink()
    with pytest.raises(FundoscopeError, match=f"{shard.name} is missing"):
        records.pixels("tune")


def start(folder: Path) -> "subprocess.Popen[bytes]":
    command = "import sys; from fundoscope.cli.main import main; sys.exit(main())"
    arguments = ["data", "prepare", "manifest.csv", "--size", "400", "--out", "records", "--processes", "2", "--json"]
    return subprocess.Popen(
        [sys.executable, "-c", command, *arguments], cwd=folder, stdout=subprocess.PIPE, start_new_session=True
    )


def test_a_killed_preparation_goes_on_where_it_stopped_to_the_same_bytes(
    drawn_manifest: Manifest, tmp_path: Path
) -> None:
    for folder in ("killed", "whole"):
        (tmp_path / folder).mkdir()
        drawn_manifest.write(tmp_path / folder / "manifest.csv")
    records = tmp_path / "killed" / "records"
    running = start(tmp_path / "killed")
    while not list(records.glob("unfinished/*.json")):  # a shard is finished, others are not
        assert running.poll() is None
    os.kill(running.pid, signal.SIGKILL)
    running.communicate()
    deadline = time.monotonic() + 300
    with suppress(ProcessLookupError):
        while time.monotonic() < deadline:
            os.killpg(running.pid, 0)  # until no worker is left
        pytest.fail("workers outlive the process that started them")
    assert not (records / "index.json").exists()
    with pytest.raises(FundoscopeError, match="are not all prepared yet"):
        Records.open(records)
    noted = [records / path.name.removesuffix(".json") for path in records.glob("unfinished/*.json")]
    finished = {path: path.stat().st_mtime_ns for path in noted}
    assert 0 < len(finished) < 10
    damaged = noted[0]
    damaged.write_bytes(damaged.read_bytes()[:-1])  # as a full disk leaves it: to be done again
    answers = []
    for folder in ("killed", "whole"):
        process = start(tmp_path / folder)
        output, _ = process.communicate()
        assert process.returncode == 0
        answers.append(json.loads(output))
    assert answers[0] == answers[1]
    assert contents(records) == contents(tmp_path / "whole" / "records")
    kept = {path: path.stat().st_mtime_ns for path in noted}
    assert [path for path in noted if kept[path] != finished[path]] == [damaged]


def test_what_cannot_be_prepared_is_listed_and_the_rest_is_prepared(few: Manifest, tmp_path: Path) -> None:
    folder = tmp_path / "photographs"
    folder.mkdir()
    broken = {"empty.jpg": b"", "text.jpg": b"hello", "gone.jpg": b"x"}
    listed = [replace(p, path=str(few.folder / p.path)) for p in few.photographs]
    for name, data in broken.items():
        (folder / name).write_bytes(data)
        listed.append(Photograph(name, 1, split="train", sha256=sha256_of(data)))
    (folder / "gone.jpg").unlink()
    listed[3] = replace(listed[3], sha256="f" * 64)
    listed[4] = replace(listed[4], left_out="blurred")
    records, failures = prepare_records(Manifest(tuple(listed), folder), tmp_path / "r", SMALL, processes=1)
    assert [(f.row, f.reason) for f in failures] == [
        (5, "the file changed since it was imported"),
        (62, "the file is empty"),
        (63, "the file is not a picture in a format we read"),
        (64, "the file is missing"),
    ]
    assert len(records.rows) == 58
    assert records.index["left_out"] == 4
    assert records.index["left_out_before"] == 1
    with (tmp_path / "r" / "left_out.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows[1] == {"row": "62", "id": sha256_of(b"")[:16], "reason": "the file is empty"}


@pytest.mark.parametrize(
    ("photograph", "message"),
    [
        (Photograph("a.jpg", None, split="train", sha256="0" * 64), "row 2 of the manifest has no grade"),
        (Photograph("a.jpg", 1, sha256="0" * 64), "row 2 of the manifest has no split"),
        (Photograph("a.jpg", 1, split="train"), "row 2 of the manifest has no sha256"),
        (Photograph("a.jpg", 1, split="train", left_out="x"), "no photograph of the manifest can be used"),
    ],
)
def test_a_manifest_that_was_not_checked_is_refused(tmp_path: Path, photograph: Photograph, message: str) -> None:
    with pytest.raises(FundoscopeError, match=message) as refused:
        prepare_records(Manifest((photograph,), tmp_path), tmp_path / "r", SMALL)
    assert "fundoscope data check" in refused.value.hint
    assert not (tmp_path / "r").exists()


def test_copies_that_are_kept_have_names_of_their_own(few: Manifest, tmp_path: Path) -> None:
    twice = Manifest((*few.photographs[:20], few.photographs[0]), few.folder)
    records, _ = prepare_records(twice, tmp_path / "r", SMALL, processes=1)
    name = few.photographs[0].sha256[:16]
    assert sorted(row.id for row in records.rows if row.id.startswith(name)) == [name, f"{name}-2"]


def test_as_published_there_are_eight_shards_to_train_and_four_to_test(tmp_path: Path) -> None:
    draw_folder(tmp_path / "eyes", n=30, seed=1, size=512)
    manifest = import_photographs("drawn", tmp_path / "eyes", folder=tmp_path)
    for way, size in (("voets", 299), ("gaussian", 224)):
        records, _ = prepare_records(manifest, tmp_path / way, Preparation(size=size, way=way))  # type: ignore[arg-type]
        names = [shard["name"] for shard in records.index["shards"]]
        assert [sum(name.startswith(split) for name in names) for split in ("train", "tune", "test")] == [8, 8, 4]
        assert names[0] == "train-00000-of-00008.tfrecord"
        example = decode_example(next(read_frames(tmp_path / way / records.rows[0].shard)))
        assert example["image/format"] == b"jpeg"
        picture = Image.open(io.BytesIO(example["image/encoded"]))  # type: ignore[arg-type]
        assert (picture.format, picture.size) == ("JPEG", (size, size))
        assert max(picture.quantization[0]) == 1  # quality 100
        assert records.pixels("train").shape[1:] == (size, size, 3)
        # Gradability is that of the photograph, not of the filtered picture.
        assert np.mean([row.gradable for row in records.rows]) > 0.8


def test_no_name_no_exif_and_no_patient_gets_into_the_records(few: Manifest, tmp_path: Path) -> None:
    secrets = {f"{what}-Quirinus-Xaver" for what in ("artist", "maker", "comment", "text", "file", "folder", "patient")}
    folder = tmp_path / "folder-Quirinus-Xaver"
    folder.mkdir()
    listed = []
    for i, photograph in enumerate(few.photographs[:12]):
        image = Image.open(io.BytesIO(few.read_bytes(photograph)))
        exif = Image.Exif()
        exif[0x013B], exif[0x010F] = "artist-Quirinus-Xaver", "maker-Quirinus-Xaver"
        name = f"file-Quirinus-Xaver-{i}" + (".png" if i % 2 else ".jpg")
        if i % 2:
            text = PngInfo()
            text.add_text("Title", "text-Quirinus-Xaver")
            image.save(folder / name, exif=exif, pnginfo=text)
        else:
            image.save(folder / name, exif=exif, comment=b"comment-Quirinus-Xaver", quality=95)
        patient = f"patient-Quirinus-Xaver-{i // 2}"
        listed.append(Photograph(str(folder / name), i % 5, patient, sha256=sha256_of((folder / name).read_bytes())))
    (folder / "file-Quirinus-Xaver-broken.jpg").write_bytes(b"Quirinus")
    listed.append(
        Photograph(
            str(folder / "file-Quirinus-Xaver-broken.jpg"), 1, "patient-Quirinus-Xaver", sha256=sha256_of(b"Quirinus")
        )
    )
    listed.append(Photograph(str(folder / "file-Quirinus-Xaver-gone.jpg"), 1, sha256="0" * 64))
    splits = ["train", "tune", "test"]
    manifest = Manifest(tuple(replace(p, split=splits[i % 3]) for i, p in enumerate(listed)), tmp_path)
    raw = b"".join(path.read_bytes() for path in folder.iterdir()) + manifest.to_csv()
    assert all(secret.encode() in raw for secret in secrets)  # the test would notice them
    records, failures = prepare_records(manifest, tmp_path / "records", SMALL, processes=1)
    for split in splits:
        records.pixels(split)
    assert len(failures) == 2
    patients = {row.patient for row in records.rows}
    assert len(patients) == 6
    assert patients <= {f"p{n:05d}" for n in range(1, 8)}  # of seven, one has no photograph that could be read
    for name, data in contents(tmp_path / "records").items():
        assert not re.search(rb"quirinus|xaver|exif", name.encode() + data, re.IGNORECASE), name


def test_a_patients_number_follows_from_the_photographs_not_from_the_name(few: Manifest) -> None:
    named = [replace(p, patient=f"patient {i // 2}") for i, p in enumerate(few.photographs)]
    renamed = [replace(p, patient=f"{97 - i // 2} tneitap") for i, p in enumerate(few.photographs)]
    numbers, others = pseudonyms(named), pseudonyms(renamed)
    by_name = [numbers["drawn", f"patient {i}"] for i in range(30)]
    assert by_name != sorted(by_name)
    for p, q in zip(named, renamed, strict=True):
        assert numbers[p.source, p.patient] == others[q.source, q.patient]
    assert sorted(numbers.values()) == [f"p{n:05d}" for n in range(1, 31)]
    assert pseudonyms(named[::-1]) == numbers
