"""Ids of documents as keys: their hashes for a table on disk, and removing the documents that such a table lists."""

from __future__ import annotations

import os
from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, ClassVar

from tamis._lazy import np, pa, pc
from tamis.errors import PipelineError, UsageError
from tamis.formats.registry import is_table
from tamis.stages.base import ProcessingStage
from tamis.stages.text.io.options import read_options
from tamis.stages.text.io.reader.ids import CURATOR_DEDUP_ID_STR, positions_of
from tamis.stages.traits import StageTraits
from tamis.stores.urls import is_remote, path_of, path_text
from tamis.tasks import DocumentBatch

_PLACE = r"^(?P<file>[0-9]{6,9})_(?P<offset>[0-9]{1,18})$"
_EXACT = 1 << 53  # whole numbers up to here survive being a float


def id_texts(ids: pa.Array) -> pa.Array | None:
    """Return ids as text: 7, 7.0 and "7" are one id (pandas gives a column of numbers with gaps as floats).

    None: no names.
    """
    from tamis.tasks.columns.exact import stored

    ids = stored(ids)
    if pa.types.is_dictionary(ids.type):
        ids = ids.dictionary_decode()
    kind = ids.type
    if (
        pa.types.is_null(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
    ):
        return ids.cast(pa.large_string())
    if pa.types.is_floating(kind):
        ids = ids.cast(pa.float64())
        whole = pc.and_(pc.equal(pc.trunc(ids), ids), pc.less_equal(pc.abs(ids), float(_EXACT)))
        whole = pc.fill_null(whole, False)
        number = pc.if_else(whole, ids, 0.0).cast(pa.int64()).cast(pa.large_string())
        texts = pc.if_else(whole, number, ids.cast(pa.large_string()))
        return pc.if_else(pc.fill_null(pc.is_finite(ids), False), texts, pa.scalar(None, pa.large_string()))
    return None


_UNKNOWN, _LEFT_OUT = -1, -2  # the value stored where the number of an input file would


def _renumbered(then: list[str], now: list[str]) -> np.ndarray[Any, Any]:
    """Map each earlier file (`then`) to the number of the current file (`now`) that it is.

    That is the one with the same path. Where no path is known, it is the one with the same name, if every name
    occurs once on both sides (a folder that moved). _LEFT_OUT: the input is a part of what the ids were
    generated from, and this file is not in it. _UNKNOWN: it cannot be determined.
    """
    places = {path: i for i, path in enumerate(now)}
    if any(path in places for path in then):
        missing = _LEFT_OUT if set(now) <= set(then) else _UNKNOWN
        return np.array([places.get(path, missing) for path in then], np.int64)
    names = {os.path.basename(path): i for i, path in enumerate(now)}
    if len(names) < len(now) or len({os.path.basename(path) for path in then}) < len(then):
        return np.full(len(then), _UNKNOWN, np.int64)
    numbers = [names.get(os.path.basename(path), _UNKNOWN) for path in then]
    return np.array(
        [_UNKNOWN if i >= 0 and _differ(p, now[i]) else i for p, i in zip(then, numbers, strict=True)], np.int64
    )


def _differ(then: str, now: str) -> bool:
    """Return True if the file the ids were generated from still exists and differs from its current namesake."""
    if is_remote(then) or is_remote(now):
        return False
    try:
        return os.path.getsize(then) != os.path.getsize(now)
    except OSError:  # it moved
        return False


def _is_same(then: str, now: str, backwards: list[str]) -> bool:
    """Return True if two paths denote one file.

    Either they are the same path, or no other input file ends in the part that both end in (a folder that
    moved). `backwards`: the input files, each written backwards, sorted.
    """
    if then == now:
        return True
    shared = _common_tail(then, now)[::-1]
    after = bisect_left(backwards, shared) + 1
    is_only_one = bool(shared) and not (after < len(backwards) and backwards[after].startswith(shared))
    return is_only_one and not _differ(path_of(then), path_of(now))


def _common_tail(a: str, b: str) -> str:
    """Return the trailing path components that two paths share.

    >>> _common_tail("/old/data/de/0.jsonl", "/new/de/0.jsonl"), _common_tail("/in/0.jsonl", "/in/10.jsonl")
    ('/de/0.jsonl', '')
    """
    pairs = zip(reversed(a.split("/")), reversed(b.split("/")), strict=False)
    alike = [x for x, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]
    return "".join(f"/{name}" for name in reversed(alike))


@dataclass(repr=False)
class IdHashes(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Rows of a table of ids as records (keys.py): the hash of the id, and as `length` what is wrong with it.

    `paths`: a JSON file with the input files by number; with it ids must be those of file and position, and where the
    table says the path (as the result of a deduplication does) it must be the file of that number. `numbers`: a JSON
    file that an id generator wrote; ids are whole numbers of file and place then.
    """

    field: str = "id"
    paths: str | None = None
    numbers: str | None = None
    name: str = "id_hashes"

    def inputs(self) -> Any:
        return ["data"], [self.field]

    def setup(self, worker_metadata: Any = None) -> None:
        import json

        self._files: list[str] = []
        if self.paths is not None:
            with open(self.paths, encoding="utf-8") as file:
                paths = json.load(file)
            self._files = [path_text(p) for p in paths]
            self._backwards = sorted(path[::-1] for path in self._files)
        if self.numbers is not None:
            with open(self.numbers, encoding="utf-8", errors="surrogateescape") as file:
                self._file_of = _renumbered(json.load(file).get("files", []), paths)

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        from tamis.dedup.ids.table import NOT_A_NAME
        from tamis.dedup.keys import position_columns, record_batch, sorted_keys, text_hashes

        column = batch.column(self.field) if self.field in batch.get_columns() else pa.nulls(batch.num_items)
        ids = id_texts(column) if self.numbers is None else self._place_texts(column)
        if ids is None:
            ids = pa.nulls(batch.num_items, pa.large_string())
            length = np.where(np.asarray(column.is_valid()), NOT_A_NAME, -1)
            hi = lo = np.zeros(batch.num_items, np.uint64)
        else:
            hi, lo, length = text_hashes(ids)
        if self.paths is not None:
            self._check_places(ids, batch, length)
        key, row = sorted_keys(hi, length >= 0)
        columns = {"lo": lo, "length": length.astype(np.int64), "key_0": key, "row_0": row}
        return record_batch(batch, position_columns(batch) | columns)

    def _place_texts(self, column: pa.Array) -> pa.Array | None:
        """Return whole numbers as the ids by file and position of the same documents.

        Where the input has no such file, that of a file after the last: the next (_UNKNOWN), or the one after it
        (_LEFT_OUT).
        """
        from tamis.dedup.decisions import position_ids
        from tamis.tasks.columns.exact import stored

        column = stored(column)
        if not pa.types.is_integer(column.type):
            return None
        # A number of 64 bits without a sign may be above all ids: it becomes a negative one, which is of no file.
        files, offsets = positions_of(pc.fill_null(column, 0).to_numpy(zero_copy_only=False).astype(np.int64))
        is_known = (files >= 0) & (files < len(self._file_of))
        now = np.full(len(files), _UNKNOWN, np.int64)
        now[is_known] = self._file_of[files[is_known]]
        texts = position_ids(np.where(now >= 0, now, len(self._files) - 1 - now), offsets)
        return pc.if_else(column.is_valid(), texts, pa.scalar(None, pa.large_string()))

    def _check_places(self, ids: pa.Array, batch: DocumentBatch, length: np.ndarray[Any, Any]) -> None:
        from tamis.dedup.ids.table import LEFT_OUT, ODD_ID, OTHER_FILE

        number = pc.struct_field(pc.extract_regex(ids, _PLACE), "file")
        there = length >= 0
        length[there & np.asarray(number.is_null())] = ODD_ID
        file = np.asarray(pc.fill_null(number.cast(pa.int64()), -1))
        if self.numbers is not None:
            length[(length >= 0) & (file == len(self._files) - 1 - _LEFT_OUT)] = LEFT_OUT
        length[(length >= 0) & (file >= len(self._files))] = OTHER_FILE
        if "path" in batch.get_columns() and (named := id_texts(batch.column("path"))) is not None:
            dictionary = named.dictionary_encode()
            rows = np.flatnonzero((length >= 0) & np.asarray(dictionary.indices.is_valid()))
            code = dictionary.indices.take(pa.array(rows)).to_numpy(zero_copy_only=False)
            pairs, back = np.unique(np.stack([code, file[rows]]), axis=1, return_inverse=True)
            texts = dictionary.dictionary.to_pylist()
            same = [_is_same(texts[c], self._files[f], self._backwards) for c, f in pairs.T.tolist()]
            length[rows[~np.array(same, bool)[back.reshape(-1)]]] = OTHER_FILE


class _ById(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Drops documents whose ids are listed somewhere.

    Subclasses are dataclasses with these fields, and look them up.
    """

    id_field: str | None
    drop_id_field: bool
    listed_in: str  # named in every verdict
    columns_in = ("id_field",)
    traits: ClassVar[StageTraits] = StageTraits(removes_duplicates=True)

    @abstractmethod
    def _is_listed(self, batch: DocumentBatch) -> np.ndarray[Any, Any]:
        """Return a mask of the documents to remove."""

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        gone = self._is_listed(batch)
        if gone.any():
            self._note_drops(batch.serial[gone], "listed_duplicate", None, f"listed in {self.listed_in}")
        if self.drop_id_field and self.id_field is not None:
            batch = batch.drop_columns([self.id_field])
        return batch.filter(~gone)


@dataclass(repr=False)
class RemoveListed(_ById):
    """Looks ids up in a table on the disk (tamis.dedup.ids.table).

    `id_field` None: ids are those of file and position.
    """

    table: str
    id_field: str | None = None
    drop_id_field: bool = False
    listed_in: str = "the table of ids"
    name: str = "remove_listed_duplicates"

    def setup(self, worker_metadata: Any = None) -> None:
        from tamis.dedup.ids.table import IdTable

        self._table = IdTable(self.table)

    def teardown(self) -> None:
        self._table.close()

    def _is_listed(self, batch: DocumentBatch) -> np.ndarray[Any, Any]:
        from tamis.dedup.keys import text_hashes

        hi, lo, length = text_hashes(self._ids(batch))
        return self._table.lists(hi, lo) & (length >= 0)

    def _ids(self, batch: DocumentBatch) -> pa.Array:
        if self.id_field is None:
            from tamis.dedup.decisions import position_ids
            from tamis.dedup.keys import position_columns

            places = position_columns(batch)
            return position_ids(places["file"], places["offset"])
        if self.id_field not in batch.get_columns():
            return pa.nulls(batch.num_items, pa.large_string())
        ids = id_texts(batch.column(self.id_field))
        if ids is None:
            kind = batch.column(self.id_field).type
            raise PipelineError(f"{self.name}: {self.id_field!r} must hold texts or numbers, got {kind}")
        return ids


@dataclass(repr=False)
class NoneListed(_ById):
    """Drops no document: there are no ids. The field of the documents' own ones may go all the same."""

    id_field: str | None = None
    drop_id_field: bool = False
    listed_in: str = ""
    name: str = "remove_no_duplicates"

    def _is_listed(self, batch: DocumentBatch) -> np.ndarray[Any, Any]:
        return np.zeros(batch.num_items, bool)


@dataclass(repr=False)
class TextDuplicatesRemovalStage(_ById):
    """Drops the documents whose ids are listed in `ids_to_remove_path`: Parquet or JSONL, a file or a folder.

    None where that is an empty folder.

    A worker holds 16 bytes for each id; TextDuplicatesRemovalWorkflow keeps them on the disk.
    """

    ids_to_remove_path: str
    id_field: str = CURATOR_DEDUP_ID_STR
    duplicate_id_field: str = "id"
    read_kwargs: Mapping[str, Any] | None = None
    drop_id_field: bool = False
    name: str = "remove_listed_duplicates"
    _listed: Any = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        read_options("TextDuplicatesRemovalStage", self.read_kwargs)
        check_field("id_field", self.id_field)
        check_field("duplicate_id_field", self.duplicate_id_field)

    @property
    def listed_in(self) -> str:  # type: ignore[override]
        return self.ids_to_remove_path

    def setup(self, worker_metadata: Any = None) -> None:
        from tamis.formats.input_files.listing import list_files
        from tamis.formats.whole_file import read_whole_file

        self._listed = np.empty(0, "V16")
        if is_without_ids(self.ids_to_remove_path):
            return
        files = list_files(self.ids_to_remove_path, (".parquet", ".jsonl", ".json"))
        key_tables = [self._keys(read_whole_file(os.fsdecode(p)), self.duplicate_id_field) for p in files.paths]
        self._listed = np.unique(np.concatenate([keys[has] for keys, has in key_tables]))

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        left = super().process(batch)
        left._metadata = {**batch._metadata, "num_removed": batch.num_items - left.num_items}
        return left

    def _is_listed(self, batch: DocumentBatch) -> np.ndarray[Any, Any]:
        if self._listed is None:
            self.setup()
        keys, has_id = self._keys(batch, self.id_field)
        mask: np.ndarray[Any, Any] = has_id & np.isin(keys, self._listed)
        return mask

    def _keys(self, batch: DocumentBatch, field: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Return the 128-bit hashes of ids, 16 bytes each, and a mask of the documents that have one."""
        from tamis.dedup.keys import text_hashes

        if field not in batch.get_columns():
            raise UsageError(f"{self.name}: there is no field {field!r}; there are {batch.get_columns()}")
        texts = id_texts(batch.column(field))
        if texts is None:
            raise UsageError(f"{self.name}: {field!r} must hold texts or numbers")
        hi, lo, length = text_hashes(texts)
        return np.ascontiguousarray(np.stack([hi, lo], axis=1)).view("V16").reshape(-1), length >= 0


def is_without_ids(path: Any) -> bool:
    """Return True if this is a folder in which a deduplication wrote no ids because there are none."""
    if not isinstance(path, (str, os.PathLike)) or not os.path.isdir(path):
        return False
    return not any(
        is_table(name) or ".json" in name for _, _, names in os.walk(os.fspath(path)) for name in map(str, names)
    )


def check_field(name: str, value: Any, optional: bool = False) -> None:
    if (value is None and optional) or (isinstance(value, str) and value):
        return
    raise UsageError(f"TextDuplicatesRemovalWorkflow({name}=...): expected the name of a field, got {value!r}")
