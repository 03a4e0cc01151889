"""New documents together with those of an index: one numbering, indexed ones first, and they always stay.

Columns of an index: `file`, `offset`, `lo` by row, `key_K` and `row_K` by key (keys.py), and for fuzzy deduplication
`sig_0` to `sig_31`, the signature: one byte of each of 256 values of a sketch. Two signatures agree in a byte with
probability J + (1 - J) / 256, so that the similarity J is estimated with a standard deviation of sqrt(J (1 - J) / 256),
0.026 at 0.77.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tamis.dedup.decisions import DecisionFiles, position_ids, write_table
from tamis.dedup.keys import NO_NUMBER
from tamis.dedup.records import MAX_DOCUMENTS, Array, Records
from tamis.dedup.sorting import cuts_between
from tamis.dedup.state import IndexPin
from tamis.errors import FormatError, UsageError
from tamis.files import read_json
from tamis.formats.parquet import format as parquet

SIGNATURE_BYTES = 256
SIGNATURE = tuple(f"sig_{i}" for i in range(SIGNATURE_BYTES // 8))
MAX_COMPARED = 1024  # indexed documents of a component that a new one is compared with
BYTES_PER_SIGNATURE = 600  # while it is looked up
TYPES = {"file": np.dtype("<i4"), "offset": np.dtype("<i8"), "lo": np.dtype("<u8")}


class JoinedRecords(Records):
    """Records of an index before new ones. A subclass of Records, because solvers take either.

    `pins`: the entries of the index; numbers below `n_old` are theirs.
    """

    def __init__(self, pins: Sequence[IndexPin], paths: Sequence[str], n_files: int) -> None:
        self.new = Records(paths)
        parts = [entry_records(pin.data, pin.bands) for pin in pins]
        self._is_far = self.new._is_far
        self.types = dict(self.new.types)
        for part in parts:
            self.types = part.types | self.types
        self._runs = [run for part in [*parts, self.new] for run in part._runs]
        self.bases = np.concatenate([[0], np.cumsum([run.n_rows for run in self._runs])]).astype(np.int64)
        self.n_documents = int(self.bases[-1])
        self.n_old = sum(len(part) for part in parts)
        self._entry_starts = np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64)
        self._columns = {name for part in parts for name in part.types}
        self.older_paths = [read_json(os.path.join(pin.folder, "paths.json")) or [] for pin in pins]
        self._n_paths = np.array([len(p) for p in self.older_paths], np.int64)
        self.first_path = n_files  # number of the first old path: how many files the new documents have
        if self.n_documents >= MAX_DOCUMENTS:
            raise UsageError(
                f"deduplication: {self.n_old:,} documents of the index and {len(self.new):,} new ones; at most "
                f"{MAX_DOCUMENTS:,} can "
                "be compared at once. Split the input"
            )

    def gather(self, names: Sequence[str], numbers: Array) -> dict[str, Array]:
        """Return values of some columns for some documents, as `Records.gather` does.

        Indexed documents have rank 0, new ones at least 1; columns that an index does not hold are 0 for indexed
        ones.
        """
        k = int(np.searchsorted(numbers, self.n_old))
        old = super().gather([n for n in names if n in self._columns], numbers[:k])
        new = super().gather(names, numbers[k:])
        if "rank" in new:
            new["rank"] += (new["rank"] != np.uint64(NO_NUMBER)).astype(
                np.uint64
            )  # what has no number stays after all others
        if "file" in old and k:
            entry = np.searchsorted(self._entry_starts, numbers[:k], side="right") - 1
            file = old["file"].astype(np.int64)
            if ((file < 0) | (file >= self._n_paths[entry])).any():
                raise FormatError("a record of the index names no input file; the index is damaged")
            starts = np.concatenate([[0], np.cumsum(self._n_paths)])[:-1]
            old["file"] = (self.first_path + starts[entry] + file).astype(np.int32)
        return {n: np.concatenate([old.get(n, np.zeros(k, new[n].dtype)), new[n]]) for n in names}

    def keys(self, k: int, part: tuple[int, int] = (0, 1 << 64)) -> tuple[Array, Array]:
        keys, numbers = super().keys(k, part)
        # Numbers index arrays in compiled code, and those of an index come from a file.
        if len(numbers) and int(numbers.max()) >= self.n_documents:
            raise FormatError("a key of the index belongs to no document; the index is damaged")
        return keys, numbers

    def iter_column(self, name: str, or_zeros: bool = False) -> Iterator[tuple[int, Array]]:
        """Yield a column of the new documents alone."""
        for first, values in self.new.iter_column(name, or_zeros):
            yield first + self.n_old, values


def entry_records(path: str, bands: int) -> Records:
    """Open the records of an entry of an index; raise FormatError if the file is damaged."""
    records = Records([path])
    size = os.path.getsize(path)
    for name, kind in records.types.items():
        expected = TYPES.get(name, np.dtype("<u4" if name.startswith("row_") else "<u8"))
        if kind != expected:
            raise FormatError(f"{path}: column {name} is {kind}, expected {expected}; the index is damaged")
    for run in records._runs:
        for name, at in run.offsets.items():
            if not 0 <= at <= size - run.n_rows * records.types[name].itemsize:
                raise FormatError(f"{path}: column {name} lies outside of the file; the index is damaged")
    lacks = sorted(_columns(bands) - set(records.types)) if len(records) else []
    if lacks:
        raise FormatError(f"{path}: lacks the column {lacks[0]}; the index is damaged")
    return records


def _columns(bands: int) -> set[str]:
    """Return the columns that an entry must hold; `bands` is 0 for exact deduplication."""
    keys = {f"{what}_{k}" for k in range(bands + 1) for what in ("key", "row")}
    return keys | set(TYPES) | (set(SIGNATURE) if bands else set())


def open_records(paths: Sequence[str], pins: Sequence[IndexPin], n_files: int) -> Records:
    """Open record files: first those of the index they are compared with, then the new ones, of so many input files."""
    if not pins:
        return Records(paths)
    for pin in pins:
        if pin.sketch_version != sketch_version(pin.bands):
            raise UsageError(
                f"{os.path.dirname(pin.folder)} was made by another version of the sketches ({pin.sketch_version}, "
                f"this one is {sketch_version(pin.bands)}); make the index anew"
            )
    return JoinedRecords(pins, paths, n_files)


def sketch_version(bands: int) -> int:
    """Return the version of the sketches, 0 if there are none."""
    if not bands:
        return 0
    from tamis.kernels.sketch.band_keys import SKETCH_VERSION

    return SKETCH_VERSION


def n_old(records: Records) -> int:
    return records.n_old if isinstance(records, JoinedRecords) else 0


def decision_files(folder: str, records: Records, room_bytes: int, fresh: bool = True) -> DecisionFiles:
    """Open the files of decisions on these records; those on documents of an index are ignored."""
    return DecisionFiles(folder, len(records), room_bytes, fresh, first=n_old(records))


# -- components with indexed documents --------------------------------------------------------------------------------
def with_new(pairs: NDArray[np.uint64], first: int) -> tuple[NDArray[np.uint64], NDArray[np.uint32]]:
    """Return the components that have new documents, and the documents to be compared by text.

    Components are given as (root << 32 | number, ascending). The documents to be compared are the new ones of
    components that have several.
    """
    number, cuts = (pairs & np.uint64(0xFFFFFFFF)).astype(np.uint32), cuts_between(pairs >> np.uint64(32))
    if not len(pairs):
        return pairs, number
    sizes = np.diff(cuts)
    n_new = np.add.reduceat((number >= first).astype(np.int64), cuts[:-1])
    return pairs[np.repeat(n_new > 0, sizes)], np.sort(number[np.repeat(n_new > 1, sizes) & (number >= first)])


def similar_to_indexed(
    pairs: NDArray[np.uint64], records: JoinedRecords, threshold: float, room_bytes: int
) -> tuple[NDArray[np.uint64], tuple[Array, Array, Array], int]:
    """Find new documents whose estimated similarity to an indexed one of their component reaches the threshold.

    Returns the pairs of new documents that are left to be compared with each other, (number, kept, similarity) of those
    that go, and how many indexed documents were not compared because their component has too many.
    """
    number = (pairs & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    stays = np.ones(len(pairs), bool)
    work: list[tuple[int, int, int, int]] = []  # positions of indexed documents, and of new ones to compare with them
    step, n_capped = max(MAX_COMPARED, room_bytes // BYTES_PER_SIGNATURE), 0
    for a, b in itertools.pairwise(cuts_between(pairs >> np.uint64(32)).tolist()):
        k = a + int(np.searchsorted(number[a:b], records.n_old))
        stays[a:k] = False
        if a < k < b:
            last = min(k, a + MAX_COMPARED)
            n_capped += k - last
            work += [(a, last, c, min(c + step, b)) for c in range(k, b, step)]
    matches: list[tuple[Array, Array, Array]] = []
    for some in _lots(work, step):
        at = np.unique(np.concatenate([np.r_[a:last, c:d] for a, last, c, d in some]))
        signature = _signatures(records, number[at])
        for a, last, c, d in some:
            i, j = np.searchsorted(at, [a, c]).tolist()
            best, which = _best(signature[i : i + last - a], signature[j : j + d - c])
            goes = best >= threshold
            stays[c:d] = ~goes
            matches.append((number[c:d][goes], number[a:last][which[goes]], best[goes]))
    pairs_left = pairs[stays]
    sizes = np.diff(cuts_between(pairs_left >> np.uint64(32)))
    several = np.repeat(sizes > 1, sizes)
    columns = [np.concatenate([f[i] for f in matches]) if matches else np.empty(0, np.uint32) for i in range(3)]
    return pairs_left[several], (columns[0], columns[1], columns[2].astype(np.float32)), n_capped


def _lots(work: list[tuple[int, int, int, int]], step: int) -> Iterator[list[tuple[int, int, int, int]]]:
    """Yield the parts of the work whose signatures fit into memory together."""
    lot: list[tuple[int, int, int, int]] = []
    size = 0
    for piece in work:
        n = piece[1] - piece[0] + piece[3] - piece[2]
        if lot and size + n > step:
            yield lot
            lot, size = [], 0
        lot.append(piece)
        size += n
    if lot:
        yield lot


def _signatures(records: Records, numbers: Array) -> NDArray[np.uint8]:
    """Return one signature row per number.

    Looked up all at once: a lookup reads whole columns of the record batches it touches.
    """
    order = np.argsort(numbers, kind="stable")
    columns = records.gather(SIGNATURE, numbers[order])
    out = np.empty((len(numbers), SIGNATURE_BYTES // 8), np.uint64)
    for i, name in enumerate(SIGNATURE):
        out[order, i] = columns.pop(name)
    return out.view(np.uint8)


def _best(old: NDArray[np.uint8], new: NDArray[np.uint8]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return, for each new signature, the highest estimated similarity to an old one and the index of that one.

    Of equal ones the first counts.
    """
    best, which = np.zeros(len(new), np.float32), np.zeros(len(new), np.int64)
    for i, one in enumerate(new):
        agree = np.count_nonzero(old == one, axis=1)
        which[i] = int(np.argmax(agree))
        share = agree[which[i]] / SIGNATURE_BYTES
        best[i] = max(0.0, (share - 1 / 256) / (1 - 1 / 256))
    return best, which


# -- result tables ----------------------------------------------------------------------------------------------------
def restore_ids(records: JoinedRecords, duplicates: str) -> int:
    """Name kept documents of the index in the table for people as their own run did.

    Returns how many rows name one.
    """
    starts = np.concatenate([[0], np.cumsum(records._n_paths)])[:-1] + records.first_path
    n_rows = 0
    for name in sorted(os.listdir(duplicates)):
        path = os.path.join(duplicates, name)
        table = parquet.open_file(path).read(use_threads=False)
        ids = np.array([i.split("_") for i in table["kept_id"].to_pylist()], np.int64).reshape(-1, 2)
        old = ids[:, 0] >= records.first_path
        if old.any():
            n_rows += int(old.sum())
            ids[old, 0] -= starts[np.searchsorted(starts, ids[old, 0], side="right") - 1]
            at = table.column_names.index("kept_id")
            table = table.set_column(at, "kept_id", position_ids(ids[:, 0], ids[:, 1]))
            write_table(path, table)
    return n_rows
