"""Write values as JSON text: columns of any Arrow type, Python values, and lists of floats in both directions.

A value gets the same text from a column and from Python, whatever its neighbours are: a float is written alike whether
its column is float64 or one of JSON values. The fast path for lists of floats gives the same bits and bytes as the
general one (inference.py), or None where it does not apply.
"""

from __future__ import annotations

import base64
import datetime
import json
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis.kernels import buffers
from tamis.kernels.records import json_text
from tamis.tasks.columns.casting import is_list
from tamis.tasks.columns.json_type import Digits, deep_recursion, is_json, json_column
from tamis.tasks.columns.python_values import python_values

Array = np.ndarray[Any, Any]
_FLAT = r"^\[[-+0-9.eE, \t\n\r]*\]$"  # no text, no object, no list inside; NaN and Infinity neither
_SMALL, _LARGE = 1e-4, 1e10  # outside of these Python or Arrow write exponents


def literals_of(array: pa.Array) -> tuple[Array, Array]:
    """Return the JSON text of every value, null as `null`: (data, int64 offsets)."""
    kind = array.type
    if is_json(kind):
        return _text_spans(array.storage.fill_null("null") if array.null_count else array.storage)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        parts = buffers.string_buffers(array)
        out_offsets, out = json_text.escape(parts.offsets, parts.data, parts.validity, 0, len(array))
        return out, out_offsets
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return _text_spans(array.cast(pa.large_string()).fill_null("null"))
    if pa.types.is_floating(kind):
        return _text_spans(_float_texts(array.cast(pa.float64())).fill_null("null"))
    if (lists := float_list_texts(array)) is not None:
        return _text_spans(lists)
    with deep_recursion():
        plain = [_dumped(v) for v in python_values(array)]
    return _text_spans(pa.array(plain, pa.large_string()))


def literals_of_values(values: list[Any]) -> pa.Array:
    """Build a column of JSON values (tasks/columns/json_type.py) from arbitrary Python values."""
    texts: list[str | None] = [None] * len(values)
    strings = [i for i, v in enumerate(values) if isinstance(v, str)]
    floats = [i for i, v in enumerate(values) if isinstance(v, float)]
    for indices, kind in ((strings, pa.large_string()), (floats, pa.float64())):
        if indices:
            array = pa.array([values[i] for i in indices], kind)
            for i, text in zip(indices, as_json(array).storage.to_pylist(), strict=True):
                texts[i] = text
    with deep_recursion():
        for i, value in enumerate(values):
            if value is not None and texts[i] is None:
                texts[i] = _dumped(value)
    return json_column(pa.array(texts, pa.large_string()))


def as_json(array: pa.Array) -> pa.Array:
    """Return any column as one of JSON values; null stays null."""
    if is_json(array.type):
        return array
    data, offsets = literals_of(array)
    valid = np.asarray(array.is_valid())
    return json_column(buffers.string_array(np.ascontiguousarray(offsets, np.int64), data, valid))


def _float_texts(array: pa.Array) -> pa.Array:
    """Return the shortest texts that parse to the same floats, 5 times as fast as repr.

    The text is never that of an integer (1.0, not 1).
    """
    text = array.cast(pa.large_string())
    if bool(pc.any(pc.equal(pc.trunc(array), array)).as_py()):
        whole = pc.invert(pc.match_substring_regex(text, "[.en]"))
        point, nothing = (pa.scalar(s, pa.large_string()) for s in (".0", ""))
        text = pc.if_else(whole, pc.binary_join_element_wise(text, point, nothing), text)
    if bool(pc.all(pc.is_finite(array)).as_py()) or not len(array):
        return text
    other = pc.if_else(pc.is_nan(array), "NaN", pc.if_else(pc.greater(array, 0.0), "Infinity", "-Infinity"))
    return pc.if_else(pc.is_finite(array), text, other.cast(pa.large_string()))


def _text_spans(array: pa.Array) -> tuple[Array, Array]:
    parts = buffers.string_buffers(array)
    offsets = np.asarray(parts.offsets, np.int64)
    return parts.data[offsets[0] : offsets[-1]], offsets - offsets[0]


def _dumped(value: Any) -> str:
    plain = plain_value(value)
    try:
        return json.dumps(plain, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError):  # integers of more digits than Python converts
        return _dumped_long(plain)


