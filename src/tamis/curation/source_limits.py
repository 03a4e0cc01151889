"""The limits of sources: up to which drawn number documents are written, so that there are as many as requested.

Reads the records of the pass that drew a number for each document (mixing.Draw), sixteen bits of the numbers at a
time, so that memory does not depend on how many documents there are; of documents with equal numbers (equal texts)
those earlier in the input come first. A separate process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tamis.curation.state import ChoiceTask, SourceLimit, SourceLimits, limits_file
from tamis.dedup.records import Records
from tamis.dedup.task_process import perform_task

_BITS = 16


def find_limits(folder: str, task: ChoiceTask) -> None:
    """Find and write the limit of each source."""
    records = Records(task.records)
    limits = [None if most is None else limit_of(records, k, most) for k, most in enumerate(task.most)]
    limits_file(task.limits).write(SourceLimits(limits))


def limit_of(records: Records, source: int, most: int) -> SourceLimit | None:
    """Return the last number taken and the position of the last document that has it; None if all are taken."""
    prefix, n_remaining = 0, most  # the first bits of that number, and how many of those that begin with them are taken
    for shift in range(64 - _BITS, -1, -_BITS):
        counts = np.zeros(1 << _BITS, np.int64)
        for _, draws, _ in _parts(records, source):
            if shift + _BITS < 64:
                draws = draws[draws >> np.uint64(shift + _BITS) == np.uint64(prefix)]
            counts += np.bincount(
                ((draws >> np.uint64(shift)) & np.uint64(0xFFFF)).astype(np.int64), minlength=len(counts)
            )
        upto = np.cumsum(counts)
        if upto[-1] <= n_remaining:
            if shift + _BITS == 64:
                return None
            # All numbers that begin with these bits are taken.
            return SourceLimit(str(((prefix + 1) << (shift + _BITS)) - 1), 1 << 30, 0)
        index = int(np.searchsorted(upto, n_remaining))
        prefix, n_remaining = prefix << _BITS | index, n_remaining - (int(upto[index - 1]) if index else 0)
    for first, draws, rows in _parts(records, source):
        same = np.flatnonzero(draws == np.uint64(prefix))
        if len(same) >= n_remaining:
            position = records.gather(
                ["file", "offset"], np.array([first + int(rows[same[n_remaining - 1]])], np.int64)
            )
            return SourceLimit(str(prefix), int(position["file"][0]), int(position["offset"][0]))
        n_remaining -= len(same)
    raise AssertionError("there are fewer documents than were counted")


def _parts(records: Records, source: int) -> Any:
    """Yield the parts of the records in input order: first number, draws for documents of a source, their rows."""
    pairs = zip(records.iter_column("source"), records.iter_column("draw"), strict=True)
    for (first, sources), (_, draws) in pairs:
        rows = np.flatnonzero(sources == source)
        yield first, draws[rows], rows


def main(arguments: Sequence[str]) -> int:
    return perform_task(arguments, ChoiceTask, find_limits, "choosing documents")
