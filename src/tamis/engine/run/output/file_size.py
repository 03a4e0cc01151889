"""Output files of a size: which committed files are cut, and which follow each other in one file. Pure.

Partitions follow from the budget and from measured rates, so their files must not show in the result. What counts is
the position of a document in the whole output, in bytes of its records before compression: of n = ceil(total / target)
files, a document that begins at byte s belongs to number s // ceil(total / n). Files that hold the beginnings of
two are cut first (each is replaced by its parts in one record of the commit log), then those of one file are joined (in
one record, too). At every moment the log names each document once; after a crash the same plan, made of the log,
continues where it stopped. Sampling steps are files apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from tamis.engine.schema import CommitOrReplace, CommittedFile, FileKind, ReplaceRecord
from tamis.engine.units import Regroup, Rewrite

_PLACE = re.compile(r"part-([0-9]+)-([0-9]+)")
_MIN_DIGITS = 5


@dataclass(frozen=True)
class OutputPart:
    """An output file, with its sampling step and its position: `start` counts the bytes of records of its step."""

    step: int
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
            base = (record.step,)
        for i, file in enumerate(f for f in record.files if f.kind is FileKind.OUTPUT):
            order[file.name] = (*base, *_place_of(file.name, base), i)
            files[file.name] = file
    parts: list[OutputPart] = []
    for name in sorted(order, key=order.__getitem__):
        step = order[name][0]
        start = parts[-1].end if parts and parts[-1].step == step else 0
        parts.append(OutputPart(step, start, files[name]))
    return parts


def _place_of(name: str, base: tuple[int, ...]) -> tuple[int, ...]:
    """Return the input position in the name of a partition's file; nothing for a file that replaces others."""
    match = _PLACE.match(name) if len(base) == 1 else None
    return () if match is None else (int(match[1]), int(match[2]))


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


def _by_step(parts: Sequence[OutputPart]) -> list[list[OutputPart]]:
    return [list(group) for _, group in groupby(parts, lambda p: p.step)]


def _file_bytes(parts: Sequence[OutputPart], target_bytes: int) -> int:
    """Return the bytes of records that a file gets: files of a step are equally large."""
    total = max(1, parts[-1].end)
    return -(-total // max(1, -(-total // target_bytes)))


def _rewrite(files: list[CommittedFile], folder: str, cuts: Sequence[int] = (), names: Sequence[str] = ()) -> Rewrite:
    content = sum(int(f.content or "0", 16) for f in files) % (1 << 128)
    regroup = Regroup(
        list(cuts),
        list(names),
        n_rows=sum(f.rows for f in files),
        content=f"{content:032x}",
        data_bytes=sum(f.data_bytes or 0 for f in files),
        schema=files[0].schema,
        observed=sorted({f.observed for f in files if f.observed is not None}),
    )
    return Rewrite(paths=[f"{folder}/{f.name}" for f in files], old=[f.name for f in files], regroup=regroup)
