"""Group texts of similar length into batches for a model. Pure: lengths in, positions out.

Texts of like length share a batch, so that hardly anything is padded, and a batch holds so many tokens, not so many
texts: a batch of short texts is as much work as one of long ones, and takes as much memory. A model that runs `packed`
pads nothing at all.

`fixed` shapes (for GPUs): every batch of a padded length has the same number of rows, the last one filled with empty
rows, and that length follows from a text alone (the next multiple of `step`); packed batches all have the same number
of tokens. Matrix products then run the same kernel over the same shape whatever the neighbours of a text, so that its
score does not depend on its neighbours, on partition sizes or on budgets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tamis._lazy import np


@dataclass(frozen=True)
class TokenBatch:
    """Indices of texts that are batched together, and the shape of their tensor: rows of one length, or packed."""

    at: list[int]
    n_rows: int
    length: int
    n_tokens: int
    least_tokens: int  # with which the longest of them could be alone


@dataclass(frozen=True)
class Shape:
    """Limits of a batch: tokens with padding, texts, and the multiple that lengths are padded to."""

    max_tokens: int
    max_rows: int
    step: int = 8
    fixed: bool = False
    packed: bool = False
    in_order: bool = False  # texts as they come, however much is padded

    def within(self, max_tokens: int) -> Shape:
        return replace(self, max_tokens=max_tokens)

    def padded(self, length: int) -> int:
        return -(-max(length, 1) // self.step) * self.step

    def padded_each(self, lengths: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        each: np.ndarray[Any, Any] = -(-np.maximum(lengths, 1) // self.step) * self.step
        return each

    def rows(self, length: int) -> int:
        """Return the texts of this padded length in one batch: at least one, however long it is."""
        return max(1, min(self.max_rows, self.max_tokens // length))

    def key(self, batch: TokenBatch) -> int:
        """Return the key shared by batches that take the same memory per token."""
        return 0 if self.packed or self.in_order else batch.length


def plan(lengths: Sequence[int], shape: Shape, at: Sequence[int] | None = None) -> Iterator[TokenBatch]:
    """Yield batches that hold every text (or those at `at`) once, longest texts first, to fail early.

    >>> [(b.at, b.n_rows, b.length) for b in plan([3, 30, 9, 2], Shape(max_tokens=32, max_rows=8))]
    [([1], 1, 32), ([2], 1, 16), ([0, 3], 2, 8)]
    >>> [(b.at, b.n_tokens) for b in plan([3, 30, 9, 2], Shape(max_tokens=48, max_rows=8, packed=True))]
    [([1, 2], 48), ([0, 3], 16)]
    """
    order, begin = ordered(lengths, shape, at), 0
    while begin < len(order):
        batch = next_batch(lengths, order, begin, shape)
        yield batch
        begin += len(batch.at)


def ordered(lengths: Sequence[int], shape: Shape, at: Sequence[int] | None = None) -> list[int]:
    """Return the positions in the order in which batches take them."""
    order = list(range(len(lengths)) if at is None else at)
    return order if shape.in_order else sorted(order, key=lengths.__getitem__, reverse=True)  # equal ones as they come


def next_batch(lengths: Sequence[int], order: Sequence[int], begin: int, shape: Shape) -> TokenBatch:
    """Return the batch that begins at this position of the order."""
    return _batch(lengths, list(order[begin : _end(lengths, order, begin, shape)]), shape)


def _end(lengths: Sequence[int], order: Sequence[int], begin: int, shape: Shape) -> int:
    """Return the end of the batch that begins at this position of the order."""
    if shape.packed:
        each = np.array([lengths[i] for i in order[begin : begin + shape.max_rows]], np.int64)
        return begin + max(1, int(np.searchsorted(np.cumsum(shape.padded_each(each)), shape.max_tokens, "right")))
    first = shape.padded(lengths[order[begin]])
    longest = first
    end = begin + 1
    while end < len(order) and end - begin < shape.max_rows:
        own = lengths[order[end]]
        longest = max(longest, shape.padded(own))
        if (end + 1 - begin) * longest > shape.max_tokens:
            break
        if not shape.in_order and not _is_alike(own, first, shape):
            break
        end += 1
    return end


def _is_alike(own: int, length: int, shape: Shape) -> bool:
    """Return True if a text may be padded to this length.

    With fixed shapes: if it is the text's own padded length; else if padding adds little.
    """
    if shape.fixed:
        return shape.padded(own) == length
    return length - own <= max(shape.step, length // 10)


def _batch(lengths: Sequence[int], at: list[int], shape: Shape) -> TokenBatch:
    length = shape.padded(max(lengths[i] for i in at))
    if shape.packed:
        own = int(shape.padded_each(np.array([lengths[i] for i in at], np.int64)).sum())
        return TokenBatch(at, len(at), length, max(own, shape.max_tokens) if shape.fixed else own, length)
    n_rows = max(len(at), shape.rows(length)) if shape.fixed else len(at)
    return TokenBatch(at, n_rows, length, n_rows * length, length)
