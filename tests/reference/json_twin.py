"""The slow twin of kernels/records/json_scan.py and json_text.py, with json.loads and bytes.split."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

OK, NOT_OBJECT, INVALID_JSON, INVALID_UTF8, TOO_DEEP, TOO_LARGE = range(6)
MISSING, NULL, FALSE, TRUE, INT, FLOAT, STRING, ESCAPED, OBJECT, ARRAY = range(10)

_SPACE = " \t\r"
_DECODER = json.JSONDecoder(parse_int=str)  # any number of digits is valid JSON for Tamis


@dataclass(frozen=True)
class Record:
    """One line: where it is, what it is, and for every key of the object its (type, raw bytes of the value)."""

    start: int
    end: int
    status: int
    close: int
    n_fields: int
    fields: dict[str, tuple[int, int, int]]  # key -> type, start, length


def whole(text: str) -> str:
    """Lone surrogates become U+FFFD, pairs are joined."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def scan(data: bytes, max_record_bytes: int = 1 << 26) -> tuple[list[Record], int]:
    """All records of `data` and the number of blank lines."""
    lines = data.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    records, n_blank, at = [], 0, 0
    for line in lines:
        if line.strip(b" \t\r") == b"":
            n_blank += 1
        else:
            records.append(_record(line.removesuffix(b"\r"), at, max_record_bytes))
        at += len(line) + 1
    return records, n_blank


def _record(line: bytes, at: int, max_record_bytes: int) -> Record:
    def bad(status: int) -> Record:
        return Record(at, at + len(line), status, -1, 0, {})

    if len(line) > max_record_bytes:
        return bad(TOO_LARGE)
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        return bad(INVALID_UTF8)
    try:
        value = loads(text)
    except ValueError:
        return bad(INVALID_JSON)
    if not isinstance(value, dict):
        return bad(NOT_OBJECT)
    members = _members(text)
    fields = {}
    for key, kind, begin, end in members:
        n_before = len(text[:begin].encode())
        fields[whole(key)] = (kind, at + n_before, len(text[begin:end].encode()))
    return Record(at, at + len(line), OK, at + len(line.rstrip(b" \t\r")) - 1, len(members), fields)


def loads(text: str) -> Any:
    """json.loads of one line. A byte order mark is refused, as json.loads does for text."""
    if text.startswith("\ufeff"):
        raise ValueError("byte order mark")
    return _DECODER.decode(text)


def _members(text: str) -> list[tuple[str, int, int, int]]:
    """(key, type, start, end) of the members at depth 1 of a valid object, in order; strings without their quotes."""
    found = []
    at = _skip(text, _skip(text, 0) + 1)
    while text[at] != "}":
        key, at = json.decoder.scanstring(text, at + 1)
        at = _skip(text, _skip(text, at) + 1)
        _, end = _DECODER.raw_decode(text, at)
        found.append((key, *_typed(text, at, end)))
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return found


def _skip(text: str, at: int) -> int:
    while text[at] in _SPACE:
        at += 1
    return at


def _typed(text: str, begin: int, end: int) -> tuple[int, int, int]:
    raw = text[begin:end]
    if raw[0] == '"':
        return (ESCAPED if "\\" in raw else STRING), begin + 1, end - 1
    kinds = {"{": OBJECT, "[": ARRAY, "t": TRUE, "f": FALSE, "n": NULL}
    if raw[0] in kinds:
        return kinds[raw[0]], begin, end
    return (INT if re.fullmatch(r"-?[0-9]+", raw) else FLOAT), begin, end


def text_of(kind: int, raw: bytes) -> str | None:
    """Return the text of a value, None unless it is a string."""
    return whole(json.loads(b'"' + raw + b'"')) if kind in (STRING, ESCAPED) else None


def literal(text: str | None) -> str:
    return json.dumps(text, ensure_ascii=False)
