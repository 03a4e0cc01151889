"""The status of documents that no verdict names: kept, quarantined, outside the sample, not read yet.

`whereabouts` answers for one document: it reads the run directory, the one record of the input (to see that there is
one) and, only where a sample was taken, the output files of its partition. `DocumentStatus` answers for many at once
from the commit log and the quarantine alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tamis._lazy import np
from tamis.engine.schema import FileKind
from tamis.errors import FormatError, UsageError
from tamis.formats.registry import reads_rows, table_format
from tamis.hints import command
from tamis.observe.commits import Commit, commits_at, covers, steps_of
from tamis.observe.quarantine import read_entries
from tamis.observe.records import line_at
from tamis.observe.verdicts import input_paths, matching_files, offset_of, read_plan, run_folder
from tamis.stores.run_locations import output_of_run_dir
from tamis.stores.urls import is_bucket, is_remote, output_url

KEPT, ASIDE, NOT_SAMPLED, NOT_READ, NO_RECORD = "kept", "quarantined", "not sampled", "not read", "no record"
PERHAPS = "kept or not in the sample"
Stretches = dict[int, list[tuple[int, int]]]
"""First offset in each file, by its number, and the offset after the last."""


@dataclass(frozen=True)
class Whereabouts:
    """`files`: of the output, where it is, or those that hold what its partition became."""

    path: str
    file: int  # its number
    offset: int
    state: str
    sentence: str
    files: list[str] = field(default_factory=list)


def whereabouts(output: str, document: str) -> list[Whereabouts]:
    """Return one result for each input file that `FILE:OFFSET` may mean; none if it names no input file."""
    name, _, place = document.rpartition(":")
    offset = offset_of(place)
    if not name or offset is None:
        return []
    folder = run_folder(output)
    paths = input_paths(folder)
    statuses = sorted(matching_files(paths, name))
    if statuses and is_bucket(output) and not (folder / "commit.log").exists():
        raise UsageError(
            f"the commit log of {output} lies in the bucket, and no run of this machine has brought it here: what "
            "became of documents without "
            "a verdict cannot be looked up; ask where the run was made"
        )
    at = output_url(output) if is_bucket(output) else output_of_run_dir(folder)
    return [_whereabouts(folder, at, paths[i], i, offset) for i in statuses]


def _whereabouts(folder: Path, output: str, path: str, file: int, offset: int) -> Whereabouts:
    def status(state: str, sentence: str, files: Sequence[str] = ()) -> Whereabouts:
        return Whereabouts(path, file, offset, state, sentence, list(files))

    reason = _quarantine_reason(folder, path, offset)
    if reason is not None:
        return status(ASIDE, f"was quarantined: {reason} ({command('quarantine', output_of_run_dir(folder))})")
    commits = list(commits_at(folder, file, offset))
    if not commits:
        return status(NOT_READ, "was not read by this run: its partition is not committed")
    record, problem = read_record(path, offset, _formats(folder))
    if record is None and not problem:
        return status(NO_RECORD, "is no document: no record begins at this offset")
    files, steps = [os.path.join(output, f.name) for c in commits for f in c.of(FileKind.OUTPUT)], steps_of(folder)
    if _are_sampled(commits, steps):
        matches = [f for f in files if record is not None and _holds(f, record)]
        if not matches:
            return status(NOT_SAMPLED, "is not among the documents written: it was not chosen for the sample", files)
        return status(KEPT, f"was kept: {', '.join(matches)}", matches)
    unsure = f" (if a record begins there: {problem})" if problem else ""
    where = ", ".join(files) or "its stages wrote no file"
    if any(c.n_consumed for c in commits):
        return status(
            KEPT, f"was not dropped{unsure}; stages made other documents of some of its partition: {where}", files
        )
    return status(KEPT, f"was kept{unsure}: {where}", files)


def _formats(folder: Path) -> list[str]:
    """Return the formats that the reader of the run reads; nothing if they were not recorded."""
    try:
        return read_plan(folder).formats
    except UsageError:
        return []


def _quarantine_reason(folder: Path, path: str, offset: int) -> str | None:
    """Return why the record at an offset is in the quarantine, or None if it is not."""
    for entry in read_entries(folder / "quarantine"):
        if entry.file == path and entry.offset <= offset < entry.offset + max(entry.length, 1):
            return entry.reason
    return None


def _are_sampled(commits: Iterable[Commit], steps: Sequence[float]) -> bool:
    """Return True if all of these commits are of steps that end before the last document (`steps`: upper ends)."""
    return all(c.step < len(steps) and steps[c.step] < 1.0 for c in commits)


def read_record(path: str, offset: int, formats: Sequence[str] = ()) -> tuple[dict[str, Any] | None, str]:
    """Read the record that begins at an offset (a Parquet row: {}).

    Return (None, "") if no record begins there, (None, why) if that cannot be determined. `formats`: of the reader.
    """
    if is_remote(path):
        return None, f"{path} lies in a store, and is not read for this"
    try:
        if reads_rows(path, formats):
            return ({} if offset < table_format(path).describe(path).n_rows else None), ""
        line = line_at(path, offset)
        record = json.loads(line.decode("utf-8", "replace")) if line is not None and line.strip() else None
        return (record if isinstance(record, dict) else None), ""
    except FileNotFoundError:
        return None, f"{path} is gone"
    except ValueError:  # inside a record
        return None, ""
    except (OSError, FormatError, RecursionError) as exc:
        return None, f"{path} cannot be read ({exc})"


def _holds(path: str, record: dict[str, Any]) -> bool:
    """Return True if an output file holds a document with this id, or (without an id) exactly this record."""
    from tamis.formats.whole_file import read_whole_file

    try:
        batch = read_whole_file(path)
        names = ["id"] if record.get("id") is not None else sorted(record)
        if not names or any(n not in batch.get_columns() for n in names):
            return False
        rows = zip(*(batch.values(n) for n in names), strict=True)
        targets = [record[n] for n in names]
        return any(list(row) == targets for row in rows)
    except (OSError, FormatError):
        return False


class DocumentStatus:
    """The status of many documents of one run. `numbers`: the caller's number of each input file, by path."""

    def __init__(self, folder: Path, paths: list[str], numbers: Mapping[str, int]) -> None:
        self.steps = steps_of(folder)
        self.is_finished = (folder / "manifest.json").exists()
        self._has_log = (folder / "commit.log").exists()  # that of a run in a bucket may be there alone
        self._aside: Stretches = {}
        self._read: Stretches = {}
        self._whole: Stretches = {}  # of which all documents were taken
        self._step = -1
        for entry in read_entries(folder / "quarantine"):
            if entry.file in numbers:
                stretch = (entry.offset, entry.offset + max(entry.length, 1))
                self._aside.setdefault(numbers[entry.file], []).append(stretch)
        for step, file, start, end in covers(folder):
            self._step = max(self._step, step)
            number = numbers.get(paths[file]) if 0 <= file < len(paths) else None
            if number is not None:
                self._read.setdefault(number, []).append((start, end))
                if self._share(step) >= 1.0:
                    self._whole.setdefault(number, []).append((start, end))

    def _share(self, step: int) -> float:
        return self.steps[step] if 0 <= step < len(self.steps) else 1.0

    def remark(self) -> str:
        """Return what must be known of the run to read a comparison: that it is a sample, or not finished.

        Return "" for other runs.
        """
        share = self._share(self._step) if self._step >= 0 else 1.0
        parts = [f"is a sample of {100 * share:.3g} %"] if share < 1.0 else []
        parts += [] if self.is_finished else ["is not finished"]
        return " and ".join(parts)

    def states(self, files: Any, offsets: Any) -> Any:
        """Return the states of the documents at these positions, in the order given."""
        states = np.full(len(files), KEPT, dtype=object)
        if self._has_log:
            states[~_inside(self._whole, files, offsets)] = PERHAPS
            states[~_inside(self._read, files, offsets)] = NOT_READ
        states[_inside(self._aside, files, offsets)] = ASIDE
        return states


def _inside(stretches: Stretches, files: Any, offsets: Any) -> Any:
    """Return a mask of the positions that are inside one of the ranges of their file."""
    inside = np.zeros(len(files), dtype=bool)
    order = np.argsort(files, kind="stable")
    present, starts = np.unique(files[order], return_index=True)
    for file, here in zip(present.tolist(), np.split(order, starts)[1:], strict=True):
        if file not in stretches:
            continue
        ordered = np.array(sorted(stretches[file]), dtype=np.int64)
        ends = np.maximum.accumulate(ordered[:, 1])  # stretches may overlap: one of each sampling step
        index = np.searchsorted(ordered[:, 0], offsets[here], side="right") - 1
        inside[here] = (index >= 0) & (offsets[here] < ends[np.maximum(index, 0)])
    return inside
