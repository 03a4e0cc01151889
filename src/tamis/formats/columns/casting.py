"""Arrow columns from one type to another. Covers: widening along the lattice of `formats/schema/lattice.py`, and declared schemas.

`cast_table` only widens and never changes a value: what it cannot hold is an error. `cast_declared` converts what fits
a schema that the user wrote and names the rows that do not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import FormatError
from tamis.formats.columns.canonical import EXACT_INT, canonical_text, number_text
from tamis.formats.columns.json_type import deep_recursion, is_json, json_values
from tamis.formats.columns.plain import plain_array
from tamis.formats.columns.python_values import python_values
from tamis.formats.faults import is_memory_failure


def cast_table(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """`table` with exactly the columns of `schema`, widened; missing columns are null, unknown ones an error."""
    if unknown := [name for name in table.column_names if name not in schema.names]:
        raise FormatError(f"column {unknown[0]!r} is not in the schema ({', '.join(schema.names)}); add or drop it")
    columns = []
    for field in schema:
        if field.name not in table.column_names:
            columns.append(pa.nulls(table.num_rows, field.type))
            continue
        column = table.column(field.name)
        try:
            columns.append(_cast_column(column, field.type))
        except (pa.ArrowException, OSError, ValueError) as exc:
            if is_memory_failure(exc):
                raise MemoryError(str(exc)) from exc
            raise FormatError(
                f"column {field.name!r}: cannot widen {column.type} to {field.type} without changing a value ({exc}); "
                "declare the column as string"
            ) from exc
    if not columns:
        return table
    return pa.Table.from_arrays(columns, schema=schema)


def _cast_column(column: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    if column.type == target:
        return column
    return pa.chunked_array([widen(chunk, target) for chunk in column.chunks], type=target)


def widen(array: pa.Array, target: pa.DataType) -> pa.Array:
    """`array` as `target`. ValueError (ArrowInvalid) when that is no widening or a value would change."""
    source = array.type
    if source == target:
        return array
    if pa.types.is_null(source):
        return pa.nulls(len(array), target)
    if not isinstance(source, pa.BaseExtensionType) and (plain := plain_array(array)).type != source:
        return widen(plain, target)
    if is_json(source) and not is_text(target):
        raise ValueError(f"values that do not agree do not widen to {target}")
    if is_text(target):
        return _to_text(array).cast(target)
    if pa.types.is_struct(source) and pa.types.is_struct(target):
        return _widen_struct(array, target)
    if is_list(source) and is_list(target):
        return _widen_list(array, target)
    if _is_number_widening(source, target) or (is_bytes(source) and is_bytes(target)):
        return array.cast(target)
    raise ValueError(f"{source} does not widen to {target}")


def _is_number_widening(source: pa.DataType, target: pa.DataType) -> bool:
    if pa.types.is_integer(source):
        return bool(pa.types.is_integer(target) or pa.types.is_float64(target))
    return bool(pa.types.is_floating(source) and pa.types.is_floating(target) and source.bit_width < target.bit_width)


def _to_text(array: pa.Array) -> pa.Array:
    """Convert an array to large_string by the rules of `canonical.py`."""
    source, text = array.type, pa.large_string()
    if is_json(source):
        with deep_recursion():
            return pa.array([None if value is None else canonical_text(value) for value in json_values(array)], text)
    if is_text(source) or is_bytes(source):
        return array.cast(text)  # bytes: refused unless they are UTF-8
    if pa.types.is_integer(source) or pa.types.is_boolean(source):
        return array.cast(text)
    if pa.types.is_floating(source):
        values = array.cast(pa.float64()).to_pylist()
        return pa.array([None if value is None else number_text(value) for value in values], text)
    if pa.types.is_nested(source):
        return pa.array([None if value is None else canonical_text(value) for value in python_values(array)], text)
    try:
        return array.cast(text)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):  # invalid: a time of a zone that is unknown here
        return pa.array([None if value is None else str(value) for value in python_values(array)], text)


def _widen_struct(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Field by field; a field that `array` lacks is null. `flatten` makes the fields of a null struct null."""
    if not target.num_fields or len(set(array.type.names)) < array.type.num_fields:
        raise ValueError(f"{array.type} does not widen to {target}")
    present = dict(zip(array.type.names, array.flatten(), strict=True))
    if lost := [name for name in present if target.get_field_index(name) < 0]:
        raise ValueError(f"field {lost[0]!r} is not in {target}")
    fields = [target.field(i) for i in range(target.num_fields)]
    children = [
        widen(present[field.name], field.type) if field.name in present else pa.nulls(len(array), field.type)
        for field in fields
    ]
    return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null())


