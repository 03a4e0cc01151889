"""Batches as pandas or cuDF frames, and frames as tables.

Frames look as if the user had made them: an index from 0 on without a name, and the columns of the documents.

In a run, fields of JSON records have the type that a scan of all records found or that the user declared
(columns/frame_types.py): a dtype that followed the batch would give a user's code other results for other neighbours.
Fields of another type, and columns that stages made, are columns of Python objects: each value as in the JSON, null as
None. Outside of runs, where a batch is all there is, types follow from its values. Columns of a Parquet file have the
dtype of their type; integers and bools are pandas' nullable ones, as numpy's have no null.

The objects are remembered (`DocumentBatch.handed_out`): pandas moves references, so a value that is the very object
that was handed out identifies the row it came from (returned_data.py). Rows of cuDF frames are identified by the row
id, a column as in Arrow tables.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis._lazy import pd
from tamis.errors import UsageError
from tamis.tasks.columns.canonical import EXACT_INT
from tamis.tasks.columns.casting import is_text
from tamis.tasks.columns.exact import exact_array, to_computable, values_of
from tamis.tasks.columns.frame_types import (
    BOOL,
    FLOAT,
    HUGE_INTEGER,
    INEXACT_INTEGER,
    INTEGER,
    NESTED,
    NULL,
    OBJECT,
    TEXT,
    TIME,
    KindCount,
)
from tamis.tasks.columns.json_type import is_json
from tamis.tasks.lineage import ROW_ID

if TYPE_CHECKING:
    from tamis.tasks import DocumentBatch
    from tamis.tasks.document import SourceFrame

Array = np.ndarray[Any, Any]
_FIRST_WITH_TEXTS = 3  # version of pandas whose frames have texts as a dtype of their own; before, they are objects
NO_CUDF = (
    "ToBackend('cudf') needs cuDF, which is not installed: pip install cudf-cu12 (on a machine with an NVIDIA GPU). "
    "Where no stage of yours "
    "works on cuDF frames, leave ToBackend out: stages of Tamis move to the GPU themselves what they compute there"
)


def _index_of(numbers: Array, numbering: int, first: int) -> Any:
    """Return an index of row ids less `first` whose class records which batch they belong to.

    The index looks like any other. pandas keeps the class of an index wherever it selects, sorts or repeats rows, and
    never
    where it creates new numbers (`reset_index`, `concat`, `merge`); rows are then traced by the objects in their cells.
    """

    class RowIds(pd.Index):
        _tamis_of, _tamis_first = numbering, first
        _constructor = property(type)

        def __reduce__(self) -> Any:  # frames travel to other processes of a stage and back
            return _index_of, (np.asarray(self), numbering, first)

    RowIds.__name__ = RowIds.__qualname__ = "Index"  # what users see of it
    index_class: Any = RowIds
    return index_class._simple_new(np.asarray(numbers, np.int64), name=None)


def frame_of(batch: DocumentBatch, names: Sequence[str]) -> pd.DataFrame:
    """Return these columns of a batch as a frame, with its row ids as the index."""
    ids = batch.serial if batch.lineage is not None else _column_ids(batch.traced_table())
    index = (
        pd.RangeIndex(batch.num_items)
        if ids is None
        else _index_of(ids - batch.first_id, batch.numbering, batch.first_id)
    )
    columns = {name: _series(batch, name, index) for name in names if name != ROW_ID}
    return pd.DataFrame(columns, index=index, columns=list(columns))


def _series(batch: DocumentBatch, name: str, index: Any) -> Any:
    is_typed = batch.is_declared(name)
    array = batch.column(name) if is_typed else batch.exact_column(name)
    if is_typed and not (is_text(array.type) or pa.types.is_nested(array.type) or is_json(array.type)):
        series = array.to_pandas(types_mapper=_nullable)
        series.index = index
        return series
    objects = batch.handed.get(name)
    if objects is None:
        objects = _objects(array, is_typed)
        batch.handed_out.append((batch.serial, objects))
        if not (pa.types.is_nested(array.type) or is_json(array.type)):  # lists and objects may be changed in place
            batch.handed[name] = objects
    kind = _declared_frame_type(array) if is_typed else frame_type_of(batch, name, array)
    if kind != OBJECT:
        series = typed_series(name, array, objects, kind, index, is_required=batch.is_as_recorded(name))
        if series is not None:
            return series if batch.numbering or kind != "string" else series.astype("str" if _has_texts() else object)
    return pd.Series(objects.copy(), index=index, dtype=object)


def _declared_frame_type(array: pa.Array) -> str:
    """Return the type that a column of a declared Arrow type, without a numpy equivalent, has in frames."""
    return "string" if is_text(array.type) else OBJECT


def frame_type_of(batch: DocumentBatch, name: str, array: pa.Array) -> str:
    """Return the type that a column of JSON values has in frames of this batch."""
    if batch.column_types is not None:
        return batch.column_types.get(name, OBJECT)
    return OBJECT if batch.numbering else type_of_values(array)


def type_of_values(array: pa.Array) -> str:
    """Return the type of a column whose values are all there is."""
    kind = array.type
    if is_text(kind):
        return "string"
    if pa.types.is_floating(kind):
        return "float64"
    count = KindCount(NULL if array.null_count else 0, len(array))
    if pa.types.is_boolean(kind):
        count.flags |= BOOL
    elif pa.types.is_integer(kind):
        count.flags |= _integer_flags(pc.min_max(array).as_py().values())
    elif is_json(kind):
        for value in values_of(array):
            count.flags |= _flags_of(value)
    return count.frame_type(len(array))


def _flags_of(value: Any) -> int:
    if value is None or isinstance(value, bool):
        return NULL if value is None else BOOL
    if isinstance(value, int):
        return _integer_flags([value])
    return FLOAT if isinstance(value, float) else TEXT if isinstance(value, str) else NESTED


def _integer_flags(values: Iterable[int | None]) -> int:
    largest = max((abs(v) for v in values if v is not None), default=-1)
    if largest < 0:
        return 0
    return INTEGER | (INEXACT_INTEGER if largest > EXACT_INT else 0) | (HUGE_INTEGER if largest >= 1 << 63 else 0)


def typed_series(name: str, array: pa.Array, objects: Array, kind: str, index: Any, is_required: bool) -> Any:
    """Return a column as a series of a type of columns/frame_types.py, or None if a value does not fit it.

    `is_required`: these are the values of records, for which the type was declared; raise UsageError instead.
    """
    try:
        return _series_of_type(array, objects, kind, index)
    except (ValueError, TypeError, pa.ArrowException) as exc:
        if is_required:
            raise UsageError(
                f"field {name!r} is read as {kind}, and a record has something else: {exc}; declare another type "
                f"(fields={{{name!r}: 'object'}} takes every value)"
            ) from exc
        return None


def _is_fitting(type_: pa.DataType, kind: str) -> bool:
    """Return True if all values of an Arrow type can be values of a pandas type."""
    if pa.types.is_null(type_) or (kind == "float64" and pa.types.is_floating(type_)):
        return True
    return bool(pa.types.is_boolean(type_) if kind.startswith("bool") else pa.types.is_integer(type_))


def _series_of_type(array: pa.Array, objects: Array, kind: str, index: Any) -> Any:
    if kind == "string":
        if not (is_text(array.type) or pa.types.is_null(array.type)) and not all(
            v is None or isinstance(v, str) for v in objects
        ):
            raise ValueError("it is not a text")
        return pd.Series(objects.copy(), index=index, dtype=text_dtype())
    values = to_computable(array)
    if kind == TIME:
        return pd.Series(_times(objects), index=index)
    if not _is_fitting(values.type, kind):
        raise ValueError(f"its type is {values.type}")
    if kind in ("boolean", "Int64"):
        arrow = pa.bool_() if kind == "boolean" else pa.int64()
        return pd.Series(values.cast(arrow).to_pandas(types_mapper=_nullable).array, index=index)
    if kind == "float64":
        return pd.Series(values.cast(pa.float64()).to_numpy(zero_copy_only=False), index=index)
    if values.null_count:
        raise ValueError("it is null or missing")
    plain = values.cast(pa.bool_() if kind == "bool" else pa.int64()).to_numpy(zero_copy_only=False)
    return pd.Series(plain.copy(), index=index)


def _times(texts: Iterable[Any]) -> Any:
    """Return the times that ISO 8601 texts name, in UTC where they name an offset; NaT for None."""
    texts = list(texts)
    if not all(text is None or isinstance(text, str) for text in texts):
        raise ValueError("it is not a text with a time in ISO 8601")
    times = pd.to_datetime(pd.Series(texts, dtype=object), format="ISO8601", utc=True)
    return times.dt.tz_localize(None).to_numpy().astype(TIME)


def same_times(series: Any, before: pa.Array) -> Array:
    """Return a mask of the rows in which a series of times still has the time of the text it was made of."""
    before_s, now = _times(values_of(before)), series.to_numpy()
    return np.asarray((before_s == now) | (np.isnat(before_s) & np.isnat(now)), bool)


def text_dtype() -> Any:
    """Return pandas' dtype of texts, with Python objects as its values: these identify rows (returned_data.py)."""
    return pd.StringDtype(storage="python", na_value=np.nan) if _has_texts() else object


