"""Trace what a user's stage returned to the documents that it received, so that it becomes a batch with lineage again.

Rows are traced by the row id, if the table or frame still carries it. `reset_index`, `sort_values(ignore_index=True)`,
`concat`, `merge` and `explode` drop the index, but they move references to the objects in the cells: an object that the
frame was given and that is still in the row identifies the row it came from. Objects that Python keeps only once (None,
true, small integers, texts of one character) identify none. Where the objects of a row contradict each other, the
majority of those that are in one row only decides; without a majority the row is not traced. A row without any such
object is traced if it has the values of one document, and of no other, in all columns.

Every value of a traced row that is still the same counts as untouched and is written as in the record. A row that
cannot be traced is a new document.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tamis.errors import UsageError
from tamis.tasks.columns.canonical import canonical_text
from tamis.tasks.columns.casting import is_text
from tamis.tasks.columns.exact import cast_back, exact_array, replace_where, same_values, take_or_null, values_of
from tamis.tasks.columns.frame_types import TIME
from tamis.tasks.columns.json_type import deep_recursion, is_json
from tamis.tasks.frames import array_of, from_cudf, integers_where_whole, labels_of, row_ids, same_times
from tamis.tasks.lineage import ROW_ID, Lineage

if TYPE_CHECKING:
    from tamis.tasks import DocumentBatch

Array = np.ndarray[Any, Any]
_HOLD_OBJECTS = ("object", "str", "string")  # dtypes whose values are Python objects
_SHARED_INTS = 1 << 16  # CPython keeps small integers once: up to 256 today, which may grow


def trace_returned(child: DocumentBatch, parents: Sequence[DocumentBatch]) -> None:
    """Restore the lineage of a batch that a user's stage built.

    Columns equal to the parents' are dropped again, so that only real changes are ever encoded.
    """
    returned = _Returned(child.raw_data, parents)
    origin, rows, identity = _merged_origin(parents)
    serials = np.concatenate([p.serial for p in parents])
    position = returned.positions(serials, identity)
    traced = position >= 0
    parent_rows = np.maximum(position, 0)
    lineages = [_lineage(p) for p in parents]
    seen = list(dict.fromkeys(name for p in parents for name in p.get_columns()))
    only = next((p.only for p in lineages if p.only is not None), None)
    if only is not None:
        only += tuple(n for n in returned.names if n not in only and n not in seen)
    columns, changed = returned.columns(position, seen)
    hidden = frozenset().union(*(p.hidden for p in lineages)) | {n for n in seen if n not in returned.names}
    hidden -= changed
    has_parents = len(serials) > 0
    child.adopt_lineage(
        Lineage(origin, np.where(traced, rows[parent_rows], -1) if has_parents else position, columns, hidden, only),
        np.where(traced, serials[parent_rows], -1) if has_parents else position,
        (identity[0][parent_rows], identity[1][parent_rows]) if identity is not None and has_parents else None,
        parents[0],
    )


def _lineage(batch: DocumentBatch) -> Lineage:
    assert batch.lineage is not None
    return batch.lineage


def parents_of(child: DocumentBatch, parents: Sequence[DocumentBatch]) -> Sequence[DocumentBatch]:
    """Return the parents whose documents a batch contains, if a stage received parents from different input blocks.

    A batch derives from one block. In a batch that was assembled from several blocks, rows of the others are new
    documents.
    """
    blocks: dict[int, list[DocumentBatch]] = {}
    for parent in parents:
        blocks.setdefault(id(_lineage(parent).origin), []).append(parent)
    if len(blocks) < 2:
        return parents
    original = child.as_read.lineage
    if original is not None and id(original.origin) in blocks:
        return blocks[id(original.origin)]

    def n_traced(group: list[DocumentBatch]) -> int:
        serials = np.concatenate([p.serial for p in group])
        return int((_Returned(child.raw_data, group).positions(serials, _merged_origin(group)[2]) >= 0).sum())

    return max(blocks.values(), key=n_traced)


class _Returned:
    """A returned table or frame, compared with the batches that it was made from."""

    def __init__(self, data: Any, parents: Sequence[DocumentBatch]) -> None:
        self.data = from_cudf(data) if data is not None else pa.table({})
        self._was_on_device = self.data is not data and data is not None
        self.parents = parents
        self.is_frame = not isinstance(self.data, pa.Table)
        self._labels = labels_of(self.data) if self.is_frame else {}
        self.names = [n for n in (self._labels if self.is_frame else self.data.column_names) if n != ROW_ID]
        self._is_typed = all(_lineage(p).origin.is_typed for p in parents)
        self._shown: dict[str, pa.Array] = {}
        self._exact: dict[str, pa.Array] = {}
        self._handed: set[int] | None = None

    # -- rows ---------------------------------------------------------------------------------------------------------
    def positions(self, serials: Array, identity: Any) -> Array:
        """Return, for each row, the position of the parent document that it came from, or -1 if unknown."""
        position = _positions_of(serials, row_ids(self.data, {p.numbering for p in self.parents}), len(self.data))
        untraced = np.flatnonzero(position < 0)
        if len(untraced) and self.is_frame and len(serials):
            position[untraced] = self._by_objects(untraced, serials)
            untraced = np.flatnonzero(position < 0)
        if len(untraced) and len(serials):
            position[untraced] = self._by_values(untraced, identity)
        return position

    def _by_objects(self, rows: Array, serials: Array) -> Array:
        handed_out = {id(objects): (objects, ids) for p in self.parents for ids, objects in p.handed_out}
        handed = [(objects, _positions_of(serials, ids, len(ids))) for objects, ids in handed_out.values()]
        columns = [self._objects(name)[rows] for name in self.names if self._series(name).dtype.name in _HOLD_OBJECTS]
        return by_objects(FrameObjectIndex(handed), columns) if handed and columns else np.full(len(rows), -1, np.int64)

    def _by_values(self, untraced: Array, identity: Any) -> Array:
        """Match rows by value, using whole rows only, which do not coincide by chance: all fields of the documents."""
        names = list(dict.fromkeys(name for p in self.parents for name in p.get_columns()))
        if not names or any(name not in self.names for name in names):
            return np.full(len(untraced), -1, np.int64)
        rows = pa.array(untraced)
        n = sum(p.num_items for p in self.parents)
        alike = range(n) if identity is None else list(zip(*(half.tolist() for half in identity), strict=True))
        with deep_recursion():
            before = [values_of(self.before(name)) for name in names]
            now = [values_of(self.fresh(name).take(rows)) for name in names]
            return by_values(before, now, alike)

    # -- columns ------------------------------------------------------------------------------------------------------
    def before(self, name: str) -> pa.Array:
        """Return the column as the parents handed it out: exact for a frame, as shown for a table."""
        if self.is_frame:
            return self.exact(name)
        if name not in self._shown:
            self._shown[name] = _concatenated([p.column(name) for p in self.parents])
        return self._shown[name]

    def exact(self, name: str) -> pa.Array:
        """Return the column as the parents store it."""
        if name not in self._exact:
            self._exact[name] = _concatenated([p.exact_column(name) for p in self.parents])
        return self._exact[name]

    def fresh(self, name: str) -> pa.Array:
        """Return the column as the stage returned it."""
        if self.is_frame:
            series = self._series(name)
            if series.dtype.kind == "f" and self._has_type(name, "float64"):  # whatever its neighbours are
                return pa.array(series, from_pandas=True).cast(pa.float64())
            return array_of(series, self._ids())
        array = self.data.column(name).combine_chunks()
        # What was computed from numbers of a JSON field is float or not as the neighbours were: see frames.array_of.
        return array if self._is_typed or array.type != pa.float64() else integers_where_whole(array)

    def column(self, name: str, position: Array) -> pa.Array | None:
        """Return a column that the parents have too, with every value exact, or None if no value was changed."""
        if self._is_unchanged(name, position):
            return None
        before, new = take_or_null(self.before(name), position), self.fresh(name)
        if all(p.is_declared(name) for p in self.parents):
            new = cast_back(new, before.type)
        # There a value of several kinds is its text.
        if self._was_on_device and is_json(before.type) and is_text(new.type):
            before = before.storage.cast(new.type)
        if self.is_frame and self._has_type(name, TIME) and self._series(name).dtype.kind == "M":
            same = same_times(self._series(name), before) & (position >= 0)
        else:
            same = same_values(new, before, loose=self.is_frame) & (position >= 0)
        if same.all():
            return None
        if (is_text(new.type) and not self._was_on_device) or not same.any():  # the same either way
            return new
        return replace_where(new, same, take_or_null(self.exact(name), position).filter(pa.array(same)))

    def columns(self, position: Array, seen: Sequence[str]) -> tuple[dict[str, pa.Array], set[str]]:
        """Return the columns that the child stores, and the names of those that the stage changed or added.

        `seen`: the columns that the stage received.
        """
        expected = {name for p in self.parents for name in p.expected}
        columns: dict[str, pa.Array] = {}
        changed = set()
        for name in self.names:
            column = self.column(name, position) if name in seen else self.fresh(name)
            if column is None:
                if any(name in _lineage(p).columns for p in self.parents):
                    columns[name] = take_or_null(self.exact(name), position)
            elif name in seen or name not in expected or column.null_count < len(column):
                columns[name] = column
                changed.add(name)
        return columns, changed

    def _is_unchanged(self, name: str, position: Array) -> bool:
        """Return True if every cell is the same immutable object that was handed out for that row."""
        if not self.is_frame or len(self.parents) != 1 or (position < 0).any():
            return False
        handed, series = self.parents[0].handed.get(name), self._series(name)
        if handed is None or series.dtype.name not in _HOLD_OBJECTS:
            return False
        pairs = zip(self._objects(name), handed[position], strict=True)
        return all(a is b or (b is None and a is np.nan) for a, b in pairs)  # a gap in a column of texts is a NaN

    def _has_type(self, name: str, kind: str) -> bool:
        """Return True if the frame was given this column in this type."""
        return all((p.column_types or {}).get(name) == kind for p in self.parents)

    def _objects(self, name: str) -> Array:
        return np.asarray(self._series(name).to_numpy(object))

    def _series(self, name: str) -> Any:
        return self.data[self._labels[name]]

    def _ids(self) -> set[int]:
        """Return the ids of the objects that were handed out; these are kept unchanged."""
        if self._handed is None:
            self._handed = {id(v) for p in self.parents for _, objects in p.handed_out for v in objects}
        return self._handed


def _positions_of(serials: Array, ids: Array | None, n: int) -> Array:
    """Return the position of each id among the serials, or -1 if it is not among them."""
    position = np.full(n, -1, dtype=np.int64)
    if ids is None or not len(serials):
        return position
    order = np.argsort(serials, kind="stable")
    nearest = np.minimum(np.searchsorted(serials[order], ids), len(serials) - 1)
    is_match = (serials[order[nearest]] == ids) & (ids >= 0)
    position[is_match] = order[nearest[is_match]]
    return position


def _merged_origin(parents: Sequence[DocumentBatch]) -> tuple[Any, Any, Any]:
    lineages = [_lineage(p) for p in parents]
    if len({id(p.origin) for p in lineages}) != 1:
        raise UsageError("batches of different blocks cannot be merged; process them one by one")
    rows = np.concatenate([p.rows for p in lineages])
    identities = [p.identity for p in parents if p.is_identified]
    identity = None
    if len(identities) == len(parents):
        identity = (np.concatenate([i[0] for i in identities]), np.concatenate([i[1] for i in identities]))
    return lineages[0].origin, rows, identity


def _concatenated(arrays: list[pa.Array]) -> pa.Array:
    """Concatenate columns of several batches, every value exactly, whatever their types."""
    if len(arrays) == 1:
        return arrays[0]
    if len({str(a.type) for a in arrays}) == 1:
        return pa.concat_arrays(arrays)
    return exact_array([value for array in arrays for value in values_of(array)])


# -- rows by the objects in their cells ------------------------------------------------------------------------------
class FrameObjectIndex:
    """Objects that were handed out, with the position of the row each was in."""

    def __init__(self, columns: Sequence[tuple[Array, Array]]) -> None:
        """Create the column. `columns`: the objects of a column, and the position of the row of each."""
        ids, rows = [], []
        for objects, positions in columns:
            object_ids = np.fromiter(map(own_id, objects), np.int64, len(objects))
            unshared = np.flatnonzero(object_ids)
            ids.append(object_ids[unshared])
            rows.append(positions[unshared])
        ids_of_objects = np.concatenate([np.empty(0, np.int64), *ids])
        row = np.concatenate([np.empty(0, np.int64), *rows])
        order = np.argsort(ids_of_objects, kind="stable")
        ids_of_objects, row = ids_of_objects[order], row[order]
        # One object in two rows (what a stage put there itself) names neither.
        twice = np.zeros(len(ids_of_objects), bool)
        twice[1:] = (ids_of_objects[1:] == ids_of_objects[:-1]) & (row[1:] != row[:-1])
        twice[:-1] |= twice[1:]
        self._ids, self._rows = ids_of_objects[~twice], row[~twice]

    def rows_of(self, objects: Array) -> Array:
        """Return the position in which each object was handed out, or -1 if it was not."""
        rows = np.full(len(objects), -1, np.int64)
        if len(self._ids):
            mine = np.fromiter(map(id, objects), np.int64, len(objects))
            nearest = np.minimum(np.searchsorted(self._ids, mine), len(self._ids) - 1)
            hit = self._ids[nearest] == mine
            rows[hit] = self._rows[nearest[hit]]
        return rows


def own_id(value: Any) -> int:
    """Return the id of an object that cannot be shared by chance, or 0 for objects of which Python keeps one copy."""
    kind = type(value)
    if kind is str:
        return id(value) if len(value) > 1 else 0
    if kind is int:
        return id(value) if abs(value) > _SHARED_INTS else 0
    return id(value) if kind in (float, dict, list, np.ndarray) else 0


def by_objects(handed: FrameObjectIndex, columns: Sequence[Array]) -> Array:
    """Return the position that the objects of each row agree on, or -1 for none or several.

    All columns have the same length.
    """
    votes = np.stack([handed.rows_of(objects) for objects in columns], axis=1)
    positions: Array = votes.max(axis=1)
    split = np.flatnonzero(((votes >= 0) & (votes != positions[:, None])).any(axis=1))
    if len(split):
        single = np.zeros(votes.shape, bool)
        for k, objects in enumerate(columns):
            _, inverse, times = np.unique([id(v) for v in objects], return_inverse=True, return_counts=True)
            single[:, k] = times[inverse] == 1
        for i in split.tolist():
            positions[i] = _majority(votes[i][single[i] & (votes[i] >= 0)])
    return positions


def _majority(votes: Array) -> int:
    """Return the value that more than half of the votes name, or -1 if there is none."""
    values, times = np.unique(votes, return_counts=True)
    return int(values[times.argmax()]) if len(votes) and times.max() * 2 > len(votes) else -1


def by_values(parents: Sequence[Sequence[Any]], children: Sequence[Sequence[Any]], alike: Sequence[Any]) -> Array:
    """Return, for each child row, the position of the one parent with the same values in all columns.

    The position is -1 if there is none, or if there are several that differ otherwise. `parents`, `children`: columns
    in
    the same order. `alike`: for each parent, a value (a hash) that is equal where records are equal; of several equal
    parents each is named once, then the last again.
    """
    positions: dict[tuple[Any, ...], list[int]] = {}
    for i, row in enumerate(zip(*parents, strict=True)):
        positions.setdefault(tuple(map(_key, row)), []).append(i)
    traced = []
    for row in zip(*children, strict=True):
        same = positions.get(tuple(map(_key, row)), [])
        if len({alike[i] for i in same}) == 1:
            traced.append(same.pop(0) if len(same) > 1 else same[0])
        else:
            traced.append(-1)
    return np.array(traced, np.int64)


def _key(value: Any) -> Any:
    """Return a key that is equal for values that are the same in JSON: 1 and 1.0, but neither true nor "1"."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "bool", value
    return ("number", value) if isinstance(value, (int, float)) else ("other", canonical_text(value))
