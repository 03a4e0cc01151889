"""The first MB of some input files, copied as files of their own: what `tamis plan` tries a recipe on.

Runs as a process of its own (`python -m tamis.cli.plan.first_megabytes`, JSON on stdin and stdout), because it needs pyarrow and the
planning process is measured as part of the budget.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence
from typing import Any

from tamis.errors import FormatError
from tamis.formats.compression.streams import StreamFault, StreamReader, codec_of
from tamis.formats.registry import is_read_whole, reads_rows
from tamis.stores.opening import open_buffered, size_of

_RATIO_BYTES = 4_000_000
_WHOLE_BYTES = 64_000_000  # of one file that is copied whole


def copy_heads(paths: list[str], folder: str, n_bytes: int, formats: Sequence[str] = ()) -> list[dict[str, Any]]:
    """For each file that can be read: its copy, and how many decoded bytes one byte of the file holds. `formats`: of the reader."""
    share = max(n_bytes // max(len(paths), 1), 64_000)
    heads = []
    for i, path in enumerate(paths):
        try:
            if is_read_whole(formats):
                made = _whole(path, folder, i)
            else:
                made = (_rows if reads_rows(path, formats) else _jsonl)(path, folder, i, share)
        except (OSError, ValueError, FormatError) as exc:  # pyarrow's errors are ValueErrors
            heads.append({"path": path, "error": str(exc)[:200]})
            continue
        heads.append({"path": path, **made})
    return heads


def _whole(path: str, folder: str, i: int) -> dict[str, Any]:
    """A file that is one document, or many in one archive, as it is."""
    if size_of(path) > _WHOLE_BYTES:
        raise ValueError(f"{path} is too large to be tried on")
    copy = copied_whole(path, os.path.join(folder, f"head-{i:03d}-{os.path.basename(path)}"))
    return {"head": copy, "ratio": 1.0}


def copied_whole(path: str, copy: str) -> str:
    """A file as it is, also one that lies elsewhere; returns the name of the copy."""
    with open_buffered(path) as source, open(copy, "wb") as target:
        shutil.copyfileobj(source, target)
    return copy


def _jsonl(path: str, folder: str, i: int, n_bytes: int) -> dict[str, Any]:
    parts, total = [], 0
    ended = False
    with StreamReader.open(path) as reader:
        try:
            while total < n_bytes and not ended:
                data = reader.read(min(n_bytes - total, 1 << 20))
                parts.append(data)
                total += len(data)
                ended = not data
            ratio = 1.0 if codec_of(path) is None else _ratio(reader, total, size_of(path))
        except StreamFault:
            ratio = total / max(reader.compressed_offset, 1)
    data = b"".join(parts)
    end = len(data) if ended else data.rfind(b"\n") + 1
    copy = os.path.join(folder, f"head-{i:03d}.jsonl")
    with open(copy, "wb") as file:
        file.write(data[:end])
    return {"head": copy if end else "", "ratio": ratio}


def _ratio(reader: StreamReader, n_read: int, size_bytes: int) -> float:
    """Decoded bytes per compressed byte. The reader is some 100 kB ahead of what it gave, so a few MB are looked at."""
    while reader.compressed_offset < _RATIO_BYTES and (data := reader.read(1 << 20)):
        n_read += len(data)
    return n_read / min(reader.compressed_offset, size_bytes)


def _rows(path: str, folder: str, i: int, n_bytes: int) -> dict[str, Any]:
    from tamis.formats.parquet import format as parquet

    table, total, info = first_rows(path, n_bytes, max_rows=256)
    copy = os.path.join(folder, f"head-{i:03d}.parquet")
    parquet.write_table(table, copy)
    decoded = sum(group.decoded_bytes for group in info.row_groups)
    return {"head": copy if total else "", "ratio": decoded / max(info.file_bytes, 1)}


def first_rows(path: str, n_bytes: int, max_rows: int = 1 << 17) -> tuple[Any, int, Any]:
    """Rows from the beginning of a file, about `n_bytes` decoded: a table, its bytes, and what the file tells of itself."""
    import pyarrow as pa

    from tamis.formats.registry import table_format

    rows = table_format(path)
    info = rows.describe(path)
    tables, total = [], 0
    for _, table in rows.iter_rows(path, 0, info.n_rows, batch_bytes=1 << 20, max_rows=max_rows):
        tables.append(table)
        total += table.nbytes
        if total >= n_bytes:
            break
    return pa.concat_tables(tables) if tables else pa.table({}), total, info


def main() -> None:
    asked = json.load(sys.stdin)
    json.dump(copy_heads(asked["paths"], asked["folder"], int(asked["n_bytes"]), asked.get("formats", ())), sys.stdout)


if __name__ == "__main__":
    main()
