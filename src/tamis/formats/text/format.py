"""Plain text, one document per file, plain or compressed: a table of one row with the columns `text` and `file_name`.

Memory: one file. Text that is not UTF-8 is a fault of the file, which goes to quarantine as a whole.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import pyarrow as pa

from tamis.formats.base import RowsFault
from tamis.formats.compression.codecs import codec_of
from tamis.formats.compression.source import StreamFault
from tamis.formats.compression.streams import StreamReader
from tamis.formats.table_files import OneRowPerFile
from tamis.stores.opening import size_of

_SCHEMA = pa.schema([("text", pa.large_string()), ("file_name", pa.large_string())])
_READ_BYTES = 1 << 20
_EXPANSION = 4  # of compressed text, about


def _row(path: str, names: Sequence[str]) -> dict[str, str]:
    name = os.path.basename(path).encode("utf-8", "replace").decode()
    return {"file_name": name, "text": _text(path)} if "text" in names else {"file_name": name}


def _row_bytes(path: str, file_bytes: int) -> int:
    return file_bytes if codec_of(path) is None else file_bytes * _EXPANSION


def _text(path: str) -> str:
    try:
        with StreamReader.open(path) as stream:
            data = b"".join(iter(lambda: stream.read(_READ_BYTES), b""))
        return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8")
    except UnicodeDecodeError as exc:
        raise RowsFault(0, f"not UTF-8 at byte {exc.start}", 1) from None
    except StreamFault as exc:
        raise RowsFault(0, str(exc), 1) from exc


TableWriter = None
_files = OneRowPerFile(_SCHEMA, _row, _row_bytes, size_of)
describe, read_schema, iter_rows = _files.describe, _files.read_schema, _files.iter_rows
