"""Documents, and the lineage of their rows.

A `DocumentBatch` looks like an Arrow table and is one only on demand: fields are decoded when somebody asks for them, and
every row remembers the record it came from (`_rows` into `_origin`), so that what nobody touched can be written back byte
for byte. Tables and frames handed to users carry that memory as a hidden row id (`_tamis_row`: a column in Arrow, the index
in pandas); `formats/frames/returned_data.py` finds it again in what the user's stage returned. `data` is a frame that takes the place of
the documents until the stage is through.

Every value is what its record says, whatever its neighbours are: `values` gives Python values, `texts` the texts, and only
these, `exact_column` an Arrow column that bends none of them, `column` the one that users compute with (formats/columns/exact.py).

Does not cover: how records are decoded (formats/) or counted (engine/ledger).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tamis._lazy import np, pa
from tamis.errors import UsageError
from tamis.tasks.given_data import check_data, combined, is_exact, is_frame, names_of, take_rows, to_table
from tamis.tasks.lineage import Lineage, Origin
from tamis.tasks.names import MISSING, ROW_ID, SCORES, TEXT
from tamis.tasks.traced import TracedBatch

_FEW = 4  # a part below this share of a column (one in four) is copied at once
_LOOKED_AT = 8  # records, before all are


class DocumentBatch(TracedBatch):
    """Documents in memory. Build one from an Arrow table or a pandas DataFrame; stages receive lazy ones."""

    # -- reading ------------------------------------------------------------------------------------------------------

    @property
    def data(self) -> Any:
        """What it was given; of documents that were read, a pandas DataFrame (or what `with_frames` said), made now, which may be
        changed in place.

        From then on the frame is the batch. Nothing built in looks at it: `to_pyarrow`, `column` and `texts` are for that.
        """
        if self._rows is not None:
            self._put(self.to_pandas() if self.frames == "pandas" else self._framed())
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
        child = self._settled() if self._behind is not None else self._child()
        child.frames = library
        if child._rows is None and child._table is not None:  # given in memory: moved now
            from tamis.formats.frames.cudf_frames import moved

            child._table = moved(child._table, library)
        return child

    def _framed(self) -> Any:
        if self.frames == "pyarrow":
            return self.to_pyarrow()
        from tamis.formats.frames.cudf_frames import on_device

        return on_device(self.to_pyarrow())

    def _put(self, data: Any) -> None:
        if self._rows is not None:
            behind = self._child()
            behind.handed = self.handed  # what this frame was made of
            self._behind = behind
        self._table, self._origin, self._rows, self._serial, self._identity = data, None, None, None, None
        self._columns, self._changed, self._cache, self._pending, self.measured = {}, {}, {}, {}, {}
        self._hidden, self._only = frozenset(), None

    def _settled(self) -> DocumentBatch:
        """Return the documents of a frame that replaced others, traced to the originals."""
        from tamis.formats.frames.returned_data import adopt

        assert self._behind is not None
        child = self._child()
        adopt(child, [self._behind])
        return child

    def settle(self) -> None:
        """Called when a stage has returned it: a kind of batch that gives out something else than tables makes a table of that."""

    @property
    def as_read(self) -> DocumentBatch:
        """The batch with its lineage: itself, or as it was before a frame took its place."""
        return self if self._behind is None else self._behind

    def __repr__(self) -> str:
        return f"DocumentBatch({self.dataset_name!r}, {self.num_items} documents, columns={self.get_columns()})"

    def get_columns(self) -> list[str]:
        if self._rows is None:
            return [c for c in names_of(self._table) if c != ROW_ID]
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
            from tamis.formats.columns.exact import shown

            return shown(self._own(name))
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
        known = self._cache.get(name)
        if self._origin is None or name in self._hidden or (known is not None and is_exact(known.type)):
            return self.column(name)
        if not self._is_read(name):
            return pa.nulls(len(self._rows))
        return self._origin.exact(name, self._rows)

    def texts(self, field: str) -> pa.Array:
        """Return the texts of a field; null where the value is absent or not a text.

        This is the only code that decides what a text is.
        """
        # Not get_columns(): naming every field of JSON records takes a scan of them all.
        if not self._is_read(field) or (self._rows is None and field not in self.get_columns()):
            return pa.nulls(self.num_items, pa.large_string())
        from tamis.formats.columns.exact import texts_of_column

        is_own = self._rows is None or field in self._columns
        return texts_of_column(self._own(field) if is_own else self.column(field))

    def texts_in_place(self, field: str) -> tuple[pa.Array, np.ndarray[Any, Any] | None]:
        """Return the texts of a field without copying, and the rows that belong to these documents.

        The column may hold other texts, too (rows None: all belong, in order). For callers that can look at some
        rows of a column: dropped documents remain in between, and nothing is copied.
        """
        if (
            field in self._pending
            and field not in {*self._columns, *self._cache, *self._hidden}
            and self._is_read(field)
        ):
            array, at = self._pending[field]
            if pa.types.is_large_string(array.type):
                return array, at
        return self.texts(field), None

    def values(self, field: str, at: np.ndarray[Any, Any] | None = None) -> list[Any]:
        """Return a field as Python values, each as in the JSON, of all documents or of those at positions `at`."""
        from tamis.formats.columns.exact import values_of

        if at is None or len(at) == self.num_items:
            return values_of(self.exact_column(field))
        if self._rows is None or field in self._columns or field in self._cache:
            return values_of(take_rows(self.exact_column(field), at))
        return self.take(at).values(field)

    def is_declared(self, name: str) -> bool:
        """Return True if the column's type is that of the input (Parquet) or of a table, whatever its values."""
        return self._origin is None or (self._origin.is_typed and name not in self._columns)

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
                few = self.column_of(name, np.arange(min(_LOOKED_AT, self.num_items)))
                if few.null_count < len(few):  # most have what a stage asks for: no need to look into all records
                    return True
            return bool((self.kinds(name) != MISSING).any())
        return name in self.get_columns()

    def _is_read(self, name: str) -> bool:
        return self._only is None or name in self._only or name in self._columns

    def column_of(self, name: str, at: np.ndarray[Any, Any]) -> pa.Array:
        """Return the values of a column in these rows; if no field was parsed yet, only these records are."""
        if self._origin is not None and self._rows is not None and not self._origin.is_parsed and self._is_plain(name):
            return self._origin.column_of(name, self._rows[at])
        return take_rows(self.column(name), at)

    def _is_plain(self, name: str) -> bool:
        """Return True if a column is as in the records, neither decoded nor changed."""
        changed = (self._columns, self._cache, self._hidden, self._pending)
        return self._rows is not None and not any(name in c for c in changed) and bool((self._rows >= 0).all())

    def kinds(self, name: str) -> np.ndarray[Any, Any]:
        """Return the kind of each value of a field: MISSING, NULL, TEXT or OTHER (a number, a list, ...)."""
        if self._origin is not None and self._rows is not None and name not in {*self._columns, *self._hidden}:
            own = self._origin.kinds(name)
            if own is not None:
                return np.where(self._rows >= 0, own[self._rows], MISSING).astype(np.uint8)
        if name not in self.get_columns():
            return np.full(self.num_items, MISSING, np.uint8)
        from tamis.formats.columns.exact import kinds_of

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
        if self._rows is None and is_frame(self._table):
            return self._table if columns is None else self._table[list(columns)]
        from tamis.formats.frames.pandas_frames import frame_of

        return frame_of(self, self._named(columns))

    def _named(self, columns: Sequence[str] | None) -> list[str]:
        """Return the columns of a table or frame: those asked for, or all plus those that the stage declared to need."""
        if columns is not None:
            return list(columns)
        names = self.get_columns()
        return [*names, *(n for n in self.expected if n not in names)]

    # -- changing (each returns a new batch; the lineage of rows is kept) ---------------------------------------------
    def with_column(
        self, name: str, values: pa.Array | Sequence[Any], changed: np.ndarray[Any, Any] | None = None
    ) -> DocumentBatch:
        """Return the batch with a column added or replaced.

        `changed`: by row, whether it may have another value than before (None: any may); the writer does not look
        at the others again.
        """
        array = values if isinstance(values, pa.Array) else combined(values)  # of Python values, each as it is
        if len(array) != self.num_items:
            raise UsageError(f"with_column({name!r}): {len(array)} values for {self.num_items} documents")
        if self._behind is not None:
            return self._settled().with_column(name, array)
        child = self._child()
        child._forget([name])
        if child._rows is None:
            table = to_table(self._table)
            at = table.schema.get_field_index(name)
            child._table = table.append_column(name, array) if at < 0 else table.set_column(at, name, array)
        else:
            child._columns = {**self._columns, name: array}
            before = np.zeros(len(array), bool) if name not in self._columns else self._changed.get(name)
            child._changed.pop(name, None)
            if changed is not None and before is not None and name not in self._hidden:
                child._changed[name] = before | changed
            if child._only is not None and name not in child._only:  # what a stage adds comes out, whatever was read
                child._only = (*child._only, name)
        return child

    def with_values(self, field: str, mask: np.ndarray[Any, Any], values: pa.Array | Sequence[Any]) -> DocumentBatch:
        """Other values in a field where `mask` is true (as many as there are such documents); the others stay as they are."""
        from tamis.formats.columns.exact import fitted, replaced

        column, array = self.exact_column(field), values if isinstance(values, pa.Array) else combined(values)
        if self.is_declared(field):
            array = fitted(array, column.type)
        return self.with_column(field, replaced(column, mask, array), mask)

    def with_texts(
        self,
        field: str,
        texts: pa.Array,
        at: np.ndarray[Any, Any] | None = None,
        changed: np.ndarray[Any, Any] | None = None,
    ) -> DocumentBatch:
        """Other texts in a field, of all documents or of those at these positions. Values that are no text stay as they are.

        `changed`: by document, whether its text is another than before (None: any may be).
        """
        mask = self.kinds(field) == TEXT
        if not mask.any():
            return self
        if at is not None:
            chosen = np.zeros(self.num_items, bool)
            chosen[at] = True
            texts, mask = texts.filter(pa.array(mask[at])), mask & chosen
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
        if self._behind is not None:
            return self._settled().drop_columns(names)
        child = self._child()
        gone = set(names)
        child._forget(gone)
        if child._rows is None:
            table = to_table(self._table)
            child._table = table.drop_columns([n for n in table.column_names if n in gone])
        else:
            child._columns = {k: v for k, v in self._columns.items() if k not in gone}
            child._changed = {k: v for k, v in self._changed.items() if k not in gone}
            child._hidden = self._hidden | gone
            for name in gone:
                child._cache.pop(name, None)
                child._pending.pop(name, None)
        return child

    def select(self, names: Sequence[str]) -> DocumentBatch:
        """Restrict the output to these columns."""
        if self._behind is not None:
            return self._settled().select(names)
        child = self._child()
        if child._rows is None:
            table = to_table(self._table)
            child._table = table.select([n for n in names if n in table.column_names])
        else:
            child._only = tuple(n for n in names if self._only is None or n in self._only)
        return child

    def take(self, indices: np.ndarray[Any, Any]) -> DocumentBatch:
        """Return the documents at these positions, in this order.

        A position may repeat (the copies are derived documents).
        """
        if self._behind is not None:
            return self._settled().take(indices)
        child = self._child()
        child.measured = {k: v[indices] for k, v in self.measured.items()}
        if child._rows is None:
            child._table = to_table(self._table).take(pa.array(indices))
            return child
        assert self._rows is not None
        child._rows, child._serial = self._rows[indices], self.serial[indices]
        child._columns = {k: take_rows(v, indices) for k, v in self._columns.items()}
        child._changed = {k: v[indices] for k, v in self._changed.items()}
        child._cache, child._pending = {}, {k: (v, at[indices]) for k, (v, at) in self._pending.items()}
        for name, array in self._cache.items():
            if len(indices) * _FEW < len(array):  # a small part is cheap to copy, and holding all for it is not
                child._cache[name] = take_rows(array, indices)
            else:
                child._pending[name] = array, indices
        if self._identity is not None:
            child._identity = (self._identity[0][indices], self._identity[1][indices])
        return child

    def filter(self, mask: np.ndarray[Any, Any]) -> DocumentBatch:
        """Return the documents where `mask` is true."""
        mask = np.asarray(mask, dtype=bool)
        return self if mask.all() else self.take(np.flatnonzero(mask))

    def _forget(self, names: Iterable[str]) -> None:
        """Discard measurements of columns that change now, and scores that were to become these columns."""
        gone = set(names)
        self.measured = {
            (of, what): v
            for (of, what), v in self.measured.items()
            if of not in gone and not (of == SCORES and what in gone)
        }

    @classmethod
    def like(cls, batch: DocumentBatch) -> DocumentBatch:
        """Return the same documents as a batch of this kind."""
        made = object.__new__(cls)
        made.__dict__.update(batch._child().__dict__)
        return made

    @classmethod
    def over(cls, origin: Origin, rows: np.ndarray[Any, Any], dataset_name: str = "") -> DocumentBatch:
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
