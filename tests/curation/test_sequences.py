"""Packing documents into sequences: every token once, in order, however rows come; documents whole where they fit."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tamis.curation import sequences
from tamis.curation.sequences import BestFit, Concatenate, best_fit
from tamis.formats.tokens.files import Rows
from tests.support.limits import examples

PAD = 9999
LENGTHS = st.lists(st.integers(0, 40), max_size=60)


def rows(lengths: list[int], first: int = 0) -> Rows:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Rows(np.arange(first, first + offsets[-1], dtype=np.int32), offsets)


def packed(packing: Any, lengths: list[int], n_calls: int) -> list[tuple[list[int], list[int]]]:
    """Return (ids, document starts) of each sequence."""
    found: list[Rows] = []
    step, first = -(-len(lengths) // n_calls) or 1, 0
    for k in range(0, len(lengths), step):
        found += packing.add(rows(lengths[k : k + step], first))
        first += sum(lengths[k : k + step])
    found += packing.finish()
    sequences = []
    for part in found:
        assert part.starts is not None
        assert part.start_offsets is not None
        for k in range(len(part.offsets) - 1):
            own = part.ids[part.offsets[k] : part.offsets[k + 1]].tolist()
            sequences.append((own, part.starts[part.start_offsets[k] : part.start_offsets[k + 1]].tolist()))
    return sequences


def test_concatenated_documents() -> None:
    packing = Concatenate(4, PAD)
    assert packed(packing, [3, 2, 6], 1) == [([0, 1, 2, 3], [0, 3]), ([4, 5, 6, 7], [0, 1]), ([8, 9, 10, PAD], [0, 3])]
    assert packing.n_padding == 1


@settings(max_examples=examples(200), deadline=None)
@given(LENGTHS, st.integers(2, 16), st.integers(1, 5))
def test_concatenation_keeps_every_token_and_start(lengths: list[int], length: int, n_calls: int) -> None:
    packing = Concatenate(length, PAD)
    found = packed(packing, lengths, n_calls)
    assert found == packed(Concatenate(length, PAD), lengths, 1)
    ids = [i for own, _ in found for i in own]
    n = sum(lengths)
    assert (ids[:n], set(ids[n:]) - {PAD}, len(ids) - n) == (list(range(n)), set(), packing.n_padding)
    assert packing.n_padding < length
    begins = {int(start) for start, size in zip(np.cumsum([0, *lengths]), lengths, strict=False) if size}
    starts = {k * length + p for k, (_, own) in enumerate(found) for p in own}
    assert begins <= starts
    assert starts - begins <= {*range(0, len(ids), length), n, *np.cumsum([0, *lengths]).tolist()}


@settings(max_examples=examples(200), deadline=None)
@given(LENGTHS, st.integers(2, 16), st.integers(1, 5))
def test_best_fit_cuts_only_long_documents(lengths: list[int], length: int, n_calls: int) -> None:
    packing = BestFit(length, PAD)
    found = packed(packing, lengths, n_calls)
    assert found == packed(BestFit(length, PAD), lengths, 1)
    ids = [i for own, _ in found for i in own]
    assert all(len(own) == length and own_starts[0] == 0 for own, own_starts in found)
    assert sorted(i for i in ids if i != PAD) == list(range(sum(lengths)))
    assert ids.count(PAD) == packing.n_padding
    pieces = [own[a:b] for own, starts in found for a, b in zip(starts, [*starts[1:], length], strict=True)]
    begins = np.cumsum([0, *lengths]).tolist()
    expected = [
        list(range(p, min(p + length, end))) for begin, end in pairwise(begins) for p in range(begin, end, length)
    ]
    assert sorted(piece for piece in pieces if piece[0] != PAD) == expected


def test_windows_bound_what_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequences, "WINDOW_TOKENS", 100)
    packing = BestFit(2, PAD)
    found = [part for k in range(100) for part in packing.add(rows([3], 3 * k))]
    assert [len(part.ids) for part in found] == [102, 102]  # 34 documents of three tokens each
    assert [len(part.ids) for part in packing.finish()] == [96]


def test_best_fit_is_best_fit() -> None:
    assert best_fit([], 8) == []
    assert best_fit([8, 8], 8) == [[0], [1]]
    assert best_fit([5, 4, 3, 4], 8) == [[0, 2], [1, 3]]
