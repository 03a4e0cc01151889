"""The schema of all files of a run, independent of the cut into partitions.

Partitions see different values, so their types differ; the output has one type per column, the least that holds all.
Columns read from JSON carry facts (tasks/columns/inference.py), because their Arrow types forget too much to be joined;
all other columns (Parquet input, types that a stage chose) are joined along this lattice:

    null < every type                  bool < string                    uint64 < string
    int8 < int16 < int32 < int64 < float64 < string                     float16 < float32 < float64
    uint8 < uint16 < uint32 < int64    uint32 < uint64                  dates, times, decimals, binary, maps < string
    list<A> + list<B> = list<A + B>    struct: field by field, a missing field is null       other nested pairs < string

The join is commutative, associative and idempotent, so neither the order nor the cut of partitions matters. For that,
uint64 joins with int64 and with float64 to string: were uint64 + float64 = float64, a negative integer, a large one and
a float would end as float64 or as string depending on their order (and large integers would change).

Parquet in, Parquet out (`output_schema`): the files written look like the first input file where that says the same:
string stays string, a dictionary a dictionary, an extension type (a UUID) its own; list views become lists. Columns
that stages added come last. Metadata (the features of Hugging Face) is kept; that of pandas is not, because it
describes an index.

See also: tasks/columns/casting.py (tables to a schema), type_names.py (schemas as text and JSON).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tamis.tasks.columns.casting import cast_table, is_bytes, is_list, is_text
from tamis.tasks.columns.inference import MAX_FACTS, STRING, Observed, column_type, n_facts, observe, parse_json_column

Facts = dict[str, Observed]
NO_FIELDS = "_tamis_no_fields"
"""The one column, of nulls, of files whose documents have no fields: without any column Parquet forgets the rows."""
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
_OF_PANDAS = b"pandas"


def facts_of(table: pa.Table) -> Facts:
    """Return the facts of the columns that could have come from JSON.

    Other types (int32, times) were chosen explicitly.
    """
    return {f.name: observe(table.column(f.name)) for f in table.schema if _is_json(f.type)}


def _is_json(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind) or pa.types.is_list(kind):
        return all(_is_json(kind.field(i).type) for i in range(kind.num_fields))
    plain = (pa.types.is_null, pa.types.is_boolean, pa.types.is_int64, pa.types.is_uint64, pa.types.is_float64)
    return any(test(kind) for test in plain) or is_text(kind)


def join_facts(parts: Iterable[Mapping[str, Observed]]) -> Facts:
    """Join the facts of all parts."""
    joined: Facts = {}
    for part in parts:
        for name, seen in part.items():
            both = joined[name].join(seen) if name in joined else seen
            # What is too large for a type is text; text absorbs whatever comes, so that memory stays bounded.
            joined[name] = both if n_facts(both) <= MAX_FACTS else Observed(STRING)
    return joined


def run_schema(parts: Sequence[tuple[pa.Schema, Mapping[str, Observed]]], first: Sequence[str]) -> pa.Schema:
    """Return the schema that holds every part.

    A part is (schema, facts of those columns that have some). `first`: columns that lead.
    """
    facts = join_facts(seen for _, seen in parts)
    kinds = {name: column_type(seen) for name, seen in facts.items()}
    for part, seen in parts:
        for field in part:
            if field.name not in seen:
                kinds[field.name] = join(kinds.get(field.name, pa.null()), field.type)
    if len(kinds) > 1:
        kinds.pop(NO_FIELDS, None)
    kinds = kinds or {NO_FIELDS: pa.null()}
    schema = pa.schema([pa.field(name, _stored(kind)) for name, kind in kinds.items()])
    return canonical_order(schema, first)


def _stored(kind: pa.DataType) -> pa.DataType:
    """Return the type to store: Parquet has no struct without fields, so a column with only {} is stored as text."""
    return pa.large_string() if _has_empty_struct(kind) else kind


def _has_empty_struct(kind: pa.DataType) -> bool:
    inner = [kind.field(i).type for i in range(kind.num_fields)]
    return (pa.types.is_struct(kind) and not inner) or any(_has_empty_struct(k) for k in inner)


def to_run_schema(table: pa.Table, target: pa.Schema) -> pa.Table:
    """Convert the rows of one file to the schema of the run, which can hold them."""
    if NO_FIELDS in table.column_names and NO_FIELDS not in target.names:
        table = table.drop_columns([NO_FIELDS])
    for i, field in enumerate(table.schema):
        kind = target.field(field.name).type if field.name in target.names else field.type
        if is_text(field.type) and not is_text(kind):  # stored as text for lack of a field that other files have
            table = table.set_column(
                i, field.name, pa.chunked_array([parse_json_column(c, kind) for c in table.column(i).chunks], kind)
            )
    return cast_table(table, target)


def facts_to_json(facts: Mapping[str, Observed]) -> dict[str, Any]:
    return {name: seen.to_json() for name, seen in facts.items()}


def facts_from_json(plain: Mapping[str, Any]) -> Facts:
    return {str(name): Observed.from_json(seen) for name, seen in plain.items()}


# -- the lattice of types ----------------------------------------------------------------------------------------------
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
    return _normal_struct(kind) if pa.types.is_struct(kind) else kind


def _normal_struct(kind: pa.DataType) -> pa.DataType:
    """Return the struct of normal types; text for one with two fields of the same name."""
    fields = [kind.field(i) for i in range(kind.num_fields)]
    if len({field.name for field in fields}) < len(fields):
        return TEXT
    return pa.struct([pa.field(field.name, normal(field.type)) for field in fields])


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
    """Join field by field. The order is kept if both agree on it and sorted otherwise, so that neither side decides."""
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
    others = sorted(set(schema.names) - set(leading))
    return pa.schema([schema.field(name) for name in (*leading, *others)])


# -- the types of the input --------------------------------------------------------------------------------------------
def output_schema(target: pa.Schema, model: pa.Schema | None, leading: Sequence[str] = ()) -> pa.Schema:
    """Return the schema to write, from that of the run and that of the input.

    `leading`: columns whose order the user chose.
    """
    if model is None:
        return target
    input_names = [name for name in model.names if name in target.names]
    order = list(dict.fromkeys([*(n for n in leading if n in target.names), *input_names, *target.names]))
    fields = []
    for name in order:
        field = target.field(name)
        if model.names.count(name) == 1:
            like = model.field(name)
            field = pa.field(name, _like(field.type, like.type), metadata=like.metadata)
        fields.append(field)
    return pa.schema(fields, kept_metadata(model))


def kept_metadata(schema: pa.Schema) -> dict[bytes, bytes] | None:
    """Return the schema's metadata without that of pandas, or None if there is nothing else."""
    return {key: value for key, value in (schema.metadata or {}).items() if key != _OF_PANDAS} or None


