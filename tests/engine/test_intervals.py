"""Sets of ranges, against a plain set of integers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tamis.engine.supervisor.coverage import Intervals


def made(*pairs: tuple[int, int]) -> Intervals:
    done = Intervals()
    for start, end in pairs:
        done.add(start, end)
    return done


def test_neighbours_and_overlaps_are_merged() -> None:
    assert made((0, 10), (20, 30), (10, 20)).pairs() == [(0, 30)]
    assert made((5, 6), (0, 100)).pairs() == [(0, 100)]
    assert made((20, 30), (0, 10)).pairs() == [(0, 10), (20, 30)]
    assert made((0, 10), (12, 12), (9, 3)).pairs() == [(0, 10)]


def test_missing_and_covers() -> None:
    done = made((10, 20), (30, 40))
    assert done.missing(0, 50) == [(0, 10), (20, 30), (40, 50)]
    assert done.missing(15, 35) == [(20, 30)]
    assert done.missing(12, 18) == []
    assert done.missing(20, 20) == []
    assert (done.covers(10, 20), done.covers(10, 21), done.covers(25, 25)) == (True, False, True)
    assert Intervals().missing(0, 1 << 62) == [(0, 1 << 62)]


ranges = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=12)


@given(ranges, st.integers(0, 40), st.integers(0, 40))
def test_like_a_set_of_integers(pairs: list[tuple[int, int]], start: int, end: int) -> None:
    done, plain = made(*pairs), {x for a, b in pairs for x in range(a, b)}
    assert {x for a, b in done.pairs() for x in range(a, b)} == plain
    assert all(b < c for (_, b), (c, _) in zip(done.pairs(), done.pairs()[1:], strict=False))
    assert {x for a, b in done.missing(start, end) for x in range(a, b)} == set(range(start, end)) - plain
    assert done.covers(start, end) == (set(range(start, end)) <= plain)
    assert sum(end - start for start, end in done.pairs()) == len(plain)