def _widen_list(array: pa.Array, target: pa.DataType) -> pa.Array:
    if pa.types.is_fixed_size_list(target):
        if not pa.types.is_fixed_size_list(array.type) or array.type.list_size != target.list_size:
            raise ValueError(f"{array.type} does not widen to {target}")
        n_items = target.list_size
        items = widen(array.values.slice(array.offset * n_items, len(array) * n_items), target.value_type)
        return pa.FixedSizeListArray.from_arrays(items, type=target, mask=array.is_null())
    items = widen(array.flatten(), target.value_type)  # flatten: only items of lists that are not null, slice respected
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    is_large = pa.types.is_large_list(target)
    offsets = np.zeros(len(array) + 1, np.int64 if is_large else np.int32)
    np.cumsum(lengths, out=offsets[1:])
    kind = pa.LargeListArray if is_large else pa.ListArray
    return kind.from_arrays(pa.array(offsets), items, type=target, mask=array.is_null())


def cast_declared(table: pa.Table, schema: pa.Schema) -> tuple[pa.Table, npt.NDArray[np.int64], list[str]]:
    """Cast the rows of `table` that fit `schema` to it; return them, the rows that do not fit and a reason for each.

    A value fits when it can be converted without loss: 1.0 and "1" are an int64, 1.5, "01" and true are not. A null in
    a field that is not nullable and a value in a column that the schema lacks make a row bad too.
    """
    bad: dict[int, str] = {}
    columns = []
    for name in table.column_names:
        if name not in schema.names:
            for row in np.flatnonzero(table.column(name).is_valid().to_numpy()):
                bad.setdefault(int(row), f"field {name!r} is not in the declared schema")
    for field in schema:
        if field.name in table.column_names:
            columns.append(_convert_column(table.column(field.name), field, bad))
        else:
            columns.append(pa.chunked_array([pa.nulls(table.num_rows, field.type)]))
        if not field.nullable:
            for row in np.flatnonzero(columns[-1].is_null().to_numpy()):
                bad.setdefault(int(row), f"field {field.name!r} is null or missing; the declared schema forbids it")
    bad_rows = np.array(sorted(bad), np.int64)
    loose = pa.schema([field.with_nullable(True) for field in schema])
    result = pa.Table.from_arrays(columns, schema=loose) if columns else table.select([])
    if len(bad_rows):
        keep = np.ones(table.num_rows, bool)
        keep[bad_rows] = False
        result = result.filter(pa.array(keep))
    if columns:
        result = pa.Table.from_arrays(result.columns, schema=schema)
    return result, bad_rows, [bad[int(row)] for row in bad_rows]


def _convert_column(column: pa.ChunkedArray, field: pa.Field, bad: dict[int, str]) -> pa.ChunkedArray:
    try:
        return _cast_column(column, field.type)
    except (pa.ArrowException, OSError, ValueError) as exc:
        if is_memory_failure(exc):
            raise MemoryError(str(exc)) from exc
    values: list[Any] = []
    for row, value in enumerate(python_values(column)):
        try:
            values.append(convert(value, field.type))
        except (ValueError, TypeError, OverflowError, pa.ArrowException) as exc:
            values.append(None)
            bad.setdefault(row, f"field {field.name!r}: expected {field.type}, got {_short(value)} ({exc})")
    return pa.chunked_array([pa.array(values, field.type)])


def convert(value: Any, target: pa.DataType) -> Any:
    """`value` as a Python value of `target`, or ValueError when that would lose something."""
    if value is None:
        return None
    if is_text(target):
        return canonical_text(value)
    if pa.types.is_boolean(target):
        if value in ("true", "false") or isinstance(value, bool):
            return value in ("true", True)
        raise ValueError("not a bool")
    if pa.types.is_integer(target) or pa.types.is_floating(target):
        return _convert_number(value, target)
    if pa.types.is_struct(target) and isinstance(value, dict):
        names = {target.field(i).name: target.field(i).type for i in range(target.num_fields)}
        if extra := [name for name, item in value.items() if name not in names and item is not None]:
            raise ValueError(f"field {extra[0]!r} is not declared")
        return {name: convert(value.get(name), kind) for name, kind in names.items()}
    if is_list(target) and isinstance(value, list):
        return [convert(item, target.value_type) for item in value]
    if isinstance(value, (dict, list, bool)):
        raise ValueError("another kind of value")
    return pa.scalar(value).cast(target).as_py()


def _convert_number(value: Any, target: pa.DataType) -> int | float:
    wants_int = pa.types.is_integer(target)
    if isinstance(value, str):
        text, value = value, (int(value) if wants_int else float(value))
        if number_text(value) != text:
            raise ValueError("the text of that number is another one")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError("not a number")
    if wants_int:
        if isinstance(value, float) and not (value.is_integer() and abs(value) <= EXACT_INT):
            raise ValueError("not an integer")
        return int(pa.scalar(int(value), target).as_py())
    if isinstance(value, int) and abs(value) > EXACT_INT:
        raise ValueError("too large for an exact float")
    exact = float(pa.scalar(float(value), target).as_py())
    if exact != value and value == value:
        raise ValueError(f"not exact as {target}")
    return exact


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
