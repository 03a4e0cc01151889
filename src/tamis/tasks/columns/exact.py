"""Columns that hold every value exactly, whatever its neighbours are.

Covers: Python values -> column -> Python values, texts and kinds of a column. A column is typed if its type can
represent all of its values unchanged: only texts, only bools, only integers, only floats, lists of these that are alike
throughout. Otherwise it is one of JSON values (json_type.py). So 1 never becomes 1.0, nor an object without a member
one with a null in it. `to_computable` returns the form that users compute with.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis.kernels import buffers, text_rows
from tamis.kernels.records import json_text
from tamis.tasks.columns.canonical import canonical_text
from tamis.tasks.columns.casting import is_bytes, is_text
from tamis.tasks.columns.inference import typed_array
from tamis.tasks.columns.json_type import Digits, deep_recursion, is_json, json_column, json_values
from tamis.tasks.columns.literals import as_json, literals_of_values, plain_value
from tamis.tasks.columns.python_values import python_values
from tamis.tasks.lineage import NULL, OTHER, TEXT

Array = np.ndarray[Any, Any]
_QUOTE = 34
_ESCAPED = 7  # what json_text.unescape calls a string that may hold escapes
_LARGEST = 1 << 1023  # what may be a float
_MAX_DEPTH = 28  # Arrow and Parquet readers recurse
_TIMES = (datetime.datetime, datetime.date, datetime.time, datetime.timedelta)


# -- from Python values -----------------------------------------------------------------------------------------------
def exact_array(values: Sequence[Any]) -> pa.Array:
    """Return a column of Python values, each preserved exactly.

    Values that JSON cannot represent (times, bytes) are converted to one that it can, unless all are of the same type.
    """
    values = [v.item() if isinstance(v, np.generic) else v.as_py() if isinstance(v, pa.Scalar) else v for v in values]
    with deep_recursion():
        kind = _exact_type(values, 0)
    if kind is not None:
        return pa.array(values, kind)
    alike = {type(v) for v in values if v is not None}
    if len(alike) == 1 and issubclass(alike.pop(), (*_TIMES, bytes)):
        try:
            array = pa.array(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
            return literals_of_values(values)
        if array.to_pylist() == values:  # else: time zones that differ
            return array
    return literals_of_values(values)


def _exact_type(values: Sequence[Any], depth: int) -> pa.DataType | None:
    """Return the type that holds all of these values exactly, or None if there is none."""
    kinds = set(map(type, values)) - {type(None)}
    if not kinds:
        return pa.null()
    if len(kinds) > 1 or depth > _MAX_DEPTH:
        return None
    kind = kinds.pop()
    if kind is str:
        return pa.large_string() if _all_utf8(values) else None
    if kind is bool:
        return pa.bool_()
    if kind is float:
        return pa.float64()
    present = [v for v in values if v is not None]
    if kind is int:
        return _integer_type(min(present), max(present))
    if kind is list:
        inner = _exact_type([item for v in present for item in v], depth + 1)
        return None if inner is None else pa.list_(inner)
    return None  # objects: a struct would give each the members of all


def _all_utf8(texts: Sequence[str | None]) -> bool:
    return all(text is None or text.isascii() or _is_utf8(text) for text in texts)


def _integer_type(least: int, largest: int) -> pa.DataType | None:
    """Return the type for integers from `least` to `largest`; None if none holds them all."""
    if least >= -(2**63) and largest < 2**63:
        return pa.int64()
    return pa.uint64() if least >= 0 and largest < 2**64 else None


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# -- to Python values -------------------------------------------------------------------------------------------------
def values_of(array: pa.Array) -> list[Any]:
    """Return the values of a column as Python objects."""
    if is_json(array.type):
        return json_values(array)
    return python_values(array)


def kinds_of(array: pa.Array) -> Array:
    """Return NULL, TEXT or OTHER for every value."""
    valid = np.asarray(array.is_valid())
    if is_json(array.type):
        return np.where(_is_quoted(array), TEXT, np.where(valid, OTHER, NULL)).astype(np.uint8)
    return np.where(valid, TEXT if _holds_text(array.type) else OTHER, NULL).astype(np.uint8)


def texts_of_column(array: pa.Array) -> pa.Array:
    """Return the texts of a column as string or large_string, with null for values that are not text."""
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return array
    if _holds_text(kind):
        return array.cast(pa.large_string())
    if not is_json(kind):
        return pa.nulls(len(array), pa.large_string())
    parts = buffers.string_buffers(array.storage)
    offsets = np.asarray(parts.offsets, np.int64)
    quoted = _is_quoted(array)
    types = np.where(quoted, _ESCAPED, 0).astype(np.uint8)
    start, length = offsets[:-1] + 1, np.where(quoted, np.diff(offsets) - 2, 0)
    return buffers.string_array(*json_text.unescape(parts.data, types, start, length))


def _is_quoted(array: pa.Array) -> Array:
    """Return a mask of the rows of a JSON column whose value is a string."""
    parts = buffers.string_buffers(array.storage)
    first, filled = parts.offsets[:-1], parts.offsets[1:] > parts.offsets[:-1]
    quoted = np.zeros(len(array), bool)
    quoted[filled] = parts.data[first[filled]] == _QUOTE
    return quoted if parts.validity is None else quoted & parts.validity


def _holds_text(kind: pa.DataType) -> bool:
    """Return True for texts, also in another encoding (a dictionary, views)."""
    return is_text(kind.value_type if pa.types.is_dictionary(kind) else kind)


# -- other forms ------------------------------------------------------------------------------------------------------
def to_computable(array: pa.Array) -> pa.Array:
    """Return the column in the form that users compute with.

    JSON values that agree well enough for an Arrow type (1 and 2.5; objects of which one has an additional member) are
    converted to that type; others stay JSON values.
    """
    if not is_json(array.type):
        return array
    with deep_recursion():
        typed = typed_array(json_values(array))
    return array if typed is None else typed


def stored(array: pa.Array) -> pa.Array:
    """Return the column in the form used by Parquet, ids and reports.

    Like `to_computable`, but values that do not agree become text, by the rules of canonical.py.
    """
    array = to_computable(array)
    if not is_json(array.type):
        return array
    with deep_recursion():
        texts = [None if v is None else canonical_text(v) for v in json_values(array)]
    return pa.array(texts, pa.large_string())


def take_or_null(array: pa.Array, rows: Array) -> pa.Array:
    """Return the values of these rows, with null where a row is -1.

    Returns the column itself if `rows` are all of its rows in order.
    """
    if not len(array):
        return pa.nulls(len(rows), array.type)
    if len(rows) == len(array) and bool((rows == np.arange(len(rows))).all()):
        return array
    return text_rows.take(array, rows)


def replace_where(array: pa.Array, mask: Array, values: pa.Array) -> pa.Array:
    """Return the column with `values` where `mask` is true, preserving every value exactly.

    `values` has as many entries as there are such rows.
    """
    if array.type != values.type and not pa.types.is_null(array.type) and not pa.types.is_null(values.type):
        if is_text(array.type) and is_text(values.type):
            values = values.cast(array.type)
        else:
            array, values = as_json(array), as_json(values)
    elif pa.types.is_null(array.type):
        array = pa.nulls(len(array), values.type)
    elif pa.types.is_null(values.type):
        values = pa.nulls(len(values), array.type)
    if (large := text_rows.large_of_view(array.type)) is not None:
        array, values = array.cast(large), values.cast(large)
    if is_json(array.type):
        return json_column(pc.replace_with_mask(array.storage, pa.array(mask), values.storage))
    if (
        pa.types.is_nested(array.type)
        or pa.types.is_dictionary(array.type)
        or isinstance(array.type, pa.BaseExtensionType)
    ):
        indices = np.arange(len(array))
        indices[mask] = len(array) + np.arange(len(values))
        return pa.concat_arrays([array, values]).take(pa.array(indices))
    return text_rows.replace(array, mask, values)


def cast_back(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast the column back to its previous type `kind` if that preserves every value.

    A number stays a number, and a text stays a text; otherwise the column is returned unchanged.
    """
    if array.type == kind or is_json(kind):
        return array
    is_number = [pa.types.is_integer(k) or pa.types.is_floating(k) for k in (array.type, kind)]
    is_nested = [pa.types.is_nested(k) or is_json(k) for k in (array.type, kind)]
    try:
        if all(is_nested):
            cast = pa.array(values_of(array), kind)
            return cast if same_values(cast, array).all() else array
        is_alike = all(is_number) or _family(array.type) == _family(kind)
        return array.cast(kind) if is_alike or pa.types.is_null(array.type) else array
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return array


