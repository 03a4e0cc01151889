"""Rows of columns of every kind, cut and laid out as Arrow allows: the same as Arrow's own take, or Python's lists."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tamis.kernels import text_rows
from tamis.tasks.columns.exact import replace_where, take_or_null

LETTERS = ["", "a", "ä", "日本", "\U0001f9c0", "x" * 15, "y" * 64, "z" * 700, "\x00", "ab\ncd"]


class Tagged(pa.ExtensionType):  # type: ignore[misc]
    """Texts under another name."""

    def __init__(self) -> None:
        super().__init__(pa.large_string(), "test.tagged")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> Tagged:
        return cls()


PLAIN = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()]
OTHER = [
    pa.string_view(),
    pa.binary_view(),
    pa.dictionary(pa.int8(), pa.string()),
    pa.list_(pa.string()),
    pa.struct([("a", pa.string())]),
    pa.int32(),
    pa.bool_(),
    pa.null(),
    Tagged(),
    pa.binary(3),
]


def value(kind: pa.DataType, rng: np.random.Generator) -> Any:
    text = "".join(LETTERS[i] for i in rng.integers(len(LETTERS), size=rng.integers(4)))
    if pa.types.is_null(kind) or rng.random() < 0.2:
        return None
    if kind == pa.binary(3):
        return bytes(rng.integers(256, size=3, dtype=np.uint8))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or kind == pa.binary_view():
        return text.encode() + bytes([int(rng.integers(256))])
    if pa.types.is_integer(kind):
        return len(text)
    if pa.types.is_boolean(kind):
        return len(text) > 3
    if pa.types.is_list(kind):
        return [text, None, text[:1]][: int(rng.integers(4))]
    return {"a": text} if pa.types.is_struct(kind) else text


def column(kind: pa.DataType, values: list[Any], rng: np.random.Generator) -> pa.Array:
    """Return a slice of a longer column, whose nulls may have bytes and whose bitmap may begin inside a byte."""
    before, after = (int(n) for n in rng.integers(11, size=2))
    more = [value(kind, rng) for _ in range(before + after)]
    every = [*more[:before], *values, *more[before:]]
    if isinstance(kind, Tagged):
        made = pa.ExtensionArray.from_storage(kind, pa.array(every, kind.storage_type))
    elif kind in PLAIN and rng.random() < 0.7:
        rest = b"secret" if kind in PLAIN[2:] else "secret"
        full = pa.array([rest if v is None else v for v in every], kind)
        valid = np.packbits(np.array([v is not None for v in every], bool), bitorder="little")
        made = pa.Array.from_buffers(kind, len(every), [pa.py_buffer(valid), *full.buffers()[1:]])
    else:
        made = pa.array(every, kind)
    return made[before : before + len(values)]


def plain(array: pa.Array) -> list[Any]:
    return list(array.storage.to_pylist() if isinstance(array, pa.ExtensionArray) else array.to_pylist())


@pytest.mark.parametrize("kind", [*PLAIN, *OTHER], ids=str)
def test_rows_of_any_column_are_those_of_a_list(kind: pa.DataType) -> None:
    rng = np.random.default_rng(len(str(kind)))
    for _ in range(60):
        values = [value(kind, rng) for _ in range(int(rng.integers(40)))]
        array = column(kind, values, rng)
        rows = rng.integers(-1, len(values), size=int(rng.integers(60))) if values else np.zeros(0, np.int64)
        rows = np.sort(rows) if rng.random() < 0.3 else rows
        for take in (text_rows.take, take_or_null):
            found = take(array, rows)
            found.validate(full=True)
            assert found.type == kind
            assert plain(found) == [None if r < 0 else values[r] for r in rows]
            if kind in PLAIN and found is not array:
                assert b"secret" not in bytes(found.buffers()[2] or b"")  # what lies beneath nulls goes nowhere


@pytest.mark.parametrize("kind", [*PLAIN, *OTHER], ids=str)
def test_replaced_rows_of_any_column_are_those_of_a_list(kind: pa.DataType) -> None:
    rng = np.random.default_rng(len(str(kind)))
    for _ in range(60):
        values = [value(kind, rng) for _ in range(int(rng.integers(40)))]
        mask = rng.random(len(values)) < rng.random()
        new = [value(kind, rng) for _ in range(int(mask.sum()))]
        array, others = column(kind, values, rng), column(kind, new, rng)
        found = replace_where(array, mask, others)
        found.validate(full=True)
        come = iter(new)
        assert plain(found) == [next(come) if is_new else v for v, is_new in zip(values, mask, strict=True)]
        if kind in PLAIN:
            assert found.type == kind
            assert text_rows.replace(array, mask, others).equals(found)
            assert b"secret" not in bytes(found.buffers()[2] or b"")


def test_columns_in_chunks_are_taken_and_replaced_too() -> None:
    chunks = pa.chunked_array([["a", None], [], ["bb", "ccc"]], pa.large_string())
    assert text_rows.take(chunks, np.array([3, 0, -1, 1])).to_pylist() == ["ccc", "a", None, None]
    mask = np.array([True, False, False, True])
    assert text_rows.replace(chunks, mask, pa.array(["x", "y"], pa.large_string())).to_pylist() == [
        "x",
        None,
        "bb",
        "y",
    ]


@pytest.mark.parametrize("kind", PLAIN, ids=str)
def test_columns_without_rows(kind: pa.DataType) -> None:
    for empty in (
        pa.array([], kind),
        pa.array(["a"], kind)[1:],
        pa.Array.from_buffers(kind, 0, [None, None, pa.py_buffer(b"")]),
    ):
        assert text_rows.take(empty, np.zeros(0, np.int64)).equals(pa.array([], kind))
        assert text_rows.take(empty, np.array([-1, -1])).equals(pa.nulls(2, kind))
        assert text_rows.replace(empty, np.zeros(0, bool), pa.array([], kind)).equals(pa.array([], kind))
        with pytest.raises((IndexError, ValueError)):
            text_rows.take(empty, np.array([0]))


def test_offsets_beyond_two_gigabytes() -> None:
    """Of rows that begin far behind 2**31, without so many bytes: the data are pages that nobody wrote to."""
    data = np.zeros(2**31 + 100, np.uint8)
    data[-3:] = np.frombuffer(b"end", np.uint8)
    offsets = np.array([0, 2, 2**31 + 97, 2**31 + 100], np.int64)
    far = pa.Array.from_buffers(pa.large_string(), 3, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    assert text_rows.take(far, np.array([2, 0, -1])).to_pylist() == ["end", "\0\0", None]
    short = text_rows.replace(far, np.array([True, True, False]), pa.array(["a", None], pa.large_string()))
    assert short.to_pylist() == ["a", None, "end"]


def test_offsets_outside_the_data_are_refused() -> None:
    for offsets in ([0, 99, 6], [0, 5, 2], [0, -4, 2]):
        broken = pa.Array.from_buffers(
            pa.large_string(), 2, [None, pa.py_buffer(np.array(offsets, np.int64)), pa.py_buffer(b"abcdef")]
        )
        with pytest.raises(ValueError, match="outside"):
            text_rows.take(broken, np.array([0, 1]))
        with pytest.raises(ValueError, match="outside"):
            text_rows.replace(broken, np.array([False, False]), pa.array([], pa.large_string()))
