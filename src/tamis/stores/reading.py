"""A remote file as Python knows files: seek, tell, read, readinto. Large reads go out as parallel ranges, straight into their place.

Memory: what the caller gave, plus a window of at most 8 MiB for small reads that follow each other. The window begins small
(a footer, a line end) and doubles while reads go on where the last one ended (a compressed stream).
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import threading
from typing import Any, Protocol

RANGE_BYTES = 8 << 20
N_RANGES = 4  # at the same time
_LEAST_RANGE = 1 << 20
_FIRST_WINDOW = 256 << 10
_LARGEST_WINDOW = 8 << 20


class Changed(OSError):
    """An object is not the one that was listed: a fault of the input, which is set aside, unlike a store that does not answer."""

    def __init__(self, url: str, why: str) -> None:
        super().__init__(errno.ESTALE, why, url)


class Source(Protocol):
    """Who can fill a buffer with a range of one file, bound to one version of it."""

    url: str
    size: int
    version: int  # changes whenever the contents do

    def read_into(self, offset: int, view: memoryview) -> None: ...


def version_of(etag: str) -> int:
    """An ETag as the number that stands where a local file has its time of change."""
    return int.from_bytes(hashlib.blake2b(etag.encode(), digest_size=8).digest(), "little") >> 1


def fetch(source: Source, offset: int, view: memoryview) -> None:
    """Fill `view` from `offset` on, in up to four ranges at a time."""
    each = max(_LEAST_RANGE, min(RANGE_BYTES, -(-len(view) // N_RANGES)))
    starts = list(range(0, len(view), each))
    if len(starts) <= 1:
        source.read_into(offset, view)
        return
    lock, failed = threading.Lock(), list[BaseException]()

    def work() -> None:
        while True:
            with lock:
                if failed or not starts:
                    return
                at = starts.pop(0)
            try:
                source.read_into(offset + at, view[at : at + each])
            except BaseException as exc:  # told to whoever asked, who waits for all
                failed.append(exc)

    helpers: list[threading.Thread] = []
    try:
        for _ in range(min(N_RANGES, len(starts)) - 1):
            helper = threading.Thread(target=work, name="tamis-range", daemon=True)
            helper.start()
            helpers.append(helper)
    except RuntimeError:  # no room for one more: those there do it
        pass
    work()
    for helper in helpers:
        helper.join()
    if failed:
        raise failed[0]


class RemoteFile(io.RawIOBase):
    """An open remote file. `source.size` bytes long, read-only."""

    def __init__(self, source: Source) -> None:
        super().__init__()
        self.source = source
        self._at = 0
        self._held, self._held_at = bytearray(), 0
        self._window = _FIRST_WINDOW

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.source.size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, out: Any) -> int:
        """As many bytes as there are, up to the end of the file: never fewer than asked before that."""
        view = memoryview(out).cast("B")
        view = view[: max(0, min(len(view), self.source.size - self._at))]
        done = self._take(view)
        if done < len(view):
            rest = view[done:]
            if len(rest) >= _LEAST_RANGE:
                self._held = bytearray()
                fetch(self.source, self._at, rest)
                self._at += len(rest)
            else:
                self._refill(len(rest))
                self._take(rest)
        return len(view)

    def read(self, size: int = -1) -> bytes:
        n = max(0, self.source.size - self._at)
        data = bytearray(n if size is None or size < 0 else min(n, size))
        self.readinto(data)
        return bytes(data)

    def pread_into(self, view: memoryview, offset: int) -> None:
        """Fill `view` from `offset` on, wherever the file stands."""
        fetch(self.source, offset, view)

    def _take(self, view: memoryview) -> int:
        """From what is held already."""
        first = self._at - self._held_at
        if not 0 <= first < len(self._held):
            return 0
        n = min(len(view), len(self._held) - first)
        view[:n] = memoryview(self._held)[first : first + n]
        self._at += n
        return n

    def _refill(self, least: int) -> None:
        follows = bool(self._held) and self._at == self._held_at + len(self._held)
        self._window = min(_LARGEST_WINDOW, self._window * 2) if follows else _FIRST_WINDOW
        self._held = bytearray()  # let go of before the next one is made
        n = min(max(least, self._window), self.source.size - self._at)
        held = bytearray(n)
        fetch(self.source, self._at, memoryview(held))
        self._held, self._held_at = held, self._at
