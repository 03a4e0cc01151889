"""An Arrow table as the origin of rows (Parquet input, results of users' readers), with their hashes and sizes.

A row's hash is the sum of one term per column, a mix of the column's name, the family of its type, and the value. So it
does not depend on chunks, slices, the order of columns, or the width of a type (int32 1 = int64 1, string =
large_string), but does on names, nulls, values and families (1, 1.0, true and "1" all differ). Lists of numbers
(embeddings) count by their numbers in memory, 64 bits each; other nested values by their canonical JSON text (slow, and
a null member equals a missing one), as do lists with a null in them.

The size of a row is that of its texts, binary values and numbers (as wide as their type), those in lists, maps and
structs included; a null has none. So it does not depend on chunks, slices or neighbours, as shares of the table's
memory would.

Memory: 32 bytes per row, and 8 per number of some lists, or of the longest list.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis.formats.schema.run_schema import NO_FIELDS
from tamis.kernels.buffers import string_buffers, validity_of
from tamis.kernels.records.hash128 import NULL_HI, NULL_LO, combine, hash_arrow_strings, hash_fixed, hash_spans
from tamis.tasks.columns.canonical import canonical_text
from tamis.tasks.columns.casting import is_bytes, is_list, is_text
from tamis.tasks.columns.exact import take_or_null, to_computable
from tamis.tasks.columns.frame_types import KindCount
from tamis.tasks.columns.python_values import python_values

Array = np.ndarray[Any, Any]
Words = npt.NDArray[np.uint64]
_TEXT, _BYTES, _INT, _LARGE_INT, _FLOAT, _BOOL, _NESTED, _FLOATS, _INTS = range(1, 10)
_HASHED_NUMBERS = 1 << 17  # of lists that are hashed together


class TableBlock:
    """Rows of a table; the counterpart of JsonlBlock for input that is decoded already."""

    is_typed = True  # types are those of the input, not of the values that happen to be here
    is_parsed = True
    keeps_bytes = False

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self.n_rows = len(table)
        self.record_bytes: Array | None = None  # of the data that each row refers to, if that is not the row itself
        self.stored_offsets: Array | None = None  # of records in their files, where places are other positions
        # Asking the table goes through all names.
        self._column_index = {name: i for i, name in enumerate(table.column_names) if name != NO_FIELDS}
        # Input file and row number, by row.
        self.places: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]] | None = None

    def field_names(self, rows: Array | None = None) -> list[str]:
        """Return all columns: they are declared, and every row has them."""
        return list(self._column_index)

    def column(self, name: str) -> pa.Array:
        if name not in self._column_index:
            return pa.nulls(self.n_rows)
        return to_computable(self._chunk(name))

    def exact(self, name: str, rows: Array) -> pa.Array:
        """Return one column of some rows (null where a row is -1), with every value preserved exactly."""
        if name not in self._column_index:
            return pa.nulls(len(rows))
        return take_or_null(self._chunk(name), rows)

    def _chunk(self, name: str) -> pa.Array:
        chunks = self.table.column(self._column_index[name])
        return chunks.chunk(0) if chunks.num_chunks == 1 else chunks.combine_chunks()

    def count_kinds(self, name: str, rows: Array) -> KindCount:
        raise TypeError("columns of tables have types of their own")

    def narrow(self, rows: Array) -> None:
        """Do nothing: columns are decoded one by one, each as a whole, so there is nothing to save."""

    def column_of(self, name: str, rows: Array) -> pa.Array:
        return self.column(name).take(pa.array(rows))

    def kinds(self, name: str) -> None:
        """Return None: the columns themselves have the kinds of values."""

    def sizes(self, rows: Array) -> Array:
        if self.record_bytes is not None:
            return np.where(rows >= 0, self.record_bytes[np.maximum(rows, 0)], 0)
        return np.where(rows >= 0, self.table.nbytes // max(1, self.n_rows), 0)

    def lengths(self, rows: Array) -> Array:
        each = row_bytes(self.table) if self.record_bytes is None else self.record_bytes
        return np.where(rows >= 0, each[np.maximum(rows, 0)], 0) if len(each) else np.zeros(len(rows), np.int64)

    def raw(self, row: int) -> None:
        """Return None: rows have no bytes of their own."""

    def identity(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        return row_hashes(self.table)


# -- content hashes ----------------------------------------------------------------------------------------------------
def row_hashes(table: pa.Table) -> tuple[Words, Words]:
    """Return (hi, lo) of every row."""
    hi, lo = np.zeros(table.num_rows, np.uint64), np.zeros(table.num_rows, np.uint64)
    for name in table.column_names:
        first_hi, first_lo = _bytes_hash(name.encode("utf-8", "surrogatepass"))
        offset = 0
        for chunk in table.column(name).chunks:
            end = offset + len(chunk)
            name_hi, name_lo = np.full(len(chunk), first_hi), np.full(len(chunk), first_lo)
            term_hi, term_lo = combine(name_hi, name_lo, *_values(chunk))
            lo[offset:end] += term_lo
            hi[offset:end] += term_hi + (lo[offset:end] < term_lo)  # the carry of a 128-bit sum
            offset = end
    return hi, lo


def _values(array: pa.Array) -> tuple[Words, Words]:
    """Return (hi, lo) of the values of a chunk, seeded by the family of their type; nulls are alike."""
    if (decoded := _decoded(array)) is not array:
        return _values(decoded)
    kind = array.type
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
        return _value_texts(array, canonical_text, _NESTED)
    if is_text(kind):
        return _spans(array, _TEXT)
    if is_bytes(kind):
        return _spans(array, _BYTES)
    return _value_texts(array, str, _text_seed(str(kind)))  # decimals and what may yet come


def _decoded(array: pa.Array) -> pa.Array:
    """Return the array itself, or its values where its type stores them in another form (one level of it)."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return array.storage
    if pa.types.is_dictionary(kind):
        return array.dictionary_decode()
    if pa.types.is_string_view(kind):
        return array.cast(pa.large_string())
    if pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        return array.cast(pa.large_binary())
    return array


