"""Format of videos, one document per file: a row with its location and metadata (video/facts.py).

No image is decoded and no bytes of the video are in the row. A file that is no video, has no frames or is cut short is
a fault of the file, which goes to quarantine with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa

from tamis.formats.base import RowsFault
from tamis.formats.table_block import row_bytes
from tamis.formats.table_files import OneRowPerFile
from tamis.stores.opening import size_of
from tamis.stores.urls import absolute, path_text
from tamis.video.facts import read_facts
from tamis.video.opening import VideoFault

_SCHEMA = pa.schema(
    [
        ("path", pa.large_string()),
        ("size_bytes", pa.int64()),
        ("duration_s", pa.float64()),
        ("n_frames", pa.int64()),
        ("fps", pa.float64()),
        ("is_variable_rate", pa.bool_()),
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("pixel_aspect", pa.float64()),
        ("codec", pa.large_string()),
        ("pixel_format", pa.large_string()),
        ("bit_rate_k", pa.int64()),
        ("audio_codec", pa.large_string()),
    ]
)
_ROW_BYTES = 1024  # of one row, about


def _row(path: str, names: Sequence[str]) -> dict[str, Any]:
    try:
        return {"path": path_text(absolute(path)), **asdict(read_facts(path))}
    except VideoFault as exc:
        raise RowsFault(0, str(exc), 1) from exc


def stored_bytes(table: pa.Table) -> np.ndarray[Any, Any]:
    """Return the bytes of the video of each row: a run reads these, not the row."""
    if "size_bytes" in table.column_names:
        return np.asarray(table["size_bytes"].to_numpy(), np.int64)
    return row_bytes(table)


TableWriter = None
_files = OneRowPerFile(_SCHEMA, _row, lambda path, file_bytes: _ROW_BYTES, size_of)
describe, read_schema, iter_rows = _files.describe, _files.read_schema, _files.iter_rows
