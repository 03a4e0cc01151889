"""The commit log of an output in a bucket, read without holding it in memory.

A few objects at a time go into a file without a name, and from there record by record to the caller (bucket_output.py,
when a run directory is opened).

Memory: eight small objects, or one step of a large one (a merge of shards writes all of its records as one object), and
what is known of sampling steps that were taken back.
"""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO, cast

from tamis.engine.run.output.commit_log import parse
from tamis.engine.schema import CommitOrReplace, CommitRecord, RetractRecord
from tamis.errors import RunConflict
from tamis.files import Closing
from tamis.stores.reading import RemoteFile, read_all
from tamis.stores.s3 import Bucket, S3Source

_SMALL_BYTES = 1 << 20
N_REQUESTS = 8  # at the same time


class SpooledLog(Closing):
    """All lines of the log objects `keys`, in order, in a file of `folder` that goes when this is closed."""

    def __init__(self, bucket: Bucket, keys: Sequence[str], folder: str) -> None:
        os.makedirs(folder, exist_ok=True)
        self._file: IO[bytes] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed in close()
        self._retracted: dict[int, int] = {}  # sampling step: number of the last line that retracts it
        try:
            self._fill(bucket, keys)
        except BaseException:
            self._file.close()
            raise

    def _fill(self, bucket: Bucket, keys: Sequence[str]) -> None:
        n_lines = 0
        for key, lines in _objects(bucket, keys):
            for line in lines:
                record = parse(line)
                if record is None:
                    raise RunConflict(f"{bucket.url(key)} is damaged; start over with fresh=True (--fresh)")
                if isinstance(record, RetractRecord):
                    self._retracted[record.sampling_step] = n_lines
                self._file.write(line)
                n_lines += 1

    def valid(self) -> Iterator[CommitOrReplace]:
        """Yield the valid records in order, without those of steps that a later record retracts."""
        return (record for record, is_retracted in self._records() if not is_retracted)

    def retracted(self) -> Iterator[CommitOrReplace]:
        """Yield the commits of sampling steps that a later record retracts."""
        return (record for record, is_retracted in self._records() if is_retracted)

    def _records(self) -> Iterator[tuple[CommitOrReplace, bool]]:
        self._file.seek(0)
        for number, line in enumerate(self._file):
            record = parse(line)
            if record is None:
                raise RunConflict("the log of the run changed on this machine's disk while it was read; run again")
            if isinstance(record, CommitOrReplace):
                step = record.sampling_step if isinstance(record, CommitRecord) else -1
                yield record, number < self._retracted.get(step, -1)

    def close(self) -> None:
        self._file.close()


def _objects(bucket: Bucket, keys: Sequence[str]) -> Iterator[tuple[str, Iterable[bytes]]]:
    """Yield the lines of each object.

    Small objects are requested together, a few at a time; a large one is read in steps.
    """

    def head(key: str) -> S3Source | bytes:
        info = bucket.head(key)
        if info is None:
            raise RunConflict(f"{bucket.url(key)} is gone; start over with fresh=True (--fresh)")
        source = S3Source(bucket, info)
        return source if info.size > _SMALL_BYTES else read_all(source)

    with ThreadPoolExecutor(N_REQUESTS) as pool:
        for first in range(0, len(keys), N_REQUESTS):
            group = keys[first : first + N_REQUESTS]
            for key, info in zip(group, pool.map(head, group), strict=True):
                if isinstance(info, bytes):
                    yield key, info.splitlines(keepends=True)
                else:
                    yield key, io.BufferedReader(cast("io.RawIOBase", RemoteFile(info)), _SMALL_BYTES)
