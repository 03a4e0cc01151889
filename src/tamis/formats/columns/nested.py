"""JSON values as Arrow arrays when no kernel decodes them: lists, objects, and numbers of both kinds.

The type follows the facts of `formats/schema/observed.py`, never Arrow's own guess, so that blocks of any cut end as the same type after
joining. Covers: Python values of one column -> array. Does not cover: reading the values (formats/jsonl/block.py).
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from tamis.formats.columns.casting import is_text
from tamis.formats.columns.json_type import Digits
from tamis.formats.schema.observed import BOOL, FLOAT, INT, LIST, STRING, STRUCT, Observed, integer_flags
from tamis.formats.schema.type_names import MAX_DEPTH

MAX_FACTS = 1000
"""Objects used as dictionaries (a field per user) would make a type without end; beyond this the column is text."""
_PLAIN = {bool: BOOL, float: FLOAT, str: STRING}
_TEXT_DEPTH = MAX_DEPTH - 2  # the same limit as in formats/schema/observed.py


def typed_array(values: list[Any]) -> pa.Array | None:
    """Return the values as one typed column, or None if they do not agree.

    Call it under `deep_recursion`.
    """
    seen = _facts_of_all(values, 0)
    kind = column_type(seen)
    return None if is_text(kind) and seen.flags != STRING else pa.array(values, kind)


def facts_of(value: Any, depth: int = 0) -> Observed:
    """Return what `observe` would report for an array that holds this value.

    Contains two facts at once if Arrow has no type for the value.
    """
    if value is None:
        return Observed()
    if isinstance(value, bool):
        return Observed(BOOL)
    if isinstance(value, int):
        return Observed(_integer_facts(value, value))
    if isinstance(value, float):
        return Observed(FLOAT)
    if isinstance(value, str):
        return Observed(STRING)
    if isinstance(value, Digits) or depth >= _TEXT_DEPTH:
        return Observed(STRING | INT)
    if isinstance(value, dict):
        return Observed(STRUCT, None, {k: facts_of(v, depth + 1) for k, v in value.items()})
    return Observed(LIST, _facts_of_all(value, depth + 1))


def _facts_of_all(values: list[Any], depth: int) -> Observed:
    # Arrow's own inference is no help: it takes [0.5, true] for two floats.
    kinds = set(map(type, values)) - {type(None)}
    if len(kinds) == 1 and (flags := _PLAIN.get(kinds.copy().pop())):  # long lists of numbers: embeddings
        return Observed(flags)
    if kinds == {int}:
        numbers = [v for v in values if v is not None]
        return Observed(_integer_facts(min(numbers), max(numbers)))
    seen = Observed()
    for i, value in enumerate(values):
        seen = seen.join(facts_of(value, depth))
        if i % 100 == 99 and n_facts(seen) > MAX_FACTS:
            break
    return seen


def _integer_facts(least: int, most: int) -> int:
    return integer_flags(least, most) | (STRING if least < -(2**63) or most >= 2**64 else 0)


def column_type(seen: Observed) -> pa.DataType:
    """Return the type of a whole column: text unless all values agree at every level.

    A list or struct with text inside for values that do not agree would lose their original types: were the column to
    become text later, {"a": 1} would end as {"a":"1"} or {"a":1} depending on how the input was split into blocks.
    """
    return seen.data_type() if n_facts(seen) <= MAX_FACTS and _agrees(seen) else pa.large_string()


def _agrees(seen: Observed) -> bool:
    if seen.flags == LIST:
        return seen.item is None or _agrees(seen.item)
    if seen.flags == STRUCT:
        return all(_agrees(field) for field in seen.fields.values())
    return seen.flags == STRING or not is_text(Observed(seen.flags).data_type())


def n_facts(seen: Observed) -> int:
    """Types and nested types in it."""
    return 1 + (n_facts(seen.item) if seen.item else 0) + sum(n_facts(f) for f in seen.fields.values())


def revived(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert a column that had to be stored as text back to its own type.

    {} has no fields, which Parquet cannot store.
    """
    return pa.array([None if text is None else json.loads(text) for text in array.to_pylist()], kind)
