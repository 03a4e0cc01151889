"""Writer of WebDataset: tars of samples (image, caption, json, other members), each with a Parquet file.

Tars are filled with the images of all batches of a partition, evenly: as few as can be with at most `per_tar` images
and `max_bytes` in each. Unchanged images are copied byte for byte from their source, a piece at a time. The Parquet
file has a row for each image in the order of the tar: everything that is known of it, scores and embeddings too;
member_name is what it is called in that tar, original_path and original_member say where it was read from. The name of
the tar is not stored inside: files get their names when they are committed, both the same but for their ending. The
same documents in the same order give the same bytes.
"""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

import numpy as np
import pyarrow as pa
import xxhash

from tamis import files
from tamis.errors import FormatError
from tamis.formats.parquet import format as parquet
from tamis.images.format import SCHEMA
from tamis.stores.spool import Bytes, open_bytes
from tamis.stores.urls import path_of
from tamis.tasks import ROW_ID, DocumentBatch

CHANGED = "image_bytes"
"""A column with the bytes of images that a stage changed; null for the others."""
_COPY_BYTES = 1 << 20
_BLOCK = 512
_SUFFIX = {"jpeg": "jpg", "png": "png", "webp": "webp"}
_RENAMED = {"id": "image_id", "member": "original_member", "image_path": "original_path"}
_MEMBER = "member_name"
_LEFT_OUT = ("offset", "length", "others", CHANGED)  # what only leads to the bytes

Array = np.ndarray[Any, Any]
WrittenFile = tuple[dict[str, Any], Array, tuple[Array, Array]]


