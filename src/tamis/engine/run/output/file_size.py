"""Output files of a size: which committed files are cut, and which follow each other in one file. Pure.

Partitions follow from the budget and from measured rates, so their files must not show in the result. What counts is
the position of a document in the whole output, in bytes of its records before compression: of n = ceil(total / target)
files, a document that begins at byte s belongs to number s // ceil(total / n). Files that hold the beginnings of
two are cut first (each is replaced by its parts in one record of the commit log), then those of one file are joined (in
one record, too). At every moment the log names each document once; after a crash the same plan, made of the log,
continues where it stopped. Sampling steps are files apart.

Files for the values of fields (`partition_by`) are made before: neighbouring files together are replaced by one file
for each value. Then the same is done for each value by itself, whose documents become files in its folder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

from tamis.engine.schema import CommitOrReplace, CommittedFile, FileKind, ReplaceRecord
from tamis.engine.units import Regroup, Rewrite
from tamis.formats.hive import Values

_PLACE = re.compile(r"part-([0-9]+)-([0-9]+)")
_MIN_DIGITS = 5
# Bytes of the files that become files by value together: every group has one for each value that occurs in it.
_PARTITIONED_BYTES, _MAX_PARTITIONED_BYTES, _N_PARTITIONED = 512 << 20, 2 << 30, 8
_JOINED_BYTES, _MAX_JOINED = 16 << 20, 256  # of values that are joined together


class OutputPart(NamedTuple):
    """An output file, with its sampling step and its position: `start` counts the bytes of records of its step."""

    sampling_step: int
    start: int
    file: CommittedFile

    @property
    def end(self) -> int:
        return self.start + (self.file.data_bytes or 0)


def output_parts(records: Iterable[CommitOrReplace]) -> list[OutputPart]:
    """Return the current output files of a commit log in the order of the input, step by step."""
    order: dict[str, tuple[int, ...]] = {}  # step, then numbers that sort
    files: dict[str, CommittedFile] = {}
    for record in records:
        if isinstance(record, ReplaceRecord):
            first = min(order.pop(name) for name in record.old)
            for name in record.old:
                del files[name]
            base = first
        else:
            base = (record.sampling_step,)
        for i, file in enumerate(f for f in record.files if f.kind is FileKind.OUTPUT):
            order[file.name] = (*base, *_place_of(file.name, base), i)
            files[file.name] = file
    parts: list[OutputPart] = []
    for name in sorted(order, key=order.__getitem__):
        step = order[name][0]
        start = parts[-1].end if parts and parts[-1].sampling_step == step else 0
        parts.append(OutputPart(step, start, files[name]))
    return parts


def _place_of(name: str, base: tuple[int, ...]) -> tuple[int, ...]:
    """Return the input position in the name of a partition's file; nothing for a file that replaces others."""
    match = _PLACE.match(name) if len(base) == 1 else None
    return () if match is None else (int(match[1]), int(match[2]))


