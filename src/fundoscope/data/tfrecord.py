"""TFRecord files and the tf.train.Example inside, written and read without TensorFlow.

A file is a sequence of records: length (8 bytes), masked CRC-32C of the length (4), data, masked CRC-32C of
the data (4), all little-endian. An Example is a protocol buffer, a map from names to lists:

    Example  { Features features = 1 }      Feature { BytesList = 1 | FloatList = 2 | Int64List = 3 }
    Features { map<string, Feature> = 1 }   …List   { repeated value = 1 }
"""

import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from fundoscope.data.crc32c import masked_crc32c
from fundoscope.errors import FundoscopeError

Value = bytes | int  # all that our records hold: bytes and whole numbers
_LENGTH, _CRC = struct.Struct("<Q"), struct.Struct("<I")
_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5  # wire types


def frame(data: bytes) -> bytes:
    """One record as it lies in the file."""
    length = _LENGTH.pack(len(data))
    return length + _CRC.pack(masked_crc32c(length)) + data + _CRC.pack(masked_crc32c(data))


def read_frames(path: Path) -> Iterator[bytes]:
    """Every record of the file, its check sums checked."""
    with path.open("rb") as file:
        while head := file.read(12):
            yield _read_data(file, head, path.name)


def read_frame(file: BinaryIO, offset: int, name: str) -> bytes:
    """The record that begins at `offset`."""
    file.seek(offset)
    return _read_data(file, file.read(12), name)


def _read_data(file: BinaryIO, head: bytes, name: str) -> bytes:
    if len(head) < 12 or _CRC.unpack(head[8:])[0] != masked_crc32c(head[:8]):
        raise _damaged(name)
    (length,) = _LENGTH.unpack(head[:8])
    data, tail = file.read(length), file.read(4)
    if len(data) < length or len(tail) < 4 or _CRC.unpack(tail)[0] != masked_crc32c(data):
        raise _damaged(name)
    return data


def _damaged(name: str) -> FundoscopeError:
    hint = "delete the folder and prepare it again: fundoscope data prepare"
    return FundoscopeError(f"{name} is damaged: a record does not match its check sum", hint)


def encode_example(values: Mapping[str, Value]) -> bytes:
    """An Example of one bytes or int64 value per name; names in order, so equal values give equal bytes."""
    features = b"".join(_delimited(1, _entry(name, values[name])) for name in sorted(values))
    return _delimited(1, features)


def _entry(name: str, value: Value) -> bytes:
    if isinstance(value, bytes):
        feature = _delimited(1, _delimited(1, value))
    else:
        feature = _delimited(3, _delimited(1, _varint(value & 0xFFFFFFFFFFFFFFFF)))  # two's complement, packed
    return _delimited(1, name.encode()) + _delimited(2, feature)


def decode_example(data: bytes) -> dict[str, Value]:
    """The first bytes or int64 value of every name, whoever wrote them; floats are passed over."""
    values: dict[str, Value] = {}
    for _, features in _fields(data):
        for _, entry in _fields(_as_bytes(features)):
            parts = dict(_fields(_as_bytes(entry)))
            name = _as_bytes(parts.get(1, b"")).decode("utf-8", errors="replace")
            for kind, listed in _fields(_as_bytes(parts.get(2, b""))):
                items = [item for _, item in _fields(_as_bytes(listed))]
                if kind in _READERS and items:
                    values[name] = _READERS[kind](items[0])
    return values


def _signed(item: Value) -> int:
    number = _read_varint(item, 0)[0] if isinstance(item, bytes) else item  # packed, or one by one
    return number - (1 << 64) if number >> 63 else number


def _fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """Number and content of every field of a message."""
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, at = _read_varint(data, at)
            yield number, value
            continue
        if wire == _DELIMITED:
            length, at = _read_varint(data, at)
        elif wire in (_FIXED64, _FIXED32):
            length = 8 if wire == _FIXED64 else 4
        else:
            raise _no_example()
        yield number, data[at : at + length]
        at += length


def _no_example() -> FundoscopeError:
    return FundoscopeError("this is not a tf.train.Example", "was the file written by something else?")


def _as_bytes(value: Value) -> bytes:
    if not isinstance(value, bytes):
        raise _no_example()
    return value


_READERS: dict[int, Callable[[Value], Value]] = {1: _as_bytes, 3: _signed}  # by the number of the list in a Feature


def _delimited(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | _DELIMITED) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The number that begins at `at`, and where it ends."""
    value = shift = 0
    while at < len(data):
        byte = data[at]
        value |= (byte & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if byte < 0x80:
            return value, at
    raise _no_example()
