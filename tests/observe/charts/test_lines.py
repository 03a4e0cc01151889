"""Lines over time, and what is drawn with them: throughput, queues, GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tamis.observe.charts.lines import Line, lines_chart, rates
from tamis.observe.charts.run_charts import gpus_of, queues_of, speed_of, throughput_of
from tamis.observe.points import GpuPoint, StagePoint, Total
from tamis.observe.snapshot import Snapshot
from tests.support.markup_check import kinds, parsed, texts, titles

NONSENSE = [(0.0, float("nan")), (1.0, -5.0), (2.0, float("inf")), (3.0, 1e300)]


def test_values_of_every_line_at_every_time() -> None:
    drawn = lines_chart("x", [Line("a", [(0, 1), (10, 3)]), Line("<b>", [(5, 2)])], lambda v: f"{v:g} u")
    assert titles(drawn) == ["0 s\na: 1 u", "5 s\na: 1 u\n<b>: 2 u", "10 s\na: 3 u\n<b>: 2 u"]
    assert ["".join(li.itertext()) for li in parsed(drawn).iter("li")] == ["a 3 u", "<b> 2 u"]


def test_lines_differ_in_more_than_colour() -> None:
    drawn = lines_chart("x", [Line(str(i), [(0, 1), (1, i)]) for i in range(9)], str)
    assert [k for k in kinds(drawn) if k.startswith("line")] == [
        "line k0",
        "line k1",
        "line k2",
        "line k3 d1",
        "line k4 d1",
        "line k5 d1",
        "line k6 d2",
    ]


def test_nothing_and_nonsense() -> None:
    assert lines_chart("x", [], str) == ""
    assert lines_chart("x", [Line("a", [])], str) == ""
    drawn = lines_chart('"<x>', [Line("a", NONSENSE)], lambda v: f"{v:.3g}")
    parsed(drawn)
    assert "nan" not in drawn
    assert "inf" not in drawn


def test_a_line_at_zero_has_no_scale() -> None:
    drawn = lines_chart("x", [Line("a", [(0, 0), (10, 0)])], lambda v: f"{v:g} B")
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


def run_of(**more: Any) -> Snapshot:
    return Snapshot(Path("run"), **more)


def stages(counts: dict[str, int]) -> Snapshot:
    """Of each stage: nothing at first, so many documents after ten seconds."""
    moments = [StagePoint(at, name, n_in=n if at else 0) for name, n in counts.items() for at in (0.0, 10.0)]
    return run_of(stages=moments[1::2], stage_moments=moments)


def test_throughput_by_stage() -> None:
    drawn = throughput_of(stages({"read": 1000, "filter": 500}))
    assert ["".join(li.itertext()) for li in parsed(drawn).iter("li")] == ["read 100/s", "filter 50/s"]


def test_throughput_of_many_stages_shows_the_slowest() -> None:
    drawn = throughput_of(stages({f"s{i}": 1000 * (20 - i) for i in range(20)}))
    names = ["".join(li.itertext()).split()[0] for li in parsed(drawn).iter("li")]
    assert names == ["s0", "s14", "s15", "s16", "s17", "s18", "s19"]
    assert "The 7 stages that take in fewest of 20" in drawn


def test_speed_queue_and_gpu() -> None:
    assert "10 MB/s" in speed_of(run_of(totals=[Total(0.0), Total(10.0, read_bytes=100_000_000)]))
    waiting = [Total(0.0, queue_bytes=5_000_000), Total(1.0, queue_bytes=6_000_000, scratch_bytes=7_000_000)]
    drawn = queues_of(run_of(totals=waiting, last=Total(disk_free_bytes=9_000_000_000)))
    assert "9 GB are free on the disk." in drawn
    assert queues_of(run_of()) == ""
    gpus = [
        GpuPoint(at, 0, "<x>", 10**9, 2 * 10**9, busy, 61.4, 5 * 10**8)
        for at, busy in ((0.0, 0.5), (1.0, 7.0), (2.0, None))
    ]
    drawn = gpus_of(run_of(gpus=gpus))
    assert "61 °C" in drawn
    assert "2 GB" in texts(drawn)
    assert [t for t in titles(drawn) if "busy" in t][-1] == "1 s\nbusy: 100%"


def test_nothing_that_waited_is_no_chart() -> None:
    assert queues_of(run_of(totals=[Total(0.0), Total(1.0)], last=Total(disk_free_bytes=9))) == ""
