"""The samples of a run in its run directory: joins what the units of the work chose, and keeps it in `samples.jsonl`.

Samples that a partition brings are appended before the partition is logged. A run that is killed in between does that
partition again, and finds the same samples: choosing them twice changes nothing, so that the file needs no entry in the
commit log. Lines that are not chosen any more are removed when the file has grown, and at the end of the run.

Records stay in the file, and their samples are described when the run is through: `write_records` writes those that are
left, which a worker describes, and `settle` takes the result.

The number of lines appended follows from the limits that workers get with each unit: of n documents in random order
about k * ln(n / k) are among the k smallest so far.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import replace

from tamis import files
from tamis.engine.samples import (
    FILE,
    CompleteTo,
    DocumentSample,
    SampleLimits,
    SampleSelection,
    describe,
    encode_complete_to,
    encode_sample,
    read_lines,
    read_samples,
)

_MAX_BYTES = 16 << 20  # before lines that are not chosen any more are removed


class SampleStore:
    """Owns the file of one run. `merge` and `close` are called by one thread; `limits` may be read by another."""

    def __init__(self, run_dir: str) -> None:
        self._path = os.path.join(run_dir, FILE)
        self._selection = SampleSelection()
        self._locations: dict[int, tuple[int, int]] = {}  # of the lines of samples that have a record, by key
        with contextlib.suppress(OSError):
            with open(self._path, "rb") as file:
                start = 0
                for entry in read_samples(file):
                    self._consider(entry, start, file.tell() - start)
                    start = file.tell()
            self._rewrite()  # a run that was killed may have left half a line
        self.limits: SampleLimits = self._selection.limits()

    def _consider(self, entry: DocumentSample | CompleteTo, start: int, n_bytes: int) -> bool:
        """Return True if an entry, which is at `start` of the file, changes what is chosen."""
        if isinstance(entry, CompleteTo):
            self._selection.narrow(entry)
            return True
        if not self._selection.add(entry if entry.record is None else replace(entry, record=b"")):
            return False
        if entry.record is not None:
            self._locations[entry.key] = start, n_bytes
        return True

    def merge(self, paths: Iterable[str]) -> None:
        """Take the samples of staged files. A disk that is full costs samples, never a commit."""
        with contextlib.suppress(OSError):
            chosen, n_bytes = [], os.path.getsize(self._path) if os.path.exists(self._path) else 0
            for entry, line in (each for path in paths for each in _read(path)):
                if self._consider(entry, n_bytes, len(line)):
                    chosen.append(line)
                    n_bytes += len(line)
            if not chosen:
                return
            self.limits = self._selection.limits()
            with open(files.open_to_append(self._path), "ab") as file:
                file.write(b"".join(chosen))
            if n_bytes > _MAX_BYTES:
                self._rewrite()

    def write_records(self, path: str) -> bool:
        """Write the samples that are to be described into a file; return False, and write none, if there are none."""
        pending = [s.key for s in self._selection.samples() if s.record is not None]
        if not pending:
            return False
        with open(self._path, "rb") as source, files.create(path, files.OWN) as target:
            for key in pending:
                target.write(self._lines_at(source.fileno(), key))
        return True

    def settle(self, paths: Iterable[str]) -> None:
        """Take the described samples of staged files, and describe what is left without what its rule counted."""
        with contextlib.suppress(OSError):
            for entry, _ in (each for path in paths for each in _read(path)):
                if isinstance(entry, DocumentSample) and entry.record is None:
                    self._selection.replace(entry)
            pending = [s.key for s in self._selection.samples() if s.record is not None]
            if pending:
                with open(self._path, "rb") as file:
                    wanted = set(pending)
                    for entry in read_samples(file):
                        if isinstance(entry, DocumentSample) and entry.record is not None and entry.key in wanted:
                            self._selection.replace(describe(entry))
            self._rewrite()

    def close(self) -> None:
        """Leave in the file what is chosen."""
        with contextlib.suppress(OSError):
            if os.path.exists(self._path):
                self._rewrite()

    def _rewrite(self) -> None:
        """Write what is chosen, in order of the keys; records are copied."""
        locations = {}
        with open(self._path, "rb") as source, files.replacing(self._path, files.OWN, sync=False) as target:
            target.write(encode_complete_to(self._selection.complete_to))
            for sample in self._selection.samples():
                is_pending = sample.record is not None
                line = self._lines_at(source.fileno(), sample.key) if is_pending else encode_sample(sample)
                if is_pending:
                    locations[sample.key] = target.tell(), len(line)
                target.write(line)
        self._locations = locations

    def _lines_at(self, descriptor: int, key: int) -> bytes:
        start, n_bytes = self._locations[key]
        return os.pread(descriptor, n_bytes, start)


def _read(path: str) -> list[tuple[DocumentSample | CompleteTo, bytes]]:
    with open(path, "rb") as file:
        return list(read_lines(file))
