"""Content hashes of the rows of an Arrow table. Covers: 128 bits per row over all columns.

A row's hash is the sum of one term per column, a mix of the column's name, the family of its type, and the value. So
it does not depend on chunks, slices, the order of columns, or the width of a type (int32 1 = int64 1, string =
large_string), but does on names, nulls, values and families (1, 1.0, true and "1" all differ). Lists of numbers (embeddings) count by the
numbers as they lie in memory, 64 bits each; other nested values by their canonical JSON text (slow, and a null member equals a
missing one), as do lists with a null in them. Memory: 32 bytes per row, and 8 per number in a list.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tamis.kernels.buffers import string_buffers, validity_of
from tamis.kernels.records.hash128 import NULL_HI, NULL_LO, combine, hash_arrow_strings, hash_fixed, hash_spans
from tamis.tasks.columns.canonical import canonical_text
from tamis.tasks.columns.casting import is_list
from tamis.tasks.columns.python_values import python_values

Words = npt.NDArray[np.uint64]
_TEXT, _BYTES, _INT, _LARGE_INT, _FLOAT, _BOOL, _NESTED, _FLOATS, _INTS = range(1, 10)


def row_hashes(table: pa.Table) -> tuple[Words, Words]:
    """(hi, lo) of every row."""
    hi, lo = np.zeros(table.num_rows, np.uint64), np.zeros(table.num_rows, np.uint64)
    for name in table.column_names:
        first_hi, first_lo = _bytes_hash(name.encode("utf-8", "surrogatepass"))
        at = 0
        for chunk in table.column(name).chunks:
            end = at + len(chunk)
            name_hi, name_lo = np.full(len(chunk), first_hi), np.full(len(chunk), first_lo)
            term_hi, term_lo = combine(name_hi, name_lo, *_values(chunk))
            lo[at:end] += term_lo
            hi[at:end] += term_hi + (lo[at:end] < term_lo)  # the carry of a 128-bit sum
            at = end
    return hi, lo


def _values(array: pa.Array) -> tuple[Words, Words]:
    """(hi, lo) of the values of one chunk, seeded by the family of their type. Nulls of all types are alike."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return _values(array.storage)
    if pa.types.is_dictionary(kind):
        return _values(array.dictionary_decode())
    if pa.types.is_null(kind):
        return np.full(len(array), NULL_HI), np.full(len(array), NULL_LO)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return _with_nulls(array, *_numbers(array))
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        width = pa.int32() if kind.bit_width == 32 else pa.int64()
        words = _words(array.view(width).cast(pa.int64()), np.int64)
        return _with_nulls(array, *hash_fixed(words, _text_seed(str(kind))))
    if _is_list_of_numbers(kind):
        return _number_lists(array)
    if pa.types.is_nested(kind):
        texts = [None if value is None else canonical_text(value) for value in python_values(array)]
        return _spans(pa.array(texts, pa.large_string()), _NESTED)
    if pa.types.is_large_string(kind) or pa.types.is_string(kind):
        return _spans(array, _TEXT)
    if pa.types.is_string_view(kind):
        return _spans(array.cast(pa.large_string()), _TEXT)
    if pa.types.is_large_binary(kind) or pa.types.is_binary(kind):
        return _spans(array, _BYTES)
    if pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        return _spans(array.cast(pa.large_binary()), _BYTES)
    texts = [None if value is None else str(value) for value in python_values(array)]  # decimals and what may yet come
    return _spans(pa.array(texts, pa.large_string()), _text_seed(str(kind)))


def _is_list_of_numbers(kind: pa.DataType) -> bool:
    return is_list(kind) and bool(pa.types.is_floating(kind.value_type) or pa.types.is_signed_integer(kind.value_type))


def _number_lists(array: pa.Array) -> tuple[Words, Words]:
    """Hash each list by its bytes, or by its text if it contains a null, independently of neighbouring lists."""
    is_float = pa.types.is_floating(array.type.value_type)
    lists = array.cast(pa.large_list(pa.float64() if is_float else pa.int64()))
    offsets = lists.offsets.to_numpy()
    first, last = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)
    members = lists.values.slice(first, last - first)
    words = _words(members, np.float64 if is_float else np.int64)
    if is_float:
        values = words.view(np.float64)
        values[np.isnan(values)] = np.nan  # one bit pattern for all NaN
    spans = (offsets - first).astype(np.int64) * 8
    hi, lo = hash_spans(_some_bytes(words), spans[:-1], np.diff(spans), _FLOATS if is_float else _INTS)
    if members.null_count:
        at = np.searchsorted(offsets, np.flatnonzero(np.asarray(members.is_null())) + first, side="right") - 1
        rows = np.unique(at)
        texts = [canonical_text(value) for value in array.take(pa.array(rows)).to_pylist() if value is not None]
        rows = rows[np.asarray(array.is_valid())[rows]]
        hi[rows], lo[rows] = _spans(pa.array(texts, pa.large_string()), _NESTED)
    return _with_nulls(array, hi, lo)


def _some_bytes(words: Words) -> npt.NDArray[np.uint8]:
    return words.view(np.uint8) if len(words) else np.zeros(1, np.uint8)


def _numbers(array: pa.Array) -> tuple[Words, Words]:
    kind = array.type
    if pa.types.is_boolean(kind):
        return hash_fixed(_words(array.cast(pa.uint8()).cast(pa.int64()), np.int64), _BOOL)
    if pa.types.is_floating(kind):
        values = _words(array.cast(pa.float64()), np.float64).view(np.float64)
        values[np.isnan(values)] = np.nan  # one bit pattern for all NaN
        return hash_fixed(values.view(np.uint64), _FLOAT)
    if not pa.types.is_uint64(kind):
        return hash_fixed(_words(array.cast(pa.int64()), np.int64), _INT)
    words = _words(array, np.uint64)
    hi, lo = hash_fixed(words, _INT)
    large = words > np.uint64(2**63 - 1)  # the same bits as a negative int64
    if large.any():
        hi[large], lo[large] = hash_fixed(words[large], _LARGE_INT)
    return hi, lo


def _words(array: pa.Array, dtype: type[np.generic]) -> Words:
    """Return a copy of the 64-bit values as they are in memory; values at nulls are arbitrary."""
    data = np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * 8) if len(array) else np.zeros(0, dtype)
    return data.copy().view(np.uint64)


def _with_nulls(array: pa.Array, hi: Words, lo: Words) -> tuple[Words, Words]:
    validity = validity_of(array)
    if validity is not None:
        hi[~validity], lo[~validity] = NULL_HI, NULL_LO
    return hi, lo


def _spans(array: pa.Array, seed: int) -> tuple[Words, Words]:
    buffers = string_buffers(array)
    return _with_nulls(array, *hash_arrow_strings(buffers.offsets, buffers.data, None, seed))


def _text_seed(text: str) -> int:
    return int(_bytes_hash(text.encode())[1])


def _bytes_hash(data: bytes) -> tuple[np.uint64, np.uint64]:
    buf = np.frombuffer(data or b"\0", np.uint8)
    hi, lo = hash_spans(buf, np.zeros(1, np.int64), np.array([len(data)], np.int64))
    return hi[0], lo[0]
