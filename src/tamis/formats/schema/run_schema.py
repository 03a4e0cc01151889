"""One Parquet schema for all files of a run, whatever the cut into partitions.

Columns read from JSON carry facts (`observed.py`), because their Arrow types forget too much to be joined; all other columns
(Parquet input, types that a stage chose) are joined along the lattice of `lattice.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tamis.formats.schema.lattice import canonical_order, join
from tamis.tasks.columns.casting import cast_table, is_text
from tamis.tasks.columns.inference import MAX_FACTS, STRING, Observed, column_type, n_facts, observe, revived

Facts = dict[str, Observed]
NO_FIELDS = "_tamis_no_fields"
"""The one column, of nulls, of files whose documents have no fields: without any column Parquet forgets the rows."""


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
    found = pa.schema([pa.field(name, _stored(kind)) for name, kind in kinds.items()])
    return canonical_order(found, first)


def _stored(kind: pa.DataType) -> pa.DataType:
    """Parquet has no struct without fields: a column with {} in it, and nothing else there, is stored as text."""
    return pa.large_string() if _has_empty_struct(kind) else kind


def _has_empty_struct(kind: pa.DataType) -> bool:
    inner = [kind.field(i).type for i in range(kind.num_fields)]
    return (pa.types.is_struct(kind) and not inner) or any(_has_empty_struct(k) for k in inner)


def to_run_schema(table: pa.Table, target: pa.Schema) -> pa.Table:
    """Convert the rows of one file to the schema of the run, which can hold them."""
    if NO_FIELDS in table.column_names and NO_FIELDS not in target.names:
        table = table.drop_columns([NO_FIELDS])
    for i, field in enumerate(table.schema):
        wanted = target.field(field.name).type if field.name in target.names else field.type
        if is_text(field.type) and not is_text(wanted):  # stored as text for lack of a field that other files have
            table = table.set_column(
                i, field.name, pa.chunked_array([revived(c, wanted) for c in table.column(i).chunks], wanted)
            )
    return cast_table(table, target)


def facts_to_json(facts: Mapping[str, Observed]) -> dict[str, Any]:
    return {name: seen.to_json() for name, seen in facts.items()}


def facts_from_json(plain: Mapping[str, Any]) -> Facts:
    return {str(name): Observed.from_json(seen) for name, seen in plain.items()}
