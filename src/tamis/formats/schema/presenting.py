"""Parquet in, Parquet out: columns in the order of the input, with its Arrow types and its metadata.

Inside, texts are large_string and dictionaries plain values, and columns of a run are in a canonical order. What is written looks
like the first input file again, where that says the same: string stays string, a dictionary a dictionary, an extension type (a UUID) its own; list views
are lists. Columns that stages added come behind. Metadata (the features of Hugging Face) is kept; that of pandas is not, as it tells of an index.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tamis.tasks.columns.casting import is_bytes, is_text

_OF_PANDAS = b"pandas"


def presented(target: pa.Schema, model: pa.Schema | None, leading: Sequence[str] = ()) -> pa.Schema:
    """Return the schema to write, from that of the run and that of the input.

    `leading`: columns whose order the user chose.
    """
    if model is None:
        return target
    known = [name for name in model.names if name in target.names]
    order = list(dict.fromkeys([*(n for n in leading if n in target.names), *known, *target.names]))
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


def present(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Convert a table to the schema that `presented` returned."""
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
    is_short = pa.types.is_list(model) or pa.types.is_list_view(model)
    if pa.types.is_list(kind) and (is_short or pa.types.is_large_list(model) or pa.types.is_large_list_view(model)):
        inner = model.value_field.with_type(_like(kind.value_type, model.value_type)).with_nullable(True)
        return pa.list_(inner) if is_short else pa.large_list(inner)
    if pa.types.is_fixed_size_list(kind) and pa.types.is_fixed_size_list(model) and kind.list_size == model.list_size:
        inner = model.value_field.with_type(_like(kind.value_type, model.value_type)).with_nullable(True)
        return pa.list_(inner, model.list_size)
    if pa.types.is_struct(kind) and pa.types.is_struct(model):
        ours, theirs = _members(kind), _members(model)
        if set(ours) == set(theirs):
            return pa.struct([pa.field(n, _like(ours[n], theirs[n])) for n in ours])
    return kind


def _members(kind: pa.DataType) -> dict[str, pa.DataType]:
    return {kind.field(i).name: kind.field(i).type for i in range(kind.num_fields)}


def _is_binary(kind: pa.DataType) -> bool:
    """Bytes of any length."""
    return is_bytes(kind) and not pa.types.is_fixed_size_binary(kind)
