"""Pixels for the stages that need them: rows of a batch in, arrays out, a few at a time.

Held at once: one decoded image for each thread, and the resulting small squares. An image that cannot be
decoded comes out as its fault, for the stage to quarantine; one that does not fit under the cap is a MemoryError, as
anywhere.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from tamis._lazy import np
from tamis.errors import UsageError
from tamis.images.decode import decode, fitted, header_of, read_span
from tamis.images.faults import ImageFault
from tamis.stores.urls import path_of
from tamis.tasks import DocumentBatch

T = TypeVar("T")
Where = tuple[str, int, int, "bytes | None"]
_CHANGED = "image_bytes"
_CHUNKS_AHEAD = 2  # that a pool works on, besides the one awaited


def places(stage: str, batch: DocumentBatch) -> list[Where]:
    """Return the location of each image: file, offset, length; and its bytes, if a stage changed it."""
    names = batch.get_columns()
    if not {"image_path", "offset", "length"} <= set(names):
        raise UsageError(
            f"{stage}: these documents are no images (no image_path, offset and length); begin with ImageReader"
        )
    paths = [path_of(p) for p in batch.column("image_path").to_pylist()]
    offsets, lengths = batch.column("offset").to_pylist(), batch.column("length").to_pylist()
    changed = batch.column(_CHANGED).to_pylist() if _CHANGED in names else [None] * len(paths)
    return list(zip(paths, offsets, lengths, changed, strict=True))


def stored_bytes(where: Where) -> bytes:
    path, offset, length, changed = where
    if changed is not None:
        return bytes(changed)
    try:
        return read_span(path, int(offset), int(length))
    except FileNotFoundError:
        raise ImageFault("its file is gone") from None


def square(where: Where, side: int) -> np.ndarray[Any, Any]:
    """Return the center of an image: uint8 [side, side, 3]."""
    data = stored_bytes(where)
    return fitted(decode(data, header_of(data), min_side=side, passing=True), side)


def each(
    locations: list[Where], make: Callable[[Where], T], at_once: int, pool: ThreadPoolExecutor | None
) -> Iterator[list[T | ImageFault]]:
    """Yield `make` of every image in order, `at_once` together; a pool works two chunks ahead."""

    def one(where: Where) -> T | ImageFault:
        try:
            return make(where)
        except ImageFault as fault:
            return fault

    chunks = [locations[i : i + at_once] for i in range(0, len(locations), at_once)]
    if pool is None:
        for chunk in chunks:
            yield [one(where) for where in chunk]
    else:
        yield from _prefetched(chunks, one, pool)


def _prefetched(chunks: list[list[Where]], make: Callable[[Where], T], pool: ThreadPoolExecutor) -> Iterator[list[T]]:
    """Yield `make` of the images of each chunk while the pool works on the next ones."""
    ahead: deque[list[Future[T]]] = deque()
    try:
        for i in range(len(chunks)):
            while len(ahead) <= _CHUNKS_AHEAD and i + len(ahead) < len(chunks):
                ahead.append([pool.submit(make, where) for where in chunks[i + len(ahead)]])
            yield [future.result() for future in ahead.popleft()]
    finally:
        for future in (f for waiting in ahead for f in waiting):
            future.cancel()
        with contextlib.suppress(Exception):
            for future in (f for waiting in ahead for f in waiting):
                if not future.cancelled():
                    future.result()
