"""Uploads of local files to a bucket, in parts, invisible until they are completed.

Workers send, the driver completes.
"""

from __future__ import annotations

import errno
import os
from typing import Any, BinaryIO, NamedTuple

from tamis.stores.s3 import Bucket

PART_BYTES = 8 << 20
_MOST_PARTS = 9000  # stores allow 10,000


class Upload(NamedTuple):
    """Identifiers that complete an upload; reports and the commit log hold them as a list."""

    id: str
    mark: str
    parts: list[str]  # their ETags, in order

    @classmethod
    def from_list(cls, values: Any) -> Upload:
        """Parse an upload from a report or the log; raise ValueError if malformed."""
        upload, mark, parts = values
        if not all(isinstance(v, str) for v in (upload, mark, *parts)):
            raise ValueError("no upload")
        return cls(upload, mark, list(parts))


def send(bucket: Bucket, key: str, path: str) -> Upload:
    """Send the file `path` as an upload of `key`.

    Holds one part at a time. What fails half-way is aborted, as far as that goes.
    """
    mark = os.urandom(12).hex()
    upload = bucket.begin(key, mark)
    try:
        with open(path, "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            each = max(PART_BYTES, -(-size // _MOST_PARTS))
            parts: list[str] = []
            while not parts or file.tell() < size:
                parts.append(bucket.part(key, upload, len(parts) + 1, _exactly(file, min(each, size - file.tell()))))
    except BaseException:
        try:
            bucket.abort(key, upload)
        except OSError:
            pass  # found and aborted when the run ends or restarts
        raise
    return Upload(upload, mark, parts)


def put_file(bucket: Bucket, key: str, path: str) -> None:
    """Upload a file as one object, replacing the one that has the key."""
    if os.path.getsize(path) <= PART_BYTES:
        with open(path, "rb") as file:
            bucket.put(key, file.read())
        return
    upload = send(bucket, key, path)
    bucket.delete(key)
    bucket.complete(key, upload.id, upload.parts, upload.mark)


def _exactly(file: BinaryIO, n: int) -> bytes:
    """Return the next n bytes of a file that has them."""
    data = file.read(n)
    while len(data) < n:
        more = file.read(n - len(data))
        if not more:
            raise OSError(errno.EIO, "a staged file became shorter while it was sent")
        data += more
    return data
