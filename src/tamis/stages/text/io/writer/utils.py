"""Small functions for writers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

from tamis.errors import UsageError

T = TypeVar("T")


def batched(iterable: Iterable[T], n: int) -> Iterator[tuple[T, ...]]:
    """Yield consecutive items as tuples of `n`; the last may have fewer.

    >>> list(batched("abcde", 2))
    [('a', 'b'), ('c', 'd'), ('e',)]
    """
    if n < 1:
        raise UsageError(f"batched: expected n of at least 1, got {n}")
    iterator = iter(iterable)
    while group := tuple(islice(iterator, n)):
        yield group
