"""Values of a field as modifiers see them.

A JSON field that is text in one record and a number in the next is a column of text. What a modifier does to a document must
not depend on its neighbours, so numbers, lists and objects are told from texts here, whatever the column's type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tamis.tasks import OTHER

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from tamis.tasks import DocumentBatch


def text_column(batch: DocumentBatch, field: str) -> pa.Array:
    """The field as a column of text, null where the value is not a text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = plain_column(batch, field)
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return pa.nulls(len(column), pa.large_string())
    other = _other_values(batch, field)
    return column if other is None else pc.if_else(pa.array(other), pa.scalar(None, column.type), column)


def plain_column(batch: DocumentBatch, field: str) -> pa.Array:
    """The column; texts that are stored in another way (a dictionary, views) as plain texts."""
    import pyarrow as pa

    column = batch.column(field)
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_string_view(kind) or (kind is not column.type and _is_text(kind)):
        return column.cast(pa.large_string())
    return column


def python_values(batch: DocumentBatch, field: str) -> list[Any]:
    """The field as Python values, also those that had to become text in the column."""
    values: list[Any] = plain_column(batch, field).to_pylist()
    other = _other_values(batch, field)
    if other is not None:
        origin: Any = batch._origin
        assert batch._rows is not None
        known = origin.values(field)
        for i in other.nonzero()[0].tolist():
            values[i] = known[batch._rows[i]]
    return values


def _other_values(batch: DocumentBatch, field: str) -> np.ndarray[Any, Any] | None:
    """True where a column of text stands for something else; None if nowhere."""
    import numpy as np
    import pyarrow.compute as pc

    kinds = getattr(batch._origin, "kinds", None)
    if kinds is None or batch._rows is None or batch._origin is None or field in batch._hidden:
        return None
    known = batch._rows >= 0
    other = np.zeros(batch.num_items, bool)
    other[known] = kinds(field)[batch._rows[known]] == OTHER
    if not other.any():
        return None
    column = plain_column(batch, field)
    if not _is_text(column.type):
        return None
    if field in batch._columns:  # an earlier stage wrote this column: what it changed is text now
        at = np.flatnonzero(other)
        before = batch._origin.column(field)
        if not _is_text(before.type):
            return None
        before, now = before.take(batch._rows[at]), column.take(at).cast(before.type)
        other[at] = pc.fill_null(pc.equal(before, now), False).to_numpy(zero_copy_only=False)
    return other if other.any() else None


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
