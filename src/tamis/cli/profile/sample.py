"""A part of the input, in the same formats: what `tamis profile` runs a recipe on.

Runs as a process of its own (`python -m tamis.cli.profile.sample`, JSON on stdin and stdout), because it needs pyarrow. Files are taken
evenly from the whole list, the beginning of each; compressed files stay compressed, for their decoding is part of what is measured.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import sys
from collections.abc import Sequence
from typing import Any

from tamis.cli.plan.first_megabytes import copied_whole, first_rows
from tamis.errors import FormatError
from tamis.formats.compression.streams import StreamFault, StreamReader, codec_of
from tamis.formats.registry import is_read_whole, reads_rows

_MAX_FILES = 64
_CHUNK = 1 << 20


def take(paths: list[str], sizes: list[int], folder: str, n_bytes: int, formats: Sequence[str] = ()) -> dict[str, Any]:
    """Copy about `n_bytes` decoded bytes; `formats`: of the reader. Files that cannot be read are left out."""
    readable = [(p, s) for p, s in zip(paths, sizes, strict=True) if s > 0]
    step = max(1, len(readable) // _MAX_FILES)
    chosen = readable[::step][:_MAX_FILES]
    made: list[str] = []
    total, error = 0, ""
    for i, (path, _) in enumerate(chosen):
        share = max((n_bytes - total) // (len(chosen) - i), 1)
        try:
            if is_read_whole(formats):
                if total >= n_bytes:
                    break
                copy, n = _whole(path, folder, i)
            else:
                copy, n = (_rows if reads_rows(path, formats) else _lines)(path, folder, i, share)
        except (OSError, ValueError, FormatError) as exc:  # pyarrow's errors are ValueErrors
            error = error or f"{path}: {exc}"
            continue
        if n:
            made.append(copy)
            total += n
    return {"paths": made, "decoded_bytes": total, "error": error[:300]}


def _whole(path: str, folder: str, i: int) -> tuple[str, int]:
    copy = copied_whole(path, os.path.join(folder, f"sample-{i:04d}-{os.path.basename(path)}"))
    return copy, os.path.getsize(copy)


def _lines(path: str, folder: str, i: int, n_bytes: int) -> tuple[str, int]:
    """Whole lines from the beginning, compressed as the file is."""
    codec = codec_of(path)
    copy = os.path.join(folder, f"sample-{i:04d}.jsonl" + (f".{codec}" if codec else ""))
    total = 0
    with StreamReader.open(path) as reader, _open(codec, copy) as out:
        kept = b""
        while True:
            try:
                data = reader.read(_CHUNK)
            except StreamFault:
                break
            if not data:
                out.write(kept)  # the last line may lack its line feed
                total += len(kept)
                break
            kept += data
            end = kept.rfind(b"\n") + 1
            if end and (total + end >= n_bytes or end >= _CHUNK):
                if total + end > n_bytes:  # not much more than asked for
                    end = kept.rfind(b"\n", 0, max(n_bytes - total, kept.find(b"\n") + 1)) + 1
                out.write(kept[:end])
                total += end
                kept = kept[end:]
                if total + 1 >= n_bytes or len(kept) > _CHUNK:
                    break
            if len(kept) > 64 * _CHUNK:  # one endless line
                break
    return copy, total


def _open(codec: str | None, path: str) -> Any:
    if codec is None:
        return open(path, "wb")
    if codec == "gz":
        return gzip.open(path, "wb", compresslevel=3)
    if codec == "bz2":
        return bz2.open(path, "wb", compresslevel=3)
    if codec == "xz":
        return lzma.open(path, "wb", preset=1)
    from tamis.formats.compression.zstd import ZstdFile

    return ZstdFile(path, "wb", level=3)


def _rows(path: str, folder: str, i: int, n_bytes: int) -> tuple[str, int]:
    """Rows from the beginning, in groups of about the file's own size."""
    from tamis.formats.parquet import format as parquet

    copy = os.path.join(folder, f"sample-{i:04d}.parquet")
    table, total, info = first_rows(path, n_bytes)
    n_rows = max(1, info.row_groups[0].n_rows if info.row_groups else 1)
    parquet.write_table(table, copy, row_group_size=n_rows)
    return copy, total


def main() -> None:
    asked = json.load(sys.stdin)
    json.dump(
        take(asked["paths"], asked["sizes"], asked["folder"], int(asked["n_bytes"]), asked.get("formats", ())),
        sys.stdout,
    )


if __name__ == "__main__":
    main()
