"""Which k-gram each window selects, and which windows are equal: against the definition, in plain Python."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tamis.kernels.sketch._shingles import mix
from tamis.kernels.substrings._rolling import BASE_NUMBER, TABLE
from tamis.kernels.substrings.classes import find_repeats
from tamis.kernels.substrings.selections import MAX_LENGTH, Selections, select

TEXTS = st.lists(
    st.one_of(
        st.text("ab", max_size=90),
        st.text(max_size=40),
        st.tuples(st.text("abc", min_size=1, max_size=4), st.integers(1, 60)).map(lambda pair: pair[0] * pair[1]),
    ).map(lambda text: text.encode()),
    max_size=6,
)


def selections(texts: list[bytes], length: int, k: int | None = None) -> Selections:
    ends = np.cumsum([len(text) for text in texts]).astype(np.int64)
    data = np.frombuffer(b"".join(texts) or b" ", np.uint8)
    return select(data, ends - np.array([len(text) for text in texts], np.int64), ends, length, k)


def selected_by(text: bytes, length: int, k: int) -> list[int]:
    """Return the position that each window selects: the rightmost of the smallest hashes of its k-grams."""
    hashes = []
    for start in range(len(text) - k + 1):
        value = 0
        for byte in text[start : start + k]:
            value = (value * BASE_NUMBER + int(TABLE[byte])) % (1 << 64)
        with np.errstate(over="ignore"):
            hashes.append(int(mix(np.uint64(value))))
    w = length - k + 1
    return [max(range(s, s + w), key=lambda p: (-hashes[p], p)) for s in range(len(text) - length + 1)]


@settings(max_examples=150, deadline=None)
@given(TEXTS, st.integers(2, 20), st.data())
def test_every_window_selects_its_rightmost_minimum(texts: list[bytes], length: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, length))
    found = selections(texts, length, k)
    by_text: list[list[int]] = [[] for _ in texts]
    for row, position, high, low, span in zip(
        *(v.tolist() for v in (found.row, found.position, found.high, found.low, found.span)), strict=True
    ):
        stride = high - low + 1
        for p in range(position, position + span + 1, stride):
            by_text[row] += [p] * stride
    assert by_text == [selected_by(text, length, k) for text in texts]


@settings(max_examples=100, deadline=None)
@given(TEXTS, st.integers(4, 20))
def test_equal_windows_have_equal_selections(texts: list[bytes], length: int) -> None:
    """Key and offset follow from the bytes of a window alone."""
    found = selections(texts, length)
    of_window: dict[bytes, set[tuple[int, int]]] = {}
    for row, position, high, low, key in zip(
        *(v.tolist() for v in (found.row, found.position, found.high, found.low, found.key)), strict=True
    ):
        for offset in range(low, high + 1):
            start = position - offset
            of_window.setdefault(texts[row][start : start + length], set()).add((key, offset))
    assert all(len(pairs) == 1 for pairs in of_window.values())


@settings(max_examples=150, deadline=None)
@given(TEXTS, st.integers(2, 16), st.data())
def test_repeats_are_those_of_a_dictionary(texts: list[bytes], length: int, data: st.DataObject) -> None:
    found = selections(texts, length, data.draw(st.integers(1, length)))
    if not len(found):
        return
    order = np.lexsort((found.position, found.row, found.key))
    edges = np.flatnonzero(found.key[order][1:] != found.key[order][:-1]) + 1
    bounds = np.concatenate([[0], edges, [len(order)]]).astype(np.int64)
    starts = np.cumsum([0, *(len(text) for text in texts)])[:-1]
    place = (starts[found.row] + found.position)[order]
    first = (found.row.astype(np.uint64) << np.uint64(32) | found.position)[order]
    count = np.where(found.span[order] > 0, 2, 1).astype(np.uint32)
    text = np.frombuffer(b"".join(texts), np.uint8)
    low, high = found.low[order], found.high[order]
    repeats = find_repeats(text, place, low, high, first, count, bounds, length)
    got = {
        (candidate, offset): (leader, n)
        for candidate, a, b, leader, n in zip(
            *(v.tolist() for v in (repeats.candidate, repeats.low, repeats.high, repeats.first, repeats.count)),
            strict=True,
        )
        for offset in range(a, b + 1)
    }
    classes: dict[tuple[int, int, bytes], list[int]] = {}
    for g in range(len(bounds) - 1):
        for c in range(bounds[g], bounds[g + 1]):
            for offset in range(low[c], high[c] + 1):
                begin = place[c] - offset
                classes.setdefault((g, offset, bytes(text[begin : begin + length])), []).append(c)
    expected = {
        (c, offset): min(members, key=lambda i: int(first[i]))
        for (_, offset, _), members in classes.items()
        for c in members
        if sum(int(count[i]) for i in members) > 1
    }
    assert {key: leader for key, (leader, _) in got.items()} == expected


def test_a_run_is_one_selection() -> None:
    for text in (b"a" * 5000, b"abc" * 2000, b"x" * 30_000):
        assert len(selections([text], 100)) <= 3


def test_long_texts_are_read_in_chunks() -> None:
    text = bytes(np.random.default_rng(1).integers(97, 123, 60_000).astype(np.uint8))
    found = selections([text], 3000, 20)
    whole = selected_by(text[:7000], 3000, 20)
    mine = [
        p
        for p, high, low in zip(found.position.tolist(), found.high.tolist(), found.low.tolist(), strict=True)
        for _ in range(high - low + 1)
    ]
    assert mine[: len(whole)] == whole
    assert len(mine) == 60_000 - 3000 + 1


def test_wrong_arguments_are_refused() -> None:
    data, one = np.zeros(10, np.uint8), np.zeros(1, np.int64)
    with pytest.raises(ValueError, match="length"):
        select(data, one, one + 10, MAX_LENGTH + 1)
    with pytest.raises(ValueError, match="outside"):
        select(data, one, one + 11, 4)
    with pytest.raises(ValueError, match="do not fit"):
        find_repeats(data, one, one, one, one.astype(np.uint64), one.astype(np.uint32), np.array([0, 1]), 11)
