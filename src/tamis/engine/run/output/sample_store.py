"""The samples of a run in its run directory: joins what the units of the work chose, and keeps it in `samples.jsonl`.

Samples that a partition brings are appended before the partition is logged. A run that is killed in between does that
partition again, and finds the same samples: choosing them twice changes nothing, so that the file needs no entry in the
commit log. Lines that are not chosen any more are removed when the file has grown, and at the end of the run.

Samples are not decoded here, but for the roles that they may have: their lines are copied. Records stay in the file
until the run is through: `write_chosen` writes what is chosen, which a worker describes, and `settle` takes the result.

The number of lines appended follows from the limits that workers get with each unit: of n documents in random order
about k * ln(n / k) are among the k smallest so far.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable
from typing import IO

from tamis import files
from tamis.engine.samples import (
    FILE,
    MAX_FILE_BYTES,
    MAX_REMEMBERED,
    CompleteTo,
    RoleSelection,
    SampleLimits,
    SampleLine,
    describe_file,
    encode_complete_to,
    read_lines,
)

_MAX_BYTES = 16 << 20  # before lines that are not chosen any more are removed


class SampleStore:
    """Owns the file of one run. `merge` and `close` are called by one thread; `limits` may be read by another."""

    def __init__(self, run_dir: str) -> None:
        self._path = os.path.join(run_dir, FILE)
        self._chosen = RoleSelection()
        self._lines: dict[int, SampleLine] = {}  # by key, where they are in the file
        self._is_described = False  # the file was replaced by another process: `_lines` is of the one before
        self._is_settled = True  # the file has what is chosen, and nothing else
        with contextlib.suppress(OSError):
            for entry in read_lines(_read(self._path)):
                if isinstance(entry, CompleteTo):
                    self._chosen.narrow(entry)
                elif self._consider(entry):
                    self._lines[entry.key] = entry
            self._replace_file()  # a run that was killed may have left half a line
        self.limits: SampleLimits = self._chosen.limits()

    def _consider(self, entry: SampleLine) -> bool:
        """Return True if the lines of a sample are needed."""
        if not self._chosen.add(entry.key, entry.orders):
            return False
        known = self._lines.get(entry.key)
        return known is None or not known.has_text

    def merge(self, paths: Iterable[str]) -> None:
        """Take the samples of staged files. A disk that is full costs samples, never a commit."""
        with contextlib.suppress(OSError):
            if self._is_described:
                self._lines = {e.key: e for e in read_lines(_read(self._path)) if isinstance(e, SampleLine)}
                self._is_described = False
            chosen, n_bytes = [], os.path.getsize(self._path) if os.path.exists(self._path) else 0
            for data in map(_read, paths):
                for entry in read_lines(data):
                    if isinstance(entry, CompleteTo):
                        self._chosen.narrow(entry)
                        self._is_settled = False
                    elif self._consider(entry):
                        chosen.append(memoryview(data)[entry.start : entry.end])
                        end = n_bytes + len(chosen[-1])
                        self._lines[entry.key] = entry._replace(start=n_bytes, end=end)
                        n_bytes = end
            if not chosen:
                return
            self._is_settled = False
            self.limits = self._chosen.limits()
            with open(files.open_to_append(self._path), "ab") as file:
                file.writelines(chosen)
            if len(self._lines) > MAX_REMEMBERED:
                self._lines = {key: self._lines[key] for key in self._chosen.members()}
            if n_bytes > _MAX_BYTES:
                self._replace_file()

    def write_chosen(self, path: str) -> bool:
        """Write the samples that are chosen into a file; return False, and write none, if all are described."""
        if self._is_described or not any(self._lines[key].has_record for key in self._chosen.members()):
            return False
        with open(self._path, "rb") as source, files.create(path, files.OWN) as target:
            self._copy(source, target)
        return True

    def settle(self, chosen: str, described: str | None) -> None:
        """Take a file of described samples, or describe what was chosen without what its rules counted."""
        with contextlib.suppress(OSError):
            with (
                files.replacing(self._path, files.OWN, sync=False) as target,
                open(described or chosen, "rb") as source,
            ):
                if described is None:
                    describe_file(source, target, lambda sample, text: ())
                else:
                    shutil.copyfileobj(source, target)
            self._is_settled = self._is_described = True

    def close(self) -> None:
        """Leave in the file what is chosen."""
        with contextlib.suppress(OSError):
            if not self._is_settled and os.path.exists(self._path):
                self._replace_file()

    def _replace_file(self) -> None:
        """Write what is chosen, in order of the keys."""
        with open(self._path, "rb") as source, files.replacing(self._path, files.OWN, sync=False) as target:
            self._lines = self._copy(source, target)
        self._is_settled = True

    def _copy(self, source: IO[bytes], target: IO[bytes]) -> dict[int, SampleLine]:
        """Copy the lines of what is chosen; return where they are now."""
        target.write(encode_complete_to(self._chosen.complete_to))
        lines = {}
        for key in self._chosen.members():
            entry, start = self._lines[key], target.tell()
            target.write(os.pread(source.fileno(), entry.end - entry.start, entry.start))
            lines[key] = entry._replace(start=start, end=target.tell())
        return lines


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.read(min(os.fstat(file.fileno()).st_size, MAX_FILE_BYTES))