def _has_texts() -> bool:
    import pandas

    return int(pandas.__version__.partition(".")[0]) >= _FIRST_WITH_TEXTS


def frame_of_table(table: pa.Table, source: SourceFrame) -> pd.DataFrame:
    """Return documents in memory as a frame; columns that did not change are those of the frame they came from."""
    frame, labels = source.frame, {}
    if frame is not None:
        labels = {name: label for name, label in labels_of(frame).items() if name in source.names}
        frame = frame if source.rows is None else frame.iloc[source.rows]
    index = pd.RangeIndex(len(table)) if frame is None else frame.index
    columns = {}
    for name in table.column_names:
        if name in labels:
            columns[labels[name]] = frame[labels[name]]
        elif name != ROW_ID:
            column = table.column(name)
            array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
            columns[name] = _series_in_memory(name, array, index)
    return pd.DataFrame(columns, index=index, columns=list(columns))


def _series_in_memory(name: str, array: pa.Array, index: Any) -> Any:
    kind = array.type
    if is_text(kind) or is_json(kind) or pa.types.is_nested(kind) or pa.types.is_null(kind):
        objects = _objects(array, pa.types.is_nested(kind))
        type_name = type_of_values(array)
        if type_name == "string" and _has_texts():
            return pd.Series(objects, index=index, dtype="str")  # as of a frame that a user makes
        series = typed_series(name, array, objects, type_name, index, is_required=False)
        return series if series is not None else pd.Series(objects, index=index, dtype=object)
    series = array.to_pandas()
    series.index = index
    return series


