"""Batches that know where their rows come from: the public door to that, for the engine (which keeps the books by it) and for formats.

The base of DocumentBatch (document.py): it says what the fields are.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Self

from tamis._lazy import np, pa
from tamis.tasks.given_data import check_data
from tamis.tasks.lineage import Lineage, Origin
from tamis.tasks.tasks import Task

if TYPE_CHECKING:
    import pandas as pd

    from tamis.tasks.document import DocumentBatch
    from tamis.tasks.lineage import Identity

    Array = np.ndarray[Any, Any]


_NUMBERINGS = itertools.count(1)


class TracedBatch(Task["pa.Table"]):
    """Rows of an origin (`_origin`, `_rows`), what stages did to them (`_columns`, `_hidden`, `_only`), and what identifies them."""

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
        # Decoded columns of the batch this one was taken from, and which rows: copied only if somebody asks.
        self._pending: dict[str, tuple[pa.Array, Array]] = {}
        # What stages measured, (column, what) -> one value per document; a later stage finds it here. Goes along with the documents, and is
        # forgotten when the column changes.
        self.measured: dict[tuple[str, str], Array] = {}
        # Columns that the stage asks for by name: there in every table and frame, though no document of this batch has them.
        self.expected: tuple[str, ...] = ()
        # The very objects that frames of this batch were given, by column, and with the row ids for all batches made from one:
        # they trace rows whose index is gone (formats/frames/pandas_frames.py).
        self.handed: dict[str, Array] = {}
        self.given: list[tuple[Array, Array]] = []
        self.numbering = 0  # tells row ids of one call of a stage from those of another; 0 where no run gave any
        self.first_id = 0  # the row id of its first document when the stage got it
        # The documents as they were before `data` was looked at or assigned: rows of that frame are traced to them.
        self._behind: DocumentBatch | None = None
        self.is_adopted = False  # built of a table or frame that a stage returned
        self.frames = "pandas"  # what `data` makes of documents that were read: pandas, cudf or pyarrow
        self._identity: Identity | None = None  # the engine's; see engine/ledger.py

    @property
    def num_items(self) -> int:
        return len(self._rows) if self._rows is not None else len(self._table) if self._table is not None else 0

    @property
    def serial(self) -> Array:
        """The hidden row ids: what each row is called among the documents a stage receives (-1: made by the stage)."""
        if self._serial is None:
            self._serial = np.arange(self.num_items, dtype=np.int64)
        return self._serial

    def number(self, first: int) -> None:
        """Fresh row ids from `first` on; nothing is left of frames that were given out before."""
        self._serial = np.arange(first, first + self.num_items, dtype=np.int64)
        self.numbering, self.first_id, self.is_adopted = next(_NUMBERINGS), first, False
        self.forget_frames()

    def forget_frames(self) -> None:
        """Objects that frames were given are held until the stage has returned, and no longer."""
        self.handed, self.given, self.expected = {}, [], ()

    def _child(self) -> Self:
        child = object.__new__(type(self))
        child.__dict__.update(self.__dict__)
        child._columns, child._cache, child.measured = dict(self._columns), dict(self._cache), dict(self.measured)
        child._pending, child._changed, child.handed = dict(self._pending), dict(self._changed), {}
        return child

    @property
    def lineage(self) -> Lineage | None:
        """How its documents stand to the records they came from; None for a batch that is only a table or frame so far."""
        if self._origin is None or self._rows is None:
            return None
        return Lineage(self._origin, self._rows, self._columns, self._hidden, self._only, self._changed)

    @property
    def identity(self) -> Identity:
        """The 128-bit identity of each document, as two halves. The engine gives it (engine/ledger.py)."""
        assert self._identity is not None, "documents of a run have an identity"
        return self._identity

    @property
    def is_identified(self) -> bool:
        return self._identity is not None

    def identify(self, hi: Array, lo: Array) -> None:
        self._identity = (hi, lo)

    @property
    def given_data(self) -> Any:
        """The table or frame that it was built of, as it is; None for documents that were read."""
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

    def take_root(self, origin: Origin, is_new: bool = False) -> None:
        """Become the rows of this origin, which was made of its own table. `is_new`: as documents that a stage made."""
        self._table, self._origin, self._rows = None, origin, np.arange(origin.n_rows)
        if is_new:
            self._serial = np.full(origin.n_rows, -1, np.int64)

    def take_up(self, lineage: Lineage, serial: Array, identity: Identity | None, parent: TracedBatch) -> None:
        """Become documents that descend from those of `parent` (and others that it came with): formats/frames/returned_data.py traced them."""
        self._table, self._behind = None, None
        self._put_lineage(lineage)
        self._serial, self._identity, self.handed = serial, identity, {}
        self.numbering, self.first_id, self.given = parent.numbering, parent.first_id, parent.given
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
        known = self._origin.places if self._origin is not None else None
        if known is None or self._rows is None:
            return np.full(n, -1, np.int32), np.full(n, -1, np.int64)
        at, new = np.maximum(self._rows, 0), self._rows < 0
        return np.where(new, -1, known[0][at]).astype(np.int32), np.where(new, -1, known[1][at])
