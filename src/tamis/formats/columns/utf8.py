"""Text that is no UTF-8. Covers: finding the rows of a table whose string columns hold invalid bytes.

Parquet readers do not look inside strings, and kernels and Python rely on UTF-8: one bad byte would end as an exception
in a stage, or as damaged output. JSONL needs no such check, its scanner validates every record.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tamis.formats.columns.casting import is_text
from tamis.formats.faults import is_memory_failure


def bad_text_rows(table: pa.Table) -> tuple[npt.NDArray[np.int64], list[str]]:
    """(rows, reasons): the rows with a string that is not UTF-8, in top-level or nested columns of plain types."""
    bad: dict[int, str] = {}
    for name in table.column_names:
        at = 0
        for chunk in table.column(name).chunks:
            if _holds_text(chunk.type) and not _is_valid(chunk):
                for row in range(len(chunk)):
                    # `take`, not `slice`: a slice of a list column is validated with the items of all rows.
                    if not _is_valid(chunk.take(pa.array([row]))):
                        bad.setdefault(at + row, f"field {name!r} is not valid UTF-8")
            at += len(chunk)
    rows = sorted(bad)
    return np.array(rows, np.int64), [bad[row] for row in rows]


def _holds_text(kind: pa.DataType) -> bool:
    return is_text(kind) or any(_holds_text(kind.field(i).type) for i in range(kind.num_fields))


def _is_valid(array: pa.Array) -> bool:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as exc:
        if is_memory_failure(exc):
            raise MemoryError(str(exc)) from exc
        return False
    return True