def _objects(array: pa.Array, is_typed: bool) -> Array:
    """Return the values of a column as Python objects, with no object shared by two rows.

    Exceptions are objects of which Python has only one.
    """
    if is_text(array.type) or (is_typed and pa.types.is_nested(array.type)):
        return np.asarray(array.to_numpy(zero_copy_only=False), object)
    return np.fromiter(values_of(array), object, len(array))


def _nullable(kind: pa.DataType) -> Any:
    """Return the nullable dtype for types for which numpy has no null."""
    if pa.types.is_integer(kind):
        return pd.api.types.pandas_dtype(str(kind).replace("int", "Int").replace("uI", "UI"))
    return pd.BooleanDtype() if pa.types.is_boolean(kind) else None


def _column_ids(table: pa.Table) -> Array | None:
    """Return the row ids that a table carries as a column, with -1 where one is missing.

    Returns None if there is no such column. Floats are accepted because pandas converts ids with gaps to floats.
    """
    if ROW_ID not in table.column_names:
        return None
    column = table.column(ROW_ID)
    if pa.types.is_integer(column.type):
        return np.asarray(column.fill_null(-1).to_numpy(), np.int64)
    if pa.types.is_floating(column.type):
        return np.asarray(column.fill_null(-1).to_numpy(), np.float64).astype(np.int64)
    return None


def row_ids(data: Any, numberings: set[int]) -> Array | None:
    """Return the row ids that a table or frame still carries, in its column or in its index.

    Ids of another batch (from a stage that keeps frames from one call to the next) are ignored.
    """
    if isinstance(data, pa.Table):
        return _column_ids(data)
    if ROW_ID in data.columns:
        return _column_ids(pa.table({ROW_ID: pa.array(data[ROW_ID], from_pandas=True)}))
    if getattr(type(data.index), "_tamis_of", None) in numberings:
        ids: Array = np.asarray(data.index, np.int64) + data.index._tamis_first
        return ids
    return None


