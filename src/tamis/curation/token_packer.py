"""Arrange token ids: another order, splits, sequences of one length, files of a size. A process, under the budget.

Reads the files of the last pass (Arrow: token ids of documents, and a hash of each text) one batch after the other. The
split of a document and its place in a new order follow from that hash, and sequences are packed in that order: the
result depends neither on how the pass was cut nor on the budget. To shuffle, documents are sorted by keys on disk
(key_order.py). Everything is written into FOLDER/packed;
FOLDER/packed.json, written last, lists the files. A call that is killed starts over.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tamis import files
from tamis.curation.key_order import KEY, in_key_order
from tamis.curation.sequences import BestFit, Concatenate, Packing, Whole
from tamis.curation.state import PackedFile, PackedFiles, TokenPackTask, packed_file
from tamis.curation.writing import cuts_of
from tamis.dedup.task_process import perform_task, report_share
from tamis.formats.tokens import mds
from tamis.formats.tokens.files import Rows, TokenFile, open_file
from tamis.formats.tokens.format import rows_of
from tamis.stages.text.tokens.options import BEST_FIT
from tamis.stages.text.tokens.stages import IDENTITY, IDS

Array = np.ndarray[Any, Any]
_FILE_BYTES = 10**9
_P1, _P2, _P3 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def pack(folder: str, task: TokenPackTask) -> None:
    """Write the files of the output anew into a folder, and the list of them."""
    target = os.path.join(folder, "packed")
    shutil.rmtree(target, ignore_errors=True)
    os.makedirs(target)
    names = list(task.split) or ["train"]
    progress = report_share("packing")
    total = max(1, sum(os.path.getsize(p) for p in task.parts))
    tables = _tables(task, progress, total)
    if task.shuffle is not None:
        tables = in_key_order(tables, os.path.join(folder, "buckets"), total, task.room_bytes)
    cuts = np.array(cuts_of(task.split), np.uint64)
    outputs: dict[str, _Output] = {}
    for table in tables:
        which = np.searchsorted(cuts, table[IDENTITY].to_numpy(), side="right")
        rows = rows_of(table[IDS])
        for i, name in enumerate(names):
            some = np.flatnonzero(which == i)
            if len(some):
                if name not in outputs:
                    outputs[name] = _Output(target, name, task, rows)
                outputs[name].add(rows if len(some) == len(which) else rows_of(table[IDS].take(pa.array(some))))
    packed = [file for name in names if name in outputs for file in outputs[name].close()]
    if task.format == "mds":
        packed += _index(target, packed)
    numbers = {key: sum(out.numbers[key] for out in outputs.values()) for key in ("rows", "tokens", "padding")}
    packed_file(folder).write(PackedFiles(packed, numbers))


def _tables(task: TokenPackTask, progress: Any, total: int) -> Iterator[pa.Table]:
    """Yield the batches of each file; with a seed, a column holds the key of each row's position in the output."""
    done = 0
    for path in task.parts:
        with pa.OSFile(os.fsencode(path), "rb") as file:
            reader = pa.ipc.open_file(file)
            for k in range(reader.num_record_batches):
                table = pa.table(reader.get_batch(k))
                if task.shuffle is not None:
                    table = table.append_column(KEY, pa.array(_mixed(table[IDENTITY].to_numpy(), task.shuffle)))
                if len(table):
                    yield table
        done += os.path.getsize(path)
        progress(done / total)


def _mixed(identity: Array, seed: int) -> Array:
    """Return a number for each identity that is as good as random for every seed."""
    with np.errstate(over="ignore"):
        x = identity + np.uint64(seed + 1) * _P1
        x = (x ^ (x >> np.uint64(30))) * _P2
        x = (x ^ (x >> np.uint64(27))) * _P3
        return x ^ (x >> np.uint64(31))


class _Output:
    """The files of one split."""

    def __init__(self, folder: str, name: str, task: TokenPackTask, first: Rows) -> None:
        self._folder, self._name, self._task = folder, name, task
        self._dtype = first.ids.dtype
        # What the first document ends with is the end token; padding is the same.
        pad = int(first.ids[first.offsets[1] - 1]) if task.has_ends and len(first.ids) else 0
        self._packing: Packing = Whole()
        if task.sequence_length is not None:
            self._packing = (BestFit if task.packing == BEST_FIT else Concatenate)(task.sequence_length, pad)
        most = mds.SIZE_LIMIT if task.format == "mds" else _FILE_BYTES
        self._most = max(1, (task.file_bytes or most) // self._dtype.itemsize)  # tokens
        self._open: TokenFile | None = None
        self._n_open = self._n_rows = 0
        self._closed: list[tuple[list[tuple[str, str]], int]] = []
        self.numbers = {"rows": 0, "tokens": 0, "padding": 0}

    def add(self, rows: Rows) -> None:
        for packed in self._packing.add(rows):
            self._write(packed)

    def close(self) -> list[PackedFile]:
        """Write what is left and return a description of each file."""
        for packed in self._packing.finish():
            self._write(packed)
        self._finish_file()
        self.numbers["padding"] = self._packing.n_padding
        self.numbers["tokens"] -= self._packing.n_padding
        n, described = len(self._closed), []
        for i, (parts, n_rows) in enumerate(self._closed):
            for k, (extension, path) in enumerate(parts):
                name = f"{self._name}-{i:05d}-of-{n:05d}.{extension}"
                described.append(PackedFile(name, path, self._name, 0 if k else n_rows, os.path.getsize(path)))
        return described

    def _write(self, rows: Rows) -> None:
        first, n_rows = 0, len(rows.offsets) - 1
        while first < n_rows:
            if self._open is None:
                base = os.path.join(self._folder, f"{self._name}-{len(self._closed):05d}")
                task = self._task
                self._open = open_file(task.format, base, self._dtype, task.sequence_length, task.is_compressed)
            room = rows.offsets[first] + self._most - self._n_open
            last = max(first, int(np.searchsorted(rows.offsets, room, side="right")) - 1)
            if not self._n_rows:  # a row that is larger than a file gets one of its own
                last = max(last, first + 1)
            if last > first:
                some = _slice(rows, first, last)
                self._open.write(some)
                self._n_open += len(some.ids)
                self._n_rows += last - first
                self.numbers["rows"] += last - first
                self.numbers["tokens"] += len(some.ids)
            first = last
            if self._n_open >= self._most or first < n_rows:
                self._finish_file()

    def _finish_file(self) -> None:
        if self._open is not None:
            self._closed.append((self._open.close(), self._n_rows))
            self._open, self._n_open, self._n_rows = None, 0, 0


def _slice(rows: Rows, first: int, last: int) -> Rows:
    a, b = int(rows.offsets[first]), int(rows.offsets[last])
    offsets = rows.offsets[first : last + 1] - a
    if rows.starts is None or rows.start_offsets is None:
        return Rows(rows.ids[a:b], offsets)
    where = rows.start_offsets[first : last + 1]
    return Rows(rows.ids[a:b], offsets, rows.starts[int(where[0]) : int(where[-1])], where - where[0])


def _index(folder: str, packed: Sequence[PackedFile]) -> list[PackedFile]:
    path = os.path.join(folder, mds.INDEX)
    files.write_text(path, mds.index_of([(file.name, file.path) for file in packed]))
    return [PackedFile(mds.INDEX, path, "train", 0, os.path.getsize(path))]


def main(arguments: Sequence[str]) -> int:
    return perform_task(arguments, TokenPackTask, pack, "arranging the token ids")
