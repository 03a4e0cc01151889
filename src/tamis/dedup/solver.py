"""`python -m tamis.dedup.solver FOLDER`: from the keys of all documents to the decision which ones go.

A process of its own between two passes: it needs numpy and Arrow, which the process that drives the passes does without, and
its memory is given back whole. Reads FOLDER/task.json, writes the tables of decisions.py and, last, FOLDER/summary.json;
a run that is killed here starts here again and decides the same.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import numpy as np

from tamis.dedup.decisions import Decisions, write_duplicates, write_removal
from tamis.dedup.notes import write_json
from tamis.dedup.records import Records
from tamis.errors import TamisError, UsageError


def solve(folder: str) -> None:
    """The steps that task.json names, in order. Each leaves a file by which the driver knows that it is done."""
    with open(os.path.join(folder, "task.json"), encoding="utf-8") as file:
        task = json.load(file)
    room = int(task["room_bytes"])
    for step in task["steps"]:
        if step == "exact":
            from tamis.dedup.groups import exact_duplicates

            records = Records(task["records"])
            _conclude(folder, task, records, exact_duplicates(records, room, _say("equal texts")), {})
        elif step == "link":
            from tamis.dedup.fuzzy import link_pass

            link_pass(folder, Records(task["linked"]), task["bands"], room, _say)
        elif step == "candidates":
            from tamis.dedup.fuzzy import find_candidates

            write_json(os.path.join(folder, "candidates.json"), find_candidates(folder, Records(task["records"])))
        elif step == "decide":
            from tamis.dedup.fuzzy import decide

            records = Records(task["records"])
            decisions, facts = decide(folder, records, task, room, _say)
            with open(os.path.join(folder, "candidates.json"), encoding="utf-8") as file:
                facts = {**json.load(file), **facts}
            _conclude(folder, task, records, decisions, facts)
        else:
            raise UsageError(f"deduplication: unknown step {step!r}")


def _conclude(folder: str, task: dict[str, Any], records: Records, decisions: Decisions, facts: dict[str, Any]) -> None:
    removal = os.path.join(folder, "removal")
    write_removal(decisions, records, removal)
    with open(task["paths"], encoding="utf-8") as file:
        paths = json.load(file)
    write_duplicates(decisions, task["duplicates"], removal, paths)
    write_json(os.path.join(folder, "summary.json"), summarize(records, decisions, len(paths)) | facts)


def summarize(records: Records, decisions: Decisions, n_files: int) -> dict[str, Any]:
    """Counts for the report and the seat belts."""
    total, gone = np.zeros(n_files, np.int64), np.zeros(n_files, np.int64)
    n_without_text = removed_bytes = 0
    lengths = records.iter_column("length")
    for (first, file), (_, length) in zip(records.iter_column("file"), lengths, strict=True):
        total += np.bincount(file, minlength=n_files)
        n_without_text += int(np.count_nonzero(length < 0))
        a, b = np.searchsorted(decisions.number, [first, first + len(file)])
        rows = decisions.number[a:b].astype(np.int64) - first
        gone += np.bincount(file[rows], minlength=n_files)
        removed_bytes += int(length[rows].sum())
    kept = np.unique(decisions.kept)
    sizes = (
        decisions.size[np.unique(decisions.kept, return_index=True)[1]] if len(decisions) else np.empty(0, np.uint32)
    )
    return {
        "n_documents": len(records),
        "n_without_text": n_without_text,
        "n_duplicates": len(decisions),
        "duplicate_text_bytes": removed_bytes,
        "n_groups": len(kept),
        "largest_group": int(sizes.max()) if len(sizes) else 0,
        "group_sizes": histogram(sizes),
        "documents_by_file": total.tolist(),
        "duplicates_by_file": gone.tolist(),
    }


def histogram(sizes: Any) -> dict[str, int]:
    """How many groups have 2, 3-4, 5-8, ... members."""
    found: dict[str, int] = {}
    low = 2
    high = 2
    while len(sizes) and low <= int(sizes.max()):
        n = int(np.count_nonzero((sizes >= low) & (sizes <= high)))
        found[str(low) if low == high else f"{low}-{high}"] = n
        low, high = high + 1, high * 2
    return found


def _say(what: str) -> Any:
    def progress(share: float) -> None:
        print(json.dumps({"phase": what, "share": round(share, 4)}), flush=True)

    return progress


def main() -> int:
    try:
        solve(sys.argv[1])
    except TamisError as exc:
        print(json.dumps({"error": str(exc), "exit_code": exc.exit_code}), flush=True)
        return exc.exit_code
    except MemoryError:
        print(json.dumps({"error": "out of memory while grouping keys", "exit_code": 4}), flush=True)
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main())
