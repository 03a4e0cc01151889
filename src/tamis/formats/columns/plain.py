"""Arrow arrays in the types that all other code knows. Covers: values that are stored in a roundabout way, at any depth.

Dictionaries and runs (run_end_encoded) become their values, list views lists, views of text and bytes large_string and large_binary, extension types what they
are stored as. Arrow's own `cast` does not do it: it refuses runs, and makes invalid arrays of list views (pyarrow 26).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

MAX_ITEMS = (1 << 31) - 1
"""Items that a list array with 32-bit offsets can have in all."""


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
        made = pa.list_(kind.value_field.with_type(items.type), n)
        return pa.FixedSizeListArray.from_arrays(items, type=made, mask=array.is_null())
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or _is_list_view(kind):
        return _plain_list(array)
    return array


def _is_list_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind))


def _wide(values: pa.Array) -> pa.Array:
    """Texts and bytes with 64-bit offsets: long ones that are repeated often would not fit 32-bit ones."""
    if pa.types.is_string(values.type):
        return values.cast(pa.large_string())
    return values.cast(pa.large_binary()) if pa.types.is_binary(values.type) else values


def _without_runs(array: pa.Array) -> pa.Array:
    """Not by `run_end_decode`, which does not widen."""
    values = _wide(plain_array(array.values))
    rows = np.arange(array.offset, array.offset + len(array))
    return values.take(pa.array(np.searchsorted(array.run_ends.to_numpy(), rows, side="right")))


def _plain_struct(array: pa.Array) -> pa.Array:
    """`flatten` makes the fields of a null struct null."""
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
    if not is_large and offsets[-1] > MAX_ITEMS:
        raise MemoryError(f"{len(array):,} lists have {offsets[-1]:,} items in all; read fewer at a time")
    items = plain_array(array.flatten())  # flatten: only items of lists that are not null, slice respected
    field = kind.value_field.with_type(items.type).with_nullable(True)
    made = pa.large_list(field) if is_large else pa.list_(field)
    of = pa.LargeListArray if is_large else pa.ListArray
    return of.from_arrays(
        pa.array(offsets, pa.int64() if is_large else pa.int32()), items, type=made, mask=array.is_null()
    )
