"""What became of documents on which a run has no verdict, many at once: kept, set aside, not read yet, perhaps not in the sample.

Reads the commit log and the quarantine, neither input nor output. `without_verdict.py` tells more of a single one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tamis._lazy import np
from tamis.observe.commits import covers, steps_of
from tamis.observe.quarantine import read_entries
from tamis.observe.without_verdict import ASIDE, KEPT, NOT_READ

PERHAPS = "kept or not in the sample"
Stretches = dict[int, list[tuple[int, int]]]
"""Of each file by its number: first place, and the place behind the last."""


class Unjudged:
    """One run. `numbers`: those that its input files have for who asks, by path."""

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
        found = np.full(len(files), KEPT, dtype=object)
        if self._has_log:
            found[~_inside(self._whole, files, offsets)] = PERHAPS
            found[~_inside(self._read, files, offsets)] = NOT_READ
        found[_inside(self._aside, files, offsets)] = ASIDE
        return found


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
        at = np.searchsorted(ordered[:, 0], offsets[here], side="right") - 1
        inside[here] = (at >= 0) & (offsets[here] < ends[np.maximum(at, 0)])
    return inside
