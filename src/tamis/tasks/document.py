"""Batches of documents: what stages receive and return.

A `DocumentBatch` looks like an Arrow table and becomes one only on demand: fields are decoded when a stage reads them,
and every row keeps the record it came from (`_rows` into `_origin`), so that unchanged documents are written back byte
for byte. Tables and frames carry that as a hidden row id (`_tamis_row`: a column in Arrow, the index in pandas);
`tasks/returned_data.py` traces rows of what a stage returned by it. `data` is a frame that replaces the documents until
the stage has returned.

Every value is as its record has it, whatever its neighbours are: `values` gives Python values, `texts` the texts only,
`exact_column` an Arrow column that changes no value, `column` one in a type to compute with (tasks/columns/exact.py).

Does not cover: how records are decoded (formats/) or counted (engine/ledger).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from tamis._lazy import np, pa
from tamis.errors import UsageError
from tamis.tasks.lineage import MISSING, ROW_ID, SCORES, TEXT, Lineage, Origin
from tamis.tasks.tasks import Task

if TYPE_CHECKING:
    import pandas as pd

    from tamis.tasks.lineage import Identity

    Array = np.ndarray[Any, Any]

_SMALL_PART = 4  # a part below this share of a column (one in four) is copied at once
_N_PROBED = 8  # records that `has_field` reads before all
_NUMBERINGS = itertools.count(1)


class SourceFrame(NamedTuple):
    """The frame that documents in memory were built of: its rows (None: all), and its columns that did not change."""

    frame: Any = None
    rows: Array | None = None
    names: frozenset[str] = frozenset()

    def without(self, names: Iterable[str]) -> SourceFrame:
        return self._replace(names=self.names.difference(names))

    def take(self, indices: Array) -> SourceFrame:
        """Return the frame of some rows; of none if rows are repeated, so that they get new numbers."""
        if len(indices) and np.bincount(indices).max() > 1:
            return SourceFrame()
        return self._replace(rows=indices if self.rows is None else self.rows[indices])


class DocumentBatch(Task["pa.Table"]):
    """Documents in memory: rows of an origin (`_origin`, `_rows`) and the changes of stages to them.

    Build one from an Arrow table or a pandas DataFrame; stages receive lazy ones. Changes are in `_columns`, `_hidden`
    and `_only`.
    """

    def __init__(
        self,
        dataset_name: str = "",
        data: pa.Table | pd.DataFrame | None = None,
        _stage_perf: list[Any] | None = None,
        _metadata: dict[str, Any] | None = None,
        task_id: str = "",
    ) -> None:
        if data is not None:
            check_data(data)
        self.dataset_name = dataset_name
        self.task_id = task_id
        self._stage_perf = _stage_perf if _stage_perf is not None else []
        self._metadata = _metadata if _metadata is not None else {}
        self._table: Any = data  # what the user gave; None for lazy batches
        self._origin: Origin | None = None
        self._rows: Array | None = None
        self._columns: dict[str, pa.Array] = {}
        self._changed: dict[str, Array] = {}  # as in Lineage
        self._hidden: frozenset[str] = frozenset()
        self._only: tuple[str, ...] | None = None
        self._serial: Array | None = None
        self._cache: dict[str, pa.Array] = {}
        # Decoded columns of the batch this one was taken from, and which rows: copied only on request.
        self._pending: dict[str, tuple[pa.Array, Array]] = {}
        # What stages measured, (column, what) -> one value per document; a later stage finds it here. Goes along with
        # the documents, and is forgotten when the column changes.
        self.measured: dict[tuple[str, str], Array] = {}
        # Columns that the stage asks for by name: there in every table and frame, though no document of this batch has
        # them.
        self.expected: tuple[str, ...] = ()
        # The very objects that frames of this batch were given, by column, and with the row ids for all batches made
        # from one: they trace rows whose index is gone (tasks/frames.py).
        self.handed: dict[str, Array] = {}
        self.handed_out: list[tuple[Array, Array]] = []
        self.numbering = 0  # distinguishes row ids of different calls of a stage; 0 outside of runs
        self.first_id = 0  # the row id of its first document when the stage got it
        # The documents as they were before `data` was looked at or assigned: rows of that frame are traced to them.
        self._original: DocumentBatch | None = None
        self.is_adopted = False  # built of a table or frame that a stage returned
        self.frames = "pandas"  # what `data` makes of documents that were read: pandas, cudf or pyarrow
        # Types of JSON fields in frames (tasks/columns/frame_types.py), the same for all batches of a run. None: in a
        # run every such column is one of objects; outside of runs they follow from the values of this batch.
        self.column_types: Mapping[str, str] | None = None
        # Of a batch that was built of a frame: that frame, the rows of it that this batch has (None: all), and the
        # columns that are still as there. None where `data` is what the user gave.
        self._source_frame: SourceFrame | None = None
        self._identity: Identity | None = None  # the engine's; see engine/ledger.py

    # -- reading ------------------------------------------------------------------------------------------------------

    @property
    def num_items(self) -> int:
        return len(self._rows) if self._rows is not None else len(self._table) if self._table is not None else 0

    @property
    def data(self) -> Any:
        """The table or frame it was built from; of documents that were read or changed, a pandas DataFrame.

        `with_frames` chooses another library.
        The frame is made on access and may be changed in place: from then on it is the batch. Built-in stages do not
        use it, but `to_pyarrow`, `column` and `texts`.
        """
        if self._rows is not None:
            self._put(self.to_pandas() if self.frames == "pandas" else self._framed())
        elif self._source_frame is not None and is_table(self._table):
            if self.frames == "pandas":
                from tamis.tasks.frames import frame_of_table

                self._table = frame_of_table(self._table, self._source_frame)
            self._source_frame = None
        return self._table

    @data.setter
    def data(self, value: Any) -> None:
        """Replace the documents by a table or frame.

        Rows are traced to their records when the stage returns the batch.
        """
        check_data(value)
        self._put(value)

    def with_frames(self, library: str) -> DocumentBatch:
        """Return the same documents with `data` as a frame of this library: pandas, cudf or pyarrow."""
        child = self._settled() if self._original is not None else self._child()
        child.frames = library
        if child._rows is None and child._table is not None:  # given in memory: moved now
            from tamis.tasks.frames import convert_frame

            child._table = convert_frame(child._table, library)
        return child

    def _framed(self) -> Any:
        if self.frames == "pyarrow":
            return self.to_pyarrow()
        from tamis.tasks.frames import to_cudf

        return to_cudf(self.to_pyarrow())

    def _put(self, data: Any) -> None:
        if self._rows is not None:
            original = self._child()
            original.handed = self.handed  # what this frame was made of
            self._original = original
        self._table, self._origin, self._rows, self._serial, self._identity = data, None, None, None, None
        self._columns, self._changed, self._cache, self._pending, self.measured = {}, {}, {}, {}, {}
        self._hidden, self._only, self._source_frame = frozenset(), None, None

    def _settled(self) -> DocumentBatch:
        """Return the documents of a frame that replaced others, traced to the originals."""
        from tamis.tasks.returned_data import trace_returned

        assert self._original is not None
        child = self._child()
        trace_returned(child, [self._original])
        return child

    def settle(self) -> None:
        """Turn data of another kind than tables back into a table, after a stage returned the batch."""

    @property
    def as_read(self) -> DocumentBatch:
        """The batch with its lineage: itself, or as it was before a frame took its place."""
        return self if self._original is None else self._original

    def __repr__(self) -> str:
        return f"DocumentBatch({self.dataset_name!r}, {self.num_items} documents, columns={self.get_columns()})"

    def get_columns(self) -> list[str]:
        if self._rows is None:
            return [c for c in _column_names(self._table) if c != ROW_ID]
        assert self._origin is not None
        names = [n for n in self._origin.field_names(self._rows) if n not in self._hidden]
        names += [n for n in self._columns if n not in names]
        return [n for n in names if n in self._only] if self._only is not None else names

    def column(self, name: str) -> pa.Array:
        """Return one column, decoding it now if needed; a field that no document has is all null.

        Values of several kinds (a text among numbers) become a column of JSON values: `to_pylist()` returns them
        unchanged.
        """
        if self._rows is None or name in self._columns:
            from tamis.tasks.columns.exact import to_computable

            return to_computable(self._own(name))
        if name in self._hidden:
            return pa.nulls(len(self._rows))
        if name not in self._cache:
            assert self._origin is not None
            if name in self._pending:
                self._cache[name] = take_rows(*self._pending.pop(name))
            else:
                self._cache[name] = take_rows(self._origin.column(name), self._rows)
        return self._cache[name]

    def exact_column(self, name: str) -> pa.Array:
        """Return one column with every value unchanged: an Arrow type if one holds them all, else JSON values."""
        if self._rows is None or name in self._columns:
            return self._own(name)
        cached = self._cache.get(name)
        if self._origin is None or name in self._hidden or (cached is not None and is_exact(cached.type)):
            return self.column(name)
        if not self._is_read(name):
            return pa.nulls(len(self._rows))
        return self._origin.exact(name, self._rows)

    def texts(self, field: str) -> pa.Array:
        """Return the texts of a field; null where the value is absent or not a text.

        This is the only code that decides which values are texts.
        """
        # Not get_columns(): naming every field of JSON records takes a scan of them all.
        if not self._is_read(field) or (self._rows is None and field not in self.get_columns()):
            return pa.nulls(self.num_items, pa.large_string())
        from tamis.tasks.columns.exact import texts_of_column

        is_own = self._rows is None or field in self._columns
        return texts_of_column(self._own(field) if is_own else self.column(field))

    def texts_in_place(self, field: str) -> tuple[pa.Array, Array | None]:
        """Return the texts of a field without copying, and the rows that belong to these documents.

        The column may hold other texts, too (rows None: all belong, in order). For callers that can look at some
        rows of a column: dropped documents remain in between, and nothing is copied.
        """
        if (
            field in self._pending
            and field not in {*self._columns, *self._cache, *self._hidden}
            and self._is_read(field)
        ):
            array, rows = self._pending[field]
            if pa.types.is_large_string(array.type):
                return array, rows
        return self.texts(field), None

    def values(self, field: str, positions: Array | None = None) -> list[Any]:
        """Return a field as Python values, each as in the JSON, of all documents or of those at these `positions`."""
        from tamis.tasks.columns.exact import values_of

        if positions is None or len(positions) == self.num_items:
            return values_of(self.exact_column(field))
        if self._rows is None or field in self._columns or field in self._cache:
            return values_of(take_rows(self.exact_column(field), positions))
        return self.take(positions).values(field)

    def is_declared(self, name: str) -> bool:
        """Return True if the column's type is that of the input (Parquet) or of a table, whatever its values."""
        return self._origin is None or (self._origin.is_typed and name not in self._columns)

    def is_as_recorded(self, name: str) -> bool:
        """Return True if every value of a column is that of a record, and no stage replaced any."""
        is_replaced = name in self._columns or name in self._hidden
        return self._rows is not None and not is_replaced and bool((self._rows >= 0).all())

    def _own(self, name: str) -> pa.Array:
        """Return a column that no record underlies: one of a table supplied in memory, or one that a stage added."""
        if self._rows is not None:
            return self._columns[name]
        array = to_table(self._table).column(name)
        return array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)

    def has_field(self, name: str) -> bool:
        """Return True if any document has the field; a column that the input declares counts as present."""
        if self._origin is not None and not self._origin.is_typed and self._is_read(name):
            if not self._origin.is_parsed and self._is_plain(name) and self.num_items:
                few = self.column_of(name, np.arange(min(_N_PROBED, self.num_items)))
                if few.null_count < len(few):  # most have what a stage asks for: no need to look into all records
                    return True
            return bool((self.kinds(name) != MISSING).any())
        return name in self.get_columns()

    def _is_read(self, name: str) -> bool:
        return self._only is None or name in self._only or name in self._columns

    def column_of(self, name: str, positions: Array) -> pa.Array:
        """Return the values of a column in these rows; if no field was parsed yet, only these records are."""
        if self._origin is not None and self._rows is not None and not self._origin.is_parsed and self._is_plain(name):
            return self._origin.column_of(name, self._rows[positions])
        return take_rows(self.column(name), positions)

    def _is_plain(self, name: str) -> bool:
        """Return True if a column is as in the records, neither decoded nor changed."""
        changed = (self._columns, self._cache, self._hidden, self._pending)
        return self._rows is not None and not any(name in c for c in changed) and bool((self._rows >= 0).all())

    def kinds(self, name: str) -> Array:
        """Return the kind of each value of a field: MISSING, NULL, TEXT or OTHER (a number, a list, ...)."""
        if self._origin is not None and self._rows is not None and name not in {*self._columns, *self._hidden}:
            origin_kinds = self._origin.kinds(name)
            if origin_kinds is not None:
                return np.where(self._rows >= 0, origin_kinds[self._rows], MISSING).astype(np.uint8)
        if name not in self.get_columns():
            return np.full(self.num_items, MISSING, np.uint8)
        from tamis.tasks.columns.exact import kinds_of

        return kinds_of(self.exact_column(name))

    def to_pyarrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return all columns (or those named) as a table, plus the hidden row id."""
        table = self.traced_table(columns)
        return table if self.numbering or ROW_ID not in table.column_names else table.drop_columns([ROW_ID])

    def traced_table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the documents as `to_pyarrow` does, with the row id wherever there is one."""
        if self._rows is None:
            table = to_table(self._table)
            if columns is None:
                return table
            return table.select([*columns, *([ROW_ID] if ROW_ID in table.column_names else [])])
        names = self._named(columns)
        return pa.table([*(self.column(n) for n in names), pa.array(self.serial)], names=[*names, ROW_ID])

    def to_pandas(self, columns: Sequence[str] | None = None) -> Any:
        """Return all columns (or those named) as a frame; rows are recognized by its index and by its objects.

        Fields of JSON records are columns of Python objects, each value as in the JSON, null as None.
        """
        if self._rows is None and (
            is_frame(self._table) or (self._source_frame is not None and self.frames == "pandas")
        ):
            return self.data if columns is None else self.data[list(columns)]
        from tamis.tasks.frames import frame_of

        return frame_of(self, self._named(columns))

    def _named(self, columns: Sequence[str] | None) -> list[str]:
        """Return the columns of a table or frame: those requested, or all plus those declared by the stage."""
        if columns is not None:
            return list(columns)
        names = self.get_columns()
        return [*names, *(n for n in self.expected if n not in names)]

    # -- changing (each returns a new batch; the lineage of rows is kept) ---------------------------------------------
    def with_column(self, name: str, values: pa.Array | Sequence[Any], changed: Array | None = None) -> DocumentBatch:
        """Return the batch with a column added or replaced.

        `changed`: by row, whether it may have another value than before (None: any may); the writer does not look
        at the others again.
        """
        array = values if isinstance(values, pa.Array) else _to_array(values)  # of Python values, each as it is
        if len(array) != self.num_items:
            raise UsageError(f"with_column({name!r}): {len(array)} values for {self.num_items} documents")
        if self._original is not None:
            return self._settled().with_column(name, array)
        child = self._child()
        child._forget([name])
        if child._rows is None:
            table = to_table(self._table)
            index = table.schema.get_field_index(name)
            child._table = table.append_column(name, array) if index < 0 else table.set_column(index, name, array)
            child._source_frame = self._source().without({name})
        else:
            child._columns = {**self._columns, name: array}
            before = np.zeros(len(array), bool) if name not in self._columns else self._changed.get(name)
            child._changed.pop(name, None)
            if changed is not None and before is not None and name not in self._hidden:
                child._changed[name] = before | changed
            if child._only is not None and name not in child._only:  # what a stage adds comes out, whatever was read
                child._only = (*child._only, name)
        return child

    def with_values(self, field: str, mask: Array, values: pa.Array | Sequence[Any]) -> DocumentBatch:
        """Replace the values of a field where `mask` is true; `values` has as many as there are such documents."""
        from tamis.tasks.columns.exact import cast_back, replace_where

        column, array = self.exact_column(field), values if isinstance(values, pa.Array) else _to_array(values)
        if self.is_declared(field):
            array = cast_back(array, column.type)
        return self.with_column(field, replace_where(column, mask, array), mask)

    def with_texts(
        self,
        field: str,
        texts: pa.Array,
        positions: Array | None = None,
        changed: Array | None = None,
    ) -> DocumentBatch:
        """Replace texts of a field, of all documents or of those at these positions. Values that are not texts stay.

        `changed`: by document, whether its text differs from before (None: any may).
        """
        mask = self.kinds(field) == TEXT
        if not mask.any():
            return self
        if positions is not None:
            chosen = np.zeros(self.num_items, bool)
            chosen[positions] = True
            texts, mask = texts.filter(pa.array(mask[positions])), mask & chosen
        elif mask.all():
            return self.with_column(field, texts, changed)
        else:
            texts = texts.filter(pa.array(mask))
        return self.with_values(field, mask, texts)

    def without_added(self, name: str) -> DocumentBatch:
        """Drop a column; if only a stage added it, records that never had it keep their bytes."""
        if self.lineage is None or not self.lineage.adds(name):
            return self.drop_columns([name])
        child = self._child()
        del child._columns[name]
        child._changed.pop(name, None)
        return child

    def drop_columns(self, names: Iterable[str]) -> DocumentBatch:
        if self._original is not None:
            return self._settled().drop_columns(names)
        child = self._child()
        dropped = set(names)
        child._forget(dropped)
        if child._rows is None:
            table = to_table(self._table)
            child._table = table.drop_columns([n for n in table.column_names if n in dropped])
            child._source_frame = self._source().without(dropped)
        else:
            child._columns = {k: v for k, v in self._columns.items() if k not in dropped}
            child._changed = {k: v for k, v in self._changed.items() if k not in dropped}
            child._hidden = self._hidden | dropped
            for name in dropped:
                child._cache.pop(name, None)
                child._pending.pop(name, None)
        return child

    def select(self, names: Sequence[str]) -> DocumentBatch:
        """Restrict the output to these columns."""
        if self._original is not None:
            return self._settled().select(names)
        child = self._child()
        if child._rows is None:
            table = to_table(self._table)
            child._table = table.select([n for n in names if n in table.column_names])
            child._source_frame = self._source()
        else:
            child._only = tuple(n for n in names if self._only is None or n in self._only)
        return child

    def take(self, indices: Array) -> DocumentBatch:
        """Return the documents at these positions, in this order.

        A position may repeat (the copies are derived documents).
        """
        if self._original is not None:
            return self._settled().take(indices)
        child = self._child()
        child.measured = {k: v[indices] for k, v in self.measured.items()}
        if child._rows is None:
            child._table = to_table(self._table).take(pa.array(indices))
            child._source_frame = self._source().take(indices)
            return child
        assert self._rows is not None
        child._rows, child._serial = self._rows[indices], self.serial[indices]
        child._columns = {k: take_rows(v, indices) for k, v in self._columns.items()}
        child._changed = {k: v[indices] for k, v in self._changed.items()}
        child._cache, child._pending = {}, {k: (v, rows[indices]) for k, (v, rows) in self._pending.items()}
        for name, array in self._cache.items():
            if len(indices) * _SMALL_PART < len(array):  # a small part is cheap to copy, and holding all for it is not
                child._cache[name] = take_rows(array, indices)
            else:
                child._pending[name] = array, indices
        if self._identity is not None:
            child._identity = (self._identity[0][indices], self._identity[1][indices])
        return child

    def filter(self, mask: Array) -> DocumentBatch:
        """Return the documents where `mask`, one value for each document, is true."""
        mask = np.asarray(mask, dtype=bool)
        if mask.shape != (self.num_items,):
            raise ValueError(
                f"filter: expected one true or false for each of the {self.num_items} documents, got an array of shape "
                f"{mask.shape}"
            )
        return self if mask.all() else self.take(np.flatnonzero(mask))

    def _source(self) -> SourceFrame:
        """Return what of the frame that the batch was built of is still as there."""
        if is_frame(self._table):
            return SourceFrame(self._table, None, frozenset(map(str, self._table.columns)))
        return self._source_frame or SourceFrame()

    def _forget(self, names: Iterable[str]) -> None:
        """Discard measurements of columns that change now, and scores that were to become these columns."""
        changed = set(names)
        self.measured = {
            (column, measure): v
            for (column, measure), v in self.measured.items()
            if column not in changed and not (column == SCORES and measure in changed)
        }

    @classmethod
    def like(cls, batch: DocumentBatch) -> DocumentBatch:
        """Return the same documents as a batch of this kind."""
        batch_of_kind = object.__new__(cls)
        batch_of_kind.__dict__.update(batch._child().__dict__)
        return batch_of_kind

    @classmethod
    def over(cls, origin: Origin, rows: Array, dataset_name: str = "") -> DocumentBatch:
        """Return a lazy batch over the given rows of an origin."""
        batch = cls(dataset_name)
        batch._origin, batch._rows = origin, rows
        return batch

    @classmethod
    def of(cls, lineage: Lineage, dataset_name: str = "", frames: str = "pandas") -> DocumentBatch:
        """Return a lazy batch with this lineage, whose `data` is a frame of this library."""
        batch = cls(dataset_name)
        batch.frames = frames
        batch._put_lineage(lineage)
        return batch

    # -- row ids and lineage, for the engine and for formats ----------------------------------------------------------
    @property
    def serial(self) -> Array:
        """The hidden row ids: the number of each row among the documents a stage receives (-1: made by the stage)."""
        if self._serial is None:
            self._serial = np.arange(self.num_items, dtype=np.int64)
        return self._serial

    def number(self, first: int) -> None:
        """Assign fresh row ids from `first` on, and forget frames that were handed out before."""
        self._serial = np.arange(first, first + self.num_items, dtype=np.int64)
        self.numbering, self.first_id, self.is_adopted = next(_NUMBERINGS), first, False
        self.forget_frames()

    def forget_frames(self) -> None:
        """Release the objects that frames were given, which are held until the stage has returned."""
        self.handed, self.handed_out, self.expected = {}, [], ()

    @property
    def lineage(self) -> Lineage | None:
        """The relation of its documents to the records they came from; None for a batch of a table or frame."""
        if self._origin is None or self._rows is None:
            return None
        return Lineage(self._origin, self._rows, self._columns, self._hidden, self._only, self._changed)

    @property
    def identity(self) -> Identity:
        """The 128-bit identity of each document, as two halves, assigned by the engine (engine/ledger.py)."""
        assert self._identity is not None, "documents of a run have an identity"
        return self._identity

    @property
    def is_identified(self) -> bool:
        return self._identity is not None

    def identify(self, hi: Array, lo: Array) -> None:
        self._identity = (hi, lo)

    @property
    def raw_data(self) -> Any:
        """The table or frame that it was built of, unchanged; None for documents that were read."""
        return self._table

    def renumbered(self, serial: Array) -> Self:
        """Return the same documents under other row ids (-1: a new document)."""
        child = self._child()
        child._serial = serial
        return child

    def copy(self) -> Self:
        """Return a batch of the same documents that later changes to this one do not affect; shares the data."""
        return self._child()

    def replaced_records(self, lineage: Lineage) -> Self:
        """Return the same documents (and row ids) over other records."""
        child = self._child()
        child._serial = self.serial
        child._put_lineage(lineage)
        return child

    def set_origin(self, origin: Origin, is_new: bool = False) -> None:
        """Become the rows of this origin, which was made of its own table. `is_new`: as documents that a stage made."""
        self._table, self._origin, self._rows = None, origin, np.arange(origin.n_rows)
        if is_new:
            self._serial = np.full(origin.n_rows, -1, np.int64)

    def adopt_lineage(self, lineage: Lineage, serial: Array, identity: Identity | None, parent: DocumentBatch) -> None:
        """Become documents that descend from those of `parent` (and of its siblings).

        They were traced by tasks/returned_data.py.
        """
        self._table, self._original = None, None
        self._put_lineage(lineage)
        self._serial, self._identity, self.handed = serial, identity, {}
        self.column_types, self._source_frame = parent.column_types, None
        self.numbering, self.first_id, self.handed_out = parent.numbering, parent.first_id, parent.handed_out
        self.is_adopted = True

    def _put_lineage(self, lineage: Lineage) -> None:
        self._origin, self._rows, self._columns = lineage.origin, lineage.rows, dict(lineage.columns)
        self._hidden, self._only, self._changed = lineage.hidden, lineage.only, dict(lineage.changed)
        self._cache, self._pending = {}, {}

    def places(self) -> tuple[Array, Array]:
        """Return the position of each document in the input; -1 where unknown.

        That is the number of the file, and the offset (or row number) in it.
        """
        n = self.num_items
        input_places = self._origin.places if self._origin is not None else None
        if input_places is None or self._rows is None:
            return np.full(n, -1, np.int32), np.full(n, -1, np.int64)
        rows, new = np.maximum(self._rows, 0), self._rows < 0
        return np.where(new, -1, input_places[0][rows]).astype(np.int32), np.where(new, -1, input_places[1][rows])

    def _child(self) -> Self:
        child = object.__new__(type(self))
        child.__dict__.update(self.__dict__)
        child._columns, child._cache, child.measured = dict(self._columns), dict(self._cache), dict(self.measured)
        child._pending, child._changed, child.handed = dict(self._pending), dict(self._changed), {}
        return child


