"""Sizes of the rows of an Arrow table, by their values. Covers: one number of bytes per row.

A row has the bytes of its texts, binary values and numbers (as wide as their type), those in lists, maps and structs
included; a null has none. So the size of a row does not depend on chunks, slices or neighbours, as shares of the table's
memory would. Memory: 8 bytes per row, and per element of the longest list column.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis.tasks.columns.casting import is_bytes, is_list, is_text

Array = np.ndarray[Any, Any]


def row_bytes(table: pa.Table) -> Array:
    sizes = np.zeros(table.num_rows, np.int64)
    for column in table.columns:
        at = 0
        for chunk in column.chunks:
            sizes[at : at + len(chunk)] += _sizes(chunk)
            at += len(chunk)
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
    at = np.asarray(array.indices.fill_null(0), np.int64)
    return np.where(_valid(array), _sizes(array.dictionary)[at], 0)


def _listed(array: Any) -> Array:
    offsets = np.asarray(array.offsets, np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    ends = np.zeros(last - first + 1, np.int64)
    np.cumsum(_sizes(array.values.slice(first, last - first)), out=ends[1:])
    each = ends[offsets[1:] - first] - ends[offsets[:-1] - first]
    return np.where(_valid(array), each, 0)
