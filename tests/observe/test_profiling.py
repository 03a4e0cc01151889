"""Which configuration is recommended and why, and the charts of it."""

from __future__ import annotations

import xml.dom.minidom

from tamis.observe.profiling import TrialRun, bars, noise_of, page, recommend, svg

MB = 10**6


def row(budget_mb: int, block: str, mb_per_s: float, peak_mb: int = 100, **more: object) -> TrialRun:
    return TrialRun(budget_mb * MB, block, "ok", peak_mb * MB, 60.0, mb_per_s, **more)  # type: ignore[arg-type]


def test_the_fastest_wins_when_it_is_clearly_faster() -> None:
    best, why = recommend([row(512, "auto", 100.0), row(1000, "auto", 150.0, 600)])
    assert best is not None
    assert best.budget_bytes == 1000 * MB
    assert why == "150 MB/s, peak 600 MB (60% of the budget)"


def test_within_the_noise_the_smallest_budget_wins() -> None:
    best, why = recommend([row(1000, "auto", 100.0), row(512, "32MB", 97.0)])
    assert best is not None
    assert (best.budget_bytes, best.blocksize) == (512 * MB, "32MB")
    assert "3.0% slower than the fastest (1 GB, auto), which is within the noise (5%)" in why
    assert "more memory made it no faster" in why


def test_a_configuration_with_failures_or_a_full_budget_is_skipped() -> None:
    rows = [row(256, "auto", 100.0, failures=3), row(300, "auto", 100.0, 290), row(512, "auto", 100.0, splits=0)]
    best, why = recommend(rows)
    assert best is not None
    assert best.budget_bytes == 512 * MB
    assert "no failed allocation, against 3 with 256 MB, auto" in why


def test_where_nothing_worked_the_reason_is_given() -> None:
    rows = [TrialRun(1, "auto", "infeasible", message="the smallest that works is 249MB")]
    assert recommend(rows) == (None, "no configuration worked: the smallest that works is 249MB")
    assert recommend([]) == (None, "no configuration worked: nothing was tried")


def test_noise_comes_from_repeats_where_there_are_some() -> None:
    assert noise_of([TrialRun(1, "auto", "ok", seconds=10.0, repeats=[8.0, 10.0, 12.0])]) == 0.2
    assert noise_of([TrialRun(1, "auto", "ok", seconds=10.0, repeats=[10.0, 10.0, 10.1])]) == 0.05
    assert noise_of([]) == 0.15


def test_short_runs_are_said_to_tell_little() -> None:
    _, why = recommend([TrialRun(512 * MB, "auto", "ok", 100 * MB, 3.0, 10.0)])
    assert why.endswith("the runs were short: a larger --limit-bytes, or --repeat 3, tells more")


def test_bars_show_shares() -> None:
    rows = [row(1000, "auto", 50.0, 500), row(2000, "auto", 100.0, 500), TrialRun(1, "8MB", "infeasible")]
    assert bars(rows, 4) == [
        "1 GB, auto  peak ██░░  50%  speed ██░░  50 MB/s",
        "2 GB, auto  peak █░░░  25%  speed ████  100 MB/s",
    ]


def test_the_chart_is_well_formed_and_escapes_everything() -> None:
    hostile = '</text><script>alert("x")</script>&'
    rows = [row(1000, hostile, 50.0), TrialRun(1, "auto", "infeasible", message=hostile)]
    text = svg(rows, hostile)
    assert "<script>" not in text
    drawn = xml.dom.minidom.parseString(text)
    assert len(drawn.getElementsByTagName("line")) == 1
    assert page(rows, hostile).startswith("<!doctype html>")
    assert "<script>" not in page(rows, hostile)
