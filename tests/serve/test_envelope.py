"""JSON with photographs in it, read without Python's parser seeing them."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fundoscope.serve.envelope import LONG, SLICE, parsed, photograph
from fundoscope.serve.http import Refusal

texts = st.text(max_size=20) | st.builds(lambda text, n: text * n, st.text("aé\\/€😀\n", min_size=1), st.just(LONG))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(st.text(max_size=9), inside, max_size=4),
    max_leaves=12,
)


def unescaped(value: Any) -> Any:
    """Long texts as the caller meant them."""
    if isinstance(value, bytes):
        return json.loads(b'"' + value + b'"')
    if isinstance(value, list):
        return [unescaped(item) for item in value]
    return {key: unescaped(item) for key, item in value.items()} if isinstance(value, dict) else value


@given(values, st.booleans(), st.sampled_from((None, 3)))
def test_any_json_is_read_as_python_reads_it(value: Any, ascii_only: bool, indent: int | None) -> None:
    body = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()
    assert unescaped(parsed(body, photographs=64)) == value


@given(st.binary(max_size=100), st.integers(0, 3))
def test_base64_is_read_over_any_number_of_slices(end: bytes, slices: int) -> None:
    photo = bytes(range(256)) * (slices * SLICE // 256) + end
    text = base64.b64encode(photo)
    assert photograph(text) == photograph(text.decode()) == photo
    assert photograph(text.replace(b"/", rb"\/").replace(b"+", rb"\u002b").replace(b"A", rb"\u0041")) == photo


@pytest.mark.parametrize(
    "text",
    [b"A" * SLICE + b"=", b"AA==" * SLICE, b"A" * 4097, b"*" * 4096, b"AAA" * LONG + b"\\", "é" * 4, "AAA", "AA==AAAA"],
)
def test_what_is_not_base64_is_not_guessed_at(text: bytes | str) -> None:
    with pytest.raises(ValueError, match=r"."):
        photograph(text)


@pytest.mark.parametrize(
    "body", [b"[NaN]", b"[Infinity]", b'["' + b"a" * 2000, b'["' + b'\\"' * 2000 + b'"]', b"[1", b"", b"[-Infinity]"]
)
def test_what_is_not_json_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parsed(body, photographs=1)


def test_as_much_as_the_photographs_could_need_may_be_around_them() -> None:
    assert len(parsed(json.dumps(["A" * 1000] * 1000).encode(), photographs=1000)) == 1000
    assert len(parsed(b"[" + b"1," * 60_000 + b"1]", photographs=1)) == 60_001
    for body in (b"[" + b"1," * 70_000 + b"1]", json.dumps(["A"] * 1100).encode(), b"[" + b" " * 140_000 + b"1]"):
        with pytest.raises(Refusal, match="there is too much in the JSON besides photographs"):
            parsed(body, photographs=1)
