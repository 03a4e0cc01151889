"""Values that their type does not allow: text that is not UTF-8, times after midnight, decimals of too many digits.

Readers do not look at values, and kernels and Python rely on them: a bad byte would end as an exception in a stage, and a
time of 25 hours as one of 1 hour in the output. JSONL needs no such check, its scanner validates every record.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tamis.failures import is_memory_failure
from tamis.tasks.columns.casting import is_text


def bad_text_rows(table: pa.Table) -> tuple[npt.NDArray[np.int64], list[str]]:
    """(rows, reasons): the rows with a value that its type does not allow, in top-level or nested columns of plain types."""
    bad: dict[int, str] = {}
    for name in table.column_names:
        at = 0
        for chunk in table.column(name).chunks:
            if _is_bounded(chunk.type) and _what_is_wrong(chunk):
                for row in range(len(chunk)):
                    # `take`, not `slice`: a slice of a list column is validated with the items of all rows.
                    if why := _what_is_wrong(chunk.take(pa.array([row]))):
                        bad.setdefault(at + row, f"field {name!r} {why}")
            at += len(chunk)
    rows = sorted(bad)
    return np.array(rows, np.int64), [bad[row] for row in rows]


def _is_bounded(kind: pa.DataType) -> bool:
    """Return True if not every pattern of bits is a value of this type, at any depth."""
    if is_text(kind) or pa.types.is_decimal(kind) or pa.types.is_time(kind) or pa.types.is_date64(kind):
        return True
    return any(_is_bounded(kind.field(i).type) for i in range(kind.num_fields))


def _what_is_wrong(array: pa.Array) -> str:
    """Return why an array has values that its type does not allow, as the end of a sentence; "" if it has none."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as exc:
        if is_memory_failure(exc):
            raise MemoryError(str(exc)) from exc
        told = str(exc).partition("\n")[0]
        return "is not valid UTF-8" if "UTF8" in told else f"is not a valid {array.type}: {told}"
    return ""
