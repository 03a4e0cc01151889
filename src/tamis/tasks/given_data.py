"""What a batch may be given as data: tables and frames, of which library they are, and how columns are made of values."""

from __future__ import annotations

from typing import Any

from tamis._lazy import np, pa
from tamis.errors import UsageError


def check_data(data: Any) -> None:
    """UsageError for what is neither a table nor a frame."""
    if not is_table(data) and not is_frame(data) and not is_on_device(data):
        raise UsageError(
            f"DocumentBatch(data=...): expected a pyarrow.Table or a DataFrame of pandas or cuDF, got {type(data).__name__}"
        )


def is_table(data: Any) -> bool:
    return type(data).__module__.startswith("pyarrow") and hasattr(data, "column_names")


def is_frame(data: Any) -> bool:
    return type(data).__module__.startswith("pandas") and hasattr(data, "columns")


def is_on_device(data: Any) -> bool:
    return type(data).__module__.startswith("cudf") and hasattr(data, "to_arrow")


def names_of(data: Any) -> list[str]:
    return [] if data is None else list(data.column_names if is_table(data) else map(str, data.columns))


def to_table(data: Any) -> pa.Table:
    if is_frame(data):
        from tamis.formats.frames.pandas_frames import table_of

        return table_of(data)
    return data.to_arrow(preserve_index=False) if is_on_device(data) else data


def is_exact(kind: pa.DataType) -> bool:
    """Types of a decoded JSON field in which every value is as it is (a float64 may stand for integers, too)."""
    tests = (pa.types.is_large_string, pa.types.is_string, pa.types.is_integer, pa.types.is_boolean, pa.types.is_null)
    return any(test(kind) for test in tests)


def take_rows(array: pa.Array, indices: np.ndarray[Any, Any]) -> pa.Array:
    n = len(indices)
    if n == len(array) and n and indices[0] == 0 and indices[-1] == n - 1 and bool((np.diff(indices) == 1).all()):
        return array
    from tamis.kernels import text_rows

    return text_rows.take(array, indices)


def combined(values: Any) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        return values.combine_chunks() if values.num_chunks != 1 else values.chunk(0)
    if isinstance(values, np.ndarray) and values.dtype != object:
        return pa.array(values)
    if type(values).__module__.startswith("pandas") and hasattr(values, "dtype"):
        from tamis.formats.frames.pandas_frames import array_of

        return array_of(values, ())
    from tamis.formats.columns.exact import exact_array

    return exact_array(list(values))
