"""unescape, escape and copy_spans against json and slices."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tamis.kernels.records.json_scan import scan_records
from tamis.kernels.records.json_text import copy_spans, escape, unescape
from tests.reference import json_fuzz
from tests.reference import json_twin as twin
from tests.support.limits import examples


def view(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


def texts_of(data: bytes, key: str = "text") -> list[str | None]:
    """Every value of `key` as `unescape` reads it."""
    found = scan_records(view(data), [key], 1 << 26)
    offsets, text, validity = unescape(view(data), found.types[:, 0], found.val_start[:, 0], found.val_len[:, 0])
    assert (offsets[0], offsets[-1], offsets.size) == (0, text.size, found.n_records + 1)
    assert validity.dtype == np.bool_
    values = [text[offsets[i] : offsets[i + 1]].tobytes().decode() for i in range(found.n_records)]
    assert all(value == "" for value, valid in zip(values, validity, strict=True) if not valid)
    return [value if valid else None for value, valid in zip(values, validity, strict=True)]


def literals_of(values: list[str | None], dtype: type = np.int64, start_row: int = 0) -> list[str]:
    encoded = [(value or "").encode() for value in values]
    offsets = np.cumsum([0, *(len(value) for value in encoded)]).astype(dtype)
    validity = None if None not in values else np.array([value is not None for value in values])
    n_rows = len(values) - start_row
    out_offsets, out = escape(offsets, view(b"".join(encoded)), validity, start_row, n_rows)
    assert (out_offsets[0], out_offsets[-1], out_offsets.size) == (0, out.size, n_rows + 1)
    return [out[out_offsets[i] : out_offsets[i + 1]].tobytes().decode() for i in range(n_rows)]


def test_every_escape() -> None:
    data = b'{"text":"\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\u00e9\\u6f22\\ud83d\\ude00\\u0000"}'
    assert texts_of(data) == ['"\\/\b\f\n\r\tA\u00e9\u6f22\U0001f600\0']


def test_lone_surrogates_become_replacement_characters() -> None:
    cases = [
        b"\\ud800",
        b"\\udc00",
        b"\\ud800x",
        b"\\ud800\\ud800",
        b"\\ud800\\ud83d\\ude00",
        b"\\ud800\\n",
        b"\\udc00\\ud800",
    ]
    data = b"".join(b'{"text":"' + case + b'"}\n' for case in cases)
    assert texts_of(data) == [
        "\ufffd",
        "\ufffd",
        "\ufffdx",
        "\ufffd\ufffd",
        "\ufffd\U0001f600",
        "\ufffd\n",
        "\ufffd\ufffd",
    ]


def test_other_types_are_null() -> None:
    data = b'{"text":1}\n{"text":null}\n{"text":""}\n{}\nbad\n{"text":["a"]}\n{"text":{"a":"b"}}\n{"text":"x"}\n'
    assert texts_of(data) == [None, None, "", None, None, None, None, "x"]


def test_no_rows() -> None:
    assert texts_of(b"") == []
    assert literals_of([]) == []


@pytest.mark.parametrize("raw", [b"\\n", b"\\u00e9", b"\\ud83d\\ude00", "\u00e9".encode(), b"\\ud800"])
def test_every_escape_at_every_position(raw: bytes) -> None:
    data = b"".join(b'{"text":"' + b"x" * n + raw + b"y" * (n % 7) + b'"}\n' for n in range(140))
    assert texts_of(data) == [twin.whole(json.loads(line)["text"]) for line in data.splitlines()]
    for n in range(70):
        short = b'{"text":"' + b"x" * n + raw + b'"}'
        assert texts_of(short) == [twin.whole(json.loads(short)["text"])]


def test_unescape_of_mutated_lines() -> None:
    for seed in range(20, 26):
        data = json_fuzz.mutated_lines(seed, 800)
        records, _ = twin.scan(data)
        expected = []
        for record in records:
            kind, start, length = record.fields.get("text", (0, 0, 0))
            expected.append(twin.text_of(kind, data[start : start + length]))
        assert texts_of(data) == expected


def test_every_character_below_256_is_escaped_as_json_does() -> None:
    values: list[str | None] = [chr(c) for c in range(256)]
    assert literals_of(values) == [json.dumps(value, ensure_ascii=False) for value in values]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_nulls_and_slices(dtype: type) -> None:
    assert literals_of(["a", None, "", 'q"'], dtype) == ['"a"', "null", '""', '"q\\""']
    assert literals_of(["a", None, "", 'q"'], dtype, start_row=1) == ["null", '""', '"q\\""']
    assert literals_of(["a", "b\n"], dtype, start_row=1) == ['"b\\n"']


@pytest.mark.parametrize("special", ['"', "\\", "\n", "\x00", "\x1f", "\x7f", "\u2028", "\U0001f600"])
def test_every_special_character_at_every_position(special: str) -> None:
    values: list[str | None] = ["x" * n + special + "y" * (n % 67) for n in range(140)]
    assert literals_of(values) == [json.dumps(value, ensure_ascii=False) for value in values]
    for n in range(70):
        assert literals_of(["z" * n + special]) == [json.dumps("z" * n + special, ensure_ascii=False)]


_WHOLE = st.text(st.characters(exclude_categories=["Cs"]), max_size=150)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.none() | _WHOLE, max_size=8), st.data())
def test_escape_equals_json_dumps(values: list[str | None], data: st.DataObject) -> None:
    start_row = data.draw(st.integers(0, len(values)))
    dtype = data.draw(st.sampled_from([np.int32, np.int64]))
    assert literals_of(values, dtype, start_row) == [twin.literal(value) for value in values[start_row:]]


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(_WHOLE, max_size=8), st.booleans())
def test_unescape_undoes_json_dumps(values: list[str], ascii_only: bool) -> None:
    lines = [json.dumps({"text": value}, ensure_ascii=ascii_only) for value in values]
    assert texts_of("\n".join(lines).encode()) == values


def test_rows_outside_are_refused() -> None:
    offsets = np.array([0, 1, 2])
    for start_row, n_rows in ((-1, 1), (0, 3), (2, 1), (0, -1)):
        with pytest.raises(ValueError, match="outside the 2 rows"):
            escape(offsets, view(b"ab"), None, start_row, n_rows)
    with pytest.raises(ValueError, match="outside the 2 bytes"):
        escape(np.array([0, 1, 9]), view(b"ab"), None, 0, 2)
    with pytest.raises(ValueError, match="outside the 2 bytes"):
        escape(np.array([0, 2, 1]), view(b"ab"), None, 0, 2)


def test_values_outside_are_refused() -> None:
    with pytest.raises(ValueError, match="outside the 3 bytes"):
        unescape(view(b"abc"), np.array([6], np.uint8), np.array([1]), np.array([3]))


def test_copy_spans() -> None:
    rng = np.random.default_rng(1)
    buf = rng.integers(0, 256, 5000).astype(np.uint8)
    lens = rng.choice([0, 1, 7, 8, 9, 31, 33, 64, 200], 300)
    starts = rng.integers(0, 4800, 300)
    out_starts = np.concatenate([[0], np.cumsum(lens)[:-1]])
    out = np.zeros(lens.sum(), np.uint8)
    copy_spans(buf, starts, lens, out, out_starts)
    assert out.tobytes() == b"".join(buf[s : s + n].tobytes() for s, n in zip(starts, lens, strict=True))


def test_copy_spans_refuses_spans_outside() -> None:
    one = np.array([0])
    for starts, lens, to in (([-1], [1], one), ([3], [2], one), ([0], [-1], one), ([0], [2], np.array([3]))):
        with pytest.raises(ValueError, match="span 0"):
            copy_spans(np.zeros(4, np.uint8), np.array(starts), np.array(lens), np.zeros(4, np.uint8), to)
    with pytest.raises(ValueError, match="expected equal lengths"):
        copy_spans(np.zeros(4, np.uint8), one, np.array([1, 2]), np.zeros(4, np.uint8), one)
