import io
import json
import resource
import struct
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fundoscope.data.crc32c import crc32c
from fundoscope.data.gradability import GradabilityRule
from fundoscope.data.manifest import Manifest
from fundoscope.data.mapped import mapped_array
from fundoscope.data.photo import Preparation, prepare
from fundoscope.data.records import Records, digest_of
from fundoscope.data.tfrecord import decode_example, encode_example, frame, read_frame, read_frames
from fundoscope.errors import FundoscopeError

values = st.dictionaries(st.text(max_size=20), st.binary(max_size=300) | st.integers(-(2**63), 2**63 - 1), max_size=6)


@pytest.mark.parametrize(
    ("data", "crc"),
    [  # RFC 3720, B.4; the first is the check value of the catalogue of CRC algorithms
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
        (b"", 0),
    ],
)
def test_the_check_sum_agrees_with_the_published_values(data: bytes, crc: int) -> None:
    assert crc32c(data) == crc


@given(st.integers(0, 200_000), st.integers(0, 99))
def test_the_check_sum_agrees_with_the_definition_at_any_length(length: int, seed: int) -> None:
    data = np.random.default_rng(seed).bytes(length)
    register = 0xFFFFFFFF
    table = [_by_bits(value) for value in range(256)]
    for byte in data:
        register = table[(register ^ byte) & 0xFF] ^ (register >> 8)
    assert crc32c(data) == register ^ 0xFFFFFFFF


def _by_bits(value: int) -> int:
    for _ in range(8):
        value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
    return value


@given(values)
def test_an_example_is_read_as_it_was_written(example: dict[str, bytes | int]) -> None:
    assert decode_example(encode_example(example)) == example


@given(values.filter(bool), st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=4))
def test_a_garbled_example_gives_values_or_our_error_but_no_other(
    example: dict[str, bytes | int], changes: list[tuple[int, int]]
) -> None:
    data = bytearray(encode_example(example))
    for place, byte in changes:
        data[place % len(data)] = byte
    with suppress(FundoscopeError):
        assert isinstance(decode_example(bytes(data)), dict)


def test_tensorflow_reads_what_we_write(drawn_records: Records) -> None:
    import tensorflow as tf

    keys = {
        "image/encoded": tf.io.FixedLenFeature([], tf.string),
        "image/format": tf.io.FixedLenFeature([], tf.string),
        "image/class/label": tf.io.FixedLenFeature([], tf.int64),
        "image/height": tf.io.FixedLenFeature([], tf.int64),
        "image/width": tf.io.FixedLenFeature([], tf.int64),
        "image/id": tf.io.FixedLenFeature([], tf.string),
    }
    shards = sorted(str(path) for path in drawn_records.folder.glob("tune-*.tfrecord"))
    examples = [tf.io.parse_single_example(data, keys) for data in tf.data.TFRecordDataset(shards)]
    pixels = np.stack([tf.io.decode_image(example["image/encoded"]).numpy() for example in examples])
    rows = drawn_records.of("tune")
    assert [example["image/id"].numpy().decode() for example in examples] == [row.id for row in rows]
    assert [int(example["image/class/label"]) for example in examples] == [row.grade for row in rows]
    assert {(int(e["image/height"]), int(e["image/width"])) for e in examples} == {(64, 64)}
    assert {e["image/format"].numpy() for e in examples} == {b"png"}
    assert np.array_equal(pixels, drawn_records.pixels("tune"))


def test_we_read_what_tensorflow_writes(tmp_path: Path) -> None:
    import tensorflow as tf

    def feature(value: bytes | int | float) -> tf.train.Feature:
        if isinstance(value, bytes):
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
        if isinstance(value, int):
            return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
        return tf.train.Feature(float_list=tf.train.FloatList(value=[value, 2.0]))

    written = [
        {"image/encoded": bytes(range(256)) * 700, "image/class/label": -3, "z": 2**40},
        {"image/encoded": b"", "a": 0},
    ]
    with tf.io.TFRecordWriter(str(tmp_path / "x.tfrecord")) as writer:
        for example in written:
            features = {name: feature(value) for name, value in example.items()} | {"score": feature(0.5)}
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    assert [decode_example(data) for data in read_frames(tmp_path / "x.tfrecord")] == written


def test_our_examples_are_tensorflows_byte_for_byte() -> None:
    import tensorflow as tf

    example = {"a": b"xyz", "b": 7, "c": -1}
    theirs = tf.train.Example.FromString(encode_example(example))
    assert theirs.SerializeToString(deterministic=True) == encode_example(example)


