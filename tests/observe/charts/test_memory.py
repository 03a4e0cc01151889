"""Memory over time."""

from __future__ import annotations

from tamis.observe.charts.memory import layers, memory_chart, pass_memory_chart
from tamis.observe.points import Total
from tests.support.markup_check import kinds, parsed, texts, titles


def point(at: float, used: float = 100e6, **more: object) -> Total:
    return Total(at, used, supervisor_bytes=10e6, server_bytes=20e6, workers={"1": 30e6, "2": 40e6}, **more)  # type: ignore[arg-type]


def test_layers_by_role_and_worker() -> None:
    found = layers([point(0), point(1)])
    assert [(f.name, f.values) for f in found] == [
        ("supervisor", [10e6, 10e6]),
        ("forking server", [20e6, 20e6]),
        ("worker 1", [30e6, 30e6]),
        ("worker 2", [40e6, 40e6]),
    ]


def test_what_is_not_explained_is_other() -> None:
    assert [(f.name, f.values) for f in layers([point(0, 150e6)])][-1] == ("other", [50e6])
    assert [(f.name, f.values) for f in layers([Total(0, 7.0)])] == [("in use", [7.0])]


def test_many_workers_are_taken_together() -> None:
    workers = {str(i): 1e6 * i for i in range(1, 65)}
    found = layers([Total(0, sum(workers.values()), workers=workers)])
    assert [f.name for f in found] == [
        "worker 59",
        "worker 60",
        "worker 61",
        "worker 62",
        "worker 63",
        "worker 64",
        "other workers",
    ]
    assert found[-1].values == [sum(1e6 * i for i in range(1, 59))]


def test_living_workers_come_before_those_that_used_more_and_are_gone() -> None:
    gone = {str(i): 90e6 for i in range(1, 7)}
    found = layers([Total(0, 0, workers=gone), Total(1, 0, workers={"9": 1e6})])
    assert found[-2].name == "worker 9"
    assert (found[-1].name, found[-1].values) == ("other workers", [90e6, 0])


def test_the_chart() -> None:
    drawn = memory_chart([point(i, peak_bytes=110e6) for i in range(10)], 200e6, began_at=1e9)
    assert "budget 200 MB" in texts(drawn)
    assert "70 % no growth" in texts(drawn)
    assert titles(drawn)[-1].splitlines()[1:] == [
        "100 MB, 50% of the budget",
        "highest in between: 110 MB",
        "worker 2: 40 MB",
        "worker 1: 30 MB",
        "forking server: 20 MB",
        "supervisor: 10 MB",
    ]
    assert "Peak 110 MB, 55% of the budget." in "".join(parsed(drawn).itertext())
    assert "peak" in kinds(drawn)
    assert "ahead" not in kinds(drawn)


def test_a_rise_is_carried_on_while_the_run_lives() -> None:
    points = [point(i, 100e6 + 1e6 * i) for i in range(60)]
    live = memory_chart(points, 400e6, live=True)
    assert "ahead" in kinds(live)
    assert "at this rate the budget is reached in" in live
    assert "ahead" not in kinds(memory_chart(points, 400e6))


def test_levels_are_marked_when_they_held() -> None:
    drawn = memory_chart([point(0), point(1, level=2), point(2)], 200e6)
    assert [k for k in kinds(drawn) if k.startswith("strip")] == ["strip l2"]
    assert "level: 80 % only the end of the pipeline starts" in titles(drawn)[1]


def test_one_sample_is_a_level() -> None:
    drawn = memory_chart([point(0)], 200e6)
    assert 'd="M0 209.8L1000 209.8L1000 220L0 220Z"' in drawn


def test_passes_follow_each_other_in_one_chart() -> None:
    passes = [("reading <b>", [(1.0, 90e6), (2.0, 180e6)]), ("deciding", [(2.5, 60e6)]), ("writing", [(4.0, 150e6)])]
    drawn = pass_memory_chart(passes, 200e6)
    assert "Peak 180 MB, 90% of the budget." in "".join(parsed(drawn).itertext())
    assert [t.partition("\n")[0] for t in titles(drawn)] == ["reading <b>", "reading <b>", "deciding", "writing"]
    assert len([c for c in kinds(drawn) if c.startswith("fill k")]) == 3
    assert pass_memory_chart([], 200e6) == pass_memory_chart(passes, 0) == ""


def test_nothing_to_draw() -> None:
    assert memory_chart([], 100) == ""
    assert memory_chart([point(0)], 0) == ""
    assert memory_chart([point(0)], float("nan")) == ""


def test_nonsense_is_drawn_as_nothing() -> None:
    odd = Total(
        0,
        float("nan"),
        supervisor_bytes=-5,
        server_bytes=float("inf"),
        workers={"<script>": float("nan"), "2": -1, "x" * 999: 5e6},
        level=99,
    )
    drawn = memory_chart([odd, point(1), point(2, 1e30)], 200e6, live=True)
    parsed(drawn)
    assert "<script>" not in drawn
    assert "nan" not in drawn.lower()


def test_long_runs_are_thinned_and_keep_their_peak() -> None:
    points = [point(i, 100e6 if i != 7777 else 190e6) for i in range(20_000)]
    drawn = memory_chart(points, 200e6)
    assert len(drawn) < 60_000
    assert "Peak 190 MB, 95% of the budget." in drawn
