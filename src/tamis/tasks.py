"""What flows between stages.

A `DocumentBatch` looks like an Arrow table and is one only on demand: fields are decoded when somebody asks for them, and
every row remembers the record it came from (`_rows` into `_origin`), so that what nobody touched can be written back byte
for byte. Tables and frames handed to users carry that memory as a hidden row id (`_tamis_row`: a column in Arrow, the index
in pandas); `adopt` reads it back from what the user's stage returned.

Covers: the task types and the lineage of rows. Does not cover: how records are decoded (formats/) or counted (engine/ledger).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from tamis.errors import MissingExtra, UsageError

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import pyarrow as pa

T = TypeVar("T")
ROW_ID = "_tamis_row"
_FEW = 4  # a part below this share of a column (one in four) is copied at once
SCORES = "\0scores"  # in DocumentBatch._shared, instead of the name of a column: scores that come out as columns
MISSING, NULL, TEXT, OTHER = range(4)  # what DocumentBatch.kinds() says of a value


class Origin(Protocol):
    """Decoded-on-demand records that rows of a batch point into."""

    n_rows: int
    places: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]] | None

    def field_names(self) -> list[str]: ...

    def column(self, name: str) -> pa.Array: ...


@dataclass
class Task(Generic[T]):
    """A unit of data that a stage takes and returns."""

    dataset_name: str = ""
    data: T = None  # type: ignore[assignment]
    _stage_perf: list[Any] = field(default_factory=list, repr=False)
    _metadata: dict[str, Any] = field(default_factory=dict, repr=False)
    task_id: str = field(init=False, default="")

    @property
    def num_items(self) -> int:
        return 1 if self.data is not None else 0

    def validate(self) -> bool:
        return True

    def add_stage_perf(self, perf: Any) -> None:
        self._stage_perf.append(perf)

    def get_columns(self) -> list[str]:
        return []


@dataclass
class EmptyTask(Task[None]):
    """Where a pipeline starts when its first stage needs no input."""

    def __post_init__(self) -> None:
        self.task_id = "0"


@dataclass
class FileGroupTask(Task[list[str]]):
    """A group of files, to be read by the next stage, or written by the last one."""

    data: list[str] = field(default_factory=list)
    reader_config: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.task_id = hashlib.blake2b("\0".join(sorted(self.data)).encode(), digest_size=8).hexdigest()

    @property
    def num_items(self) -> int:
        return len(self.data)


class DocumentBatch(Task["pa.Table"]):
    """Documents in memory. Build one from an Arrow table or a pandas DataFrame; stages receive lazy ones."""

    def __init__(
        self,
        dataset_name: str = "",
        data: pa.Table | pd.DataFrame | None = None,
        _stage_perf: list[Any] | None = None,
        _metadata: dict[str, Any] | None = None,
        task_id: str = "",
    ) -> None:
        self.dataset_name = dataset_name
        self.task_id = task_id
        self._stage_perf = _stage_perf if _stage_perf is not None else []
        self._metadata = _metadata if _metadata is not None else {}
        self._table: Any = data  # what the user gave; None for lazy batches
        self._origin: Origin | None = None
        self._rows: np.ndarray[Any, Any] | None = None
        self._columns: dict[str, pa.Array] = {}
        self._hidden: frozenset[str] = frozenset()
        self._only: tuple[str, ...] | None = None
        self._serial: np.ndarray[Any, Any] | None = None
        self._cache: dict[str, pa.Array] = {}
        # Decoded columns of the batch this one was taken from, and which rows: copied only if somebody asks.
        self._pending: dict[str, tuple[pa.Array, np.ndarray[Any, Any]]] = {}
        # What stages measured of a column, (column, what) -> one value per row: later stages need not measure again.
        self._shared: dict[tuple[str, str], np.ndarray[Any, Any]] = {}
        # The 128-bit identity of each row belongs to the engine; see engine/ledger.py.
        self._identity: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]] | None = None
        if data is not None and not _is_table(data) and not _is_frame(data):
            raise UsageError(
                f"DocumentBatch(data=...): expected a pyarrow.Table or a pandas.DataFrame, got {type(data).__name__}"
            )

    # -- reading ------------------------------------------------------------------------------------------------------
    @property
    def num_items(self) -> int:
        return len(self._rows) if self._rows is not None else len(self._table) if self._table is not None else 0

    @property
    def serial(self) -> np.ndarray[Any, Any]:
        """The hidden row ids: what each row is called among the documents a stage receives (-1: made by the stage)."""
        import numpy as np

        if self._serial is None:
            self._serial = np.arange(self.num_items, dtype=np.int64)
        return self._serial

    @property
    def data(self) -> pa.Table:
        return self.to_pyarrow()

    @data.setter
    def data(self, value: Any) -> None:
        """Assigning a table or frame replaces the documents; rows keep their origin through the hidden row id."""
        fresh = DocumentBatch(self.dataset_name, value, self._stage_perf, self._metadata)
        if self._rows is not None:
            adopt(fresh, [self])
        self.__dict__.update(fresh.__dict__)

    def __repr__(self) -> str:
        return f"DocumentBatch({self.dataset_name!r}, {self.num_items} documents, columns={self.get_columns()})"

    def get_columns(self) -> list[str]:
        if self._rows is None:
            return [c for c in _names(self._table) if c != ROW_ID]
        assert self._origin is not None
        names = [n for n in self._origin.field_names() if n not in self._hidden]
        names += [n for n in self._columns if n not in names]
        return [n for n in names if n in self._only] if self._only is not None else names

    def column(self, name: str) -> pa.Array:
        """One column, decoded now if it was not before. A field that no document has is all null."""
        import pyarrow as pa

        if self._rows is None:
            array = _to_table(self._table).column(name)
            return array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
        if name in self._columns:
            return self._columns[name]
        if name not in self._cache:
            assert self._origin is not None
            if name in self._hidden:
                self._cache[name] = pa.nulls(len(self._rows))
            elif name in self._pending:
                self._cache[name] = _take(*self._pending.pop(name))
            else:
                self._cache[name] = _take(self._origin.column(name), self._rows)
        return self._cache[name]

    def column_of(self, name: str, at: np.ndarray[Any, Any]) -> pa.Array:
        """The values of a column in these rows; where no field was looked at yet, only these records are."""
        if self._rows is not None and not getattr(self._origin, "is_parsed", True) and self._is_plain(name):
            own: Any = self._origin
            return own.column_of(name, self._rows[at])
        return _take(self.column(name), at)

    def _is_plain(self, name: str) -> bool:
        """Whether a column is what the records say, and nobody decoded or changed it."""
        changed = (self._columns, self._cache, self._hidden, self._pending)
        return self._rows is not None and not any(name in c for c in changed) and bool((self._rows >= 0).all())

    def kinds(self, name: str) -> np.ndarray[Any, Any]:
        """What each value of a field is: MISSING, NULL, TEXT or OTHER (a number, a list, ...).

        A JSON field that is text in one record and a number in the next becomes a column of text; this tells them apart.
        """
        import numpy as np
        import pyarrow as pa

        own = getattr(self._origin, "kinds", None)
        if (
            own is not None
            and self._rows is not None
            and name not in self._columns
            and name not in self._hidden
            and (self._rows >= 0).all()
        ):
            return np.asarray(own(name)[self._rows], dtype=np.uint8)
        if name not in self.get_columns():
            return np.full(self.num_items, MISSING, np.uint8)
        array = self.column(name)
        is_text = pa.types.is_string(array.type) or pa.types.is_large_string(array.type)
        return np.where(np.asarray(array.is_valid()), TEXT if is_text else OTHER, NULL).astype(np.uint8)

    def places(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Where each document lies in the input: number of the file and offset (or row number) in it; -1 where unknown."""
        import numpy as np

        n = self.num_items
        known = self._origin.places if self._origin is not None else None
        if known is None or self._rows is None:
            return np.full(n, -1, np.int32), np.full(n, -1, np.int64)
        at, new = np.maximum(self._rows, 0), self._rows < 0
        return np.where(new, -1, known[0][at]).astype(np.int32), np.where(new, -1, known[1][at])

    def to_pyarrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All columns (or those named) as a table, plus the hidden row id."""
        import pyarrow as pa

        if self._rows is None:
            table = _to_table(self._table)
            return (
                table
                if columns is None
                else table.select([*columns, *([ROW_ID] if ROW_ID in table.column_names else [])])
            )
        names = list(columns) if columns is not None else self.get_columns()
        return pa.table([*(self.column(n) for n in names), pa.array(self.serial)], names=[*names, ROW_ID])

    def to_pandas(self, columns: Sequence[str] | None = None) -> Any:  # pandas is optional, and its types with it
        """All columns (or those named) as a frame; the hidden row id is its index."""
        _import_pandas()
        if self._rows is None and _is_frame(self._table):
            return self._table if columns is None else self._table[list(columns)]
        frame = self.to_pyarrow(columns).to_pandas()
        return frame.set_index(ROW_ID) if ROW_ID in frame.columns else frame

    # -- changing (each returns a new batch; the lineage of rows is kept) ---------------------------------------------
    def with_column(self, name: str, values: pa.Array | Sequence[Any]) -> DocumentBatch:
        import pyarrow as pa

        array = values if isinstance(values, pa.Array) else _combined(values)
        if len(array) != self.num_items:
            raise UsageError(f"with_column({name!r}): {len(array)} values for {self.num_items} documents")
        child = self._child()
        child._forget([name])
        if child._rows is None:
            table = _to_table(self._table)
            at = table.schema.get_field_index(name)
            child._table = table.append_column(name, array) if at < 0 else table.set_column(at, name, array)
        else:
            child._columns = {**self._columns, name: array}
            if child._only is not None and name not in child._only:  # what a stage adds comes out, whatever was read
                child._only = (*child._only, name)
        return child

    def drop_columns(self, names: Iterable[str]) -> DocumentBatch:
        child = self._child()
        gone = set(names)
        child._forget(gone)
        if child._rows is None:
            table = _to_table(self._table)
            child._table = table.drop_columns([n for n in table.column_names if n in gone])
        else:
            child._columns = {k: v for k, v in self._columns.items() if k not in gone}
            child._hidden = self._hidden | gone
        return child

    def select(self, names: Sequence[str]) -> DocumentBatch:
        """Only these columns come out."""
        child = self._child()
        if child._rows is None:
            table = _to_table(self._table)
            child._table = table.select([n for n in names if n in table.column_names])
        else:
            child._only = tuple(n for n in names if self._only is None or n in self._only)
        return child

    def take(self, indices: np.ndarray[Any, Any]) -> DocumentBatch:
        """The documents at these positions, in this order. A position may repeat (the copies are derived documents)."""
        child = self._child()
        child._shared = {k: v[indices] for k, v in self._shared.items()}
        if child._rows is None:
            child._table = _to_table(self._table).take(_indices(indices))
            return child
        assert self._rows is not None
        child._rows, child._serial = self._rows[indices], self.serial[indices]
        child._columns = {k: _take(v, indices) for k, v in self._columns.items()}
        child._cache, child._pending = {}, {k: (v, at[indices]) for k, (v, at) in self._pending.items()}
        for name, array in self._cache.items():
            if len(indices) * _FEW < len(array):  # a small part is cheap to copy, and holding all for it is not
                child._cache[name] = _take(array, indices)
            else:
                child._pending[name] = array, indices
        if self._identity is not None:
            child._identity = (self._identity[0][indices], self._identity[1][indices])
        return child

    def filter(self, mask: np.ndarray[Any, Any]) -> DocumentBatch:
        """The documents where `mask` is true."""
        import numpy as np

        mask = np.asarray(mask, dtype=bool)
        return self if mask.all() else self.take(np.flatnonzero(mask))

    def _child(self) -> DocumentBatch:
        child = DocumentBatch(self.dataset_name, None, self._stage_perf, self._metadata)
        child.__dict__.update(self.__dict__)
        child._columns, child._cache, child._shared = dict(self._columns), dict(self._cache), dict(self._shared)
        child._pending = dict(self._pending)
        return child

    def _forget(self, names: Iterable[str]) -> None:
        """What was measured of columns that change now, and scores that were to become these columns, are no longer true."""
        gone = set(names)
        self._shared = {
            (of, what): v
            for (of, what), v in self._shared.items()
            if of not in gone and not (of == SCORES and what in gone)
        }

    @classmethod
    def over(cls, origin: Origin, rows: np.ndarray[Any, Any], dataset_name: str = "") -> DocumentBatch:
        """A lazy batch over the given rows of an origin."""
        batch = cls(dataset_name)
        batch._origin, batch._rows = origin, rows
        return batch


def adopt(child: DocumentBatch, parents: Sequence[DocumentBatch]) -> None:
    """Give a batch that a user's stage built its lineage back, from the hidden row id.

    Columns equal to the parents' are forgotten again, so that only real changes are ever re-encoded.
    """
    import numpy as np
    import pyarrow as pa

    table, ids = _table_and_ids(child._table)
    total = sum(p.num_items for p in parents)
    position = _positions(np.concatenate([p.serial for p in parents]), ids, len(table))
    child._serial = np.where(position >= 0, ids, -1) if ids is not None else position
    origin, rows, identity = _merged_origin(parents)
    child._table = None
    child._origin = origin
    child._rows = np.where(position >= 0, rows[position], -1) if total else position
    child._identity = None
    if identity is not None and total:
        at = np.maximum(position, 0)
        child._identity = (identity[0][at], identity[1][at])
    seen = list(_union(p.get_columns() for p in parents))
    child._columns, child._cache, child._pending = {}, {}, {}
    child._hidden = frozenset().union(*(p._hidden for p in parents)) | {n for n in seen if n not in table.column_names}
    child._only = next((p._only for p in parents if p._only is not None), None)
    if child._only is not None:
        child._only += tuple(n for n in table.column_names if n not in child._only and n not in seen)
    for name in table.column_names:
        column = table.column(name)
        array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
        if isinstance(array, pa.ChunkedArray):
            array = pa.concat_arrays(array.chunks)
        before = _parent_column(parents, name) if name in seen else None
        override = any(name in p._columns for p in parents)
        if before is not None and not override and (position >= 0).all() and _same(_take(before, position), array):
            child._cache[name] = array
        else:
            child._columns[name] = array
            child._hidden = child._hidden - {name}


# -- small helpers ----------------------------------------------------------------------------------------------------
def _is_table(data: Any) -> bool:
    return type(data).__module__.startswith("pyarrow") and hasattr(data, "column_names")


def _is_frame(data: Any) -> bool:
    return type(data).__module__.startswith("pandas") and hasattr(data, "columns")


def _names(data: Any) -> list[str]:
    return [] if data is None else list(data.column_names if _is_table(data) else map(str, data.columns))


def _to_table(data: Any) -> pa.Table:
    import pyarrow as pa

    if _is_frame(data):
        return pa.Table.from_pandas(data, preserve_index=False).replace_schema_metadata(None)
    return data


def _table_and_ids(data: Any) -> tuple[pa.Table, np.ndarray[Any, Any] | None]:
    """The visible table and the row ids it carries (as a column, or as the index of a frame)."""
    import numpy as np
    import pyarrow as pa

    ids = None
    if _is_frame(data) and data.index.name == ROW_ID and data.index.dtype.kind == "i":
        ids = np.asarray(data.index, dtype=np.int64)
    table = _to_table(data) if data is not None else pa.table({})
    if ROW_ID in table.column_names:
        column = table.column(ROW_ID)
        if ids is None and pa.types.is_integer(column.type):
            ids = np.asarray(column.fill_null(-1).to_numpy(), dtype=np.int64)
        elif ids is None and pa.types.is_floating(column.type):  # pandas turns ids with gaps into floats
            ids = np.asarray(column.fill_null(-1).to_numpy(), dtype=np.float64).astype(np.int64)
        table = table.drop_columns([ROW_ID])
    return table, ids


def _positions(serials: np.ndarray[Any, Any], ids: np.ndarray[Any, Any] | None, n: int) -> np.ndarray[Any, Any]:
    """Where each id stands among the serials; -1 where it does not."""
    import numpy as np

    position = np.full(n, -1, dtype=np.int64)
    if ids is None or not len(serials):
        return position
    order = np.argsort(serials, kind="stable")
    at = np.minimum(np.searchsorted(serials[order], ids), len(serials) - 1)
    found = (serials[order[at]] == ids) & (ids >= 0)
    position[found] = order[at[found]]
    return position


def _merged_origin(parents: Sequence[DocumentBatch]) -> tuple[Any, Any, Any]:
    import numpy as np

    origins = {id(p._origin) for p in parents}
    if len(origins) != 1:
        raise UsageError("batches of different blocks cannot be merged; process them one by one")
    rows = np.concatenate([p._rows for p in parents if p._rows is not None])
    identities = [p._identity for p in parents if p._identity is not None]
    identity = None
    if len(identities) == len(parents):
        identity = (np.concatenate([i[0] for i in identities]), np.concatenate([i[1] for i in identities]))
    return parents[0]._origin, rows, identity


def _parent_column(parents: Sequence[DocumentBatch], name: str) -> pa.Array:
    import pyarrow as pa

    arrays = [p.column(name) for p in parents]
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _same(before: pa.Array, after: pa.Array) -> bool:
    """Equal values, whatever the exact type (a trip through pandas changes string widths and makes ints floats)."""
    import pyarrow as pa

    if before.type != after.type:
        try:
            after = after.cast(before.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
            return False
    return bool(before.equals(after))


def _take(array: pa.Array, indices: np.ndarray[Any, Any]) -> pa.Array:
    import numpy as np
    import pyarrow as pa

    n = len(indices)
    if n == len(array) and n and indices[0] == 0 and indices[-1] == n - 1 and bool((np.diff(indices) == 1).all()):
        return array
    if n and indices.min() < 0:
        return array.take(pa.array(np.maximum(indices, 0), mask=indices < 0))
    return array.take(pa.array(indices))


def _indices(indices: np.ndarray[Any, Any]) -> pa.Array:
    import pyarrow as pa

    return pa.array(indices)


def _combined(values: Any) -> pa.Array:
    import pyarrow as pa

    if isinstance(values, pa.ChunkedArray):
        return values.combine_chunks() if values.num_chunks != 1 else values.chunk(0)
    return pa.array(values)


def _union(lists: Iterable[list[str]]) -> dict[str, None]:
    return dict.fromkeys(name for names in lists for name in names)


def _import_pandas() -> Any:
    try:
        import pandas
    except ImportError:
        raise MissingExtra("to_pandas()", "pandas") from None
    return pandas
