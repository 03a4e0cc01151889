"""Histograms: bars where the values are, gaps where none are."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy.special import erfinv

from tamis.engine.histograms import Histogram
from tamis.engine.schema import Manifest
from tamis.engine.worker import binning
from tamis.observe.charts.histogram import Axis, Bars, histogram_chart
from tamis.observe.charts.run_charts import count_hidden_scores, scores_of
from tamis.observe.snapshot import Snapshot
from tests.support.markup_check import parsed, texts, titles


def rects(html: str, kind: str) -> list[tuple[str, str]]:
    return [
        (e.attrib["x"], e.attrib["width"]) for e in parsed(html).iter("rect") if e.attrib.get("class") == f"fill {kind}"
    ]


def test_shares_lie_on_an_even_axis_from_zero() -> None:
    drawn = histogram_chart("x", [Bars("score", [[0.25, 0.5, 10], [0.5, 0.75, 5], [0.75, 1.0, 0]])])
    assert rects(drawn, "k0") == [("265", "220"), ("515", "220")]
    assert titles(drawn) == ["0.25 to 0.5\nscore: 10", "0.5 to 0.75\nscore: 5"]
    assert texts(drawn) == ["0", "0.25", "0.5", "0.75", "1"]


def test_lengths_lie_on_an_axis_by_powers() -> None:
    axis = Axis(16.0, 4096.0, False)
    assert [axis.place(v) for v in (16.0, 256.0, 4096.0)] == [0.0, 0.5, 1.0]
    drawn = histogram_chart("x", [Bars("in", [[16.0, 32.0, 1], [2048.0, 4096.0, 2]])])
    assert rects(drawn, "k0") == [("7.5", "110"), ("882.5", "110")]
    assert texts(drawn) == ["100", "1 k"]


def test_two_sets_over_each_other() -> None:
    drawn = histogram_chart(
        "x", [Bars("in", [[0.0, 0.5, 10], [0.5, 1.0, 10]], "k0"), Bars("kept", [[0.5, 1.0, 4]], "k1")]
    )
    assert len(rects(drawn, "k0")) == 2
    assert rects(drawn, "k1") == [("610", "280")]
    assert titles(drawn) == ["0 to 0.5\nin: 10\nkept: 0", "0.5 to 1\nin: 10\nkept: 4"]


def test_bins_too_narrow_to_be_seen_are_joined_and_made_visible() -> None:
    drawn = histogram_chart("x", [Bars("s", [[0.0, 2.0**-24, 5], [0.0001, 0.0002, 3], [0.9, 1.0, 1]])])
    assert titles(drawn)[0] == "0 to 0.0002\ns: 8"
    assert rects(drawn, "k0")[0] == ("0.8", "11")


def test_open_ends_and_what_is_no_number() -> None:
    drawn = histogram_chart("x", [Bars("s", [[None, -4.0, 1], [-4.0, 0.0, 2], [1024.0, None, 3], [None, None, 9]])])
    assert titles(drawn)[-1].endswith("s: 3")
    assert "9 are no numbers and not shown." in drawn


def test_a_threshold_is_marked() -> None:
    assert 'class="limit" d="M500 0V120"' in histogram_chart("x", [Bars("s", [[0.25, 1.0, 1]])], marks=[0.5])
    far = histogram_chart("x", [Bars("s", [[0.25, 1.0, 1]])], marks=[7.0])
    assert 'class="limit"' not in far
    assert "limit 7 is above" in far
    both = histogram_chart("x", [Bars("s", [[0.25, 1.0, 1]])], marks=[0.25, 0.75, float("nan"), float("inf")])
    assert both.count('class="limit"') == 2


def test_the_axis_reaches_to_a_threshold_near_the_values() -> None:
    drawn = histogram_chart("x", [Bars("s", [[100.0, 200.0, 1], [200.0, 400.0, 2]])], marks=[50.0])
    assert 'class="limit" d="M0 0V120"' in drawn
    assert histogram_chart("x", [Bars("s", [[0.0, 0.1, 1]])], marks=[0.3]).count('class="limit"') == 1


QUANTILES = (np.arange(20_000) + 0.5) / 20_000
NORMAL = np.sqrt(2) * erfinv(2 * QUANTILES - 1)
SAMPLES = {
    "lengths of words": 16 + 3 * NORMAL,
    "lengths of documents": np.exp(7 + 1.2 * NORMAL),
    "counts": np.round(np.exp(2.3 + 0.8 * NORMAL)),
    "small counts": np.round(20 * QUANTILES),
    "shares": 0.5 + 0.1 * NORMAL,
    "means": 0.9 + 0.2 * NORMAL,
    "rates": -np.log(1 - QUANTILES) / 5,
}


@pytest.mark.parametrize("name", SAMPLES)
def test_data_with_one_maximum_are_drawn_with_one(name: str) -> None:
    histogram = Histogram()
    binning.count(SAMPLES[name], histogram)
    drawn = histogram_chart("x", [Bars("s", histogram.bins())])
    bars = [e for e in parsed(drawn).iter("rect") if e.attrib.get("class") == "fill k0"]
    heights = [float(e.attrib["height"]) for e in bars]
    assert len(heights) > 8
    top = heights.index(max(heights))
    slack = 1.5  # of 114: quantiles fall into a bin by whole numbers
    assert all(a <= b + slack for a, b in pairwise(heights[: top + 1])), heights
    assert all(a + slack >= b for a, b in pairwise(heights[top:])), heights


def test_the_area_of_a_bar_is_its_count() -> None:
    drawn = histogram_chart("x", [Bars("s", [[0.0, 0.25, 100], [0.25, 1.0, 300]])])
    low, high = (float(e.attrib["height"]) for e in parsed(drawn).iter("rect") if e.attrib.get("class") == "fill k0")
    assert low == high


def test_scores_of_a_run_show_the_limits_of_their_rules() -> None:
    table = {"stage": "s", "name": "x", "kind": "score", "bins": [[-0.5, 1.0, 1]]}
    for limits, places in (([0.5, "<x>", None, -0.25], ["M666.7 0V120", "M166.7 0V120"]), ("0.5", []), (None, [])):
        run = Snapshot(Path("run"), manifest=Manifest(histograms=[{**table, "limits": limits}]))
        ((name, drawn),) = scores_of(run)
        assert name == "x (s)"
        assert [e.attrib["d"] for e in parsed(drawn).iter("path") if e.attrib["class"] == "limit"] == places


def test_scores_that_are_not_drawn_are_counted() -> None:
    table = {"stage": "s", "kind": "score", "bins": [[0.5, 1.0, 1]]}
    run = Snapshot(Path("run"), manifest=Manifest(histograms=[{**table, "name": f"x{i}"} for i in range(30)]))
    assert len(scores_of(run)) + count_hidden_scores(run) == 30
    assert count_hidden_scores(run) > 0


def test_nothing_and_nonsense() -> None:
    assert histogram_chart("x", []) == ""
    assert histogram_chart("x", [Bars("s", [])]) == ""
    assert histogram_chart("x", [Bars("s", [[0.0, 1.0, 0]])]) == ""
    odd: list[list[object]] = [
        [float("nan"), 1.0, 3],
        [2.0, 1.0, 3],
        ["a", "b", "c"],
        [0.0, float("inf"), 2],
        [0.0, 1e30, 2],
        [1.0, 2.0],
        [3.0, 4.0, -1],
    ]
    drawn = histogram_chart("<x>", [Bars("<b>", odd)])  # type: ignore[arg-type]
    if drawn:
        parsed(drawn)
    assert "nan" not in drawn
