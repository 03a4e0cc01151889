"""The commit log of a run: the files of each partition, and the partitions that cover a position of the input.

Reads only, and trusts nothing: lines that are no commits are skipped, where the engine, which writes the log, refuses
them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tamis.engine.schema import CommittedFile, FileKind, SamplingSteps, read_fields

_REWRITTEN = re.compile(r"\.r([0-9]*|-[0-9a-f]{8})(?=\.[^.]+$)")


@dataclass(frozen=True)
class Commit:
    """One partition of one sampling step, its files in the order of the input."""

    step: int
    files: tuple[CommittedFile, ...]
    n_consumed: int = 0  # documents that stages replaced by others; known where the whole record was asked for

    def of(self, kind: FileKind) -> list[CommittedFile]:
        return [f for f in self.files if f.kind == kind]


def commits(folder: Path) -> Iterator[Commit]:
    """Yield all commits, without their ledgers."""
    for line in _lines(folder):
        head, found, rest = line.partition(b',"files":')
        files, ends, _ = rest.partition(b',"ledger":')
        if found and ends:
            try:
                yield Commit(int(json.loads(head + b"}")["step"]), _files(json.loads(files)))
            except (ValueError, KeyError, TypeError, RecursionError):
                continue


def commits_at(folder: Path, file: int, offset: int) -> Iterator[Commit]:
    """Yield the commits of the partitions (one per sampling step) that contain an input position."""
    for line in _lines(folder):
        head, found, _ = line.partition(b',"files":')  # what it covers stands before the long rest
        try:
            cover = json.loads(head + b"}").get("cover", ()) if found else ()
            if any(f == file and start <= offset < end for f, start, end, _ in cover):
                record = json.loads(line)
                consumed = sum(int(b["consumed"][0]) for b in record["ledger"]["stages"])
                yield Commit(int(record["step"]), _files(record["files"]), consumed)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
            continue


def covers(folder: Path) -> Iterator[tuple[int, int, int, int]]:
    """Yield all committed ranges as (sampling step, file, first position, position after the last)."""
    for line in _lines(folder):
        head, found, _ = line.partition(b',"files":')
        try:
            record = json.loads(head + b"}") if found else {}
            told = [(int(record["step"]), int(f), int(a), int(b)) for f, a, b, _ in record.get("cover", ())]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue
        yield from told


def steps_of(folder: Path) -> list[float]:
    """Return the upper ends of the sampling steps of a run; one step of all documents if they cannot be read."""
    try:
        return read_fields(SamplingSteps, json.loads((folder / "steps.json").read_bytes())).steps or [1.0]
    except (OSError, ValueError, TypeError):
        return [1.0]


def commit_of(folder: Path, output_name: str) -> Commit | None:
    """Return the commit of an output file, also under the name it got when all files were converted to one schema."""
    name = first_name(output_name)
    return next((c for c in commits(folder) if any(f.name == name for f in c.of(FileKind.OUTPUT))), None)


def first_name(output_name: str) -> str:
    """Return the name that an output file had before it was rewritten, here or in a bucket.

    >>> first_name("part-1.r.parquet"), first_name("part-1.r2.arrow")
    ('part-1.parquet', 'part-1.arrow')
    >>> first_name("part-1.r-0a1b2c3d.parquet"), first_name("part-1.parquet")
    ('part-1.parquet', 'part-1.parquet')
    """
    return _REWRITTEN.sub("", output_name)


def _files(found: list[dict[str, Any]]) -> tuple[CommittedFile, ...]:
    return tuple(replace(f, name=os.path.basename(f.name)) for f in map(CommittedFile.from_dict, found))


def _lines(folder: Path) -> Iterator[bytes]:
    """Yield the records as JSON; a line of the log is a checksum of eight digits, a space, and the record."""
    try:
        with open(folder / "commit.log", "rb") as log:
            for line in log:
                yield line[9:]
    except OSError:
        return
