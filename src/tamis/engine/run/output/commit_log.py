"""The commit log: one checksummed line per commit. It is the truth about a run.

A torn last line (the process or the machine died while writing) does not count; a damaged line in the middle is an error. Lines
are data from a folder that others may write to: they are validated, never unpickled.
"""

from __future__ import annotations

import errno
import json
import os
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

from tamis import files
from tamis.errors import RunConflict


class CommitLog:
    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = -1
        self._is_torn = False  # an append failed half-way, and what it wrote could not be taken back

    def read(self, mend: bool = False) -> Iterator[dict[str, Any]]:
        """Yield all records, skipping a torn tail.

        `mend`: also cut the torn tail off. Use it only while holding the run's lock: to other processes, the line that
        is being written at this moment looks torn, too.
        """
        if not os.path.exists(self.path):
            return
        with open(self.path, "rb") as file:
            at = 0
            for line in file:
                record = parse(line)
                if record is None:
                    if file.read(1):
                        raise RunConflict(
                            f"{self.path} is damaged at byte {at}: it is not a torn last line, so the run cannot be resumed; "
                            "start over with fresh=True (--fresh)"
                        )
                    if mend:
                        os.truncate(self.path, at)
                    return
                at += len(line)
                yield record

    def append(self, records: list[dict[str, Any]]) -> None:
        """Add records and wait until they are on disk."""
        if self._is_torn:
            raise OSError(errno.EIO, "its last write failed half-way; run the same command again", self.path)
        if self._fd < 0:
            self._fd = files.open_to_append(self.path)
        data = b"".join(line_of(r) for r in records)
        start = os.fstat(self._fd).st_size
        try:
            while data:
                data = data[os.write(self._fd, data) :]
            os.fdatasync(self._fd)
        except OSError:
            self._is_torn = True  # half a line must not stand before a later one
            os.ftruncate(self._fd, start)
            self._is_torn = False
            raise

    def rewrite(self, records: Iterable[dict[str, Any]]) -> None:
        """Make these the whole log: of a run whose log lies in a bucket, and has a copy here; or without a step that is taken back."""
        self.close()  # it is about to be another file
        with files.replacing(self.path, files.OWN) as out:
            for record in records:
                out.write(line_of(record))

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def line_of(record: dict[str, Any]) -> bytes:
    body = json.dumps(record, separators=(",", ":"), ensure_ascii=True).encode()
    return b"%08x %s\n" % (zlib.crc32(body), body)


def parse(line: bytes) -> dict[str, Any] | None:
    """Parse the record of one line; return None if the line is damaged or torn."""
    if len(line) < 12 or line[8:9] != b" " or not line.endswith(b"\n"):
        return None
    body = line[9:-1]
    try:
        if int(line[:8], 16) != zlib.crc32(body):
            return None
        record = json.loads(body)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None