def write(batches: Sequence[DocumentBatch], base: str, options: Mapping[str, Any]) -> Iterator[WrittenFile]:
    """Yield staged files `base`.N.tar and `base`.N.parquet, each with the bytes and content hashes of its documents.

    A Parquet file has no documents of its own: it belongs to the tar before it.
    """
    per_tar, max_bytes = int(options["per_tar"]), int(options["max_bytes"])
    n_images = sum(batch.num_items for batch in batches)
    # 1,024 are two tars of 512, not one of 1,000 and a rest.
    per_tar = -(-n_images // max(1, -(-n_images // per_tar)))
    tar: _Tar | None = None
    n_tars = 0
    with _Sources() as sources:
        try:
            for batch in batches:
                table = _table(batch)
                first = 0
                for i, row in enumerate(table.select([n for n in _NEEDED if n in table.column_names]).to_pylist()):
                    sample = _sample(row)
                    if tar is not None and (
                        len(tar.lengths) >= per_tar or tar.n_bytes + _tar_bytes(sample) > max_bytes
                    ):
                        tar.tables.append(table.slice(first, i - first))
                        yield from tar.finish()
                        tar, first = None, i
                    if tar is None:
                        tar = _Tar(base, n_tars)
                        n_tars += 1
                    tar.add(sample, sources)
                if tar is not None:
                    tar.tables.append(table.slice(first))
            if tar is not None:
                yield from tar.finish()
        except BaseException:
            if tar is not None:
                tar.abort()
            raise


_NEEDED = ("id", "image_path", "member", "offset", "length", "format", "caption", "json", "others", CHANGED)
_StagedMember = tuple[str, int, Any]
"""A member of a sample: its name, its bytes in number, and these bytes, or their (path, offset)."""


def _sample(row: Mapping[str, Any]) -> list[_StagedMember]:
    """Return the members of an image's sample, the image first."""
    missing = [n for n in ("id", "image_path", "offset", "length", "format") if row.get(n) is None]
    if missing:
        raise FormatError(
            f"cannot be written as an image: it has no {', '.join(missing)}; read images with ImageReader"
        )
    key, path = str(row["id"]), path_of(row["image_path"])
    changed = row.get(CHANGED)
    suffix = _SUFFIX.get(row["format"], str(row["format"]))
    if changed is not None:
        parts: list[_StagedMember] = [(f"{key}.{suffix}", len(changed), changed)]
    else:
        stored = os.path.basename(row.get("member") or path).partition(".")[2] if row.get("member") else ""
        name = f"{key}.{stored or os.path.splitext(path)[1].lstrip('.') or suffix}"
        parts = [(name, int(row["length"]), (path, int(row["offset"])))]
    for name, kind in (("txt", "caption"), ("json", "json")):
        if (text := row.get(kind)) is not None:
            data = str(text).encode("utf-8")
            parts.append((f"{key}.{name}", len(data), data))
    for rest, offset, length in json.loads(row.get("others") or "[]"):
        parts.append((f"{key}.{rest}" if rest else key, int(length), (path, int(offset))))
    return parts


def _tar_bytes(sample: Sequence[_StagedMember]) -> int:
    return sum(_BLOCK + length + -length % _BLOCK for _, length, _ in sample)


class _Sources(files.Closing):
    """The file that images are copied from; the last one stays open, as neighbours share a tar."""

    def __init__(self) -> None:
        self._path = ""
        self._file: Bytes | None = None

    def read(self, path: str, offset: int, length: int) -> Iterator[bytes]:
        if path != self._path or self._file is None:
            self.close()
            self._file, self._path = open_bytes(path), path
        while length > 0:
            data = self._file.pread(min(length, _COPY_BYTES), offset)
            if not data:
                raise FormatError(f"{path}: {length:,} bytes are missing at {offset:,}: it is shorter than it was")
            yield data
            offset, length = offset + len(data), length - len(data)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class _Tar:
    """A tar being written, and what is known of the images in it."""

    def __init__(self, base: str, number: int) -> None:
        self.path, self.table_path = f"{base}.{number}.tar", f"{base}.{number}.parquet"
        self.file: IO[bytes] = files.create(self.path)
        self.n_bytes = 0
        self.lengths: list[int] = []
        self.hashes: list[int] = []
        self.names: list[str] = []  # of the images among its members
        self.tables: list[pa.Table] = []

    def add(self, sample: Sequence[_StagedMember], sources: _Sources) -> None:
        total = 0
        for i, (name, length, where) in enumerate(sample):
            header = tarfile.TarInfo(name)
            header.size, header.mode = length, 0o644
            self._write(header.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape"))
            digest = xxhash.xxh3_128()
            for piece in [where] if isinstance(where, bytes) else sources.read(where[0], where[1], length):
                digest.update(piece)
                self._write(piece)
            self._write(bytes(-length % _BLOCK))
            total += length
            if i == 0:
                self.hashes.append(digest.intdigest())
        self.lengths.append(total)
        self.names.append(sample[0][0])

    def _write(self, data: bytes) -> None:
        self.file.write(data)
        self.n_bytes += len(data)

    def finish(self) -> Iterator[WrittenFile]:
        self._write(bytes(2 * _BLOCK))
        self.file.close()
        table = pa.concat_tables(self.tables, promote_options="permissive")
        table = table.drop_columns([n for n in (*_LEFT_OUT, _MEMBER) if n in table.column_names])
        table = table.rename_columns([_RENAMED.get(n, n) for n in table.column_names])
        at = max(table.schema.get_field_index(_RENAMED["member"]), 0)
        table = table.add_column(at, _MEMBER, pa.array(self.names, pa.large_string()))
        parquet.write_table(table, files.fresh(self.table_path), compression="zstd")
        hi = np.array([h >> 64 for h in self.hashes], np.uint64)
        lo = np.array([h & (2**64 - 1) for h in self.hashes], np.uint64)
        none = np.empty(0, np.uint64)
        yield {"path": self.path, "extension": "tar"}, np.array(self.lengths, np.int64), (hi, lo)
        yield {"path": self.table_path, "extension": "parquet", "belongs": True}, np.empty(0, np.int64), (none, none)

    def abort(self) -> None:
        self.file.close()
        files.remove(self.path)


def _table(batch: DocumentBatch) -> pa.Table:
    """Return all columns of a batch; those that locate the bytes have the types that they were read with."""
    table = batch.to_pyarrow()
    table = table.drop_columns([ROW_ID]) if ROW_ID in table.column_names else table
    for i, name in enumerate(table.column_names):
        if name in SCHEMA.names and table.schema.field(i).type != SCHEMA.field(name).type:
            table = table.set_column(i, name, table.column(i).cast(SCHEMA.field(name).type))
    return table