# -- tables and frames that users pass -------------------------------------------------------------------------------
def check_data(data: Any) -> None:
    """Raise UsageError for anything but a table or a frame."""
    if not is_table(data) and not is_frame(data) and not is_on_device(data):
        raise UsageError(
            "DocumentBatch(data=...): expected a pyarrow.Table or a DataFrame of pandas or cuDF, got "
            f"{type(data).__name__}"
        )


def is_table(data: Any) -> bool:
    return type(data).__module__.startswith("pyarrow") and hasattr(data, "column_names")


def is_frame(data: Any) -> bool:
    return type(data).__module__.startswith("pandas") and hasattr(data, "columns")


def is_on_device(data: Any) -> bool:
    return type(data).__module__.startswith("cudf") and hasattr(data, "to_arrow")


def _column_names(data: Any) -> list[str]:
    return [] if data is None else list(data.column_names if is_table(data) else map(str, data.columns))


def to_table(data: Any) -> pa.Table:
    if is_frame(data):
        from tamis.tasks.frames import table_of

        return table_of(data)
    return data.to_arrow(preserve_index=False) if is_on_device(data) else data


def is_exact(kind: pa.DataType) -> bool:
    """Return True for types of decoded JSON fields in which every value is exact.

    A float64 may represent integers, too.
    """
    tests = (pa.types.is_large_string, pa.types.is_string, pa.types.is_integer, pa.types.is_boolean, pa.types.is_null)
    return any(test(kind) for test in tests)


def take_rows(array: pa.Array, indices: Array) -> pa.Array:
    n = len(indices)
    if n == len(array) and n and indices[0] == 0 and indices[-1] == n - 1 and bool((np.diff(indices) == 1).all()):
        return array
    from tamis.kernels import text_rows

    return text_rows.take(array, indices)


def _to_array(values: Any) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        return values.combine_chunks() if values.num_chunks != 1 else values.chunk(0)
    if isinstance(values, np.ndarray) and values.dtype != object:
        return pa.array(values)
    if type(values).__module__.startswith("pandas") and hasattr(values, "dtype"):
        from tamis.tasks.frames import array_of

        return array_of(values, ())
    from tamis.tasks.columns.exact import exact_array

    return exact_array(list(values))
