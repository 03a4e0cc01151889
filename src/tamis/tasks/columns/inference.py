"""The types of JSON columns, inferred from their values, whatever the cut of the input into blocks.

An Arrow type forgets what decides about widening: int64 and uint64 fit into uint64 if no value is negative, integers
fit into float64 up to 2^53. `Observed` keeps these facts as a set; joining is a union, so order and cut of blocks
cannot matter, and the type is derived from the facts at the very end:

    only integers: int64, uint64 when some exceed int64 and none is negative, else string
    integers and floats: float64, but string when an integer exceeds 2^53 (it would change)
    one of bool, string, list, struct: that, with items and fields by the same rules; any other mixture: string

Covers: facts of Arrow columns (`observe`) and of Python values (`facts_of`), and columns of Python values that no
kernel decodes (`typed_array`). Memory: one small object per column and nested field.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tamis._dataclasses import dataclass
from tamis.errors import FormatError
from tamis.tasks.columns.canonical import EXACT_INT
from tamis.tasks.columns.casting import is_list, is_text
from tamis.tasks.columns.json_type import Digits

MAX_DEPTH = 32
MAX_TYPES = 20_000
BOOL, INT, NEGATIVE, INEXACT, BEYOND_INT64, FLOAT, STRING, LIST, STRUCT = (1 << bit for bit in range(9))
_NUMBER = INT | NEGATIVE | INEXACT | BEYOND_INT64 | FLOAT
_ALL = (1 << 9) - 1
TEXT = pa.large_string()


@dataclass(frozen=True)
class Observed:
    """Facts about the values of one column; nothing at all means that only nulls were seen."""

    flags: int = 0
    item: Observed | None = None
    fields: Mapping[str, Observed] = field(default_factory=dict)

    def join(self, other: Observed) -> Observed:
        """Return the union of the facts that both observed."""
        item = self.item or other.item
        if self.item and other.item:
            item = self.item.join(other.item)
        fields = dict(self.fields)
        for name, seen in other.fields.items():
            fields[name] = fields[name].join(seen) if name in fields else seen
        return Observed(self.flags | other.flags, item, fields)

    def data_type(self) -> pa.DataType:
        """Return the least type that holds everything seen; fields of structs are ordered by name."""
        flags = self.flags
        if not flags:
            return pa.null()
        if flags & ~_NUMBER == 0:
            return _number_type(flags)
        if flags == BOOL:
            return pa.bool_()
        if flags == LIST:
            return pa.list_((self.item or Observed()).data_type())
        if flags == STRUCT:
            return pa.struct([pa.field(name, self.fields[name].data_type()) for name in sorted(self.fields)])
        return TEXT

    def to_json(self) -> list[Any]:
        """Return [flags], [flags, item] or [flags, item, fields]: short, as the commit log holds one per partition."""
        plain: list[Any] = [self.flags]
        if self.item or self.fields:
            plain.append(self.item.to_json() if self.item else None)
        if self.fields:
            plain.append({name: seen.to_json() for name, seen in self.fields.items()})
        return plain

    @classmethod
    def from_json(cls, plain: Any) -> Observed:
        """Parse what `to_json` wrote; raise FormatError for anything that it could not have written."""
        return _read(plain, [0], 0)


def observe(array: pa.Array | pa.ChunkedArray, depth: int = 0) -> Observed:
    """Return the facts of one decoded column: null, bool, integer, float, string, list and struct types.

    Arrow and Parquet readers recurse, so nested values below `_TEXT_DEPTH` count as strings: their text.
    """
    if isinstance(array, pa.ChunkedArray):
        seen = Observed()
        for chunk in array.chunks:
            seen = seen.join(observe(chunk, depth))
        return seen
    kind = array.type
    if array.null_count == len(array) or pa.types.is_null(kind):
        return Observed()
    if pa.types.is_boolean(kind):
        return Observed(BOOL)
    if pa.types.is_integer(kind):
        bounds = pc.min_max(array)
        return Observed(integer_flags(bounds["min"].as_py(), bounds["max"].as_py()))
    if pa.types.is_floating(kind):
        return Observed(FLOAT)
    if is_text(kind) or (pa.types.is_nested(kind) and depth >= _TEXT_DEPTH):
        return Observed(STRING)
    if is_list(kind):
        return Observed(LIST, observe(array.flatten(), depth + 1))
    if pa.types.is_struct(kind):
        fields = [observe(child, depth + 1) for child in array.flatten()]
        return Observed(STRUCT, None, dict(zip(kind.names, fields, strict=True)))
    raise FormatError(f"observe: {kind} does not come from JSON; join its Arrow type with schema.join instead")


def integer_flags(least: int, largest: int) -> int:
    """Return the facts of integers between `least` and `most`."""
    flags = INT | (NEGATIVE if least < 0 else 0) | (BEYOND_INT64 if largest > 2**63 - 1 else 0)
    return flags | (INEXACT if largest > EXACT_INT or least < -EXACT_INT else 0)


def _number_type(flags: int) -> pa.DataType:
    if flags & FLOAT:
        return TEXT if flags & INEXACT else pa.float64()
    if flags & BEYOND_INT64:
        return TEXT if flags & NEGATIVE else pa.uint64()
    return pa.int64()


def _read(plain: Any, n_seen: list[int], depth: int) -> Observed:
    n_seen[0] += 1
    if n_seen[0] > MAX_TYPES or depth > MAX_DEPTH:
        raise FormatError(f"stored facts: more than {MAX_TYPES} fields or {MAX_DEPTH} levels; the file is damaged")
    if not isinstance(plain, list) or not 1 <= len(plain) <= 3:
        raise FormatError(f"stored facts: expected a list of 1 to 3, got {str(plain)[:80]}; the file is damaged")
    flags, item, fields = (*plain, None, None)[:3]
    if type(flags) is not int or not 0 <= flags <= _ALL or not isinstance(fields, dict | None):
        raise FormatError(f"stored facts: bad entry {str(plain)[:80]}; the file is damaged, start afresh")
    return Observed(
        flags,
        None if item is None else _read(item, n_seen, depth + 1),
        {str(name): _read(seen, n_seen, depth + 1) for name, seen in (fields or {}).items()},
    )


# -- from Python values -----------------------------------------------------------------------------------------------
MAX_FACTS = 1000
"""Objects used as dictionaries (a field per user) would make a type without end; beyond this the column is text."""
_PLAIN = {bool: BOOL, float: FLOAT, str: STRING}
_TEXT_DEPTH = MAX_DEPTH - 2  # the same limit as in tasks/columns/inference.py


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


def _integer_facts(least: int, largest: int) -> int:
    return integer_flags(least, largest) | (STRING if least < -(2**63) or largest >= 2**64 else 0)


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
    """Count types and nested types."""
    return 1 + (n_facts(seen.item) if seen.item else 0) + sum(n_facts(f) for f in seen.fields.values())


def parse_json_column(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert a column that had to be stored as text back to its own type.

    {} has no fields, which Parquet cannot store.
    """
    return pa.array([None if text is None else json.loads(text) for text in array.to_pylist()], kind)