def _dumped_long(value: Any) -> str:
    if isinstance(value, dict):
        members = (f"{json.dumps(k, ensure_ascii=False)}:{_dumped_long(v)}" for k, v in value.items())
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_dumped_long, value)) + "]"
    if isinstance(value, Digits):
        return value.text
    if isinstance(value, int) and not isinstance(value, bool):
        before = sys.get_int_max_str_digits()
        sys.set_int_max_str_digits(0)
        try:
            return str(int(value))
        finally:
            sys.set_int_max_str_digits(before)
    return json.dumps(value, ensure_ascii=False)


def plain_value(value: Any) -> Any:
    """Convert a value to one that JSON can represent.

    Times become ISO text, bytes base64, numpy values Python values, and others their text.
    """
    if value is None or isinstance(value, (str, bool, int, float, Digits)):
        return value
    if isinstance(value, (list, tuple)):
        return [plain_value(v) for v in value]
    if isinstance(value, dict):
        return {str(k): plain_value(v) for k, v in value.items()}
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, np.generic):
        return plain_value(value.item()) if not isinstance(value, np.datetime64) else str(value)
    if isinstance(value, np.ndarray):
        return [plain_value(v) for v in value.tolist()]
    return str(value)


# -- lists of floats (embeddings), by Arrow's parser and writer: ten times as fast as one list after the other --------
def parse_float_lists(texts: pa.Array) -> pa.Array | None:
    """Parse JSON texts that are lists of floats to list<double>, null where there is none.

    Returns None if any text is anything else.
    """
    if not len(texts) or texts.null_count == len(texts):
        return None
    present = texts.drop_null() if texts.null_count else texts
    if not pc.all(pc.match_substring_regex(present, _FLAT)).as_py():
        return None
    inner = pc.utf8_slice_codeunits(present, 1, stop=-1)
    parts = pc.split_pattern(inner, ",")
    words = parts.values
    if pc.any(pc.match_substring_regex(inner, r"[ \t\n\r]")).as_py():
        words = pc.ascii_trim_whitespace(words)
    if not pc.all(pc.match_substring_regex(words, "[.eE]")).as_py():  # an integer, or an empty list
        return None
    try:
        numbers = words.cast(pa.float64())
    except pa.ArrowInvalid:
        return None
    if not pc.all(pc.is_finite(numbers)).as_py():
        return None
    lengths = np.zeros(len(texts), np.int64)
    lengths[np.asarray(texts.is_valid())] = np.diff(parts.offsets.to_numpy())
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    if offsets[-1] >= 2**31:
        return None
    mask = texts.is_null() if texts.null_count else None
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), numbers, mask=mask)


def float_list_texts(array: pa.Array) -> pa.Array | None:
    """Return the JSON text of each list, null as `null`; None unless the column has lists of floats."""
    kind = array.type
    if not is_list(kind) or not pa.types.is_floating(kind.value_type) or not len(array):
        return None
    if pa.types.is_fixed_size_list(kind):
        array = array.cast(pa.large_list(kind.value_type))
    numbers = array.flatten()
    lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]))
    lists = pa.LargeListArray.from_arrays(offsets, float_texts(numbers.cast(pa.float64())))
    joined = pc.binary_join(lists, pa.scalar(",", pa.large_string()))
    opening, closing, nothing = (pa.scalar(s, pa.large_string()) for s in ("[", "]", ""))
    texts = pc.binary_join_element_wise(opening, joined, closing, nothing)
    return pc.if_else(array.is_valid(), texts, "null") if array.null_count else texts


def float_texts(numbers: pa.Array) -> pa.Array:
    """Format each number as Python's json does: the shortest text that parses to the same float; null as `null`."""
    texts = numbers.cast(pa.large_string())
    values = numbers.fill_null(0.5).to_numpy(zero_copy_only=False) if numbers.null_count else numbers.to_numpy()
    size = np.abs(values)
    with np.errstate(invalid="ignore"):
        whole = values == np.trunc(values)
        apart = ((size < _SMALL) | (size >= _LARGE) | ~np.isfinite(values)) & (values != 0)
    if (whole & ~apart).any():
        point, nothing = (pa.scalar(s, pa.large_string()) for s in (".0", ""))
        texts = pc.if_else(pa.array(whole & ~apart), pc.binary_join_element_wise(texts, point, nothing), texts)
    if apart.any():
        few = pa.array([_float_repr(v) for v in values[apart].tolist()], pa.large_string())
        texts = pc.replace_with_mask(texts, pa.array(apart), few)
    return texts.fill_null("null") if numbers.null_count else texts


def _float_repr(value: float) -> str:
    if value != value:
        return "NaN"
    return repr(value) if np.isfinite(value) else "Infinity" if value > 0 else "-Infinity"
