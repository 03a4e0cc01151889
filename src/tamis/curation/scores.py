"""Scores of the written documents by rules that only an earlier pass applied: for `tamis rethreshold`.

The pass that ran the rules stored them (formats/scratch/score_file.py), with those of documents that later steps
dropped. Here these are left out, by the verdicts of the last pass, and the others are kept in `<run
dir>/remembered_scores`. A separate process, which can be repeated.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence

import numpy as np

from tamis import files
from tamis.curation.state import ScoresTask
from tamis.dedup.position_table import PositionTable, rows_of_table
from tamis.dedup.replay_tables.tables import in_input_order
from tamis.dedup.task_process import perform_task
from tamis.formats.scratch.score_file import ScoreTable, encode_scores, read_scores

FOLDER = "remembered_scores"


def keep_scores(folder: str, task: ScoresTask) -> None:
    """Write the scores of documents that the last pass wrote into its run directory."""
    dropped = os.path.join(folder, "gone")
    shutil.rmtree(dropped, ignore_errors=True)
    table = PositionTable(dropped, {"file": "<i4", "offset": "<i8"})
    for rows in in_input_order(os.path.join(task.run_dir, "verdicts"), ["file", "offset"]):
        table.add(file=rows["file"].to_numpy(), offset=rows["offset"].to_numpy())
    table.close()
    target = os.path.join(task.run_dir, FOLDER)
    shutil.rmtree(target, ignore_errors=True)
    os.makedirs(target)
    for i, run_dir in enumerate(task.passes):
        scores = os.path.join(run_dir, "scores")
        for name in sorted(os.listdir(scores)) if os.path.isdir(scores) else []:
            remaining = _without(read_scores(os.path.join(scores, name)), dropped)
            if len(remaining):
                files.write_bytes(os.path.join(target, f"{i}-{name}"), encode_scores(remaining))


def _without(table: ScoreTable, dropped: str) -> ScoreTable:
    """Return the documents of a score table that a table of positions does not list."""
    keep = np.ones(len(table), bool)
    for file in np.unique(table.file).tolist():
        mine = np.flatnonzero(table.file == file)
        mine = mine[np.argsort(table.offset[mine], kind="stable")]
        keep[mine[rows_of_table(dropped, file, table.offset[mine])[0]]] = False
    codes = {key: values[keep] for key, values in table.codes.items()}
    return ScoreTable(table.file[keep], table.offset[keep], table.n_bytes[keep], codes, is_last=True)


def main(arguments: Sequence[str]) -> int:
    return perform_task(arguments, ScoresTask, keep_scores, "keeping scores")
