"""One call for local and remote paths: open a file, tell its size and its version, give Arrow something to read from.

A remote file is looked at once per process, and read as the version that was seen then: what formats read after each other (a
footer, then rows) belongs together or fails. Who plans a run compares versions; `forget` looks again.
"""

from __future__ import annotations

import errno
import os
from typing import Any, BinaryIO, cast

from tamis.stores.reading import RemoteFile, Source
from tamis.stores.urls import is_bucket, is_remote, split_s3

_MOST_SEEN = 4096
_seen: dict[str, Source] = {}


def source_of(url: str) -> Source:
    """The file as it was when this process first looked at it. FileNotFoundError where there is none."""
    if url not in _seen:
        if len(_seen) >= _MOST_SEEN:
            _seen.clear()
        _seen[url] = _look(url)
    return _seen[url]


def is_there(url: str) -> bool:
    """Whether there is such an object in its bucket, for who looks for one on the chance.

    In a bucket that we may not list, what is refused counts as missing: nothing tells the two apart.
    """
    from tamis.stores.s3 import Bucket, Refused

    try:
        source_of(url)
    except FileNotFoundError:
        return False
    except Refused:
        name, key = split_s3(url)
        if Bucket(name).may_list(key):
            raise
        return False
    return True


def _look(url: str) -> Source:
    if is_bucket(url):
        from tamis.stores.s3 import Bucket, S3Source

        name, key = split_s3(url)
        bucket = Bucket(name)
        found = bucket.head(key)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), url)
        return S3Source(bucket, found)
    from tamis.stores.http import HttpSource

    return HttpSource(url)


def forget(url: str) -> None:
    """Look at this file anew when it is next opened."""
    _seen.pop(url, None)


def open_input(path: str | os.PathLike[str]) -> BinaryIO:
    """A file to read, unbuffered: of this machine, or remote."""
    if is_remote(path):
        return cast("BinaryIO", RemoteFile(source_of(str(path))))
    return open(path, "rb", buffering=0)


def open_buffered(path: str | os.PathLike[str]) -> BinaryIO:
    """The same for who reads in small pieces."""
    return cast("BinaryIO", RemoteFile(source_of(str(path)))) if is_remote(path) else open(path, "rb")


def open_arrow(path: str | os.PathLike[str]) -> Any:
    """The same for Arrow. Names that are not UTF-8 are no obstacle."""
    import pyarrow as pa

    if is_remote(path):
        return pa.PythonFile(RemoteFile(source_of(str(path))), mode="r")
    return pa.OSFile(os.fsencode(path))


def size_of(path: str | os.PathLike[str]) -> int:
    return source_of(str(path)).size if is_remote(path) else os.path.getsize(path)


def state_of(path: str) -> tuple[int, int]:
    """Size and version (of a local file: its time of change in ns), as the plan of a run has them."""
    if is_remote(path):
        source = source_of(path)
        return source.size, source.version
    info = os.stat(path)
    return info.st_size, info.st_mtime_ns


def state_of_open(file: BinaryIO) -> tuple[int, int]:
    """The same of a file that is open."""
    if isinstance(file, RemoteFile):
        return file.source.size, file.source.version
    info = os.fstat(file.fileno())
    return info.st_size, info.st_mtime_ns


def read_at(file: BinaryIO, view: memoryview, offset: int) -> int:
    """As os.preadv for one buffer, of an open local or remote file: how many bytes were read."""
    if isinstance(file, RemoteFile):
        n = max(0, min(len(view), file.source.size - offset))
        file.pread_into(view[:n], offset)
        return n
    return os.preadv(file.fileno(), [view], offset)


def warm() -> None:
    """Load boto3 and make its client, before a process has a cap and before it is forked. No request is made."""
    from tamis.stores.options import Options, of_bucket, settings
    from tamis.stores.s3 import client

    for options in {Options(), *(of_bucket(b) for b in settings())}:
        client(options)
