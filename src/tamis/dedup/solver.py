"""The solver: the process that performs the steps of a SolverTask, from keys to the decision what is removed.

Runs between two passes (task_process.py). Writes the tables of decisions.py and, last, the summary; a solver that is
killed starts again and decides the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import TYPE_CHECKING, cast

import numpy as np

from tamis._dataclasses import dataclass
from tamis.dedup.decisions import LARGE, DecisionFiles, histogram, write_tables
from tamis.dedup.index.joint_records import JoinedRecords, decision_files, n_old, open_records, restore_ids
from tamis.dedup.keys import NO_NUMBER
from tamis.dedup.records import Records
from tamis.dedup.solver_task import STEPS, SolverStep, SolverTask
from tamis.dedup.state import State, Summary
from tamis.dedup.task_process import await_task, perform_task, report_share
from tamis.engine.worker.blocks import check_file
from tamis.files import write_json

if TYPE_CHECKING:
    Handler = Callable[[SolverStep, "SolverRun"], None]

_NO_FACTS: Mapping[str, str] = {}
EQUAL_TABLE = "equal_removal"  # of equal documents, where they are decided apart


@dataclass(frozen=True)
class SolverRun:
    """The task, its folder and the state that the handlers of steps work with."""

    folder: str
    task: SolverTask

    @property
    def state(self) -> State:
        return State(self.folder)

    @property
    def room_bytes(self) -> int:
        """Memory for keys, groups and texts."""
        return self.task.room_bytes

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def paths(self) -> list[str]:
        """Return the input files by number."""
        return self.state.paths()

    def open_records(self, records: Sequence[str] | None = None) -> Records:
        """Open record files, by default those of the first pass, together with those of the index."""
        files, pins = self.task.records if records is None else records, self.task.index_pins
        return open_records(files, pins, len(self.paths()) if pins else 0)

    def decisions(self, records: Records, name: str = "found", fresh: bool = True) -> DecisionFiles:
        """Open the files of decisions with this name."""
        return decision_files(self.path(name), records, self.room_bytes, fresh)

    def progress(self, phase: str) -> Callable[[float], None]:
        return report_share(phase)

    def conclude(
        self,
        records: Records,
        decisions: DecisionFiles,
        facts: Summary,
        keep_by: str | None = None,
        more: Mapping[str, str] = _NO_FACTS,
    ) -> None:
        """Write the tables of a decision, where the records of the input are, and the summary with these facts."""
        paths = self.paths()
        removal, duplicates = self.path("removal"), self.task.duplicates
        if isinstance(records, JoinedRecords):
            all_paths = [*paths, *(path for entry in records.older_paths for path in entry)]
            write_tables(decisions, records, removal, duplicates, all_paths)
            facts["n_indexed"] = records.n_old
            facts["n_duplicates_of_indexed"] = restore_ids(records, duplicates)
            write_json(self.state.all_paths_file, all_paths)
        else:
            write_tables(decisions, records, removal, duplicates, paths)
        facts.update(cast("Summary", more))
        new = records.new if isinstance(records, JoinedRecords) else records
        if keep_by:
            facts["n_without_number"] = sum(
                int(np.count_nonzero(rank == NO_NUMBER)) for _, rank in new.iter_column("rank")
            )
        new.write_known(self.path("known"))
        summary = summarize(records, decisions, len(paths))
        summary.update(facts)
        self.state.summary.write(summary)

    def write_equal(self, records: Records, equal: DecisionFiles, folder: str) -> None:
        """Write the decision on equal documents alone, as if an exact deduplication had come before this one."""
        paths = self.paths()
        write_tables(equal, records, self.path(EQUAL_TABLE), folder, paths)
        self.state.equal_summary.write(summarize(records, equal, len(paths)))


def solve(folder: str, task: SolverTask) -> None:
    """Perform the steps of a task in order; each leaves a file by which the driver knows that it is done."""
    with ThreadPoolExecutor(max(1, task.n_threads), "tamis-check") as pool:
        for _ in pool.map(check_file, task.checks.keys(), task.checks.values()):
            pass
    run = SolverRun(folder, task)
    for named in task.steps:
        step = named.step()
        _handler(type(step))(step, run)


def _handler(kind: type[SolverStep]) -> Handler:
    module, _, name = STEPS[kind].partition(":")
    return cast("Handler", getattr(import_module(module), name))


def summarize(records: Records, decisions: DecisionFiles, n_files: int) -> Summary:
    """Return the counts for the report and the safety checks."""
    total, removed = np.zeros(n_files, np.int64), np.zeros(n_files, np.int64)
    sizes = np.zeros(0, np.int64)  # how many groups there are of each size, up to a bound
    n_without_text = removed_bytes = largest = 0
    for _, file in records.iter_column("file"):
        total += np.bincount(file, minlength=n_files)
    for _, length in records.iter_column("length"):
        n_without_text += int(np.count_nonzero(length < 0))
    for part in decisions:
        facts = records.gather(["file", "length"], part.number)
        removed += np.bincount(facts["file"], minlength=n_files)
        removed_bytes += int(facts["length"].sum())
        # A group of n has n - 1 rows: each row counts as 1/(n - 1) of it, summed by size.
        largest = max(largest, int(part.size.max()))
        counts = np.bincount(np.minimum(part.size, LARGE), minlength=len(sizes))
        counts[: len(sizes)] += sizes
        sizes = counts
    size = np.arange(len(sizes))
    groups = np.divide(sizes, size - 1, out=np.zeros(len(sizes)), where=size > 1).round().astype(np.int64)
    return {
        "n_documents": len(records) - n_old(records),
        "n_without_text": n_without_text,
        "n_duplicates": len(decisions),
        "duplicate_text_bytes": removed_bytes,
        "n_groups": int(groups.sum()),
        "largest_group": largest,
        "group_sizes": histogram(groups),
        "documents_by_file": total.tolist(),
        "duplicates_by_file": removed.tolist(),
    }


def main(arguments: Sequence[str]) -> int:
    """Perform the task of a folder, in a separate process.

    `arguments`: the folder; for a process that starts early also what it prepares before it waits for its task.
    """
    folder, *preparation = arguments
    if preparation and not await_task(*preparation):
        return 0
    return perform_task([folder], SolverTask, solve, "the decision")
