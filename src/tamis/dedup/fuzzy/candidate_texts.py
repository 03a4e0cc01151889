"""Texts of candidates by document number, read one by one with pread.

They are read from plain JSONL input itself, where the position of each document is known, or from compressed files that
a second pass wrote, where the input cannot be read by position.
"""

from __future__ import annotations

import copy
import itertools
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tamis.dedup.normalization import normalized
from tamis.dedup.records import runs_of
from tamis.errors import FormatError
from tamis.formats.arrow.column_places import BatchPlaces
from tamis.formats.compression import zstd
from tamis.formats.jsonl.block import JsonlBlock
from tamis.formats.scratch.stored_arrays import open_npy, read_into
from tamis.stores.reading import prefetch
from tamis.stores.scratch_files import exists, resolve
from tamis.stores.urls import is_bucket
from tamis.tasks import DocumentBatch

_MAX_TEXT_BYTES = 1 << 32
_STEP = 1 << 14
_LINE_FEED = 10
_GAP = 1 << 14  # unneeded bytes that are read to save a request to a store
_LOT_BYTES = 12 << 20  # of records that are parsed at once


class StoredTexts(ABC):
    """Texts in files, of which not too many are open at once."""

    def __init__(self) -> None:
        self._open: dict[str, int] = {}

    @abstractmethod
    def array(self, numbers: NDArray[np.uint32]) -> pa.Array:
        """Return the texts of several documents, in this order, as one Arrow array without nulls."""

    def lot(self, numbers: NDArray[np.uint32]) -> tuple[pa.Array, NDArray[np.int64]]:
        """Return the texts in the order they are read, and the position of each of `numbers` therein.

        Unlike `array`, this moves nothing.
        """
        return self.array(numbers), np.arange(len(numbers))

    def another(self) -> Self:
        """Return a reader of the same texts for another thread."""
        other = copy.copy(self)
        other._open = {}
        return other

    def close(self) -> None:
        for file in self._open.values():
            os.close(file)
        self._open.clear()

    def _file(self, path: str) -> int:
        if path not in self._open:
            if len(self._open) >= 256:
                self.close()
            self._open[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return self._open[path]


class InputTexts(StoredTexts):
    """Texts of plain JSONL files. `places`: their positions (decisions.py) by `numbers`; `mode`: of normalisation."""

    def __init__(self, paths: Sequence[str], places: str, numbers: NDArray[np.uint32], field: str, mode: str) -> None:
        super().__init__()
        self._paths, self._numbers, self._field, self._mode = list(paths), numbers, field, mode
        self._read, self._read_offset, self._read_path = b"", 0, ""
        places = resolve(places)
        self._file_of, self._offset = (_column(os.path.join(places, f"{n}.npy")) for n in ("file", "offset"))
        sizes = os.path.join(places, "record_bytes.npy")
        self._sizes = _column(sizes).astype(np.int64) if exists(sizes) else None

    def array(self, numbers: NDArray[np.uint32]) -> pa.Array:
        texts, places = self.lot(numbers)
        return texts.take(pa.array(places))

    def lot(self, numbers: NDArray[np.uint32]) -> tuple[pa.Array, NDArray[np.int64]]:
        rows = np.searchsorted(self._numbers, numbers)
        order = np.argsort(rows, kind="stable")  # in the order of the input
        read = self._searched(rows[order]) if self._sizes is None else self._measured(rows[order], self._sizes)
        texts = [self._parsed(records, n) for records, n in read]
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        if len(texts) == 1:
            return texts[0], back
        return pa.concat_arrays(texts) if texts else pa.array([], pa.large_string()), back

    def _searched(self, rows: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.uint8], int]]:
        """Yield records and their count, some at a time: they may be far larger than their texts."""
        lines: list[bytes] = []
        n_bytes = 0
        for row in rows.tolist():
            line = self._line(self._paths[int(self._file_of[row])], int(self._offset[row]))
            lines.append(line)
            n_bytes += len(line)
            if n_bytes > _LOT_BYTES:
                yield np.frombuffer(b"\n".join([*lines, b""]), np.uint8), len(lines)
                lines, n_bytes = [], 0
        yield np.frombuffer(b"\n".join([*lines, b""]), np.uint8), len(lines)

    def _measured(self, rows: NDArray[np.int64], sizes: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.uint8], int]]:
        """Yield records and their count like `_searched`, where the length of each is known.

        Each record is read directly to its position in the buffer.
        """
        ends = np.cumsum(sizes[rows] + 1)
        first = 0
        while first < len(rows):
            before = int(ends[first - 1]) if first else 0
            last = max(first + 1, int(np.searchsorted(ends, before + _LOT_BYTES, side="right")))
            some = rows[first:last]
            records = np.empty(int(ends[last - 1]) - before, np.uint8)
            view: memoryview = memoryview(records)  # type: ignore[arg-type]
            position = 0
            for file, offset, size in zip(
                self._file_of[some].tolist(), self._offset[some].tolist(), sizes[some].tolist(), strict=True
            ):
                n = os.preadv(self._file(self._paths[file]), [view[position : position + size]], offset)
                if n != size:
                    raise FormatError("the input changed after it was compared; start over with fresh (--fresh)")
                view[position + size] = _LINE_FEED
                position += size + 1
            yield records, len(some)
            first = last

    def _parsed(self, records: NDArray[np.uint8], n_records: int) -> pa.Array:
        """Return the texts of records as the first pass saw them."""
        block = JsonlBlock.parse(records, [self._field])
        if block.n_rows != n_records:
            raise FormatError("the input changed after it was compared; start over with fresh (--fresh)")
        texts = DocumentBatch.over(block, np.arange(block.n_rows)).texts(self._field)
        return pc.fill_null(normalized(texts, self._mode), "")

    def _line(self, path: str, offset: int) -> bytes:
        """Read from the offset up to the line feed or the end of the file.

        Neighbouring lines are often in the part that was read last.
        """
        start = offset - self._read_offset
        if path == self._read_path and 0 <= start < len(self._read):
            end = self._read.find(b"\n", start)
            if end >= 0:
                return self._read[start:end]
        pieces, step = [], _STEP
        while piece := os.pread(self._file(path), step, offset):
            self._read, self._read_offset, self._read_path = piece, offset, path
            end = piece.find(b"\n")
            if end >= 0:
                pieces.append(piece[:end])
                break
            pieces.append(piece)
            offset += len(piece)
            step = min(2 * step, 1 << 24)
        return b"".join(pieces)