def to_output_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Convert a table to the schema that `output_schema` returned."""
    columns = []
    for field in schema:
        column = table.column(field.name)
        if column.type != field.type:
            if pa.types.is_dictionary(field.type):
                column = column.cast(field.type.value_type).combine_chunks().dictionary_encode()
            column = column.cast(field.type)
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=schema)


def _like(kind: pa.DataType, model: pa.DataType) -> pa.DataType:
    """Return the model's type if it is equivalent to `kind`, else `kind` unchanged."""
    if kind == model or (is_text(kind) and is_text(model)) or (_is_binary(kind) and _is_binary(model)):
        return model
    if isinstance(model, pa.BaseExtensionType) and _like(kind, model.storage_type) == model.storage_type:
        return model
    if pa.types.is_dictionary(model) and _like(kind, model.value_type) == model.value_type:
        return pa.dictionary(pa.int32(), model.value_type)
    if pa.types.is_list(kind):
        return _like_list(kind, model)
    if pa.types.is_fixed_size_list(kind):
        return _like_fixed_size_list(kind, model)
    if pa.types.is_struct(kind) and pa.types.is_struct(model):
        return _like_struct(kind, model)
    return kind


def _like_list(kind: pa.DataType, model: pa.DataType) -> pa.DataType:
    """Return a list with offsets as wide as those of the model, which may be a list or a list view."""
    if pa.types.is_list(model) or pa.types.is_list_view(model):
        return pa.list_(_like_items(kind, model))
    if pa.types.is_large_list(model) or pa.types.is_large_list_view(model):
        return pa.large_list(_like_items(kind, model))
    return kind


def _like_fixed_size_list(kind: pa.DataType, model: pa.DataType) -> pa.DataType:
    """Return the list with the items of the model if both have the same size, else `kind` unchanged."""
    if not pa.types.is_fixed_size_list(model) or kind.list_size != model.list_size:
        return kind
    return pa.list_(_like_items(kind, model), model.list_size)


def _like_items(kind: pa.DataType, model: pa.DataType) -> pa.Field:
    """Return the field of the items of a list: that of the model, with the type that both agree on."""
    return model.value_field.with_type(_like(kind.value_type, model.value_type)).with_nullable(True)


def _like_struct(kind: pa.DataType, model: pa.DataType) -> pa.DataType:
    """Return the struct with fields like those of the model if both have the same names, else `kind` unchanged."""
    ours, theirs = _members(kind), _members(model)
    if set(ours) != set(theirs):
        return kind
    return pa.struct([pa.field(n, _like(ours[n], theirs[n])) for n in ours])


def _members(kind: pa.DataType) -> dict[str, pa.DataType]:
    return {kind.field(i).name: kind.field(i).type for i in range(kind.num_fields)}


def _is_binary(kind: pa.DataType) -> bool:
    """Return True for bytes of variable length."""
    return is_bytes(kind) and not pa.types.is_fixed_size_binary(kind)