def _family(kind: pa.DataType) -> str:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return "text" if is_text(kind) else "time" if pa.types.is_timestamp(kind) else str(kind).removeprefix("large_")


# -- equality ---------------------------------------------------------------------------------------------------------
_OF_ONE_TYPE = (Digits, type(None))  # equal only to values of the same type


def _is_same_number(a: float, b: float, loose: bool) -> bool:
    if a == b or (a != a and b != b):
        return True
    return loose and type(a) is not type(b) and max(abs(a), abs(b)) < _LARGEST and float(a) == float(b)


def _is_same_object(a: dict[str, Any], b: dict[str, Any], loose: bool) -> bool:
    if loose:
        a, b = ({k: v for k, v in x.items() if v is not None} for x in (a, b))
    return len(a) == len(b) and all(k in b and is_same(v, b[k], loose) for k, v in a.items())


def _is_same_list(a: Sequence[Any], b: Sequence[Any], loose: bool) -> bool:
    return len(a) == len(b) and all(is_same(x, y, loose) for x, y in zip(a, b, strict=True))


def is_same(a: Any, b: Any, loose: bool = False) -> bool:
    """Return True if two values are the same.

    1 and 1.0 are the same (Arrow and pandas convert one into the other); true and 1 never are.

    `loose` is for values that went through pandas: an integer beyond 2^53 then equals the nearest float, which it
    becomes among floats, and objects are equal if they differ only in null members, which they get as rows of an Arrow
    table.
    """
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return _is_same_number(a, b, loose)
    if isinstance(a, dict) and isinstance(b, dict):
        return _is_same_object(a, b, loose)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return _is_same_list(a, b, loose)
    if isinstance(a, str):
        return isinstance(b, str) and a == b
    if isinstance(b, str):
        return False
    if isinstance(a, _OF_ONE_TYPE) or isinstance(b, _OF_ONE_TYPE):
        return type(a) is type(b) and a == b
    return bool(plain_value(a) == plain_value(b))


