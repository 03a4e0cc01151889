"""What JSON columns were seen to hold. Covers: the type of a column over a run, whatever the cut into blocks.

An Arrow type forgets what decides about widening: int64 and uint64 fit into uint64 if no value is negative, integers fit
into float64 up to 2^53. `Observed` keeps these facts as a set; joining is a union, so order and cut of blocks cannot
matter, and the type is derived from the facts at the very end:

    only integers: int64, uint64 when some exceed int64 and none is negative, else string
    integers and floats: float64, but string when an integer exceeds 2^53 (it would change)
    one of bool, string, list, struct: that, with items and fields by the same rules; any other mixture: string

Memory: one small object per column and nested field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import FormatError
from tamis.formats.columns.canonical import EXACT_INT
from tamis.formats.columns.casting import is_list, is_text
from tamis.formats.schema.type_names import MAX_DEPTH, MAX_TYPES

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
        """[flags], [flags, item] or [flags, item, fields]: short, since the commit log holds one per partition."""
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

    Arrow and Parquet readers recurse, so nested values at `depth` 30 count as strings: their text.
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
    if is_text(kind) or (pa.types.is_nested(kind) and depth >= MAX_DEPTH - 2):
        return Observed(STRING)
    if is_list(kind):
        return Observed(LIST, observe(array.flatten(), depth + 1))
    if pa.types.is_struct(kind):
        fields = [observe(child, depth + 1) for child in array.flatten()]
        return Observed(STRUCT, None, dict(zip(kind.names, fields, strict=True)))
    raise FormatError(f"observe: {kind} does not come from JSON; join its Arrow type with schema.join instead")


def integer_flags(least: int, most: int) -> int:
    """Return the facts of integers between `least` and `most`."""
    flags = INT | (NEGATIVE if least < 0 else 0) | (BEYOND_INT64 if most > 2**63 - 1 else 0)
    return flags | (INEXACT if most > EXACT_INT or least < -EXACT_INT else 0)


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
