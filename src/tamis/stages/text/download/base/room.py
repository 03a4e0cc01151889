"""Room on the disk for the files of a download, which processes of one machine share by files in its folder.

A process reserves the size of a file before it fetches it, and holds that file (`NAME.use`, locked) until its documents
were read. Reservations exceed the limit in two cases only: one file is larger by itself, or a process needs a further
file while it holds one, for which it cannot wait. Files without a lock, left by a run that was killed, are removed when
room is needed: they are fetched again.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from tamis import files

_USE = ".use"
_NOTES = (".lock", ".failed", ".from", _USE)  # next to files: locks of processes that fetch them, and notes on failures
_PAUSE_S = 0.1
_held: dict[str, int] = {}
"""The locks of this process, by the path of the file: one stage fetches a file, another one reads it."""


@dataclass(frozen=True)
class DownloadRoom:
    """At most `limit_bytes` of files in `folder` at a time."""

    folder: str
    limit_bytes: int

    def reserve(self, path: str, n_bytes: int | None) -> None:
        """Wait until there is room for a file of the folder, and hold it. Without a known size it gets all room."""
        if path in _held:
            return
        needed = self.limit_bytes if n_bytes is None else n_bytes
        os.makedirs(self.folder, exist_ok=True)
        while not self._try(path, needed):
            time.sleep(_PAUSE_S)

    def _try(self, path: str, needed: int) -> bool:
        turn = files.take_lock(os.path.join(self.folder, ".room.lock"), wait=True)
        try:
            reserved, idle = self._usage(path)
            if reserved and not _held and reserved + needed > self.limit_bytes:  # a holder may wait for itself
                return False
            n_idle = sum(n_bytes for _, n_bytes in idle)
            for other, n_bytes in idle:
                if reserved + needed + n_idle <= self.limit_bytes:
                    break
                files.remove(other)
                n_idle -= n_bytes
            fd = files.take_lock(path + _USE)
            os.ftruncate(fd, 0)
            os.pwrite(fd, str(needed).encode(), 0)
            _held[path] = fd
            return True
        except BlockingIOError:  # another process has the same file
            return False
        finally:
            os.close(turn)

    def _usage(self, path: str) -> tuple[int, list[tuple[str, int]]]:
        """Return the bytes that processes hold, and the files that none does, the oldest first."""
        reserved, idle = 0, []
        with os.scandir(self.folder) as entries:
            files = {entry.path: entry for entry in entries if entry.is_file(follow_symlinks=False)}
        for one, entry in files.items():
            if one.endswith(_USE):
                reserved += _reservation(one)
            elif not entry.name.startswith(".") and not one.endswith(_NOTES):
                owner = one.removesuffix(".part")
                if owner != path and not _reservation(owner + _USE):
                    info = entry.stat()
                    idle.append((info.st_mtime_ns, one, info.st_size))
        return reserved, [(one, n_bytes) for _, one, n_bytes in sorted(idle)]


def forget(others_than: set[str]) -> None:
    """Give up files of this process that are not among these: reading them failed."""
    for path in [path for path in _held if path not in others_than]:
        files.remove(path + _USE)
        os.close(_held.pop(path))


def release(path: str) -> None:
    """Remove a file whose documents were read, and let others have its room."""
    files.remove(path)
    fd = _held.pop(path, None)
    if fd is not None:
        files.remove(path + _USE)
        os.close(fd)


def _reservation(use: str) -> int:
    """Return the bytes that a live process reserved; 0 if there is none, and then nothing is left of it."""
    if use.removesuffix(_USE) in _held:
        return _number(use)
    try:
        fd = os.open(use, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0
    os.close(fd)
    try:
        fd = files.take_lock(use)
    except BlockingIOError:
        return _number(use)
    files.remove(use)
    os.close(fd)
    return 0


def _number(use: str) -> int:
    with open(use, encoding="ascii") as file:
        return max(1, int(file.read() or 1))