def _value_texts(array: pa.Array, to_text: Callable[[Any], str], seed: int) -> tuple[Words, Words]:
    """Hash each value by its text."""
    texts = [None if value is None else to_text(value) for value in python_values(array)]
    return _spans(pa.array(texts, pa.large_string()), seed)


def _is_list_of_numbers(kind: pa.DataType) -> bool:
    return is_list(kind) and bool(pa.types.is_floating(kind.value_type) or pa.types.is_signed_integer(kind.value_type))


def _number_lists(array: pa.Array) -> tuple[Words, Words]:
    """Hash each list by its bytes, or by its text if it contains a null, independently of neighbouring lists."""
    lists = array.cast(pa.large_list(array.type.value_type))
    offsets = lists.offsets.to_numpy()
    hi, lo = _hash_lists(lists.values, offsets)
    if lists.values.null_count:
        first, last = int(offsets[0]), int(offsets[-1])
        nulls = np.flatnonzero(np.asarray(lists.values.slice(first, last - first).is_null()))
        rows = np.unique(np.searchsorted(offsets, nulls + first, side="right") - 1)
        texts = [canonical_text(value) for value in array.take(pa.array(rows)).to_pylist() if value is not None]
        rows = rows[np.asarray(array.is_valid())[rows]]
        hi[rows], lo[rows] = _spans(pa.array(texts, pa.large_string()), _NESTED)
    return _with_nulls(array, hi, lo)


def _hash_lists(values: pa.Array, offsets: Array) -> tuple[Words, Words]:
    """Hash the numbers between each two offsets as 64-bit ones, through one buffer; nulls have arbitrary values."""
    is_float = pa.types.is_floating(values.type)
    n_lists, n_longest = len(offsets) - 1, int(np.diff(offsets).max(initial=0))
    hi, lo = np.empty(n_lists, np.uint64), np.empty(n_lists, np.uint64)
    n_together = min(max(n_longest, _HASHED_NUMBERS), int(offsets[-1] - offsets[0])) if n_lists else 0
    wide = np.empty(max(1, n_together), np.float64 if is_float else np.int64)
    data = _stored_numbers(values)
    first = 0
    while first < n_lists:
        begin = int(offsets[first])
        end = max(first + 1, int(np.searchsorted(offsets, begin + n_together, side="right")) - 1)
        numbers = wide[: int(offsets[end]) - begin]
        np.copyto(numbers, data[begin : int(offsets[end])])
        if is_float and (nan := np.isnan(numbers)).any():
            numbers[nan] = np.nan
        spans = (offsets[first : end + 1] - begin).astype(np.int64) * 8
        hi[first:end], lo[first:end] = hash_spans(
            wide.view(np.uint8), spans[:-1], np.diff(spans), _FLOATS if is_float else _INTS
        )
        first = end
    return hi, lo


