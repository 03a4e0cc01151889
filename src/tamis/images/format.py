"""Images as a format of rows: a tar (WebDataset) has a row for each image, a single image file is one row.

A row has the location of an image (file, offset, length), its header's facts, and its companions (caption, json,
other members of its sample). Pixels are no part of it: stages decode them with `tamis.images`. An image that
its header condemns (no image, cut off, a bomb) is a fault of its row; so is the place where a tar cannot be followed
any further.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from tamis.errors import FormatError
from tamis.formats.base import BATCH_BYTES, MAX_BATCH_ROWS, RowGroup, RowsFault, TableInfo
from tamis.formats.table_files import FixedColumns, empty_tables
from tamis.images.faults import ImageFault, TarFault
from tamis.images.headers import ImageHeader, read_header
from tamis.images.samples import SampleRow, index_of, is_image, key_of, rows
from tamis.images.tar import TarMember
from tamis.stores.opening import object_exists, size_of
from tamis.stores.spool import Bytes, open_bytes
from tamis.stores.urls import is_bucket, is_remote, name_in, path_text

TableWriter = None
# Of a row with its caption, about: 1,000 of them are the smallest partition (MIN_ROWS_BYTES), and fill a tar.
ROW_BYTES = 1048
_MAX_TEXT_BYTES = 1 << 20
_ROWS_AT_ONCE = 1024
SCHEMA = pa.schema(
    [
        ("id", pa.large_string()),
        ("image_path", pa.large_string()),
        ("member", pa.large_string()),
        ("offset", pa.int64()),
        ("length", pa.int64()),
        ("format", pa.large_string()),
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("caption", pa.large_string()),
        ("json", pa.large_string()),
        ("others", pa.large_string()),  # JSON: [[what follows the key, offset, length], ...]
    ]
)
_columns = FixedColumns(SCHEMA)
read_schema = _columns.read_schema


def describe(path: str | os.PathLike[str]) -> TableInfo:
    path = os.fspath(path)
    size = size_of(path)
    if _is_tar(path) and not size:
        raise FormatError("a tar of zero bytes")
    if not _is_tar(path):
        return _columns.info([RowGroup(0, 1, ROW_BYTES)], size)
    try:
        index = index_of(path)
    except TarFault as exc:
        raise FormatError(f"no tar, or damaged at its beginning: {exc}") from None
    firsts = [first for _, first in index.begins]
    groups = [
        RowGroup(first, end - first, (end - first) * ROW_BYTES) for first, end in pairwise([*firsts, index.n_rows])
    ]
    return _columns.info(groups, size)


def iter_rows(
    path: str | os.PathLike[str],
    first_row: int,
    end_row: int,
    columns: Sequence[str] | None = None,
    batch_bytes: int = BATCH_BYTES,
    max_rows: int = MAX_BATCH_ROWS,
) -> Iterator[tuple[int, pa.Table]]:
    path = os.fspath(path)
    schema = _columns.wanted(columns)
    if not schema.names:
        yield from empty_tables(first_row, end_row)
        return
    most = max(1, min(max_rows, _ROWS_AT_ONCE, batch_bytes // ROW_BYTES))
    records: list[dict[str, Any]] = []
    position = first_row
    with open_bytes(path) as file:
        numbered_rows = _tar_rows(path, file, first_row, end_row) if _is_tar(path) else _file_rows(file)
        for number, row in numbered_rows:
            if not first_row <= number < end_row:
                continue
            try:
                records.append(_record(path, file, number, row))
            except ImageFault as exc:
                if records:
                    yield position, pa.Table.from_pylist(records, schema)
                raise RowsFault(number, str(exc), number + 1) from None
            if len(records) >= most:
                yield position, pa.Table.from_pylist(records, schema)
                records, position = [], number + 1
    if records:
        yield position, pa.Table.from_pylist(records, schema)


def stored_bytes(table: pa.Table) -> Any:
    """Return the size of each image, which reports count as the size of a document.

    Looked up by name (engine/worker/read.py).
    """
    if "length" not in table.column_names:
        return np.zeros(len(table), np.int64)
    return table["length"].to_numpy().astype(np.int64)


def _is_tar(path: str) -> bool:
    return not is_image(name_in(path) if is_remote(path) else path)


def _file_rows(file: Bytes) -> Iterator[tuple[int, SampleRow]]:
    yield 0, SampleRow("", TarMember("", 0, file.size, 0))


def _tar_rows(path: str, file: Bytes, first_row: int, end_row: int) -> Iterator[tuple[int, SampleRow]]:
    begins = index_of(path).begins
    if not begins:
        return
    byte, number = begins[max(0, bisect_right(begins, first_row, key=lambda b: b[1]) - 1)]
    for _, row in rows(file, byte):
        if number >= end_row:
            return
        yield number, row
        number += 1


def _record(path: str, file: Bytes, number: int, row: SampleRow) -> dict[str, Any]:
    """Return the row as values; raise ImageFault if there is no image to read."""
    image = row.image
    if image is None:
        raise ImageFault(row.fault)
    try:
        facts = _header_of(file, image)
    except ImageFault as exc:
        raise ImageFault(f"{image.name}: {exc}" if image.name else str(exc)) from None
    record = {
        "id": _id(path, number if image.name else None), "image_path": path_text(path), "member": image.name or None,
        "offset": image.offset, "length": image.length,
        "format": facts.format, "width": facts.width, "height": facts.height,
    }  # fmt: skip
    return record | (_sample_metadata(file, row.others) if image.name else _sidecar_metadata(path))


def _header_of(file: Bytes, image: TarMember) -> ImageHeader:
    # A damaged header points anywhere.
    return read_header(lambda at, n: file.pread(max(0, min(n, image.length - at)), image.offset + at), image.length)


def _sample_metadata(file: Bytes, others: Sequence[TarMember]) -> dict[str, Any]:
    """Caption and json of a sample as text.

    Members that are no text, too large or of other kinds are given by location.
    """
    metadata: dict[str, Any] = {}
    fields = []
    for member in others:
        rest = key_of(member.name)[1]
        kind = {"txt": "caption", "json": "json"}.get(rest.lower(), "")
        text = _text(file, member.offset, member.length) if kind and kind not in metadata else None
        if text is None:
            fields.append([rest, member.offset, member.length])
        else:
            metadata[kind] = text
    if fields:
        metadata["others"] = json.dumps(fields)
    return metadata


def _sidecar_metadata(path: str) -> dict[str, Any]:
    """Caption and json in files of the same name next to an image. A URL has none."""
    metadata: dict[str, Any] = {}
    if is_remote(path) and not is_bucket(path):
        return metadata
    for kind, suffix in (("caption", ".txt"), ("json", ".json")):
        sidecar = os.path.splitext(path)[0] + suffix
        try:
            # A pipe with such a name would be waited for without end.
            if not (object_exists(sidecar) if is_remote(sidecar) else stat.S_ISREG(os.stat(sidecar).st_mode)):
                continue
            with open_bytes(sidecar) as file:
                text = _text(file, 0, file.size)
        except FileNotFoundError:
            continue
        if text is None:
            raise ImageFault(f"its {suffix} file is no text in UTF-8, or larger than {_MAX_TEXT_BYTES:,} bytes")
        metadata[kind] = text
    return metadata


def _text(file: Bytes, offset: int, length: int) -> str | None:
    if length > _MAX_TEXT_BYTES:
        return None
    try:
        return file.pread(length, offset).decode("utf-8")
    except UnicodeDecodeError:
        return None


def _id(path: str, number: int | None) -> str:
    """Return the id of an image: its file's name, eight hex digits for its path, and its number in a tar.

    The id contains no dot, so that it can be the key of a sample.
    """
    return _name_of(path) if number is None else f"{_name_of(path)}_{number:06d}"


@lru_cache(maxsize=16)  # called for every image of a tar
def _name_of(path: str) -> str:
    stem = os.path.splitext(os.path.basename(path))[0].encode("utf-8", "replace").decode().replace(".", "_")
    return f"{stem}-{hashlib.blake2b(os.fsencode(path), digest_size=4).hexdigest()}"
