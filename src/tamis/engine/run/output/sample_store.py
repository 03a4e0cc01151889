"""The samples of a run in its run directory: joins what the units of the work chose, and keeps it in `samples.jsonl`.

Samples that a partition brings are appended before the partition is logged. A run that is killed in between does that
partition again, and finds the same samples: choosing them twice changes nothing, so that the file needs no entry in the
commit log. Lines that are not chosen any more are removed when the file has grown, and at the end of the run.

The number of lines appended follows from the limits that workers get with each unit: of n documents in random order
about k * ln(n / k) are among the k smallest so far.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from tamis import files
from tamis.engine.samples import (
    FILE,
    DocumentSample,
    SampleLimits,
    SampleSelection,
    encode_sample,
    read_lines,
    read_samples,
    select,
)

_MAX_BYTES = 8 << 20  # before lines that are not chosen any more are removed


class SampleStore:
    """Owns the file of one run. `merge` and `close` are called by one thread; `limits` may be read by another."""

    def __init__(self, run_dir: str) -> None:
        self._path = os.path.join(run_dir, FILE)
        self._selection = SampleSelection()
        with contextlib.suppress(OSError):
            with open(self._path, "rb") as file:
                self._selection = select(read_samples(file))
            self._rewrite()  # a run that was killed may have left half a line
        self.limits: SampleLimits = self._selection.limits()

    def merge(self, paths: Iterable[str]) -> None:
        """Take the samples of staged files. A disk that is full costs samples, never a commit."""
        with contextlib.suppress(OSError):
            chosen = b"".join(line for p in paths for sample, line in _read(p) if self._selection.add(sample))
            if not chosen:
                return
            self.limits = self._selection.limits()
            with open(files.open_to_append(self._path), "ab") as file:
                file.write(chosen)
                n_bytes = file.tell()
            if n_bytes > _MAX_BYTES:
                self._rewrite()

    def close(self) -> None:
        """Leave in the file what is chosen, in order of the keys."""
        with contextlib.suppress(OSError):
            if os.path.exists(self._path):
                self._rewrite()

    def _rewrite(self) -> None:
        lines = b"".join(map(encode_sample, self._selection.samples()))
        files.write_bytes(self._path, lines, files.OWN, sync=False)


def _read(path: str) -> list[tuple[DocumentSample, bytes]]:
    with open(path, "rb") as file:
        return list(read_lines(file))
