"""Python values of Arrow columns, for every value that Arrow can hold.

`to_pylist` fails where Python has no such value: years outside of 1 to 9999, durations of more than a billion days,
nanoseconds, time zones that this machine does not have, decimals with an extreme scale. Such a value becomes its text,
in the form that JSON output has for its neighbours: ISO 8601 for times (of an unknown zone: in UTC), `3 days, 0:00:01`
for durations, scientific notation for decimals. The text depends on the value alone.
"""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import numpy as np
import pyarrow as pa

from tamis.failures import is_memory_failure

_NO_VALUE = (OverflowError, ValueError, KeyError, decimal.DecimalException)  # KeyError: an unknown time zone
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DAY_S = 86_400
_NOT_A_TIME = -(2**63)  # of numpy; for Arrow a time like any other


def python_values(array: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return the values of a column as Python values; text where Python has none."""
    if _depends_on_pandas(array.type):
        return [_value(scalar) for scalar in array]
    try:
        return list(array.to_pylist())
    except UnicodeDecodeError:
        raise
    except _NO_VALUE as exc:
        if is_memory_failure(exc):
            raise
    return [_value(scalar) for scalar in array]


def _depends_on_pandas(kind: pa.DataType) -> bool:
    """Return True if Arrow returns other values once pandas is imported.

    These are its durations, and times cut to microseconds.
    """
    if pa.types.is_dictionary(kind):
        return _depends_on_pandas(kind.value_type)
    if pa.types.is_duration(kind) or pa.types.is_time64(kind):
        return bool(kind.unit == "ns")
    return any(_depends_on_pandas(kind.field(i).type) for i in range(kind.num_fields))


def _nested_value(scalar: pa.Scalar) -> Any:
    if pa.types.is_struct(scalar.type):
        return {name: _value(member) for name, member in scalar.items()}
    if pa.types.is_map(scalar.type):
        return [(_value(item["key"]), _value(item["value"])) for item in scalar.values]
    return [_value(item) for item in scalar.values]


def _value(scalar: pa.Scalar) -> Any:
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if isinstance(scalar, (pa.DictionaryScalar, pa.ExtensionScalar)):
        return _value(scalar.value)
    if pa.types.is_nested(kind):
        return _nested_value(scalar)
    if pa.types.is_duration(kind):
        return _duration(scalar.value, kind.unit)
    if pa.types.is_time64(kind) and kind.unit == "ns" and scalar.value % 1000:
        return _text(scalar)
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        raise
    except _NO_VALUE as exc:
        if is_memory_failure(exc):
            raise
        return _text(scalar)


def _text(scalar: pa.Scalar) -> str:
    kind = scalar.type
    if pa.types.is_decimal(kind):
        number = int.from_bytes(
            pa.array([scalar], kind).buffers()[1].to_pybytes()[: kind.byte_width], "little", signed=True
        )
        digits = tuple(map(int, str(abs(number))))
        return str(decimal.Decimal((number < 0, digits, -kind.scale)))
    if pa.types.is_timestamp(kind):
        return _timestamp(scalar.value, kind)
    if pa.types.is_date32(kind):
        return str(np.datetime64(scalar.value, "D"))
    if pa.types.is_date64(kind):
        return str(np.datetime64(scalar.value // (_DAY_S * 1000), "D"))
    if pa.types.is_time(kind):
        seconds, fraction = divmod(scalar.value, _PER_SECOND[kind.unit])
        clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
        return clock + _fraction(fraction * 10**9 // _PER_SECOND[kind.unit])
    return str(scalar)


def _timestamp(value: int, kind: pa.DataType) -> str:
    if kind.unit == "ns":
        try:  # as a moment of whole microseconds, with three digits more
            text = pa.scalar(value // 1000, pa.timestamp("us", kind.tz)).as_py().isoformat(timespec="microseconds")
            return f"{text[:26]}{value % 1000:03d}{text[26:]}"
        except _NO_VALUE:
            pass
    zone = "+00:00" if kind.tz is not None else ""
    seconds, fraction = divmod(value, _PER_SECOND[kind.unit])
    if seconds == _NOT_A_TIME:
        return f"{value} {kind.unit}{zone}"
    return f"{np.datetime64(seconds, 's')}{_fraction(fraction * 10**9 // _PER_SECOND[kind.unit])}{zone}"


def _fraction(nanoseconds: int) -> str:
    """Return the fraction of a second as Python's times have it: six digits or nothing, nine if six are not enough."""
    if nanoseconds % 1000:
        return f".{nanoseconds:09d}"
    return f".{nanoseconds // 1000:06d}" if nanoseconds else ""


def _duration(value: int, unit: str) -> datetime.timedelta | str:
    seconds, fraction = divmod(value, _PER_SECOND[unit])
    days, seconds = divmod(seconds, _DAY_S)
    nanoseconds = fraction * 10**9 // _PER_SECOND[unit]
    if not nanoseconds % 1000 and abs(days) < 10**9:
        return datetime.timedelta(days, seconds, nanoseconds // 1000)
    shown = f"{days} day{'' if abs(days) == 1 else 's'}, " if days else ""
    return f"{shown}{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{_fraction(nanoseconds)}"