# -- what comes back --------------------------------------------------------------------------------------------------
def labels_of(frame: pd.DataFrame) -> dict[str, Any]:
    """Map the field names that columns will have to the column labels of a frame."""
    labels = {str(label): label for label in frame.columns}
    if len(labels) < len(frame.columns):
        names = [str(label) for label in frame.columns]
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(f"a frame with two columns named {twice!r}: fields have different names; rename or drop one")
    return labels


def table_of(frame: pd.DataFrame) -> pa.Table:
    """Convert a frame to a table, without its index.

    Texts, numbers, lists and objects in one column keep their types.
    """
    return pa.table({name: array_of(frame[label], ()) for name, label in labels_of(frame).items()})


def array_of(series: Any, handed: set[int] | tuple[()]) -> pa.Array:
    """Return the values of a frame column, exact except for numbers that pandas may have converted to floats.

    pandas turns whole numbers into floats wherever a value is missing nearby, so a whole float does not show what was
    meant: it is always taken for an integer, lest the output depend on the neighbours. `handed`: ids of objects that
    were passed to the frame; these are kept unchanged.
    """
    dtype = series.dtype
    if dtype.kind == "f":
        return integers_where_whole(pa.array(series, from_pandas=True).cast(pa.float64()))
    if dtype.kind == "O":  # texts and categories, too
        return exact_array([_plain(v, handed) for v in series.tolist()])
    array = pa.array(series, from_pandas=True)
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def integers_where_whole(array: pa.Array) -> pa.Array:
    """Return floats as integers where they are whole; unchanged if none is."""
    numbers = array.to_numpy(zero_copy_only=False)
    is_whole = (np.trunc(numbers) == numbers) & (np.abs(numbers) < EXACT_INT) & ~((numbers == 0) & np.signbit(numbers))
    if not is_whole.any():
        return array
    if is_whole.sum() == len(array) - array.null_count:
        return array.cast(pa.int64())
    return exact_array([_plain_float(v) if v is not None else None for v in array.to_pylist()])


def _plain_float(value: float) -> int | float:
    is_whole = value.is_integer() and abs(value) < EXACT_INT and (value != 0 or math.copysign(1, value) > 0)
    return int(value) if is_whole else value


def _plain(value: Any, handed: Any) -> Any:
    """Convert the nulls of pandas to None, numpy's values to Python's, whole floats to integers."""
    if value is None or isinstance(value, str) or id(value) in handed:
        return value
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return None if math.isnan(value) else _plain_float(value)
    if isinstance(value, np.ndarray):
        return value.tolist()
    return None if value is pd.NA or value is pd.NaT else value


# -- cuDF, whose frames are on a GPU ---------------------------------------------------------------------------------


def to_cudf(table: pa.Table) -> Any:
    """Return a cuDF frame of these columns."""
    try:
        import cudf  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise UsageError(NO_CUDF) from None
    mixed = [field.name for field in table.schema if is_json(field.type)]
    for name in mixed:  # values of several kinds in one field: cuDF has columns of one type only
        index = table.schema.get_field_index(name)
        table = table.set_column(
            index, name, pa.chunked_array([c.storage for c in table[name].chunks], pa.large_string())
        )
    return cudf.DataFrame.from_arrow(table)


def from_cudf(data: Any) -> Any:
    """Convert a cuDF frame to an Arrow table; return anything else unchanged."""
    if type(data).__module__.startswith("cudf") and hasattr(data, "to_arrow"):
        return data.to_arrow(preserve_index=False)
    return data


def convert_frame(data: Any, library: str) -> Any:
    """Convert a table or frame passed by the caller to another library."""
    data = from_cudf(data)
    table = data if isinstance(data, pa.Table) else pa.Table.from_pandas(data, preserve_index=False)
    if library == "cudf":
        return to_cudf(table)
    return table if library == "pyarrow" else data if not isinstance(data, pa.Table) else data.to_pandas()
