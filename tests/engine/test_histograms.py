"""Histograms: their bins, adding them, and the short text that every commit carries."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tamis.engine.histograms import NO_NUMBER, OVERFLOW, Histogram, edges, from_texts, tables
from tamis.engine.ledger import Ledger, StageBook

histograms = st.dictionaries(st.integers(-1 - OVERFLOW, NO_NUMBER), st.integers(1, 10**9), max_size=40).map(Histogram)


def test_bins_lie_side_by_side_from_zero_to_the_largest() -> None:
    assert edges(0) == (0.0, 2.0**-24)
    for index in range(OVERFLOW):
        assert edges(index)[1] == edges(index + 1)[0], index
    assert edges(OVERFLOW) == (2.0**40, None)
    assert edges(NO_NUMBER) == (None, None)


def test_bins_as_documented() -> None:
    assert [edges(i) for i in (81, 140, 141, 200, 201, 344)] == [
        (1 / 16, 5 / 64),
        (63 / 64, 1.0),
        (1.0, 1.25),
        (15.75, 16.0),
        (16.0, 20.0),
        (1.75 * 2.0**39, 2.0**40),
    ]
    assert (edges(1), edges(80)) == ((2.0**-24, 1.25 * 2.0**-24), (1.75 / 32, 1 / 16))


def test_bins_below_zero_mirror_those_above() -> None:
    assert edges(-1) == (-(2.0**-24), 0.0)
    assert edges(-1 - 141) == (-1.25, -1.0)
    assert edges(-1 - OVERFLOW) == (None, -(2.0**40))
    for a, b in itertools.pairwise(range(-1 - OVERFLOW, 1)):
        assert edges(a)[1] == edges(b)[0]


def test_text_is_short_and_comes_back() -> None:
    histogram = Histogram({160: 1, 141: 5, 143: 2, -3: 7})
    assert histogram.to_text() == "-3:7;141:5,0,2;160:1"
    assert Histogram.from_text("-3:7;141:5,0,2;160:1") == histogram
    assert Histogram().to_text() == ""
    assert Histogram.from_text("") == Histogram()


@given(histograms)
def test_any_histogram_survives_text(histogram: Histogram) -> None:
    assert Histogram.from_text(histogram.to_text()) == histogram


@pytest.mark.parametrize(
    "text", ["x", "1", "1:", "1:x", "1:1,,1", "347:1", "-347:1", "346:1,1", "5:-1", "1:1;;", "9999999999:1"]
)
def test_malformed_histograms_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"histogram|invalid literal"):
        Histogram({0: 1}).merge(Histogram.from_text(text))


def test_a_list_is_no_set_of_histograms() -> None:
    with pytest.raises(ValueError, match="no histograms"):
        from_texts([1])


@given(st.lists(histograms | histograms.map(lambda h: Histogram.from_text(h.to_text())), min_size=2, max_size=5))
def test_the_order_of_adding_does_not_matter(parts: list[Histogram]) -> None:
    ahead, back = Histogram(), Histogram()
    for part in parts:
        ahead.merge(part)
    for part in reversed(parts):
        back.merge(part)
    assert ahead == back
    assert sum(ahead.counts.values()) == sum(n for p in parts for n in p.counts.values())


def test_bins_hold_their_ends_and_counts() -> None:
    assert Histogram({NO_NUMBER: 4, 141: 2, -1 - OVERFLOW: 1, OVERFLOW: 3}).bins() == [
        (None, -(2.0**40), 1),
        (1.0, 1.25, 2),
        (2.0**40, None, 3),
        (None, None, 4),
    ]


def test_books_carry_histograms_and_books_without_them_stay_readable() -> None:
    ledger = Ledger(stages=[StageBook("filter")], lengths={"in": Histogram({200: 3})})
    ledger.stages[0].scores["words"] = Histogram({141: 3})
    stored = json.loads(json.dumps(ledger.to_dict()))
    assert stored["lengths"] == {"in": "200:3"}
    assert stored["stages"][0]["scores"] == {"words": "141:3"}
    again = Ledger.from_dict(stored)
    assert again == ledger
    again.merge(Ledger.from_dict(stored))
    assert (again.lengths["in"].counts, again.stages[0].scores["words"].counts) == ({200: 6}, {141: 6})
    del stored["lengths"], stored["stages"][0]["scores"]
    older = Ledger.from_dict(stored)
    assert (older.lengths, older.stages[0].scores) == ({}, {})
    assert "lengths" not in older.to_dict()
    assert "scores" not in older.stages[0].to_dict()


def test_tables_show_lengths_first_and_leave_out_scores_that_are_no_numbers() -> None:
    book = StageBook(
        "filter", scores={"words": Histogram({141: 3, NO_NUMBER: 1}), "language": Histogram({NO_NUMBER: 4})}
    )
    ledger = Ledger(stages=[book], lengths={"out": Histogram({142: 1}), "in": Histogram({143: 2})})
    assert tables(ledger) == [
        {"stage": "", "name": "bytes", "kind": "length_in", "bins": [(1.5, 1.75, 2)]},
        {"stage": "", "name": "bytes", "kind": "length_out", "bins": [(1.25, 1.5, 1)]},
        {"stage": "filter", "name": "words", "kind": "score", "bins": [(1.0, 1.25, 3), (None, None, 1)]},
    ]
