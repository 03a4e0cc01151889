"""Names of committed files, and which folder they go to. Pure; the same for a local output and one in a bucket."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

from tamis.engine.messages import StagedFile
from tamis.engine.schema import FileKind
from tamis.engine.supervisor.actions import CommitPartition, ReplaceFiles
from tamis.engine.units import part_suffix
from tamis.errors import RunConflict
from tamis.formats.hive import is_partitioned


def check_name(name: Any) -> str:
    """Return `name` if it is the name of a file in the output folder, or in folders of `partition_by` there.

    Raise RunConflict otherwise: a format's own file extension, or a log that was written by someone else, must not
    cause files to be written or removed anywhere else.
    """
    if (
        not isinstance(name, str)
        or name.rpartition("/")[2] in ("", os.curdir, os.pardir)
        or ("/" in name and not is_partitioned(name))
        or "\0" in name
        or "\\" in name
    ):
        raise RunConflict(f"{name!r} is no name of a file in an output: it would lie elsewhere")
    return name


def folder_of(kind: FileKind, quarantine: str) -> str:
    """Return the folder for files that are not output: quarantine/, verdicts/, scores/ and rejected/ are siblings."""
    return os.path.join(os.path.dirname(quarantine), kind)


def in_order(files: list[StagedFile]) -> list[StagedFile]:
    """Return the files with outputs first, in the order of the input."""
    return sorted(files, key=lambda f: (f.kind is not FileKind.OUTPUT, f.place or ()))


def numbered(files: list[StagedFile]) -> Iterator[tuple[StagedFile, int]]:
    """Yield each file with a number that distinguishes it from others of its kind.

    A partition that goes through several segments, or was cut after the first, has verdicts, quarantined records
    and outputs of several units. Files that a unit wrote together share a number.
    """
    by_kind: dict[str, list[str]] = {}
    for file in files:
        kind, unit = file.kind, ".".join(os.path.basename(file.path).split(".")[:2])
        unit_numbers = by_kind.setdefault(kind, [])
        is_own = kind is FileKind.OUTPUT and not file.belongs  # what belongs to the file before it shares its name
        if is_own or unit not in unit_numbers:
            unit_numbers.append(unit)
        yield file, len(unit_numbers) - 1 if kind is FileKind.OUTPUT else unit_numbers.index(unit)


def name_of(job: CommitPartition, file: StagedFile, index: int) -> str:
    """Return a name that sorts in input order and depends only on the range: file number, offset, sampling step."""
    # Other files have their own names, as the table of committed files goes by name, and their own place in the
    # partition.
    if file.kind is FileKind.OUTPUT:
        name = f"part-{job.first.file:06d}-{job.first.start:015d}"
    else:
        number, start = file.place[:2] if file.place is not None else (job.first.file, job.first.start)
        name = f"{file.kind}-{number:06d}-{start if file.at is None else file.at:015d}"
    if job.sampling_step:
        name += f"-s{job.sampling_step}"
    return check_name(f"{name}{part_suffix(index)}.{file.extension}")


def replacement_names(job: ReplaceFiles) -> list[str]:
    """Return the names of the files that replace others; they differ from the old names, as both exist for a moment."""
    if job.names:
        return list(job.names)
    names = [rewritten_name(job.old[0], job.files[0].extension)]
    return names + [cut_name(job.old[0], i, file.extension) for i, file in enumerate(job.files[1:], 1)]


def cut_name(old: str, number: int, extension: str) -> str:
    """Return the name of a further part of a file that is cut.

    >>> cut_name("part-000001-000000000000000.jsonl.gz", 2, "jsonl.gz")
    'part-000001-000000000000000.c2.jsonl.gz'
    """
    return f"{old.removesuffix(f'.{extension}')}.c{number}.{extension}"


_REWRITTEN = re.compile(r"\.r([0-9]*)$")


def rewritten_name(old: str, extension: str) -> str:
    """Return the name for a local file that replaces another one of the output.

    It always differs from the old name, as both files exist for a moment.

    >>> [rewritten_name(old, "parquet") for old in ("part-1.parquet", "part-1.r.parquet", "part-1.r2.parquet")]
    ['part-1.r.parquet', 'part-1.r2.parquet', 'part-1.r3.parquet']
    """
    base = old.removesuffix(f".{extension}")
    match = _REWRITTEN.search(base)
    number = "" if match is None else str(int(match[1] or 1) + 1)
    return f"{base if match is None else base[: match.start()]}.r{number}.{extension}"
