"""Plain text, one document per file, plain or compressed: a table of one row with the columns `text` and `file_name`.

Memory: one file. Text that is not UTF-8 is a fault of the file, which goes to quarantine as a whole.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import pyarrow as pa

from tamis.formats.base import BATCH_BYTES, MAX_BATCH_ROWS, RowGroup, RowsFault, TableInfo
from tamis.formats.compression.stream_fault import StreamFault
from tamis.formats.compression.streams import StreamReader, codec_of
from tamis.formats.table_files import counted
from tamis.stores.opening import size_of

TableWriter = None
_COLUMNS = ("text", "file_name")
_READ_BYTES = 1 << 20
_EXPANSION = 4  # of compressed text, about


def describe(path: str | os.PathLike[str]) -> TableInfo:
    size = size_of(path)
    decoded = size if codec_of(os.fspath(path)) is None else size * _EXPANSION
    return TableInfo(1, [RowGroup(0, 1, decoded)], [(name, "large_string") for name in _COLUMNS], size)


def read_schema(path: str | os.PathLike[str]) -> pa.Schema:
    return pa.schema([(name, pa.large_string()) for name in _COLUMNS])


def iter_rows(
    path: str | os.PathLike[str],
    first_row: int,
    end_row: int,
    columns: Sequence[str] | None = None,
    batch_bytes: int = BATCH_BYTES,
    max_rows: int = MAX_BATCH_ROWS,
) -> Iterator[tuple[int, pa.Table]]:
    if first_row > 0 or end_row < 1:
        return
    wanted = _COLUMNS if columns is None else [name for name in columns if name in _COLUMNS]
    if not wanted:
        yield from counted(0, 1)
        return
    values = {}
    if "text" in wanted:
        values["text"] = _text(os.fspath(path))
    if "file_name" in wanted:
        values["file_name"] = os.path.basename(os.fspath(path)).encode("utf-8", "replace").decode()
    yield 0, pa.table({name: pa.array([values[name]], pa.large_string()) for name in wanted})


def _text(path: str) -> str:
    try:
        with StreamReader.open(path) as stream:
            data = b"".join(iter(lambda: stream.read(_READ_BYTES), b""))
        return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8")
    except UnicodeDecodeError as exc:
        raise RowsFault(0, f"not UTF-8 at byte {exc.start}", 1) from None
    except StreamFault as exc:
        raise RowsFault(0, str(exc), 1) from exc
