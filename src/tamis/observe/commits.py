"""The commit log of a run: the files of each partition, and the partitions that cover a position of the input.

Reads only, and trusts nothing: lines that are no commits are skipped, where the engine, which writes the log, refuses
them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tamis.engine.schema import CommittedFile, FileKind, SamplingSteps, read_fields
from tamis.formats.hive import name_in_output


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
        head, separator, rest = line.partition(b',"files":')
        files, ends, _ = rest.partition(b',"ledger":')
        if separator and ends:
            try:
                yield Commit(int(json.loads(head + b"}")["step"]), _files(json.loads(files)))
            except (ValueError, KeyError, TypeError, RecursionError):
                continue


def commits_at(folder: Path, file: int, offset: int) -> Iterator[Commit]:
    """Yield the commits of the partitions (one per sampling step) that contain an input position."""
    for line in _lines(folder):
        head, separator, _ = line.partition(b',"files":')  # what it covers precedes the long rest
        try:
            cover = json.loads(head + b"}").get("cover", ()) if separator else ()
            if any(f == file and start <= offset < end for f, start, end, _ in cover):
                record = json.loads(line)
                consumed = sum(int(b["consumed"][0]) for b in record["ledger"]["stages"])
                yield Commit(int(record["step"]), _files(record["files"]), consumed)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
            continue


def covers(folder: Path) -> Iterator[tuple[int, int, int, int]]:
    """Yield all committed ranges as (sampling step, file, first position, position after the last)."""
    for line in _lines(folder):
        head, separator, _ = line.partition(b',"files":')
        try:
            record = json.loads(head + b"}") if separator else {}
            covered = [(int(record["step"]), int(f), int(a), int(b)) for f, a, b, _ in record.get("cover", ())]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue
        yield from covered


def steps_of(folder: Path) -> list[float]:
    """Return the upper ends of the sampling steps of a run; one step of all documents if they cannot be read."""
    try:
        return read_fields(SamplingSteps, json.loads((folder / "steps.json").read_bytes())).steps or [1.0]
    except (OSError, ValueError, TypeError):
        return [1.0]


def commit_of(folder: Path, name: str) -> Commit | None:
    """Return the commit of a file that a partition was written to."""
    return next((c for c in commits(folder) if any(f.name == name for f in c.of(FileKind.OUTPUT))), None)


def written_row(folder: Path, output_name: str, row: int) -> tuple[str, int] | None:
    """Return the file of a partition, and the row in it, that a row of an output file was written to first.

    Files are replaced by others with the same rows in the same order when they get one schema, or another size. None
    where rows were put in another order: into folders by fields.
    """
    rows: dict[str, int] = {}
    reordered: set[str] = set()
    replaced: dict[str, tuple[list[str], int]] = {}  # by the name of a new file: the old ones, and rows before it
    for line in _lines(folder):
        try:
            record = json.loads(line)
            new = _files(record["files"])
            n_before = 0
            for file in new:
                rows[file.name] = file.rows
                if record["t"] == "replace":
                    if record.get("content") is not None:
                        reordered.add(file.name)
                    replaced[file.name] = [name_in_output(str(name)) for name in record["old"]], n_before
                n_before += file.rows
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
    name = output_name
    while name in replaced:
        if name in reordered:
            return None
        olds, n_before = replaced.pop(name)
        row += n_before
        for name in olds:
            if row < rows.get(name, 0):
                break
            row -= rows.get(name, 0)
    return name, row


def _files(entries: list[dict[str, Any]]) -> tuple[CommittedFile, ...]:
    return tuple(f._replace(name=name_in_output(f.name)) for f in map(CommittedFile.from_dict, entries))


def _lines(folder: Path) -> Iterator[bytes]:
    """Yield the records as JSON; a line of the log is a checksum of eight digits, a space, and the record."""
    try:
        with open(folder / "commit.log", "rb") as log:
            for line in log:
                yield line[9:]
    except OSError:
        return
