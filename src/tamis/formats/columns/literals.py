"""Values as JSON text. Covers: columns of any Arrow type, and single Python values, which get the same text either way.

A value's text must not depend on its neighbours: a float is written alike whether its column is float64 or one of JSON values.
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

from tamis.formats.columns import number_lists
from tamis.formats.columns.json_type import Digits, deep_recursion, is_json, json_column
from tamis.formats.columns.python_values import python_values
from tamis.kernels import buffers
from tamis.kernels.records import json_text

Array = np.ndarray[Any, Any]


def literals_of(array: pa.Array) -> tuple[Array, Array]:
    """JSON text of every value, null as `null`: (data, int64 offsets)."""
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
    if (lists := number_lists.texts_of(array)) is not None:
        return _text_spans(lists)
    with deep_recursion():
        plain = [_dumped(v) for v in python_values(array)]
    return _text_spans(pa.array(plain, pa.large_string()))


def literals_of_values(values: list[Any]) -> pa.Array:
    """Build a column of JSON values (formats/columns/json_type.py) from arbitrary Python values."""
    texts: list[str | None] = [None] * len(values)
    strings = [i for i, v in enumerate(values) if isinstance(v, str)]
    floats = [i for i, v in enumerate(values) if isinstance(v, float)]
    for at, kind in ((strings, pa.large_string()), (floats, pa.float64())):
        if at:
            array = pa.array([values[i] for i in at], kind)
            for i, text in zip(at, as_json(array).storage.to_pylist(), strict=True):
                texts[i] = text
    with deep_recursion():
        for i, value in enumerate(values):
            if value is not None and texts[i] is None:
                texts[i] = _dumped(value)
    return json_column(pa.array(texts, pa.large_string()))


def as_json(array: pa.Array) -> pa.Array:
    """Any column as one of JSON values; null stays null."""
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