@pytest.mark.parametrize("at", [3, 9, 12, 500, -5, -1])
def test_a_flipped_bit_is_found_by_us_and_by_tensorflow(tmp_path: Path, at: int) -> None:
    import tensorflow as tf

    path = tmp_path / "x.tfrecord"
    damaged = bytearray(frame(bytes(range(250)) * 4))
    damaged[at] ^= 4
    path.write_bytes(frame(b"sound") + damaged)
    reading = read_frames(path)
    assert next(reading) == b"sound"
    with pytest.raises(FundoscopeError, match="x.tfrecord is damaged"):
        next(reading)
    with pytest.raises((tf.errors.DataLossError, tf.errors.ResourceExhaustedError)):
        list(tf.data.TFRecordDataset(str(path)))


@pytest.mark.parametrize("kept", [5, 11, 14, 20, -1])
def test_a_file_that_ends_early_is_found(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "x.tfrecord"
    path.write_bytes(frame(b"twelve bytes")[:kept])
    with pytest.raises(FundoscopeError, match="x.tfrecord is damaged"):
        list(read_frames(path))


def test_a_length_is_little_endian_and_checked_before_it_is_believed() -> None:
    assert frame(b"ab")[:8] == struct.pack("<Q", 2)
    huge = io.BytesIO(struct.pack("<Q", 2**60) + bytes(20))
    with pytest.raises(FundoscopeError):
        read_frame(huge, 0, "x")


# Records


def test_pixels_are_those_that_the_server_prepares(drawn_manifest: Manifest, drawn_records: Records) -> None:
    by_id = {p.sha256[:16]: p for p in drawn_manifest.photographs}
    pixels, rows = drawn_records.pixels("test"), drawn_records.of("test")
    assert pixels.shape == (len(rows), 64, 64, 3)
    for i in (0, 7, len(rows) - 1):
        photo = drawn_manifest.read_bytes(by_id[rows[i].id])
        assert np.array_equal(pixels[i], prepare(photo, Preparation(size=64)).pixels)
        assert rows[i].grade == by_id[rows[i].id].grade


def test_pixels_are_decoded_once_and_mapped_not_loaded(drawn_records: Records) -> None:
    first = drawn_records.pixels("train")
    assert isinstance(first, np.memmap)
    assert not first.flags.writeable
    (cached,) = (drawn_records.folder / "cache").glob("train-*.npy")
    before = cached.stat().st_mtime_ns
    drawn_records.pixels("train")
    assert cached.stat().st_mtime_ns == before
    assert drawn_records.digest[:16] in cached.name


def test_opened_records_say_what_they_are(drawn_manifest: Manifest, drawn_records: Records) -> None:
    records = Records.open(drawn_records.folder)
    assert records.preparation == Preparation(size=64)
    assert records.rule == GradabilityRule()
    assert records.manifest_sha256 == drawn_manifest.digest
    assert records.drawn
    assert records.index["source"] == "drawn"
    assert {split: len(records.of(split)) for split in ("train", "tune", "test")} == {
        "train": 90,
        "tune": 22,
        "test": 48,
    }
    assert sum(records.index["n"]["test"].values()) == 48
    assert records.index["versions"]["numpy"] == np.__version__
    assert records.digest == digest_of(records.index)
    assert len({record.id for record in records.rows}) == 160
    with pytest.raises(FundoscopeError, match="there is no split called 'tets'"):
        records.of("tets")


def test_a_folder_without_records_is_refused_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(FundoscopeError, match="there is no folder") as refused:
        Records.open(tmp_path / "absent")
    assert "fundoscope data prepare" in refused.value.hint
    with pytest.raises(FundoscopeError, match="holds no prepared photographs"):
        Records.open(tmp_path)
    (tmp_path / "begun.json").write_text("{}")
    with pytest.raises(FundoscopeError, match="are not all prepared yet"):
        Records.open(tmp_path)


def test_an_index_or_table_that_was_changed_is_refused(drawn_records: Records, tmp_path: Path) -> None:
    table = (drawn_records.folder / "photographs.csv").read_text()
    index = json.loads((drawn_records.folder / "index.json").read_text())

    def changed(index: dict[str, object], table: str) -> None:
        (tmp_path / "index.json").write_text(json.dumps(index))
        (tmp_path / "photographs.csv").write_text(table)
        Records.open(tmp_path)

    changed(index | {"commands": ["another"]}, table)
    with pytest.raises(FundoscopeError, match=r"index\.json was changed"):
        changed(index | {"drawn": False}, table)
    with pytest.raises(FundoscopeError, match=r"photographs\.csv is not the one"):
        changed(index, table.replace(",0,train", ",4,train"))
    with pytest.raises(FundoscopeError, match="another version of fundoscope"):
        changed(index | {"format": 0}, table)


def test_no_room_for_the_decoded_photographs_is_an_error_not_a_crash(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, hard))
    try:
        with pytest.raises(FundoscopeError, match="cannot be written to: File too large") as refused:
            mapped_array(tmp_path / "x.npy", np.uint8, (1024, 1024, 1024))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert refused.value.hint == "it takes 1.0 GB"
    assert not (tmp_path / "x.npy").exists()
