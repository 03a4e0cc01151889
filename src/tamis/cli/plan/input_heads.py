"""The beginnings of input files, copied as files of their own: what `tamis plan` and `tamis profile` try a recipe on.

Runs as a process of its own (trial.py starts it), because it needs pyarrow and the process that asks is measured as
part of the budget.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from tamis.errors import FormatError
from tamis.formats.compression.codecs import codec_of
from tamis.formats.compression.ratios import ratio_of
from tamis.formats.compression.source import StreamFault
from tamis.formats.compression.streams import StreamReader, StreamWriter
from tamis.formats.registry import (
    CODEC_SUFFIXES,
    is_read_whole,
    reads_rows,
    record_format,
    record_name,
    suffixes,
    table_format,
)
from tamis.stores.opening import open_buffered, size_of

RECORD_SUFFIXES = tuple(s + c for s in suffixes("warc") for c in reversed(CODEC_SUFFIXES))
_CHUNK = 1 << 20
_WHOLE_BYTES = 64_000_000  # of one file that is copied whole
_LEAST_BYTES = 64_000  # of one file that a recipe is tried on
_ENDLESS_BYTES = 64 << 20  # of one line


def take(
    paths: Sequence[str], folder: str, n_bytes: int, formats: Sequence[str] = (), packed: bool = False
) -> list[dict[str, Any]]:
    """Copy about `n_bytes` decoded bytes of all files together: the same share of each, and not much less than 64 kB.

    Of each file: its `copy` ("": no record ends in what was read), the `n_bytes` in it and the `ratio` of decoded to
    stored bytes, or the `error`. `formats`: of the reader.

    `packed`: compressed files stay compressed, if their decoding is measured, too; their ratio is not known, and
    what one file lacks is taken of those that follow, until there is enough.
    """
    copies: list[dict[str, Any]] = []
    total = 0
    for i, path in enumerate(paths):
        share = max((n_bytes - total) // (len(paths) - i), 1) if packed else max(n_bytes // len(paths), _LEAST_BYTES)
        stem = os.path.join(folder, f"part-{i:04d}")
        try:
            if is_read_whole(formats):
                if packed and total >= n_bytes:
                    break
                copy, n, ratio = _whole(path, stem, packed)
            else:
                copier = _rows if reads_rows(path, formats) else _records if record_name(path) else _lines
                copy, n, ratio = copier(path, stem, share, packed)
        except (OSError, ValueError, FormatError) as exc:  # pyarrow's errors are ValueErrors
            copies.append({"path": path, "error": str(exc)[:200]})
            continue
        copies.append({"path": path, "copy": copy if n else "", "n_bytes": n, "ratio": ratio})
        total += n
    return copies


def _whole(path: str, stem: str, packed: bool) -> tuple[str, int, float]:
    """Copy a whole file that is one document, or many in one archive; also a remote one."""
    if not packed and size_of(path) > _WHOLE_BYTES:
        raise ValueError(f"{path} is too large to be tried on")
    copy = f"{stem}-{os.path.basename(path)}"
    with open_buffered(path) as source, open(copy, "wb") as target:
        shutil.copyfileobj(source, target)
    return copy, os.path.getsize(copy), 1.0


def _records(path: str, stem: str, n_bytes: int, packed: bool) -> tuple[str, int, float]:
    """Copy the records at the beginning of a file as they are stored; all of one that is a single member."""
    records, suffix = record_format(path), next(s for s in RECORD_SUFFIXES if path.lower().endswith(s))
    assert records is not None
    total, cut, size = 0, 0, size_of(path)
    with open_buffered(path) as source:
        scan = records.scan(source, path, _ENDLESS_BYTES)
        for frame in scan:
            if total >= n_bytes and frame.offset > 0:
                cut = frame.offset
                break
            total += frame.n_bytes
        if not cut and size > _WHOLE_BYTES:
            raise ValueError(f"{path} is one compressed member, too large to be tried on")
        source.seek(0)
        with open(stem + suffix, "wb") as target:
            n_remaining = cut or size
            while n_remaining and (data := source.read(min(n_remaining, _CHUNK))):
                target.write(data)
                n_remaining -= len(data)
    return stem + suffix, total, total / max(1, cut or size)


def _lines(path: str, stem: str, n_bytes: int, packed: bool) -> tuple[str, int, float]:
    codec = codec_of(path)
    copy = f"{stem}.jsonl" + (f".{codec}" if packed and codec else "")
    total, ratio = 0, 1.0
    with StreamReader.open(path) as reader, StreamWriter(copy, codec if packed else None) as out:
        for lines in _whole_lines(reader, n_bytes):
            total += out.write(lines)
        if codec and not packed:
            ratio = ratio_of(reader, size_of(path))
    return copy, total, ratio


def _whole_lines(reader: StreamReader, n_bytes: int) -> Iterator[bytes]:
    """Yield about `n_bytes` of whole lines from the beginning, and at least one line.

    Data that cannot be decoded ends the output, and so does a single endless line.
    """
    total, pending, data = 0, b"", b"."
    while data and total < n_bytes and len(pending) <= _ENDLESS_BYTES:
        try:
            data = reader.read(_CHUNK)
        except StreamFault:
            return
        pending += data
        end = pending.rfind(b"\n") + 1 if data else len(pending)  # the last line may lack its line feed
        if total + end > n_bytes:
            end = pending.rfind(b"\n", 0, max(n_bytes - total, pending.find(b"\n") + 1)) + 1 or end
            data = b""
        yield pending[:end]
        total, pending = total + end, pending[end:]


def _rows(path: str, stem: str, n_bytes: int, packed: bool) -> tuple[str, int, float]:
    """Copy rows from the beginning, in groups of about the file's own size."""
    import pyarrow as pa

    from tamis.formats.parquet import format as parquet

    rows = table_format(path)
    info = rows.describe(path)
    tables, total = [], 0
    for _, table in rows.iter_rows(path, 0, info.n_rows, batch_bytes=_CHUNK, max_rows=256):
        tables.append(table)
        total += table.nbytes
        if total >= n_bytes:
            break
    copy = f"{stem}.parquet"
    group = max(1, info.row_groups[0].n_rows if info.row_groups else 1)
    parquet.write_table(pa.concat_tables(tables) if tables else pa.table({}), copy, row_group_size=group)
    return copy, total, info.estimated_bytes / max(info.file_bytes, 1)


if __name__ == "__main__":
    json.dump(take(**json.load(sys.stdin)), sys.stdout)
