"""Files of token ids in the formats of trainers, each with the files that belong to it.

    megatron   .bin (tokens), .idx (lengths, offsets, documents)              Megatron-LM, NeMo
    npy        .npy (an array), .offsets (where documents begin, an array)    numpy.load, mapped
    raw        .bin (tokens alone), .offsets                                  numpy.memmap: OLMo, nanoGPT
    parquet    .parquet with input_ids (and document_starts of sequences)     datasets
    arrow      .arrow, the same
    mds        .mds.zstd or .mds; index.json for all of them (mds.py)         mosaicml-streaming

A file is given rows: documents, or sequences of one length made of documents (`starts`: where in the sequence each of
its documents begins). The same rows give the same bytes. Memory: eight bytes per row, and the rows of a call; MDS holds
the shard.
"""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.lib import format as npy

from tamis import files
from tamis.formats.megatron.index import write_index
from tamis.formats.tokens import mds

Array = np.ndarray[Any, Any]
_NPY_HEADER = 128
_ROW_GROUP_BYTES = 32 * 10**6
IDS, STARTS = "input_ids", "document_starts"


@dataclass(frozen=True)
class Rows:
    """Rows of token ids: row i is ids[offsets[i]:offsets[i + 1]].

    starts, start_offsets: of sequences, where their documents begin: starts[start_offsets[i]:start_offsets[i + 1]].
    """

    ids: Array
    offsets: Array
    starts: Array | None = None
    start_offsets: Array | None = None

    @property
    def lengths(self) -> Array:
        return np.diff(self.offsets)


class TokenFile(Protocol):
    """A file that is being written."""

    def write(self, rows: Rows) -> None: ...

    def close(self) -> list[tuple[str, str]]:
        """Finish; return (extension, path) of the file and of those that belong to it."""
        ...


class MegatronFile:
    """A pair of .bin and .idx. Sequences are one sequence of the index each, and documents of it, too."""

    def __init__(self, base: str, dtype: Array, length: int | None) -> None:
        self._base, self._dtype = base, np.dtype(dtype)
        self._file = files.create(base + ".bin")
        self._lengths: list[Array] = []

    def write(self, rows: Rows) -> None:
        self._file.write(_data(rows.ids, self._dtype))
        self._lengths.append(rows.lengths)

    def close(self) -> list[tuple[str, str]]:
        _finish(self._file)
        with files.create(self._base + ".idx") as file:
            write_index(file, np.concatenate(self._lengths), self._dtype.name)
            _finish(file)
        return [("bin", self._base + ".bin"), ("idx", self._base + ".idx")]


