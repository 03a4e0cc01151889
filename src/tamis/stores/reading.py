"""A remote file as Python knows files: seek, tell, read, readinto.

Large reads go out as parallel ranges, straight into their place.

Memory: what the caller gave, plus a window of at most 8 MiB for small reads that follow each other. The window begins
small (a footer, a line end) and doubles while reads continue where the last one ended (a compressed stream).
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO, Protocol, TypeVar

RANGE_BYTES = 8 << 20
N_RANGES = 4  # at the same time
N_PREFETCH = 8  # calls under way at the same time
_LEAST_RANGE = 1 << 20
_FIRST_WINDOW = 256 << 10
_LARGEST_WINDOW = 8 << 20
T = TypeVar("T")


class Changed(OSError):
    """An object changed since it was listed: a fault of the input, which is quarantined."""

    def __init__(self, url: str, why: str) -> None:
        super().__init__(errno.ESTALE, why, url)


class Damaged(OSError):
    """The bytes received differ from those that the store holds: a fault of the input, like `Changed`."""

    def __init__(self, url: str, why: str) -> None:
        super().__init__(errno.EBADMSG, why, url)


Check = Callable[[int, memoryview], None]
"""Given the bytes of one reading and their offset, in the order in which they arrive. Raises Damaged."""


class RemoteSource(Protocol):
    """A source that fills a buffer with a range of one file, bound to one version of it."""

    url: str
    size: int
    version: int  # changes whenever the contents do

    def read_into(self, offset: int, view: memoryview) -> None: ...

    def check(self) -> Check | None:
        """Return what compares one reading of the file with its checksum; None where no checksum is known."""


def version_of(etag: str) -> int:
    """Return an ETag as a number, used where a local file has its modification time."""
    return int.from_bytes(hashlib.blake2b(etag.encode(), digest_size=8).digest(), "little") >> 1


def retry_if_damaged(read: Callable[[], T]) -> T:
    """Return the result of `read`.

    Where what arrived was damaged, read once more: on the way it may have been, and not in the store.
    """
    try:
        return read()
    except Damaged:
        return read()


def fetch(source: RemoteSource, offset: int, view: memoryview, check: Check | None = None) -> None:
    """Fill `view` from `offset` on, in up to four ranges at a time, and have it checked."""

    def read() -> None:
        _fetch_ranges(source, offset, view, check)

    # The reader of a part of a file must restart: it is unknown which part is damaged.
    if len(view) == source.size:
        retry_if_damaged(read)
    else:
        read()


def _fetch_ranges(source: RemoteSource, offset: int, view: memoryview, check: Check | None) -> None:
    each = max(_LEAST_RANGE, min(RANGE_BYTES, -(-len(view) // N_RANGES)))
    starts = list(range(0, len(view), each))
    arrived = _InOrder(
        starts, lambda start: check(offset + start, view[start : start + each]) if check is not None else None
    )
    lock, errors = threading.Lock(), list[BaseException]()

    def work() -> None:
        while True:
            with lock:
                if errors or not starts:
                    return
                start = starts.pop(0)
            try:
                source.read_into(offset + start, view[start : start + each])
                arrived.add(start)
            except BaseException as exc:  # raised in the calling thread, which waits for all
                errors.append(exc)

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
    if errors:
        raise errors[0]


class _InOrder:
    """Calls a function with items in their order, as they arrive in any order, one at a time.

    The thread that adds the next item calls it, and those that arrive meanwhile: other threads add theirs and continue.
    """

    def __init__(self, items: Sequence[int], call: Callable[[int], None]) -> None:
        self._left, self._arrived = deque(items), set[int]()
        self._call = call
        self._lock, self._turn = threading.Lock(), threading.Lock()

    def add(self, item: int) -> None:
        with self._lock:
            self._arrived.add(item)
        while self._turn.acquire(blocking=False):
            try:
                while (following := self._next()) is not None:
                    self._call(following)
            finally:
                self._turn.release()
            with self._lock:
                if not self._left or self._left[0] not in self._arrived:
                    return

    def _next(self) -> int | None:
        with self._lock:
            return self._left.popleft() if self._left and self._left[0] in self._arrived else None


def read_all(source: RemoteSource) -> bytes:
    """Return the contents of a small remote file."""
    data = bytearray(source.size)
    fetch(source, 0, memoryview(data), source.check())
    return bytes(data)


def copy_into(source: RemoteSource, out: BinaryIO) -> None:
    """Write all of a remote file into a file, from its beginning on."""
    check = source.check()
    out.seek(0)
    for offset in range(0, source.size, RANGE_BYTES):
        data = bytearray(min(RANGE_BYTES, source.size - offset))
        fetch(source, offset, memoryview(data), check)
        out.write(data)


class RemoteFile(io.RawIOBase):
    """An open remote file. `source.size` bytes long, read-only."""

    def __init__(self, source: RemoteSource) -> None:
        super().__init__()
        self.source = source
        self._at = 0
        self._held, self._held_at = bytearray(), 0
        self._window = _FIRST_WINDOW
        self._check = source.check()

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
        """Read as many bytes as there are, up to the end of the file.

        Never reads fewer bytes than requested before the end.
        """
        view = memoryview(out).cast("B")
        view = view[: max(0, min(len(view), self.source.size - self._at))]
        done = self._take(view)
        if done < len(view):
            rest = view[done:]
            if len(rest) >= _LEAST_RANGE:
                self._held = bytearray()
                fetch(self.source, self._at, rest, self._check)
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
        """Fill `view` from `offset` on, without moving the position of the file."""
        fetch(self.source, offset, view, self._check)

    def _take(self, view: memoryview) -> int:
        """Copy bytes from the buffer; return how many."""
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
        window = bytearray(n)
        fetch(self.source, self._at, memoryview(window), self._check)
        self._held, self._held_at = window, self._at


def prefetch(call: Callable[..., T], items: Iterable[Any], is_remote: bool) -> Iterator[T]:
    """Yield `call(item)` for each item, in order.

    A few calls run ahead if `is_remote`, as a store takes long to answer and answers many at once.

    >>> list(prefetch(abs, [-1, 2, -3], is_remote=True))
    [1, 2, 3]
    """
    if not is_remote:
        yield from map(call, items)
        return
    from concurrent.futures import Future, ThreadPoolExecutor

    with ThreadPoolExecutor(N_PREFETCH, "tamis-ahead") as pool:
        waiting: deque[Future[T]] = deque()
        for item in items:
            waiting.append(pool.submit(call, item))
            if len(waiting) > N_PREFETCH:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
