"""join_rows against string formatting."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tamis.kernels.records.join import join_rows
from tests.support.limits import examples

KEYS = [b'"a":', b'"bb":', b'"":']


def lines(
    buf: bytes, extra: bytes, spans: list[list[tuple[int, int]]], rank: list[list[int]] | None = None
) -> list[bytes]:
    table = np.array(spans, np.int64).reshape(len(spans), len(KEYS), 2)
    out, offsets = join_rows(
        *(np.frombuffer(b, np.uint8) for b in (buf, extra)),
        *(table[:, :, 0], table[:, :, 1], KEYS),
        None if rank is None else np.array(rank, np.int64),
    )
    return [out[offsets[i] : offsets[i + 1]].tobytes() for i in range(len(spans))]


def test_members_in_the_order_of_their_places() -> None:
    spans = [[(4, 1), (0, 3), (5, 2)], [(0, -1), (5, 2), (0, 0)], [(0, -1), (0, -1), (0, -1)]]
    assert lines(b"123 4", b"56", spans) == [b'{"bb":123,"a":4,"":56}\n', b'{"":,"bb":56}\n', b"{}\n"]


def test_rank_decides_where_it_is_given() -> None:
    spans = [[(4, 1), (0, 3), (5, 2)]]
    assert lines(b"123 4", b"56", spans, [[1, 9, 0]]) == [b'{"":56,"a":4,"bb":123}\n']
    assert lines(b"123 4", b"56", spans, [[7, 7, 7]]) == [b'{"a":4,"bb":123,"":56}\n']


@pytest.mark.parametrize("span", [(-1, 1), (2, 2), (5, 1), (3, 3)])
def test_a_literal_outside_the_buffers_is_refused(span: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="row 1 has a literal outside the 3 \\+ 2 bytes"):
        lines(b"abc", b"de", [[(0, 1)] * 3, [(0, 1), span, (0, 1)]])


def test_shapes_must_agree() -> None:
    two = np.zeros((1, 2), np.int64)
    with pytest.raises(ValueError, match=r"expected spans of shape \(1, 3\), got \(1, 2\)"):
        join_rows(np.zeros(1, np.uint8), np.zeros(1, np.uint8), two, two, KEYS)


@settings(max_examples=examples(200), deadline=None)
@given(st.binary(min_size=1, max_size=20), st.binary(min_size=1, max_size=20), st.data())
def test_against_formatting(buf: bytes, extra: bytes, data: st.DataObject) -> None:
    spans, expected = [], []
    for _ in range(data.draw(st.integers(0, 4))):
        row = []
        for _ in KEYS:
            source = data.draw(st.sampled_from([buf, extra]))
            first = data.draw(st.integers(0, len(source) - 1))
            n_bytes = data.draw(st.integers(-1, len(source) - first))
            row.append((first + (len(buf) if source is extra and extra is not buf else 0), n_bytes))
        spans.append(row)
        both = buf + extra
        members = [
            key + both[first : first + n]
            for (first, n), key in sorted(zip(row, KEYS, strict=True), key=lambda m: m[0][0])
            if n >= 0
        ]
        expected.append(b"{" + b",".join(members) + b"}\n")
    assert lines(buf, extra, spans) == expected