class Texts(StoredTexts):
    """Texts that a second pass wrote. `numbers`: the candidates, ascending, in the order of the rows of all files."""

    def __init__(self, paths: Sequence[str], numbers: NDArray[np.uint32]) -> None:
        super().__init__()
        runs = runs_of(paths, "a file of candidate texts", _run_of)
        self._paths = [path for path, _, _ in runs]
        self._is_far = any(is_bucket(path) for path in paths)
        self._first = np.concatenate([[0], np.cumsum([len(ends) for *_, ends in runs])]).astype(np.int64)
        self._starts = np.concatenate([np.empty(0, np.int64), *(at + np.append(0, ends[:-1]) for _, at, ends in runs)])
        self._sizes = np.concatenate([np.empty(0, np.int64), *(np.diff(ends, prepend=0) for *_, ends in runs)])
        if int(self._first[-1]) != len(numbers):
            raise FormatError(f"{len(numbers)} texts of candidates expected, {int(self._first[-1])} found")
        self._numbers = numbers

    def array(self, numbers: NDArray[np.uint32]) -> pa.Array:
        """Return the texts of these documents; each is held once, besides the one that is being read."""
        data, offsets = bytearray(), np.zeros(len(numbers) + 1, np.int64)
        rows = np.searchsorted(self._numbers, numbers)
        unknown = (rows >= len(self._numbers)) | (self._numbers[np.minimum(rows, len(self._numbers) - 1)] != numbers)
        if unknown.any():
            raise FormatError(f"document {numbers[unknown][0]} is no candidate")
        for i, (path, packed) in enumerate(self._packed(rows)):
            try:
                data += zstd.unpack(packed, _MAX_TEXT_BYTES)
            except zstd.ZstdError as exc:
                raise FormatError(f"{path}: damaged ({exc}); start over with fresh (--fresh)") from None
            offsets[i + 1] = len(data)
        return pa.LargeStringArray.from_buffers(len(numbers), pa.py_buffer(offsets), pa.py_buffer(data))

    def _packed(self, rows: NDArray[np.int64]) -> Iterator[tuple[str, bytes]]:
        """Yield the path and the bytes of each of these rows.

        In a bucket, neighbours are fetched with one request, and several requests are in flight.
        """
        of = np.searchsorted(self._first, rows, side="right") - 1
        if not self._is_far:
            for row, file in zip(rows.tolist(), of.tolist(), strict=True):
                path = self._paths[file]
                yield path, os.pread(self._file(path), int(self._sizes[row]), int(self._starts[row]))
            return
        order = np.argsort(rows, kind="stable")
        starts, ends, of_file = self._starts[rows[order]], (self._starts + self._sizes)[rows[order]], of[order]
        first = np.ones(len(order), bool)
        first[1:] = (of_file[1:] != of_file[:-1]) | (starts[1:] - ends[:-1] > _GAP)
        cuts = [*np.flatnonzero(first).tolist(), len(order)]
        texts: list[bytes] = [b""] * len(order)

        def read(span: tuple[int, int]) -> None:
            a, b = span
            data = np.empty(int(ends[b - 1] - starts[a]), np.uint8)
            read_into(self._paths[of_file[a]], int(starts[a]), data)
            for k in range(a, b):
                texts[order[k]] = data[starts[k] - starts[a] : ends[k] - starts[a]].tobytes()

        for _ in prefetch(read, itertools.pairwise(cuts), is_remote=True):
            pass
        yield from ((self._paths[file], packed) for file, packed in zip(of.tolist(), texts, strict=True))


def _column(path: str) -> NDArray[Any]:
    array = open_npy(path)
    return array.read(0, len(array))


def _run_of(batch: BatchPlaces, first: tuple[int, int]) -> tuple[str, int, NDArray[np.int64]]:
    """Return the path of a record batch, the offset of its texts in the file, and their ends."""
    return batch.path, batch.data_at("text"), batch.ends("text").read(1, batch.n_rows + 1)
