"""JSON in which photographs are sent: long texts, and little around them.

Python's parser does not let go of Python's lock before it is done, and 25 MB of brackets become a gigabyte of lists. So
the long texts are cut out first, which is a search for quotation marks, and only what is left is parsed, if that is as
short as it ought to be. Everything else is done in slices: between two of them other threads get their turn.
"""

import base64
import json
import re
from typing import Any

from fundoscope.serve.http import Refusal

LONG = 1024  # bytes from which a text is cut out; names and identifiers are shorter, photographs longer
AROUND_BYTES, TEXTS = 128 * 1024, 1024  # all that is not a long text, and the number of texts …
AROUND_BYTES_EACH, TEXTS_EACH = LONG + 64, 16  # … and so many more for every photograph that may be sent
SLICE = 192 * 1024  # a multiple of four, as base64 asks; a millisecond's work
QUOTES = 256  # quotation marks in a long text, which base64 has none of
ESCAPE = 6  # bytes: \u002B
SHORT_TEXT = re.compile(rb'"(?:[^"\\]|\\.){0,%d}+"' % LONG, re.DOTALL)

Text = str | bytes  # bytes: a long one, as it was sent, escapes and all


def parsed(body: bytes, *, photographs: int) -> Any:
    """As `json.loads`, with long texts as bytes, not yet unescaped.

    Raises Refusal where there is more than `photographs` of them could need; ValueError or RecursionError, as it does.
    """
    around, texts = _apart(body, AROUND_BYTES + AROUND_BYTES_EACH * photographs, TEXTS + TEXTS_EACH * photographs)
    cut_out = iter(texts)
    return json.loads(around, parse_constant=lambda _: next(cut_out))


def _apart(body: bytes, limit_bytes: int, most_texts: int) -> tuple[bytes, list[bytes]]:
    """What is around the long texts, with a NaN in the place of each; and those texts.

    JSON has no NaN, and Python's parser asks what to make of every NaN it comes to, in their order.
    """
    pieces: list[bytes] = []
    texts: list[bytes] = []
    size = start = 0
    for _ in range(most_texts):
        opening = body.find(b'"', start)
        end = opening if opening >= 0 else len(body)
        size += end - start
        if size > limit_bytes:
            break
        pieces.append(_without_names(body[start:end]))
        if opening < 0:
            return b"".join(pieces), texts
        if short := SHORT_TEXT.match(body, opening):
            pieces.append(short[0])
            start = short.end()
            size += len(short[0])
        else:
            start = _closing(body, opening + 1)
            texts.append(body[opening + 1 : start - 1])
            pieces.append(b"NaN")
    raise Refusal(400, "there is too much in the JSON besides photographs", "send nothing but photographs in base64")


def _closing(body: bytes, start: int) -> int:
    """Where the long text is over that begins at `start`."""
    closing = start - 1
    for _ in range(QUOTES):
        closing = body.find(b'"', closing + 1)
        before = body[max(start, closing - 64) : closing]
        if closing < 0 or (len(before) - len(before.rstrip(b"\\"))) % 2 == 0:  # or the quotation mark is escaped
            break
    else:
        raise ValueError("a text is full of quotation marks")
    if closing < 0:
        raise ValueError("a text does not end")
    return closing + 1


def _without_names(piece: bytes) -> bytes:
    if b"N" in piece or b"I" in piece:  # NaN and Infinity, which are not JSON
        raise ValueError("there is a number in the JSON that is none")
    return piece


def photograph(text: Text) -> bytes:
    """What `text` is the base64 of. Raises ValueError where it is of nothing."""
    plain = text.encode() if isinstance(text, str) else _unescaped(text)
    parts = []
    for start in range(0, len(plain), SLICE):
        part = plain[start : start + SLICE]
        if b"=" in part and start + SLICE < len(plain):
            raise ValueError("padding in the middle")
        parts.append(base64.b64decode(part, validate=True))
    return b"".join(parts)


def _unescaped(text: bytes) -> bytes:
    """Some encoders write "/" as "\\/", or "+" as "\\u002B"."""
    if b"\\" not in text:
        return text
    parts, start = [], 0
    while start < len(text):
        end = start + SLICE
        escape = text.rfind(b"\\", max(start + 1, end - ESCAPE + 1), end)
        end = escape if escape >= 0 and end < len(text) else end  # no escape is cut in two
        parts.append(json.loads(b'"' + text[start:end] + b'"').encode())
        start = end
    return b"".join(parts)
