"""Opens local and remote paths by one call, for Arrow too, and returns their size and version.

A remote file is looked at once per process, and read as the version that was seen then: what formats read after each
other (a footer, then rows) belongs together or fails. Who plans a run compares versions; `forget` looks again.
"""

from __future__ import annotations

import errno
import os
from typing import Any, BinaryIO, cast

from tamis.stores.reading import RemoteFile, RemoteSource
from tamis.stores.urls import is_bucket, is_remote, split_s3

_MAX_SOURCES = 4096
_sources: dict[str, RemoteSource] = {}


def source_of(url: str) -> RemoteSource:
    """Return the file as it was when this process first looked at it; raise FileNotFoundError if there is none."""
    if url not in _sources:
        if len(_sources) >= _MAX_SOURCES:
            _sources.clear()
        _sources[url] = _find_source(url)
    return _sources[url]


def object_exists(url: str) -> bool:
    """Return True if there is such an object in its bucket, for callers that only try whether it exists.

    In a bucket that we may not list, a refused object counts as missing: the two cannot be distinguished.
    """
    from tamis.stores.s3 import AccessDenied, Bucket

    try:
        source_of(url)
    except FileNotFoundError:
        return False
    except AccessDenied:
        name, key = split_s3(url)
        if Bucket(name).may_list(key):
            raise
        return False
    return True


def _find_source(url: str) -> RemoteSource:
    if is_bucket(url):
        from tamis.stores.s3 import Bucket, S3Source

        name, key = split_s3(url)
        bucket = Bucket(name)
        info = bucket.head(key)
        if info is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), url)
        return S3Source(bucket, info)
    from tamis.stores.http import HttpSource

    return HttpSource(url)


def forget(url: str) -> None:
    """Check the state of this file again when it is next opened."""
    _sources.pop(url, None)


def open_input(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a local or remote file for reading, unbuffered."""
    if is_remote(path):
        return cast("BinaryIO", RemoteFile(source_of(str(path))))
    return open(path, "rb", buffering=0)


def open_buffered(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file like `open_input`, for callers that read in small pieces."""
    return cast("BinaryIO", RemoteFile(source_of(str(path)))) if is_remote(path) else open(path, "rb")


def open_arrow(path: str | os.PathLike[str]) -> Any:
    """Open a file like `open_input`, for Arrow. Names that are not UTF-8 are accepted."""
    import pyarrow as pa

    if is_remote(path):
        return pa.PythonFile(RemoteFile(source_of(str(path))), mode="r")
    return pa.OSFile(os.fsencode(path))


def size_of(path: str | os.PathLike[str]) -> int:
    return source_of(str(path)).size if is_remote(path) else os.path.getsize(path)


def state_of(path: str) -> tuple[int, int]:
    """Return size and version (of a local file: its time of change in ns), as in the plan of a run."""
    if is_remote(path):
        source = source_of(path)
        return source.size, source.version
    info = os.stat(path)
    return info.st_size, info.st_mtime_ns


def state_of_open(file: BinaryIO) -> tuple[int, int]:
    """Return size and version like `state_of`, for an open file."""
    if isinstance(file, RemoteFile):
        return file.source.size, file.source.version
    info = os.fstat(file.fileno())
    return info.st_size, info.st_mtime_ns


def read_at(file: BinaryIO, view: memoryview, offset: int) -> int:
    """Read into one buffer like os.preadv, from an open local or remote file; return the bytes read."""
    if isinstance(file, RemoteFile):
        n = max(0, min(len(view), file.source.size - offset))
        file.pread_into(view[:n], offset)
        return n
    return os.preadv(file.fileno(), [view], offset)


def warm() -> None:
    """Load boto3 and make its client, before a process has a cap and before it is forked. No request is made."""
    from tamis.stores.options import StoreOptions, of_bucket, settings
    from tamis.stores.s3 import client

    for options in {StoreOptions(), *(of_bucket(b) for b in settings())}:
        client(options)
