"""The commit log: one checksummed line per commit. It is the truth about a run.

A torn last line (the process or the machine died while writing) does not count; a damaged line in the middle is an
error. Lines are data from a folder that others may write to: they are validated, never unpickled. `FileTable` has the
committed files of a log in little memory.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence

from tamis import files
from tamis.engine.schema import CommitOrReplace, CommittedFile, FileKind, LogRecord, ReplaceRecord, log_record
from tamis.errors import RunConflict


class CommitLog:
    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = -1
        self._is_torn = False  # an append failed half-way, and what it wrote could not be taken back

    def read(self, repair: bool = False) -> Iterator[CommitOrReplace]:
        """Yield all records, skipping a torn tail.

        `repair`: also cut the torn tail off. Use it only while holding the run's lock: to other processes, the line
        that is being written at this moment looks torn, too.
        """
        if not os.path.exists(self.path):
            return
        with open(self.path, "rb") as file:
            offset = 0
            for line in file:
                record = parse(line)
                if record is None:
                    if file.read(1):
                        raise RunConflict(
                            f"{self.path} is damaged at byte {offset}: it is not a torn last line, so the run cannot "
                            "be resumed; start over with fresh=True (--fresh)"
                        )
                    if repair:
                        os.truncate(self.path, offset)
                    return
                offset += len(line)
                if not isinstance(record, CommitOrReplace):
                    raise RunConflict(
                        f"{self.path} has a record of the log of a bucket; start over with fresh=True (--fresh)"
                    )
                yield record

    def append(self, records: Sequence[CommitOrReplace], is_synced: bool = True) -> None:
        """Add records and, if they are to be synced, wait until they are on disk."""
        if self._is_torn:
            raise OSError(errno.EIO, "its last write failed half-way; run the same command again", self.path)
        if self._fd < 0:
            self._fd = files.open_to_append(self.path)
        data = b"".join(line_of(r) for r in records)
        start = os.fstat(self._fd).st_size
        try:
            while data:
                data = data[os.write(self._fd, data) :]
            if is_synced:
                os.fdatasync(self._fd)
        except OSError:
            self._is_torn = True  # no later line may follow half a line
            os.ftruncate(self._fd, start)
            self._is_torn = False
            raise

    def rewrite(self, records: Iterable[CommitOrReplace]) -> None:
        """Replace the whole log: by a copy of the log in a bucket, or without a sampling step that is retracted."""
        self.close()  # it is about to be another file
        with files.replacing(self.path, files.OWN) as out:
            for record in records:
                out.write(line_of(record))

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def line_of(record: LogRecord) -> bytes:
    """Return the line of the log for a record."""
    return checked_line(json.dumps(record.to_dict(), separators=(",", ":"), ensure_ascii=True).encode())


def checked_line(body: bytes) -> bytes:
    """Return a line of the log: the checksum of its body, and the body."""
    return b"%08x %s\n" % (zlib.crc32(body), body)


def parse(line: bytes) -> LogRecord | None:
    """Parse the record of one line; return None if the line is damaged or torn."""
    if len(line) < 12 or line[8:9] != b" " or not line.endswith(b"\n"):
        return None
    body = line[9:-1]
    try:
        return log_record(json.loads(body)) if int(line[:8], 16) == zlib.crc32(body) else None
    except (LookupError, TypeError, ValueError, AttributeError):
        return None


_KINDS = list(FileKind)


class FileTable:
    """Committed files by name, in about 200 bytes each (a run may write 100,000)."""

    def __init__(self) -> None:
        self._index: dict[str, int] = {}
        self._kinds = bytearray()
        self._rows, self._bytes = array("q"), array("q")
        self._contents = bytearray()  # 16 bytes each
        self._schemas: dict[
            int, CommittedFile
        ] = {}  # of files with a schema or a check: these, with the numbers left out

    @classmethod
    def of(cls, records: Iterable[CommitOrReplace]) -> FileTable:
        """Return the files of a log; those that were replaced are left out."""
        table = cls()
        for record in records:
            if isinstance(record, ReplaceRecord):
                for name in record.old:
                    table.discard(name)
            for file in record.files:
                table.add(file)
        return table

    def add(self, file: CommittedFile) -> None:
        i = self._index.setdefault(file.name, len(self._kinds))
        if i == len(self._kinds):
            self._kinds.append(0)
            self._rows.append(0)
            self._bytes.append(0)
            self._contents.extend(bytes(16))
        self._kinds[i] = _KINDS.index(file.kind)
        self._rows[i], self._bytes[i] = file.rows, file.n_bytes or 0
        self._contents[i * 16 : i * 16 + 16] = file.content_sum.to_bytes(16, "big")
        if (file.schema, file.observed, file.check, file.partition) != (None, None, None, None):
            schema, observed = (None if s is None else sys.intern(s) for s in (file.schema, file.observed))
            self._schemas[i] = CommittedFile(
                file.name, file.kind, schema=schema, observed=observed, check=file.check, partition=file.partition
            )

    def discard(self, name: str) -> None:
        self._index.pop(name, None)

    def __getitem__(self, name: str) -> CommittedFile:
        i = self._index[name]
        content = self._contents[i * 16 : i * 16 + 16].hex()
        file = self._schemas.get(i) or CommittedFile(name, _KINDS[self._kinds[i]])
        return file._replace(rows=self._rows[i], n_bytes=self._bytes[i], content=content)

    def __contains__(self, name: object) -> bool:
        return name in self._index

    def values(self) -> Iterator[CommittedFile]:
        return (self[name] for name in self._index)

    def written(self) -> Iterator[CommittedFile]:
        """Yield output files and files that stages listed, in the order of the input."""
        return (file for name in sorted(self._index) if (file := self[name]).kind in (FileKind.OUTPUT, FileKind.LISTED))
