"""Lines over time, and what is drawn with them: throughput, queues, GPUs."""

from __future__ import annotations

import pytest
from markup_check import kinds, parsed, texts, titles

from tamis.observe.pictures.gpus import gpu_picture
from tamis.observe.pictures.lines import Line, lines_picture
from tamis.observe.pictures.queues import queues_picture
from tamis.observe.pictures.throughput import rates, speed_picture, throughput_picture

NONSENSE = [(0.0, float("nan")), (1.0, -5.0), (2.0, float("inf")), (3.0, 1e300)]


def test_values_of_every_line_at_every_time() -> None:
    drawn = lines_picture("x", [Line("a", [(0, 1), (10, 3)]), Line("<b>", [(5, 2)])], lambda v: f"{v:g} u")
    assert titles(drawn) == ["0 s\na: 1 u", "5 s\na: 1 u\n<b>: 2 u", "10 s\na: 3 u\n<b>: 2 u"]
    assert ["".join(li.itertext()) for li in parsed(drawn).iter("li")] == ["a 3 u", "<b> 2 u"]


def test_lines_differ_in_more_than_colour() -> None:
    drawn = lines_picture("x", [Line(str(i), [(0, 1), (1, i)]) for i in range(9)], str)
    assert [k for k in kinds(drawn) if k.startswith("line")] == [
        "line k0", "line k1", "line k2", "line k3 d1", "line k4 d1", "line k5 d1", "line k6 d2",
    ]  # fmt: skip


def test_nothing_and_nonsense() -> None:
    assert lines_picture("x", [], str) == ""
    assert lines_picture("x", [Line("a", [])], str) == ""
    drawn = lines_picture('"<x>', [Line("a", NONSENSE)], lambda v: f"{v:.3g}")
    parsed(drawn)
    assert "nan" not in drawn
    assert "inf" not in drawn


def test_a_line_at_zero_has_no_scale() -> None:
    drawn = lines_picture("x", [Line("a", [(0, 0), (10, 0)])], lambda v: f"{v:g} B")
    assert [t for t in texts(drawn) if "B" in t] == []


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([], []),
        ([(0, 5)], []),
        ([(0, 0), (10, 100)], [(10, 10.0)]),
        ([(0, 0), (2, 10), (4, 40), (6, 60), (8, 80)], [(6, 10.0), (8, 70 / 6)]),
        ([(0, 100), (10, 200), (20, 50), (30, 150)], [(10, 10.0), (30, 10.0)]),
        ([(0, 0), (1, 8)], [(1, 8.0)]),
    ],
)
def test_rates(counts: list[tuple[float, float]], expected: list[tuple[float, float]]) -> None:
    assert rates(counts) == expected


def test_throughput_by_stage() -> None:
    drawn = throughput_picture({"read": [(0, 0), (10, 1000)], "filter": [(0, 0), (10, 500)]})
    assert ["".join(li.itertext()) for li in parsed(drawn).iter("li")] == ["read 100/s", "filter 50/s"]


def test_throughput_of_many_stages_shows_the_slowest() -> None:
    stages = {f"s{i}": [(0.0, 0.0), (10.0, 1000.0 * (20 - i))] for i in range(20)}
    drawn = throughput_picture(stages)
    names = ["".join(li.itertext()).split()[0] for li in parsed(drawn).iter("li")]
    assert names == ["s0", "s14", "s15", "s16", "s17", "s18", "s19"]
    assert "The 7 stages that take in fewest of 20" in drawn


def test_speed_queue_and_gpu() -> None:
    assert "10 MB/s" in speed_picture([(0, 0), (10, 100e6)])
    drawn = queues_picture([(0, 5e6), (1, 6e6)], [(0, 0), (1, 7e6)], 9e9)
    assert "9 GB are free on the disk." in drawn
    assert queues_picture([], [], None) == ""
    drawn = gpu_picture("GPU 0: <x>", [(0, 1e9)], [(0, 5e8)], [(0, 0.5), (1, 7.0)], 2e9, 61.4)
    assert "61 °C" in drawn
    assert "2 GB" in texts(drawn)
    assert [t for t in titles(drawn) if "busy" in t][-1] == "1 s\nbusy: 100%"
