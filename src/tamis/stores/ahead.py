"""Requests that are under way while the answers to earlier ones are used: a store takes long to answer, and answers many at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")
N_AHEAD = 8


def ahead(call: Callable[..., T], items: Iterable[Any], is_far: bool) -> Iterator[T]:
    """`call(item)` of each item, in order. `is_far`: a few at the same time, whose results wait; otherwise one after the other.

    >>> list(ahead(abs, [-1, 2, -3], is_far=True))
    [1, 2, 3]
    """
    if not is_far:
        yield from map(call, items)
        return
    from concurrent.futures import Future, ThreadPoolExecutor

    with ThreadPoolExecutor(N_AHEAD, "tamis-ahead") as pool:
        waiting: deque[Future[T]] = deque()
        for item in items:
            waiting.append(pool.submit(call, item))
            if len(waiting) > N_AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
