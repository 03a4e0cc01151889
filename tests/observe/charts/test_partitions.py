"""The partition map."""

from __future__ import annotations

from pathlib import Path

from tamis.observe.charts.partitions import is_bad, map_chart, state_of
from tamis.observe.charts.run_charts import map_of
from tamis.observe.points import Cell
from tamis.observe.snapshot import Snapshot
from tests.support.markup_check import kinds, parsed, titles


def test_states() -> None:
    assert state_of(Cell(0, 0, 9)) == "waiting"
    assert state_of(Cell(0, 0, 9, waiting=9)) == "waiting"
    assert state_of(Cell(0, 0, 9, waiting=3, running=3, committed=3)) == "running"
    assert state_of(Cell(0, 0, 9, waiting=3, committed=6)) == "part"
    assert state_of(Cell(0, 0, 9, committed=9)) == "committed"


def test_neighbours_in_one_state_are_one_piece_within_a_row() -> None:
    cells = [Cell(0, i * 10, i * 10 + 10, committed=10) for i in range(60)]
    cells += [
        Cell(0, 600, 610, running=10),
        Cell(0, 610, 620, waiting=5, committed=5),
        Cell(0, 620, 630, waiting=10),
    ]
    drawn = map_chart(cells)
    pieces = [(e.attrib["class"], e.attrib["x"], e.attrib["y"], e.attrib["width"]) for e in parsed(drawn).iter("rect")]
    assert pieces == [
        ("s-committed", "0", "0", "500"),
        ("s-committed", "0", "10", "100"),
        ("s-running", "100", "10", "10"),
        ("s-part", "110", "10", "10"),
        ("s-waiting", "120", "10", "10"),
    ]
    assert titles(drawn)[0] == "0 B to 500 B of the input\ncommitted 500 B"
    assert (
        next(parsed(drawn).iter("svg")).attrib["aria-label"] == "partition map: 2% waiting, 2% running, 96% committed"
    )


def test_marks_are_shapes() -> None:
    cells = [Cell(0, 0, 1000, committed=1000, quarantined=50, split=2), Cell(0, 1000, 2000, committed=1000)]
    drawn = map_chart(cells)
    assert [e.attrib["class"] for e in parsed(drawn).iter("circle")] == ["s-quarantined"]
    assert kinds(drawn).count("s-split") == 2  # the mark and its key
    assert "split 2 times" in titles(drawn)[0]


def test_a_few_bad_records_are_not_a_mark() -> None:
    assert not is_bad(Cell(0, 0, 100_000, committed=100_000, quarantined=320))
    assert is_bad(Cell(0, 0, 100_000, committed=100_000, quarantined=1100))


def test_bounded_and_safe() -> None:
    assert map_chart([]) == ""
    odd = Cell(0, 0, 0, -3, 0, -1, 0, -7)  # series.py lets only whole numbers through
    drawn = map_of(Snapshot(Path("run"), cells=[odd] * 5000))
    assert drawn == map_chart([Cell()] * 5000)
    assert len(parsed(drawn).findall(".//rect")) == 20
    assert "no bytes" in drawn
