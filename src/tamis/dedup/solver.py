"""From the keys of all documents to the decision which ones go.

A process of its own between two passes (deciding.py starts it): it needs numpy and Arrow, which the process that drives the
passes does without, and its memory is given back whole. Reads FOLDER/task.json, writes the tables of decisions.py and, last, FOLDER/summary.json;
a run that is killed here starts here again and decides the same.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tamis.dedup.decisions import DecisionFiles, write_tables
from tamis.dedup.group_sizes import LARGE, histogram
from tamis.dedup.index.joint_records import JoinedRecords, decision_files, n_old, open_records, restore_ids
from tamis.dedup.keys import NO_NUMBER
from tamis.dedup.progress_files import read_json, write_json
from tamis.dedup.records import Records
from tamis.engine.run import disk
from tamis.engine.worker.blocks import check_file
from tamis.errors import TamisError, UsageError
from tamis.failures import is_memory_failure
from tamis.memory import meter
from tamis.stores import opening, options, scratch_files

EQUAL = "equal_removal"  # the table of equal documents, where they are decided apart
_DRIVER_BYTES = 40_000_000  # the process that waits for this one


def solve(folder: str) -> None:
    """Run the steps that task.json names, in order.

    Each leaves a file by which the driver knows that it is done.
    """
    task = read_json(os.path.join(folder, "task.json"))
    room = int(task["room_bytes"])
    for path, check in (task.get("checks") or {}).items():
        check_file(path, check)
    for step in task["steps"]:
        if step == "exact":
            from tamis.dedup.exact.groups import exact_duplicates

            records = open_records(task)
            found = decision_files(os.path.join(folder, "found"), records, room)
            if task.get("spread"):
                from tamis.dedup.range_passes.found import add_equal

                add_equal(task["spread"]["equal"], found)
            else:
                exact_duplicates(records, found, room, say("equal texts"))
            _conclude(folder, task, records, found, {})
        elif step == "link":
            from tamis.dedup.fuzzy.solver import link_pass

            threads = max(1, int(task.get("threads", 1)))
            link_pass(folder, open_records(task, "linked"), task["bands"], room, say, threads, task.get("spread"))
        elif step == "candidates":
            from tamis.dedup.fuzzy.solver import find_candidates

            write_json(os.path.join(folder, "candidates.json"), find_candidates(folder, open_records(task), room))
        elif step == "decide":
            from tamis.dedup.fuzzy.solver import decide

            records = open_records(task)
            found, facts = decide(folder, records, task, room, say)
            if task.get("equal_apart"):
                _write_equal(folder, task, records, room)
            _conclude(folder, task, records, found, {**read_json(os.path.join(folder, "candidates.json")), **facts})
        elif step == "remember":
            from tamis.dedup.replay_tables.tables import write_remembered

            first = os.path.join(folder, "keys-0", "_tamis")
            counts = write_remembered(
                first,
                task["remember"],
                os.path.join(folder, "remembered"),
                read_json(task["paths"]),
                task.get("judges", ()),
                os.path.join(folder, "known"),
            )
            write_json(os.path.join(folder, "remembered.json"), counts)
        elif step == "index":
            from tamis.dedup.index.entries import append

            append(task, scratch_files.placed(os.path.join(folder, "removal")))
        elif step == "ids":
            from tamis.dedup.ids.table import build, check_ids

            records = Records(task["records"])
            n_null = check_ids(records, task["field"], task["id_paths"])
            n_ids = build(records, os.path.join(folder, "ids"), room)
            write_json(
                os.path.join(folder, "summary.json"),
                {"n_ids": n_ids, "n_rows": len(records), "n_rows_without_id": n_null},
            )
        elif step == "semantic":
            from tamis.dedup.semantic.solver import semantic_duplicates

            records = Records(task["records"])
            found = DecisionFiles(os.path.join(folder, "found"), len(records), room)
            _conclude(folder, task, records, found, semantic_duplicates(folder, records, found, task, room, say))
        elif step == "lines":
            from tamis.dedup.lines.solver import cut_lines

            write_json(os.path.join(folder, "summary.json"), cut_lines(folder, task, room, say))
        else:
            raise UsageError(f"deduplication: unknown step {step!r}")


def _conclude(folder: str, task: dict[str, Any], records: Records, found: DecisionFiles, facts: dict[str, Any]) -> None:
    paths = read_json(task["paths"])
    removal = os.path.join(folder, "removal")
    if isinstance(records, JoinedRecords):
        named = [*paths, *(path for older in records.older_paths for path in older)]
        write_tables(found, records, removal, task["duplicates"], named)
        facts |= {"n_indexed": records.n_old, "n_duplicates_of_indexed": restore_ids(records, task["duplicates"])}
        write_json(os.path.join(folder, "all_paths.json"), named)
    else:
        write_tables(found, records, removal, task["duplicates"], paths)
    new = records.new if isinstance(records, JoinedRecords) else records
    facts |= task.get("told") or {}
    if task.get("keep_by"):
        facts["n_without_number"] = sum(int(np.count_nonzero(rank == NO_NUMBER)) for _, rank in new.iter_column("rank"))
    new.write_known(os.path.join(folder, "known"))
    write_json(os.path.join(folder, "summary.json"), summarize(records, found, len(paths)) | facts)


def _write_equal(folder: str, task: dict[str, Any], records: Records, room: int) -> None:
    """Equal documents by themselves: an exact deduplication just before this one, decided from the same keys."""
    from tamis.dedup.fuzzy.solver import equal_decisions

    equal, paths = equal_decisions(folder, records, room), read_json(task["paths"])
    write_tables(equal, records, os.path.join(folder, EQUAL), task["equal_apart"], paths)
    write_json(os.path.join(folder, f"{EQUAL}.json"), summarize(records, equal, len(paths)))


def summarize(records: Records, found: DecisionFiles, n_files: int) -> dict[str, Any]:
    """Counts for the report and the seat belts."""
    total, gone = np.zeros(n_files, np.int64), np.zeros(n_files, np.int64)
    sizes = np.zeros(0, np.int64)  # by how many groups there are of each size, up to a bound
    n_without_text = removed_bytes = largest = 0
    for _, file in records.iter_column("file"):
        total += np.bincount(file, minlength=n_files)
    for _, length in records.iter_column("length"):
        n_without_text += int(np.count_nonzero(length < 0))
    for part in found:
        facts = records.gather(["file", "length"], part.number)
        gone += np.bincount(facts["file"], minlength=n_files)
        removed_bytes += int(facts["length"].sum())
        # A group of n has n - 1 rows: each row counts as 1/(n - 1) of it, summed by size.
        largest = max(largest, int(part.size.max()))
        counts = np.bincount(np.minimum(part.size, LARGE), minlength=len(sizes))
        counts[: len(sizes)] += sizes
        sizes = counts
    at = np.arange(len(sizes))
    groups = np.divide(sizes, at - 1, out=np.zeros(len(sizes)), where=at > 1).round().astype(np.int64)
    return {
        "n_documents": len(records) - n_old(records),
        "n_without_text": n_without_text,
        "n_duplicates": len(found),
        "duplicate_text_bytes": removed_bytes,
        "n_groups": int(groups.sum()),
        "largest_group": largest,
        "group_sizes": histogram(groups),
        "documents_by_file": total.tolist(),
        "duplicates_by_file": gone.tolist(),
    }


def say(what: str) -> Any:
    def progress(share: float) -> None:
        print(json.dumps({"phase": what, "share": round(share, 4)}), flush=True)

    return progress


def cap_memory(budget_bytes: int) -> None:
    """Make an allocation beyond the budget fail at once, as in a worker.

    What is loaded now is counted as it is measured.
    """
    status = meter.status() or {}
    left = budget_bytes - (meter.pss() or 0)
    with contextlib.suppress(OSError, ValueError):  # where limits cannot be set, the parts are still cut to fit
        meter.set_data_limit(os.getpid(), status.get("VmData", 0) + max(left, 0))


def main(arguments: Sequence[str]) -> int:
    """`arguments`: the folder with task.json. Prints one JSON object per line: progress, and why it could not be done."""
    return run_apart(arguments, solve, "the decision")


def run_apart(arguments: Sequence[str], work: Callable[[str], None], what: str) -> int:
    """Do `work(folder)` under the budget of folder/task.json; what goes wrong is told to whoever listens (solver_process.py)."""
    (folder,) = arguments
    try:
        # The driver, and the warm process that this was forked from.
        others = _DRIVER_BYTES + (meter.pss(os.getppid()) or 0)
        task = read_json(os.path.join(folder, "task.json"))
        if task.get("far"):
            options.restore(task["stores"])
            opening.warm()
            scratch_files.use(folder, task["far"])
        cap_memory(int(task["budget_bytes"]) - others)
        work(folder)
    except TamisError as exc:
        return _refuse(str(exc), exc.exit_code)
    except (MemoryError, OSError) as exc:
        if isinstance(exc, OSError) and disk.is_full(exc):
            return _refuse(str(disk.explained(exc, [folder])), 4)
        if not is_memory_failure(exc):
            raise
        return _refuse(f"{what} does not fit into the budget; give more --memory, the passes before it are kept", 4)
    return 0


def _refuse(why: str, exit_code: int) -> int:
    print(json.dumps({"error": why, "exit_code": exit_code}), flush=True)
    return exit_code
