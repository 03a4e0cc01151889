"""The solver of exact deduplication: documents whose 128-bit hashes are equal, found part by part of the key space."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tamis.dedup.decisions import DecisionFiles
from tamis.dedup.planning import BYTES_PER_HASH
from tamis.dedup.range_passes.results import add_equal
from tamis.dedup.records import Array, Records, parts_of
from tamis.dedup.sorting import positions_in, runs, sort_pairs

if TYPE_CHECKING:
    from tamis.dedup.solver import SolverRun
    from tamis.dedup.solver_task import DecideEqual

Progress = Callable[[float], None]


def decide_equal(step: DecideEqual, run: SolverRun) -> None:
    """Decide which documents with equal texts are removed.

    From their keys, or from the results of workers that searched ranges of keys.
    """
    records = run.open_records()
    decisions = run.decisions(records)
    if step.ranges is not None:
        add_equal(step.ranges.equal, decisions)
    else:
        exact_duplicates(records, decisions, run.room_bytes, run.progress("equal texts"))
    run.conclude(records, decisions, {}, step.keep_by, step.facts)


def exact_duplicates(
    records: Records, decisions: DecisionFiles, room_bytes: int, progress: Progress | None = None
) -> None:
    """Keep the document with the smallest (rank, number) of every group of equal hashes; decide on the others."""
    parts = parts_of(len(records) * BYTES_PER_HASH, room_bytes)
    for i, part in enumerate(parts):
        number, partners, size = equal_in_part(records, part)
        decisions.add(number, partners, np.ones(len(number)), size)
        if progress is not None:
            progress((i + 1) / len(parts))


def equal_in_part(records: Records, part: tuple[int, int]) -> tuple[Array, Array, Array]:
    """Return (number, kept, size of the group) of the documents to be removed, of those whose keys are in this part."""
    keys, numbers = records.keys(0, part)
    sort_pairs(keys, numbers)
    starts, ends = runs(keys)
    sizes = ends - starts
    indices = positions_in(starts, ends)  # of all members, group after group
    n = len(indices)
    member, group = numbers[indices], np.repeat(np.arange(len(starts)), sizes)
    del keys, numbers
    facts = records.gather_any(["lo", "rank"], member)
    lo, rank = facts["lo"], facts["rank"]
    # Members come by number within a group; what the second half of the hash or the rank says goes before that.
    by = np.lexsort((member, rank, lo, group)) if (rank.any() or _differs(group, lo)) else np.arange(n)
    member, group, lo = member[by], group[by], lo[by]
    first = np.ones(n, bool)
    first[1:] = (group[1:] != group[:-1]) | (lo[1:] != lo[:-1])
    head = np.flatnonzero(first)
    size = np.diff(np.append(head, n))
    partners, size = np.repeat(member[head], size), np.repeat(size, size)
    return member[~first], partners[~first], size[~first]


def _differs(group: Array, lo: Array) -> bool:
    same_group: Any = group[1:] == group[:-1]
    return bool((same_group & (lo[1:] != lo[:-1])).any())
