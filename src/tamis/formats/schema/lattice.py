"""One schema over a run. Covers: the lattice of types, and the order of columns.

Partitions see different values, so their types differ; the output has one type per column, the least that holds all:

    null < every type                  bool < string                    uint64 < string
    int8 < int16 < int32 < int64 < float64 < string                     float16 < float32 < float64
    uint8 < uint16 < uint32 < int64    uint32 < uint64                  dates, times, decimals, binary, maps < string
    list<A> + list<B> = list<A + B>    struct: field by field, a missing field is null        other nested pairs < string

The join is commutative, associative and idempotent, so neither the order nor the cut of partitions matters. For that,
uint64 joins with int64 and with float64 to string: were uint64 + float64 = float64, a negative integer, a large one and
a float would end as float64 or as string depending on who met first (and large integers would change). Whether
integers are negative or too large for a float is no part of an Arrow type; `observed.py` keeps it while JSON is read.

See also: `tasks/columns/casting.py` (tables to a schema), `tasks/columns/canonical.py` (values as text), `type_names.py` (schemas as
text and JSON).
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tamis.tasks.columns.casting import is_list, is_text

TEXT = pa.large_string()
_CHAINS = (
    ("int8", "int16", "int32", "int64", "double"),
    ("uint8", "uint16", "uint32", "int64", "double"),
    ("uint8", "uint16", "uint32", "uint64"),
    ("halffloat", "float", "double"),
)
_NUMBERS = {str(kind): kind for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float16(), pa.float32())}
_NUMBERS |= {str(kind): kind for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.float64())}
_ABOVE = {
    name: [other for other in _NUMBERS if any(name in c and other in c[c.index(name) :] for c in _CHAINS)]
    for name in _NUMBERS
}


def _least_number(a: str, b: str) -> pa.DataType:
    """Return the least numeric type that holds `a` and `b`: the common type that is below all other common ones."""
    shared = set(_ABOVE[a]) & set(_ABOVE[b])
    least = [name for name in shared if shared <= set(_ABOVE[name])]
    return _NUMBERS[least[0]] if least else TEXT


_NUMBER_JOIN = {(a, b): _least_number(a, b) for a in _NUMBERS for b in _NUMBERS}


def normal(kind: pa.DataType) -> pa.DataType:
    """Return the type that represents `kind` in the lattice.

    Strings become large_string, binaries large_binary, lists list, and dictionaries and extension types the type that
    they hold.
    """
    if isinstance(kind, pa.BaseExtensionType):
        return normal(kind.storage_type)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return normal(kind.value_type)
    if is_text(kind):
        return TEXT
    if pa.types.is_binary(kind) or pa.types.is_binary_view(kind):
        return pa.large_binary()
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(normal(kind.value_type), kind.list_size)
    if is_list(kind) or pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        return pa.list_(normal(kind.value_type))
    if pa.types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        if len({field.name for field in fields}) < len(fields):
            return TEXT
        return pa.struct([pa.field(field.name, normal(field.type)) for field in fields])
    return kind


def join(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    """Return the least type that holds the values of `a` and of `b`.

    >>> str(join(pa.int64(), pa.float64())), str(join(pa.bool_(), pa.int64()))
    ('double', 'large_string')
    """
    return _join(normal(a), normal(b))


def _join(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    if a == b or pa.types.is_null(b):
        return a
    if pa.types.is_null(a):
        return b
    if number := _NUMBER_JOIN.get((str(a), str(b))):
        return number
    if is_list(a) and is_list(b):
        items = _join(a.value_type, b.value_type)
        sizes = {getattr(a, "list_size", -1), getattr(b, "list_size", -1)}
        return pa.list_(items, sizes.pop()) if len(sizes) == 1 else pa.list_(items)
    if pa.types.is_struct(a) and pa.types.is_struct(b):
        return _join_structs(a, b)
    return TEXT


def _join_structs(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    """Fields keep their order when both agree on it; else they are sorted, so that neither side decides."""
    fields_a = {a.field(i).name: a.field(i).type for i in range(a.num_fields)}
    fields_b = {b.field(i).name: b.field(i).type for i in range(b.num_fields)}
    names = list(fields_a) if list(fields_a) == list(fields_b) else sorted({*fields_a, *fields_b})
    none = pa.null()
    return pa.struct([pa.field(name, _join(fields_a.get(name, none), fields_b.get(name, none))) for name in names])


def canonical_order(schema: pa.Schema, first: Sequence[str]) -> pa.Schema:
    """Return the schema with the columns named in `first`, in that order, then the rest sorted.

    The result does not depend on the order in which schemas were joined.
    """
    leading = [name for name in dict.fromkeys(first) if name in schema.names]
    rest = sorted(set(schema.names) - set(leading))
    return pa.schema([schema.field(name) for name in (*leading, *rest)])