def same_values(new: pa.Array, old: pa.Array, loose: bool = False) -> Array:
    """Return a mask of the rows where two columns hold the same value (both null counts); `loose` as in `is_same`."""
    nulls: Array = np.asarray(pc.and_(new.is_null(), old.is_null()).to_numpy(zero_copy_only=False), bool)
    if pa.types.is_null(new.type) or pa.types.is_null(old.type) or nulls.all():
        return nulls
    if is_json(new.type) and is_json(old.type):
        equal = pc.fill_null(pc.equal(new.storage, old.storage), False).to_numpy(zero_copy_only=False)
        same: Array = equal | nulls
        unequal = np.flatnonzero(~same)
        same[unequal] = _same_one_by_one(new.take(pa.array(unequal)), old.take(pa.array(unequal)), loose)
        return same
    if _comparable(new.type, old.type):
        try:
            equal = pc.fill_null(pc.equal(new.cast(old.type), old), False).to_numpy(zero_copy_only=False)
            return np.asarray(equal | nulls, bool)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
            pass  # a value of this column does not fit the other type: one by one, exactly
    return _same_one_by_one(new, old, loose) | nulls


def _comparable(a: pa.DataType, b: pa.DataType) -> bool:
    """Return True for types that Arrow compares as `is_same` does."""
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, is_text, pa.types.is_temporal, is_bytes)
    return any(test(a) and test(b) for test in tests)


def _same_one_by_one(new: pa.Array, old: pa.Array, loose: bool) -> Array:
    with deep_recursion():
        pairs = zip(values_of(new), values_of(old), strict=True)
        return np.fromiter((is_same(a, b, loose) for a, b in pairs), bool, len(new))
