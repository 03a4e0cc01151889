"""Lists in parts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from tamis.errors import UsageError

T = TypeVar("T")


def split_by_chunk_size(
    iterable: Iterable[T],
    chunk_size: int,
    custom_size_func: Callable[[T], int] = lambda x: 1,
    drop_incomplete_chunk: bool = False,
) -> Iterator[list[T]]:
    """Yield chunks that end when they reach `chunk_size` (items, or `custom_size_func`); the last may be smaller.

    >>> list(split_by_chunk_size([1, 2, 3, 4, 5], 2)), list(split_by_chunk_size("abc", 2, drop_incomplete_chunk=True))
    ([[1, 2], [3, 4], [5]], [['a', 'b']])
    """
    if chunk_size < 1:
        raise UsageError(f"chunk_size: expected at least 1, got {chunk_size}")
    chunk: list[T] = []
    size = 0
    for item in iterable:
        chunk.append(item)
        size += custom_size_func(item)
        if size >= chunk_size:
            yield chunk
            chunk, size = [], 0
    if chunk and not drop_incomplete_chunk:
        yield chunk


def split_into_n_chunks(iterable: Iterable[T], num_chunks: int) -> Iterator[list[T]]:
    """Yield at most `num_chunks` chunks of nearly equal size, in order; fewer where there are fewer items.

    >>> list(split_into_n_chunks(range(5), 3)), list(split_into_n_chunks([1], 3))
    ([[0, 1], [2, 3], [4]], [[1]])
    """
    if num_chunks < 1:
        raise UsageError(f"num_chunks: expected at least 1, got {num_chunks}")
    items = list(iterable)
    size, longer = divmod(len(items), num_chunks)
    position = 0
    for i in range(min(num_chunks, len(items))):
        end = position + size + (i < longer)
        yield items[position:end]
        position = end


def pairwise(iterable: Iterable[T]) -> Iterable[tuple[T, T]]:
    """Yield neighbouring pairs.

    >>> list(pairwise("abc"))
    [('a', 'b'), ('b', 'c')]
    """
    return itertools.pairwise(iterable)
