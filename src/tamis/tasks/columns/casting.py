"""Convert Arrow columns from one type to another. Covers: widening, declared schemas, and plain types.

`cast_table` widens along the lattice of `formats/schema/run_schema.py` and never changes a value: a value that does not
fit is an error. `cast_declared` converts the values that fit a declared schema and reports the rows that do not.
`plain_array` replaces encoded types at any depth: dictionaries and runs (run_end_encoded) become their values, list
views lists, views of text and bytes large_string and large_binary, extension types their storage type. Arrow's own
`cast` does not do that: it refuses runs, and makes invalid arrays of list views (pyarrow 26).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import FormatError
from tamis.failures import is_memory_failure
from tamis.tasks.columns.canonical import EXACT_INT, canonical_text, number_text
from tamis.tasks.columns.json_type import deep_recursion, is_json, json_values
from tamis.tasks.columns.python_values import python_values

MAX_LIST_ITEMS = (1 << 31) - 1
"""Items that a list array with 32-bit offsets can have in all."""


def cast_table(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Cast `table` to exactly the columns of `schema`, widened; missing ones are null, unknown ones an error."""
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
    """Cast `array` to `target`; raise ValueError (ArrowInvalid) if that is no widening or a value would change."""
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
            return _texts(json_values(array), canonical_text)
    if is_text(source) or is_bytes(source):
        return array.cast(text)  # bytes: refused unless they are UTF-8
    if pa.types.is_integer(source) or pa.types.is_boolean(source):
        return array.cast(text)
    if pa.types.is_floating(source):
        return _texts(array.cast(pa.float64()).to_pylist(), number_text)
    if pa.types.is_nested(source):
        return _texts(python_values(array), canonical_text)
    try:
        return array.cast(text)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):  # invalid: a time of a zone that is unknown here
        return _texts(python_values(array), str)


def _texts(values: list[Any], to_text: Callable[[Any], str]) -> pa.Array:
    return pa.array([None if value is None else to_text(value) for value in values], pa.large_string())


def _widen_struct(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Widen field by field; a field that `array` lacks is null. `flatten` makes the fields of a null struct null."""
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


def _convert_struct(value: dict[str, Any], target: pa.StructType) -> dict[str, Any]:
    names = {target.field(i).name: target.field(i).type for i in range(target.num_fields)}
    if extra := [name for name, item in value.items() if name not in names and item is not None]:
        raise ValueError(f"field {extra[0]!r} is not declared")
    return {name: convert(value.get(name), kind) for name, kind in names.items()}


def convert(value: Any, target: pa.DataType) -> Any:
    """Convert `value` to a Python value of `target`; raise ValueError if that would lose something."""
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
        return _convert_struct(value, target)
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


# -- plain types ------------------------------------------------------------------------------------------------------
def is_plain(kind: pa.DataType) -> bool:
    """Return True if values of this type, and everything nested in them, are stored in plain form.

    >>> is_plain(pa.list_(pa.string())), is_plain(pa.list_(pa.string_view())), is_plain(pa.list_view(pa.string()))
    (True, False, False)
    """
    if isinstance(kind, pa.BaseExtensionType) or pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return False
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind) or _is_list_view(kind):
        return False
    return all(is_plain(kind.field(i).type) for i in range(kind.num_fields))


def plain_array(array: pa.Array) -> pa.Array:
    """Convert an array to plain types with the same values.

    Raises MemoryError if list views over shared items expand to more than a list can hold.

    Maps and unions are passed through with their contents, which are not inspected.
    """
    kind = array.type
    if is_plain(kind):
        return array
    if isinstance(kind, pa.BaseExtensionType):
        return plain_array(array.storage)
    if pa.types.is_dictionary(kind):
        return _wide(plain_array(array.dictionary)).take(array.indices)
    if pa.types.is_run_end_encoded(kind):
        return _without_runs(array)
    if pa.types.is_string_view(kind):
        return array.cast(pa.large_string())
    if pa.types.is_binary_view(kind):
        return array.cast(pa.large_binary())
    if pa.types.is_struct(kind):
        return _plain_struct(array)
    if pa.types.is_fixed_size_list(kind):
        n = kind.list_size
        items = plain_array(array.values.slice(array.offset * n, len(array) * n))
        list_type = pa.list_(kind.value_field.with_type(items.type), n)
        return pa.FixedSizeListArray.from_arrays(items, type=list_type, mask=array.is_null())
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or _is_list_view(kind):
        return _plain_list(array)
    return array


def _is_list_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind))


def _wide(values: pa.Array) -> pa.Array:
    """Use 64-bit offsets for texts and bytes: long ones that are repeated often would not fit 32-bit ones."""
    if pa.types.is_string(values.type):
        return values.cast(pa.large_string())
    return values.cast(pa.large_binary()) if pa.types.is_binary(values.type) else values


def _without_runs(array: pa.Array) -> pa.Array:
    """Expand runs; `run_end_decode` does not widen."""
    values = _wide(plain_array(array.values))
    rows = np.arange(array.offset, array.offset + len(array))
    return values.take(pa.array(np.searchsorted(array.run_ends.to_numpy(), rows, side="right")))


def _plain_struct(array: pa.Array) -> pa.Array:
    """Convert a struct; `flatten` makes the fields of a null struct null."""
    children = [plain_array(child) for child in array.flatten()]
    fields = [array.type.field(i).with_type(child.type).with_nullable(True) for i, child in enumerate(children)]
    return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null())


def _plain_list(array: pa.Array) -> pa.Array:
    """Convert lists and list views, with 32-bit or 64-bit offsets, to plain lists."""
    kind = array.type
    is_large = pa.types.is_large_list(kind) or pa.types.is_large_list_view(kind)
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    offsets = np.zeros(len(array) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if not is_large and offsets[-1] > MAX_LIST_ITEMS:
        raise MemoryError(f"{len(array):,} lists have {offsets[-1]:,} items in all; read fewer at a time")
    items = plain_array(array.flatten())  # flatten: only items of lists that are not null, slice respected
    field = kind.value_field.with_type(items.type).with_nullable(True)
    list_type = pa.large_list(field) if is_large else pa.list_(field)
    array_class = pa.LargeListArray if is_large else pa.ListArray
    return array_class.from_arrays(
        pa.array(offsets, pa.int64() if is_large else pa.int32()), items, type=list_type, mask=array.is_null()
    )