def plan_partitions(parts: Sequence[OutputPart], partition_by: Sequence[str], folder: str) -> list[Rewrite]:
    """Return the files to replace by one for each value of the fields, as far as that has not been done."""
    work = []
    for of_step in _by_step(parts):
        most = min(max(_PARTITIONED_BYTES, of_step[-1].end // _N_PARTITIONED), _MAX_PARTITIONED_BYTES)
        groups: dict[int, list[CommittedFile]] = {}
        for part in of_step:
            if part.file.partition is None:
                groups.setdefault(part.start // most, []).append(part.file)
        for group in groups.values():
            rewrite = _rewrite(group, folder)
            work.append(replace(rewrite, regroups=[replace(rewrite.regroups[0], partition_by=list(partition_by))]))
    return work


def by_partition(parts: Sequence[OutputPart]) -> dict[Values, list[OutputPart]]:
    """Return the parts of each value, with their positions among the documents of that value and step."""
    grouped: dict[str, list[OutputPart]] = {}
    for part in parts:
        of_value = grouped.setdefault(part.file.partition or "[]", [])
        start = of_value[-1].end if of_value and of_value[-1].sampling_step == part.sampling_step else 0
        of_value.append(part._replace(start=start))
    return {tuple(json.loads(value)): of_value for value, of_value in grouped.items()}


def plan_cuts(parts: Sequence[OutputPart], target_bytes: int, folder: str) -> list[Rewrite]:
    """Return the files to cut."""
    work = []
    for of_step in _by_step(parts):
        size = _file_bytes(of_step, target_bytes)
        for part in of_step:
            first = -(-(part.start + 1) // size) * size
            cuts = [cut - part.start for cut in range(first, part.end, size)]
            if cuts and not part.file.is_sized:
                work.append(_rewrite([part.file], folder, cuts=cuts))
    return work


def plan_joins(
    parts: Sequence[OutputPart], target_bytes: int, folder: str, extension: str, prefix: str = "part"
) -> list[Rewrite]:
    """Return the files to join under their final names, which begin with `prefix`, once all are cut."""
    groups: list[list[CommittedFile]] = []
    for of_step in _by_step(parts):
        size = _file_bytes(of_step, target_bytes)
        by_number: dict[int, list[CommittedFile]] = {}
        for part in of_step:
            by_number.setdefault(part.start // size, []).append(part.file)
        groups += by_number.values()
    digits = max(_MIN_DIGITS, len(str(len(groups) - 1)))
    names = [f"{prefix}-{i:0{digits}d}.{extension}" for i in range(len(groups))]
    return [
        _rewrite(group, folder, names=[name])
        for group, name in zip(groups, names, strict=True)
        if [f.name for f in group] != [name]
    ]


def plan_value_joins(
    values: Mapping[Values, Sequence[OutputPart]],
    folders: Mapping[Values, str],
    target_bytes: int,
    output: str,
    extension: str,
    prefix: str = "part",
) -> list[Rewrite]:
    """Return the files to join in the folder of each value; values of one small file are done several at a time.

    One record replaces the files of several values. A value of several files is by itself, since the order of its
    files follows from the records.
    """
    work: list[Rewrite] = []
    waiting: dict[int, list[Rewrite]] = {}  # by step
    for value, parts in values.items():
        joins = plan_joins(parts, target_bytes, output, extension, f"{folders[value]}/{prefix}".lstrip("/"))
        step = parts[0].sampling_step
        if len(joins) == 1 and parts[-1].sampling_step == step and parts[-1].end <= _JOINED_BYTES:
            waiting.setdefault(step, []).append(joins[0])
        else:
            work += joins
    for joins in waiting.values():
        n_bytes, first = 0, 0
        for i, join in enumerate(joins, 1):
            n_bytes += join.regroups[0].data_bytes
            if n_bytes >= _JOINED_BYTES or i - first == _MAX_JOINED or i == len(joins):
                work.append(_together(joins[first:i]))
                n_bytes, first = 0, i
    return work


def _together(rewrites: Sequence[Rewrite]) -> Rewrite:
    return Rewrite(
        paths=[path for rewrite in rewrites for path in rewrite.paths],
        old=[name for rewrite in rewrites for name in rewrite.old],
        regroups=[regroup for rewrite in rewrites for regroup in rewrite.regroups],
    )


def _by_step(parts: Sequence[OutputPart]) -> list[list[OutputPart]]:
    return [list(group) for _, group in groupby(parts, lambda p: p.sampling_step)]


def _file_bytes(parts: Sequence[OutputPart], target_bytes: int) -> int:
    """Return the bytes of records that a file gets: files of a step are equally large."""
    total = max(1, parts[-1].end)
    return -(-total // max(1, -(-total // target_bytes)))


def _rewrite(files: list[CommittedFile], folder: str, cuts: Sequence[int] = (), names: Sequence[str] = ()) -> Rewrite:
    content = sum(int(f.content or "0", 16) for f in files) % (1 << 128)
    regroup = Regroup(
        len(files),
        list(cuts),
        list(names),
        n_rows=sum(f.rows for f in files),
        content=f"{content:032x}",
        data_bytes=sum(f.data_bytes or 0 for f in files),
        schema=files[0].schema,
        observed=sorted({f.observed for f in files if f.observed is not None}),
        partition=files[0].partition,
    )
    return Rewrite(paths=[f"{folder}/{f.name}" for f in files], old=[f.name for f in files], regroups=[regroup])
