"""Bookmarks of files of records: where reading can begin, instead of at the beginning of the file.

The feeder of such a file notes, for the first record of each block, its position among the frames and the byte at which
it is stored. A later feed of the same file (of a resumed run, or after a worker died) begins at the last bookmark
before the records that are missing. Only a feeder that read everything before a record writes its bookmark, so what a
page contains cannot pass for one. Bookmarks save time and decide nothing: without them reading begins at byte 0.
"""

from __future__ import annotations

import hashlib
import os

from tamis import files

NAME = "bookmarks"
"""The folder in the run directory."""
_ADVICE = "remove it"
_MAX_BYTES = 64 << 20


class Bookmarks:
    """The bookmarks of one file, in a file of lines `POSITION OFFSET`, by rising positions."""

    def __init__(self, run_dir: str, path: str, state: tuple[int, int] | None, max_record_bytes: int) -> None:
        """Take the size and version of the file as they were planned; None: no bookmarks."""
        self._folder = os.path.join(run_dir, NAME)
        about = f"{path}\0{state}\0{max_record_bytes}".encode("utf-8", "surrogateescape")
        name = hashlib.blake2b(about, digest_size=16).hexdigest()
        self._path = os.path.join(self._folder, name) if run_dir and state is not None else ""
        self._last = -1

    def before(self, position: int) -> tuple[int, int]:
        """Return the position and the offset of the last bookmark that is not after `position`; (0, 0) without one."""
        marks = [(0, 0)] + [mark for mark in self._read() if mark[0] <= position]
        return max(marks)

    def add(self, position: int, offset: int) -> None:
        """Note where a record is, unless it is known."""
        if not self._path:
            return
        if self._last < 0:
            self._last = max(self._read(), default=(0, 0))[0]
            files.own_folder(self._folder, _ADVICE)
        if position > self._last:
            self._last = position
            fd = files.open_to_append(self._path)
            try:
                os.write(fd, b"%d %d\n" % (position, offset))
            finally:
                os.close(fd)

    def _read(self) -> list[tuple[int, int]]:
        """Return the bookmarks; a last line that is not complete is none."""
        if not self._path:
            return []
        try:
            with open(self._path, "rb") as file:
                lines = file.read(_MAX_BYTES).split(b"\n")[:-1]
        except OSError:
            return []
        pairs = [line.split(b" ") for line in lines]
        return [(int(p[0]), int(p[1])) for p in pairs if len(p) == 2 and p[0].isdigit() and p[1].isdigit()]
