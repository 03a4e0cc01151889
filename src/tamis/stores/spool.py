"""Local copies of remote files that are read at random: by decoders of video, and by stages that share a tar.

A worker keeps copies in the scratch folder of its run, where they count as scratch: each is made once, for all workers
of the machine, and bounded together. Where a copy does not fit, copies that are not open are removed, the one used
longest ago first; where that is not enough, or there is no folder (by hand, and for reports), the file is read where it
lies, in ranges. A copy holds one version of a file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, NamedTuple

from tamis import files
from tamis.stores.opening import source_of
from tamis.stores.reading import RemoteFile, RemoteSource, copy_into, retry_if_damaged
from tamis.stores.urls import is_remote, name_in

_SHARE = 4  # of what is free on the disk, one part in so many
_FREED = 8  # where room is made, one part in so many is free then: making it takes a look at every copy
_COUNT_BYTES = 8
_LOCK = ".lock"
_FIRST_WINDOW, _LARGEST_WINDOW = 64 << 10, 4 << 20
_NEAR_BYTES = 1 << 20


class _Place(NamedTuple):
    folder: str
    most_bytes: int | None


_place: _Place | None = None


def keep_copies(folder: str | None, most_bytes: int | None = None) -> None:
    """Set where this process, and those forked from it, keep copies; None: nowhere.

    By default at most a quarter of what is free there now.
    """
    global _place
    _place = None if folder is None else _Place(folder, most_bytes)


class Bytes(files.Closing):
    """An open file of which parts are read, local or remote: a file descriptor, which it closes, or a remote file.

    Use as a context manager.
    """

    def __init__(self, file: int | RemoteFile) -> None:
        self._remote = None if isinstance(file, int) else file
        self._fd = file if isinstance(file, int) else -1
        self._held, self._held_at, self._window = b"", 0, _FIRST_WINDOW

    @property
    def size(self) -> int:
        return os.fstat(self._fd).st_size if self._remote is None else self._remote.source.size

    @property
    def version(self) -> tuple[int, int]:
        """Another one whenever the contents are."""
        if self._remote is not None:
            return self._remote.source.version, 0
        info = os.fstat(self._fd)
        return info.st_mtime_ns, info.st_ino

    def pread(self, n: int, at: int) -> bytes:
        """Read `n` bytes from `at` on.

        Fewer at the end of the file, and maybe fewer than asked for of a local one, as os.pread.
        """
        if self._remote is None:
            return os.pread(self._fd, max(0, n), at)
        size = self._remote.source.size
        n = min(n, size - at)
        if n <= 0:
            return b""
        first = at - self._held_at
        if not 0 <= first <= len(self._held) - n:
            is_near = 0 <= at - self._held_at <= len(self._held) + _NEAR_BYTES and bool(self._held)
            self._window = min(_LARGEST_WINDOW, 2 * self._window) if is_near else _FIRST_WINDOW
            window = bytearray(min(max(n, self._window), size - at))
            self._held = b""
            self._remote.pread_into(memoryview(window), at)
            self._held, self._held_at, first = bytes(window), at, 0
        return self._held[first : first + n]

    def close(self) -> None:
        if self._remote is not None:
            self._remote.close()
        elif self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


def open_bytes(path: str) -> Bytes:
    """Open a file to read parts of it: a local file, a local copy, or the remote file itself."""
    if not is_remote(path):
        return Bytes(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    copy = _copy(path)
    if copy is None:
        return Bytes(RemoteFile(source_of(path)))
    with copy:
        return Bytes(fcntl.fcntl(copy.fileno(), fcntl.F_DUPFD_CLOEXEC))  # its lock goes with the last of the two


@contextmanager
def local_or_open(path: str) -> Iterator[str | RemoteFile]:
    """Yield the path of a local file or copy, which stays while this is open; else the open remote file."""
    if not is_remote(path):
        yield path
        return
    copy = _copy(path)
    if copy is None:
        with RemoteFile(source_of(path)) as file:
            yield file
        return
    with copy:
        yield str(copy.name)


# -- copies -----------------------------------------------------------------------------------------------------------
def _copy(url: str) -> BinaryIO | None:
    """Return the copy, open and thus protected from removal; None if there is none and it cannot be created."""
    if _place is None:
        return None
    os.makedirs(_place.folder, mode=0o700, exist_ok=True)
    source = source_of(url)
    digest = hashlib.blake2b(f"{source.size} {source.version} {url}".encode("utf-8", "surrogateescape"), digest_size=16)
    path = os.path.join(_place.folder, digest.hexdigest() + os.path.splitext(name_in(url))[1][:8].lower())
    while (copy := files.open_shared(path)) is None:
        lock = files.take_lock(path + _LOCK, wait=True)
        try:
            if not os.path.exists(path) and not _store_copy(path, source, _place):
                return None
        except OSError as exc:
            if exc.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            return None  # another process filled the disk meanwhile
        finally:
            files.remove(path + _LOCK)  # else as many files without contents as there are copies
            os.close(lock)
    with contextlib.suppress(OSError):
        os.utime(path, ns=(now := time.time_ns(), now))  # as exact as can be: the system's own step is 4 ms
    return copy


def _store_copy(path: str, source: RemoteSource, place: _Place) -> bool:
    """Fetch a file; False where there is no room for it. Only with the lock of its name."""
    with contextlib.ExitStack() as stack:
        lock = files.take_lock(os.path.join(place.folder, _LOCK), wait=True)
        try:
            if not _make_room(place, source.size, lock):
                return False
            out = stack.enter_context(files.replacing(path, files.OWN, sync=False))
            out.truncate(source.size)  # so that other processes that make room count it
        finally:
            os.close(lock)
        retry_if_damaged(lambda: copy_into(source, out))
    return True


def _make_room(place: _Place, n_bytes: int, lock: int) -> bool:
    """Return True if a copy of this many bytes fits, after removing older copies if needed.

    `lock`: the descriptor of the lock file of the folder. It stores an upper bound of the bytes in the folder, as
    looking at all copies for each new one would take longer than copying them (a folder of single images).
    """
    counted = os.pread(lock, _COUNT_BYTES, 0)
    total = int.from_bytes(counted, "little")
    most = _most(place, total)
    if not counted or total + n_bytes > most:
        copies = []
        for entry in os.scandir(place.folder):
            if not entry.name.endswith(_LOCK):
                with contextlib.suppress(FileNotFoundError):
                    info = entry.stat(follow_symlinks=False)
                    copies.append((info.st_mtime_ns, info.st_size, entry.path))
        total = sum(size for _, size, _ in copies)
        most = _most(place, total)
        for _, size, path in sorted(copies):
            if total + n_bytes <= most - most // _FREED:
                break
            total -= size if _removed(path) else 0
    fits = total + n_bytes <= most
    os.pwrite(lock, (total + n_bytes * fits).to_bytes(_COUNT_BYTES, "little"), 0)
    return fits


def _most(place: _Place, total: int) -> int:
    if place.most_bytes is not None:
        return place.most_bytes
    return (shutil.disk_usage(place.folder).free + total) // _SHARE


def _removed(path: str) -> bool:
    """Remove a copy that no process has open, or an incomplete one of a killed process (named with a dot)."""
    folder, name = os.path.split(path)
    unfinished = name.startswith(".")
    try:
        lock = files.take_lock(os.path.join(folder, name[1:].rsplit(".", 2)[0] + _LOCK) if unfinished else path)
    except BlockingIOError:
        return False
    try:
        files.remove(path)
    finally:
        os.close(lock)
    return True
