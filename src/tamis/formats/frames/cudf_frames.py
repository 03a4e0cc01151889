"""Frames of cuDF, which lie on a GPU: made of Arrow tables, and turned back into them. The only file that imports cuDF.

Rows are known again by the row id, a column as in Arrow tables: whatever cuDF does to a frame, it keeps its columns.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tamis.errors import UsageError
from tamis.formats.columns.json_type import is_json

NO_CUDF = (
    "ToBackend('cudf') needs cuDF, which is not installed: pip install cudf-cu12 (on a machine with an NVIDIA GPU). Where no stage of yours "
    "works on cuDF frames, leave ToBackend out: stages of Tamis move to the GPU themselves what they compute there"
)


def on_device(table: pa.Table) -> Any:
    """Return a cuDF frame of these columns."""
    try:
        import cudf  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise UsageError(NO_CUDF) from None
    mixed = [field.name for field in table.schema if is_json(field.type)]
    for name in mixed:  # values of several kinds in one field: cuDF has columns of one type only
        at = table.schema.get_field_index(name)
        table = table.set_column(at, name, pa.chunked_array([c.storage for c in table[name].chunks], pa.large_string()))
    return cudf.DataFrame.from_arrow(table)


def as_host(data: Any) -> Any:
    """Convert a cuDF frame to an Arrow table; return anything else unchanged."""
    if type(data).__module__.startswith("cudf") and hasattr(data, "to_arrow"):
        return data.to_arrow(preserve_index=False)
    return data


def moved(data: Any, library: str) -> Any:
    """Convert a table or frame passed by the caller to another library."""
    data = as_host(data)
    table = data if isinstance(data, pa.Table) else pa.Table.from_pandas(data, preserve_index=False)
    if library == "cudf":
        return on_device(table)
    return table if library == "pyarrow" else data if not isinstance(data, pa.Table) else data.to_pandas()