class FlatFile:
    """Tokens one after the other, and next to them an array of where documents begin, with the end of the last.

    Sequences of one length are the rows of an array of two dimensions in .npy.
    """

    def __init__(self, base: str, dtype: Any, length: int | None, header: bool) -> None:
        self._base, self._dtype, self._length, self._header = base, np.dtype(dtype), length, header
        self._path = base + (".npy" if header else ".bin")
        self._file = files.create(self._path)
        if header:
            self._file.write(bytes(_NPY_HEADER))
        self._n_tokens = 0
        self._starts: list[Array] = [np.zeros(0, np.int64)]

    def write(self, rows: Rows) -> None:
        self._file.write(_data(rows.ids, self._dtype))
        first = rows.offsets[:-1] - rows.offsets[0] + self._n_tokens
        if rows.starts is not None and rows.start_offsets is not None:
            first = np.repeat(first, np.diff(rows.start_offsets)) + rows.starts
        self._starts.append(first)
        self._n_tokens += len(rows.ids)

    def close(self) -> list[tuple[str, str]]:
        if self._header:
            n = self._n_tokens
            shape = (n,) if self._length is None else (n // self._length, self._length)
            head = io.BytesIO()
            about = {"descr": npy.dtype_to_descr(self._dtype.newbyteorder("<")), "fortran_order": False, "shape": shape}
            npy.write_array_header_1_0(head, about)
            assert len(head.getvalue()) == _NPY_HEADER
            self._file.seek(0)
            self._file.write(head.getvalue())
        _finish(self._file)
        offsets = np.concatenate([*self._starts, [self._n_tokens]]).astype("<i8")
        with files.create(self._base + ".offsets") as file:
            npy.write_array(file, offsets, version=(1, 0))
            _finish(file)
        return [(self._path.removeprefix(self._base + "."), self._path), ("offsets", self._base + ".offsets")]


class ColumnFile:
    """Parquet or Arrow with a column `input_ids`, of sequences also `document_starts`."""

    def __init__(self, base: str, dtype: Any, length: int | None, kind: str) -> None:
        self._path, self._kind = f"{base}.{kind}", kind
        self._length, self._dtype = length, np.dtype(dtype)
        value = pa.from_numpy_dtype(self._dtype)
        columns = {IDS: pa.list_(value) if length is None else pa.list_(value, length)}
        if length is not None:
            columns[STARTS] = pa.list_(pa.int32())
        self._schema = pa.schema(columns)
        self._file = files.create(self._path)
        self._writer: Any = (
            pq.ParquetWriter(self._file, self._schema, compression="zstd", use_dictionary=False)
            if kind == "parquet"
            else pa.ipc.new_file(self._file, self._schema)
        )
        self._held: list[pa.Table] = []
        self._n_bytes = 0

    def write(self, rows: Rows) -> None:
        values = pa.array(
            np.ascontiguousarray(rows.ids).astype(self._schema.field(IDS).type.value_type.to_pandas_dtype())
        )
        if self._length is None:
            columns = [_lists(rows.offsets - rows.offsets[0], values)]
        else:
            assert rows.starts is not None
            assert rows.start_offsets is not None
            starts = pa.array(rows.starts.astype(np.int32))
            columns = [pa.FixedSizeListArray.from_arrays(values, self._length), _lists(rows.start_offsets, starts)]
        table = pa.table([*columns], schema=self._schema)
        sizes = rows.lengths * self._dtype.itemsize
        if rows.start_offsets is not None:
            sizes = sizes + np.diff(rows.start_offsets) * 4
        first = 0
        while first < len(table):  # row groups follow the rows, not the calls
            ends = np.cumsum(sizes[first:])
            last = first + int(np.searchsorted(ends, _ROW_GROUP_BYTES - self._n_bytes, side="right"))
            if not self._held:
                last = max(last, first + 1)
            if last > first:
                self._held.append(table.slice(first, last - first))
                self._n_bytes += int(ends[last - first - 1])
            first = last
            if first < len(table):
                self._flush()

    def _flush(self) -> None:
        if self._held:
            table = pa.concat_tables(self._held).combine_chunks()
            if self._kind == "parquet":
                self._writer.write_table(table, row_group_size=max(1, len(table)))
            else:
                self._writer.write_table(table)
        self._held, self._n_bytes = [], 0

    def close(self) -> list[tuple[str, str]]:
        self._flush()
        self._writer.close()
        _finish(self._file)
        return [(self._kind, self._path)]


class MdsFile:
    """A shard of MDS. A document without tokens is left out: the format has no empty arrays."""

    def __init__(self, base: str, dtype: Any, length: int | None, is_compressed: bool) -> None:
        self._suffix = mds.ZSTD_SUFFIX if is_compressed else mds.SUFFIX
        self._path, self._shard = base + self._suffix, mds.MdsShard(np.dtype(dtype).name, length, is_compressed)

    def write(self, rows: Rows) -> None:
        self._shard.add(rows.ids, rows.offsets, rows.starts, rows.start_offsets)

    def close(self) -> list[tuple[str, str]]:
        with files.create(self._path) as file:
            file.write(self._shard.contents())
            _finish(file)
        return [(self._suffix[1:], self._path)]


FORMATS = ("megatron", "npy", "raw", "mds", "parquet", "arrow")


def open_file(kind: str, base: str, dtype: Any, length: int | None = None, is_compressed: bool = True) -> TokenFile:
    """Begin a file of this format at `base`, without its extension.

    `length`: of sequences; None: documents. `is_compressed`: a shard of MDS.
    """
    if kind == "megatron":
        return MegatronFile(base, dtype, length)
    if kind in ("npy", "raw"):
        return FlatFile(base, dtype, length, header=kind == "npy")
    if kind == "mds":
        return MdsFile(base, dtype, length, is_compressed)
    return ColumnFile(base, dtype, length, kind)


def id_type(kind: str, size: int | None) -> str:
    """Return the type of token ids in a format, of a vocabulary of this size.

    >>> id_type("megatron", 128_256), id_type("raw", 128_256), id_type("npy", 50_257)
    ('int32', 'uint32', 'uint16')
    """
    if size is not None and size <= 65_536:
        return "uint16"
    return "uint32" if kind in ("npy", "raw") else "int32"


def _data(ids: Array, dtype: np.dtype[Any]) -> memoryview:
    return memoryview(np.ascontiguousarray(ids).astype(dtype.newbyteorder("<"), copy=False).view(np.uint8))  # type: ignore[arg-type]


def _lists(offsets: Array, values: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values)


def _finish(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
    file.close()
