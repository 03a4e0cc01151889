"""Building blocks of charts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tamis.observe.charts.svg import Frame, Key, figure, number, picked, text, ticks, time_ticks
from tests.support.markup_check import parsed


@given(st.text())
def test_any_text_can_stand_in_xml(value: str) -> None:
    parsed(f'<g aria-label="{text(value)}">{text(value)}</g>')


def test_text_is_escaped_and_bounded() -> None:
    assert text('<b a="1">&') == "&lt;b a=&quot;1&quot;&gt;&amp;"
    assert text(None) == ""
    assert text("x" * 500, 5) == "xxxx…"
    assert text("a\x00\ud800b") == "a\ufffd\ufffdb"


@pytest.mark.parametrize("value", [None, "7", True, float("nan"), float("inf"), -1, -0.5, 10**400, [1]])
def test_what_cannot_be_drawn_is_zero(value: object) -> None:
    assert number(value) == 0.0


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_ticks_are_few_and_inside(top: float) -> None:
    found = ticks(top)
    assert len(found) <= 5
    assert all(0 < t <= top * 1.0001 for t in found)


@given(st.floats(-1e6, 1e9), st.floats(0, 1e9))
def test_time_ticks_are_few_and_inside(start: float, span: float) -> None:
    found = time_ticks(start, start + span)
    assert len(found) <= 5
    assert all(start <= t <= start + span for t in found)


def test_time_ticks_are_round() -> None:
    assert time_ticks(0, 600) == [0, 300, 600]
    assert time_ticks(3550, 3610) == [3570, 3600]
    assert time_ticks(0, 40 * 86400) == [0, 1209600, 2419200]


def test_picked() -> None:
    assert picked(0, 5) == []
    assert picked(100, 3) == [0, 50, 99]


def test_places_stay_inside_the_frame() -> None:
    frame = Frame(0, 10, 100, 50)
    assert (frame.x(5), frame.x(-3), frame.x(99)) == (500.0, 0.0, 1000.0)
    assert (frame.y(50), frame.y(-1), frame.y(1e9)) == (25.0, 50.0, 0.0)
    assert frame.line([(0, 0), (10, 100)]) == "M0 50.0L1000 0.0"
    flat = Frame(3, 3, 0)
    assert (flat.x(3), flat.y(7)) == (0.0, 180.0)


def test_hits_cover_the_whole_width_and_say_something() -> None:
    frame = Frame(0, 4, 1, 50)
    root = parsed(frame.hits([(0, "<a>"), (4, "b")]))
    rects = [(e.attrib["x"], e.attrib["width"]) for e in root.iter("rect")]
    assert rects == [("0", "500"), ("500", "500")]
    assert [e.text for e in root.iter("title")] == ["<a>", "b"]
    assert frame.hits([]) == ""
    assert frame.hits([(float(i), "") for i in range(1000)]).count("<title>") == 60


def test_a_figure_has_a_legend_and_a_sentence() -> None:
    root = parsed(figure("<svg/>", [Key("k1", "<worker>", "3 MB"), Key("k2", "b")], "a & b"))
    assert ["".join(li.itertext()) for li in root.iter("li")] == ["<worker> 3 MB", "b"]
    assert "".join(next(root.iter("figcaption")).itertext()) == "a & b"
