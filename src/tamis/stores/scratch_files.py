"""Scratch in a bucket (`--scratch s3://bucket/path`): written in parts, read by ranges, removed at the end.

What grows with the input is stored in the bucket; on this machine there are at most two parts of each file that is
being written. Scratch of a run has a name that cannot be guessed, and one process at a time writes there: nothing is
asked about who came first.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from typing import Any, BinaryIO

from tamis import files
from tamis.errors import StoreError, UsageError
from tamis.stores.opening import forget, source_of
from tamis.stores.reading import prefetch
from tamis.stores.s3 import Bucket, NoBucket
from tamis.stores.uploads import put_file
from tamis.stores.urls import is_bucket, output_url, scratch_url, split_s3

PART_BYTES = 8 << 20
_mapped: dict[str, str] = {}  # local folders of this process, and the URLs that store their large files


def map_folder(folder: str, url: str) -> None:
    """Map large files below a local folder to `url` for the rest of this process."""
    if url:
        _mapped[os.path.abspath(folder)] = url


def resolve(path: str) -> str:
    """Return the actual location of a large scratch file or folder: its URL, or the path itself if not mapped."""
    if not _mapped or is_bucket(path):
        return path
    whole = os.path.abspath(path)
    for folder, url in _mapped.items():
        if whole.startswith(folder + os.sep):
            return f"{url}/{whole[len(folder) + 1 :]}"
    return path


def new_scratch_url(parent: str, prefix: str) -> str:
    """Return an unused name below `parent`, for the scratch of one run."""
    return f"{scratch_url(parent)}/{prefix}{os.urandom(8).hex()}"


def refuse_inside(output: str, scratch: Any) -> None:
    """Raise UsageError if scratch in a bucket would be stored in the output, as data of another writer."""
    if not (isinstance(scratch, str) and is_bucket(scratch) and is_bucket(output)):
        return
    if f"{scratch_url(scratch)}/".startswith(f"{output_url(output)}/"):
        raise UsageError(f"scratch: {scratch} is inside the output {output}; give a location outside of it")


def check_writable(url: str) -> None:
    """Raise StoreError now if objects cannot be written and removed below a location of `new_scratch_url`."""
    name, prefix = split_s3(url)
    bucket, key = Bucket(name), f"{prefix}/probe"
    bucket.put(key, b"")
    bucket.delete(key)


def exists(path: str) -> bool:
    """Return True if a scratch file exists, local or not."""
    if not is_bucket(path):
        return os.path.isfile(path)
    forget(path)
    with contextlib.suppress(FileNotFoundError):
        return source_of(path).size >= 0
    return False


def open_to_write(path: str) -> BinaryIO | BucketFile:
    """Open a new file, on this machine or in the bucket."""
    return BucketFile(path) if is_bucket(path) else open(path, "wb")


class BucketFile(files.Finishing):
    """An object that is written from its beginning to its end.

    Its first bytes can be changed as long as it is open (`seek(0)`).

    Bytes wait in a local file without a name: the first part until the end, the others until they are one part.
    """

    def __init__(self, url: str) -> None:
        name, self._key = split_s3(url)
        self._bucket, self._url = Bucket(name), url
        self._file = tempfile.TemporaryFile(dir=next(iter(_mapped), None))  # noqa: SIM115 - closed in close()
        self._n_buffered = self._sent = 0  # bytes in the file, and in parts that are sent
        self._upload = self._mark = ""
        self._parts: list[str] = []  # those after the first

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        done = 0
        while done < len(view):
            n = min(len(view) - done, 2 * PART_BYTES - self._n_buffered)
            self._file.write(view[done : done + n])
            self._n_buffered, done = self._n_buffered + n, done + n
            if self._n_buffered == 2 * PART_BYTES:
                self._send_part()
        return len(view)

    def tell(self) -> int:
        return self._n_buffered + self._sent

    def patch(self, data: bytes) -> None:
        """Write over the first bytes."""
        self._file.seek(0)
        self._file.write(data)
        self._file.seek(self._n_buffered)

    def _send_part(self) -> None:
        if not self._upload:
            self._mark = os.urandom(12).hex()
            self._upload = self._bucket.begin(self._key, self._mark)
        self._file.seek(PART_BYTES)
        data = self._file.read(self._n_buffered - PART_BYTES)
        self._parts.append(self._bucket.part(self._key, self._upload, len(self._parts) + 2, data))
        self._sent += len(data)
        self._n_buffered = PART_BYTES
        self._file.seek(PART_BYTES)
        self._file.truncate()

    def close(self) -> None:
        """Move the complete file over what was there before."""
        if self._file.closed:
            return
        with self._file:
            if self._n_buffered > PART_BYTES:
                self._send_part()
            self._file.seek(0)
            data = self._file.read(self._n_buffered)
        if self._upload:
            first = self._bucket.part(self._key, self._upload, 1, data)
            self._bucket.delete(self._key)  # of an attempt that was killed
            self._bucket.complete(self._key, self._upload, [first, *self._parts], self._mark)
        else:
            self._bucket.put(self._key, data)
        forget(self._url)

    def abort(self) -> None:
        """Leave nothing of it."""
        self._file.close()
        if self._upload:
            with contextlib.suppress(OSError, StoreError):  # else removed with all scratch of the run
                self._bucket.abort(self._key, self._upload)


def send_file(path: str, url: str) -> None:
    """Move a local file into the bucket."""
    name, key = split_s3(url)
    put_file(Bucket(name), key, path)
    os.unlink(path)


def remove_object(url: str) -> None:
    name, key = split_s3(url)
    Bucket(name).delete(key)


def remove_tree(url: str) -> None:
    """Delete everything below a location that `new_scratch_url` returned, including incomplete uploads."""
    name, prefix = split_s3(output_url(url))
    bucket = Bucket(name)
    with contextlib.suppress(NoBucket):
        for _ in prefetch(lambda entry: bucket.delete(entry.key), bucket.objects(f"{prefix}/"), is_remote=True):
            pass
        for key, upload, _ in bucket.uploads(f"{prefix}/"):
            bucket.abort(key, upload)


def bytes_below(url: str) -> int:
    """Return the number of bytes stored below `url`."""
    name, prefix = split_s3(output_url(url))
    return sum(entry.size for entry in Bucket(name).objects(f"{prefix}/"))
