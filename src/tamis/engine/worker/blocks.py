"""Blocks of documents that one process writes and another one reads, in the scratch folder or among the staged files.

The checksum (XXH3-64 of all bytes) goes with the name, from process to process over their sockets: the reader of
a block detects what a bad disk or another user changed. Never pickled.
"""

from __future__ import annotations

import os
from typing import Any, BinaryIO

import numpy as np
import xxhash

from tamis import files
from tamis.errors import TamisError
from tamis.stores.opening import open_input
from tamis.stores.scratch_files import send_file
from tamis.stores.urls import is_bucket

_STEP = 1 << 22


class BlockFault(TamisError):
    """A block is not what was written. No document is to blame: the run ends."""


class BlockWriter(files.Closing):
    """A file object for libraries that write: a new file, and the checksum of what went into it."""

    def __init__(self, path: str, mode: int = 0o600) -> None:
        self._file: BinaryIO = files.create(path, mode)
        self._hash = xxhash.xxh3_64()
        self.n_bytes = 0

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._hash.update(view)
        self._file.write(view)
        self.n_bytes += len(view)
        return len(view)

    def tell(self) -> int:
        return self.n_bytes

    def flush(self) -> None:
        self._file.flush()

    @property
    def closed(self) -> bool:
        return self._file.closed

    @property
    def check(self) -> str:
        return str(self._hash.hexdigest())

    def close(self) -> None:
        self._file.close()


def sent_to(far: str, path: str) -> str:
    """Return the location of a block written to `path`.

    That is `path` itself, or, moved off this disk, the scratch in a bucket (`far`).
    """
    if not far:
        return path
    url = f"{far}/{os.path.basename(path)}"
    send_file(path, url)
    return url


def check_bytes(path: str, data: Any, check: str) -> None:
    """Verify the bytes of the block at `path`; raise BlockFault if they are not what was written."""
    if check and xxhash.xxh3_64_hexdigest(data) != check:
        raise BlockFault(_wrong(path))


def check_file(path: str, check: str) -> None:
    """Check a block that a library reads, as `check_bytes` does; it passes through one buffer."""
    if not check:
        return
    digest, buffer = xxhash.xxh3_64(), np.empty(_STEP, np.uint8)
    view: memoryview = memoryview(buffer)  # type: ignore[arg-type]
    if is_bucket(path):
        with open_input(path) as file:
            while n := file.readinto(view):  # type: ignore[attr-defined]
                digest.update(view[:n])
    else:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            while n := os.readv(fd, [view]):
                digest.update(view[:n])
        finally:
            os.close(fd)
    if digest.hexdigest() != check:
        raise BlockFault(_wrong(path))


def _wrong(path: str) -> str:
    return (
        f"{path} is not what was written to it: its checksum differs. The disk is damaged, or another process wrote to "
        "the folder (see --scratch); run the same command again with another one"
    )