def _stored_numbers(values: pa.Array) -> Array:
    """Return the numbers of an array as they are in memory, without a copy; values at nulls are arbitrary."""
    kind = np.dtype(values.type.to_pandas_dtype())
    buffer = values.buffers()[1]
    if buffer is None or not len(values):
        return np.zeros(len(values), kind)
    return np.frombuffer(buffer, kind, len(values), values.offset * kind.itemsize)


def _numbers(array: pa.Array) -> tuple[Words, Words]:
    kind = array.type
    if pa.types.is_boolean(kind):
        return hash_fixed(_words(array.cast(pa.uint8()).cast(pa.int64()), np.int64), _BOOL)
    if pa.types.is_floating(kind):
        return hash_fixed(_float_words(array.cast(pa.float64())), _FLOAT)
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


def _float_words(array: pa.Array) -> Words:
    """Return float64 values as they are in memory, all NaN with one bit pattern; a copy only if there are any."""
    if not len(array):
        return np.zeros(0, np.uint64)
    values = np.frombuffer(array.buffers()[1], np.float64, len(array), array.offset * 8)
    if (nan := np.isnan(values)).any():
        values = values.copy()
        values[nan] = np.nan
    return values.view(np.uint64)


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


# -- sizes -------------------------------------------------------------------------------------------------------------
def row_bytes(table: pa.Table) -> Array:
    sizes = np.zeros(table.num_rows, np.int64)
    for column in table.columns:
        offset = 0
        for chunk in column.chunks:
            sizes[offset : offset + len(chunk)] += _sizes(chunk)
            offset += len(chunk)
    return sizes


def _sizes(array: pa.Array) -> Array:
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return _sizes(array.storage)
    if pa.types.is_dictionary(kind):
        return _picked(array)
    if pa.types.is_run_end_encoded(kind):
        return _sizes(pc.run_end_decode(array))
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        array = array.cast(pa.large_binary())
        kind = array.type
    if is_text(kind) or is_bytes(kind):
        return np.asarray(pc.binary_length(array).fill_null(0), np.int64)
    if pa.types.is_struct(kind):
        return sum((_sizes(field) for field in array.flatten()), np.zeros(len(array), np.int64))
    if pa.types.is_fixed_size_list(kind):
        array = array.cast(pa.large_list(kind.value_field))
        kind = array.type
    if is_list(kind) or pa.types.is_map(kind):
        return _listed(array)
    return np.where(_valid(array), _width(kind), 0)


def _width(kind: pa.DataType) -> int:
    try:
        return int(kind.bit_width + 7) // 8
    except ValueError:  # none, as of nulls, unions and views of lists
        return 0


def _valid(array: pa.Array) -> Array:
    return np.asarray(array.is_valid())


def _picked(array: pa.DictionaryArray) -> Array:
    if not len(array.dictionary):
        return np.zeros(len(array), np.int64)
    indices = np.asarray(array.indices.fill_null(0), np.int64)
    return np.where(_valid(array), _sizes(array.dictionary)[indices], 0)


def _listed(array: Any) -> Array:
    offsets = np.asarray(array.offsets, np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    values = array.values.slice(first, last - first)
    if pa.types.is_primitive(values.type) and values.type.bit_width % 8 == 0 and not values.null_count:
        return np.where(_valid(array), np.diff(offsets) * (values.type.bit_width // 8), 0)
    ends = np.zeros(last - first + 1, np.int64)
    np.cumsum(_sizes(values), out=ends[1:])
    each = ends[offsets[1:] - first] - ends[offsets[:-1] - first]
    return np.where(_valid(array), each, 0)
