"""A table of ids on disk that says of any document whether it is listed, without being loaded.

`ids.bin`: 16 bytes per distinct id, its XXH3-128, sorted. `starts.npy`: where each bucket of hashes begins, some 256
ids each. A reader holds the starts (0.04 bytes per id) and reads the buckets of its documents with pread, at most a
megabyte at a time.
"""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tamis.dedup.records import Records, parts_of
from tamis.dedup.sorting import sort_pairs
from tamis.errors import FormatError, UsageError
from tamis.formats.scratch.stored_arrays import NpyWriter, open_npy
from tamis.stores.opening import open_input, read_at, state_of_open
from tamis.stores.scratch_files import BucketFile, open_to_write, resolve

if TYPE_CHECKING:
    from tamis.dedup.solver import SolverRun
    from tamis.dedup.solver_task import BuildIdTable

BYTES_PER_ID = 16
# Measured: keys, numbers and the other half, each once more to sort them, and what is written.
_BYTES_WHILE_SORTING = 128
_PER_BUCKET = 256
_MAX_BITS = 24
_GAP = 4096  # ids that are read and not needed, rather than asking the disk once more
_READ = 1 << 16  # ids at a time
# The value stored where the length of an id would. The last is no mistake: the input is a part of what the ids were
# made of.
NO_ID, ODD_ID, OTHER_FILE, NOT_A_NAME, LEFT_OUT = -1, -2, -3, -4, -5


def build_table(step: BuildIdTable, run: SolverRun) -> None:
    """Build the table of the listed ids, and write down how many there are."""
    records = Records(run.task.records)
    n_null = check_ids(records, step.field, step.id_paths)
    n_ids = build(records, run.path("ids"), run.room_bytes)
    run.state.summary.write({"n_ids": n_ids, "n_rows": len(records), "n_rows_without_id": n_null})


def build(records: Records, folder: str, room_bytes: int) -> int:
    """Sort the ids of a pass into a table; returns how many different ones there are."""
    far = resolve(folder)
    if far == folder:
        os.makedirs(folder, exist_ok=True)
    folder = far
    bits = min(_MAX_BITS, max(0, (len(records) // _PER_BUCKET).bit_length()))
    counts = np.zeros(1 << bits, np.int64)
    n = 0
    with open_to_write(os.path.join(folder, "ids.bin")) as out:
        for part in parts_of(len(records) * _BYTES_WHILE_SORTING, room_bytes):
            ids = _sorted_part(records, part)
            counts += np.bincount(_buckets(ids[:, 0], bits), minlength=len(counts))
            if len(ids):
                out.write(ids.reshape(-1).data)
            n += len(ids)
        if not isinstance(out, BucketFile):
            out.flush()
            os.fsync(out.fileno())
    with NpyWriter(os.path.join(folder, "starts.npy"), "<i8") as starts:  # last: a table without it is not whole
        starts.append(np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))
    return n


def _sorted_part(records: Records, part: tuple[int, int]) -> NDArray[np.uint64]:
    """Return (n, 2) halves of the hashes in this part of the key space, each once."""
    hi, numbers = records.keys(0, part)
    sort_pairs(hi, numbers)
    lo = records.gather_any(["lo"], numbers)["lo"]
    by = np.lexsort((lo, hi))
    hi, lo = hi[by], lo[by]
    new = np.ones(len(hi), bool)
    new[1:] = (hi[1:] != hi[:-1]) | (lo[1:] != lo[:-1])
    return np.ascontiguousarray(np.stack([hi[new], lo[new]], axis=1))


def _buckets(hi: NDArray[np.uint64], bits: int) -> NDArray[np.int64]:
    return (hi >> np.uint64(64 - bits)).astype(np.int64) if bits else np.zeros(len(hi), np.int64)


class IdTable:
    """The table of a folder, opened for looking up."""

    def __init__(self, folder: str) -> None:
        path = os.path.join(folder, "ids.bin")
        starts = open_npy(os.path.join(folder, "starts.npy"))
        self._starts = starts.read(0, len(starts))
        self._bits = (len(self._starts) - 1).bit_length() - 1
        self._file = open_input(path)
        if state_of_open(self._file)[0] != int(self._starts[-1]) * BYTES_PER_ID:
            self.close()
            raise FormatError(f"{path} is not whole; start over with fresh (--fresh)")

    def close(self) -> None:
        self._file.close()

    def __len__(self) -> int:
        return int(self._starts[-1])

    def lists(self, hi: NDArray[np.uint64], lo: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return a mask of the hashes that are in the table."""
        is_listed = np.zeros(len(hi), bool)
        if not len(hi) or not len(self):
            return is_listed
        order = np.argsort(hi, kind="stable")
        hi, lo = hi[order], lo[order]
        bucket = _buckets(hi, self._bits)
        first, last = self._starts[bucket], self._starts[bucket + 1]
        # Documents whose buckets are close together are looked up in one read.
        far = np.flatnonzero(first[1:] - last[:-1] > _GAP) + 1
        cuts = np.concatenate([[0], far, [len(hi)]]).tolist()
        for start, end in itertools.pairwise(cuts):
            a = start
            while a < end:
                b = max(a + 1, int(np.searchsorted(last[a:end], first[a] + _READ, side="right")) + a)
                is_listed[order[a:b]] = self._among(int(first[a]), int(last[b - 1]), hi[a:b], lo[a:b])
                a = b
        return is_listed

    def _among(self, first: int, last: int, hi: NDArray[Any], lo: NDArray[Any]) -> NDArray[np.bool_]:
        raw = bytearray((last - first) * BYTES_PER_ID)
        n_read = read_at(self._file, memoryview(raw), first * BYTES_PER_ID)
        ids = np.frombuffer(raw, np.uint64).reshape(-1, 2)
        if n_read != len(raw):
            raise FormatError("a table of ids ends early; start over with fresh (--fresh)")
        keys, others = np.ascontiguousarray(ids[:, 0]), ids[:, 1]
        positions = np.searchsorted(keys, hi)
        is_listed = np.zeros(len(hi), bool)
        pending = np.arange(len(hi))
        while len(pending):  # once, but for ids that share the first half of their hash
            pending = pending[positions[pending] < len(keys)]
            pending = pending[keys[positions[pending]] == hi[pending]]
            same = others[positions[pending]] == lo[pending]
            is_listed[pending[same]] = True
            pending = pending[~same]
            positions[pending] += 1
        return is_listed


def check_ids(records: Records, field: str, paths: list[str]) -> int:
    """Refuse a table of ids that cannot mean what it says; returns how many rows hold no id."""
    n_null = 0
    files = records.iter_column("file")
    offsets = records.iter_column("offset")
    for (_, length), (_, file), (_, offset) in zip(records.iter_column("length"), files, offsets, strict=True):
        n_null += int(np.count_nonzero(length == NO_ID))
        bad = np.flatnonzero((length < NO_ID) & (length != LEFT_OUT))
        if len(bad):
            row = int(bad[0])
            where = f"{paths[int(file[row])]}, record {int(offset[row])}"
            raise UsageError(f"{where}: {_WRONG[int(length[row])].format(field=field)}")
    if n_null == len(records):
        raise UsageError(
            f"no row of {paths[0] if paths else 'the table'} has an id in the field {field!r}; name it by "
            "duplicate_id_field"
        )
    return n_null


_WRONG = {
    ODD_ID: "{field} is not an id by file and position (such as 000003_12345); for ids of the documents' own give "
    "id_field",
    OTHER_FILE: "its file is not the one with this number in the input; the ids belong to other input files",
    NOT_A_NAME: "{field} is neither text nor a number",
}
