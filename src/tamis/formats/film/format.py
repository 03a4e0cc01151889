"""Films, one document per file: a table of one row that says where the film lies and what its header and packets tell (film/facts.py).

No picture is decoded and no bytes of the film are in the row. A file that is no film, has no frames or is cut short is a fault of
the file, which goes to quarantine with the reason.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict

import pyarrow as pa

from tamis.film.facts import read_facts
from tamis.film.opening import FilmFault
from tamis.formats.base import BATCH_BYTES, MAX_BATCH_ROWS, RowGroup, RowsFault, TableInfo
from tamis.formats.input_files.names import path_text
from tamis.formats.table_files import counted

TableWriter = None
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


def describe(path: str | os.PathLike[str]) -> TableInfo:
    size = os.path.getsize(path)
    return TableInfo(1, [RowGroup(0, 1, _ROW_BYTES)], [(f.name, str(f.type)) for f in _SCHEMA], size)


def read_schema(path: str | os.PathLike[str]) -> pa.Schema:
    return _SCHEMA


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
    wanted = [f for f in _SCHEMA if columns is None or f.name in columns]
    if not wanted:
        yield from counted(0, 1)
        return
    try:
        facts = {"path": path_text(os.path.abspath(os.fspath(path))), **asdict(read_facts(os.fspath(path)))}
    except FilmFault as exc:
        raise RowsFault(0, str(exc), 1) from exc
    yield 0, pa.table({f.name: pa.array([facts[f.name]], f.type) for f in wanted})
