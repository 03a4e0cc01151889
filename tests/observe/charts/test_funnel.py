"""The funnel: bars of what came in, what went and what stayed."""

from __future__ import annotations

from tamis.observe.charts.funnel import FunnelStep, funnel_chart
from tests.support.markup_check import parsed, texts, titles


def bars(html: str) -> list[tuple[str, str, str]]:
    return [
        (e.attrib["class"], e.attrib["x"], e.attrib["width"])
        for e in parsed(html).iter("rect")
        if e.attrib["class"].startswith("f-")
    ]


def test_what_is_dropped_is_cut_off_what_was_left() -> None:
    steps = [
        FunnelStep("in", 100, "in"),
        FunnelStep("bad", 10, "quarantined"),
        FunnelStep("short", 40, detail="stage gopher"),
        FunnelStep("kept", 50, "kept"),
    ]
    drawn = funnel_chart(steps)
    assert bars(drawn) == [
        ("f-in", "0%", "100.00%"),
        ("f-quarantined", "90%", "10.00%"),
        ("f-dropped", "50%", "40.00%"),
        ("f-kept", "0%", "50.00%"),
    ]
    assert titles(drawn)[2] == "short: 40 documents, 40.0%, stage gopher"
    assert "40 · 40.0%" in texts(drawn)


def test_documents_that_stages_made_follow_those_that_were_read() -> None:
    steps = [FunnelStep("read", 2, "in"), FunnelStep("made", 6, "made"), FunnelStep("short", 2)]
    drawn = funnel_chart([*steps, FunnelStep("kept", 6, "kept")])
    places = [r.attrib for r in parsed(drawn).iter("rect") if r.attrib["class"] != "rail"]
    assert [(p["x"], p["width"]) for p in places] == [
        ("0%", "25.00%"),
        ("25%", "75.00%"),
        ("75%", "25.00%"),
        ("0%", "75.00%"),
    ]


def test_few_documents_are_not_called_none() -> None:
    drawn = funnel_chart([FunnelStep("in", 17_627, "in"), FunnelStep("rare", 3), FunnelStep("kept", 17_624, "kept")])
    assert "3 · <0.1%" in texts(drawn)


def test_hostile_names_and_numbers() -> None:
    drawn = funnel_chart(
        [
            FunnelStep("<svg onload=x>", 10, "in"),
            FunnelStep("x" * 500, float("nan")),
            FunnelStep("neg", -5),
            FunnelStep("more", 1e12),
        ]
    )
    parsed(drawn)
    assert "<svg onload" not in drawn
    assert funnel_chart([]) == ""
    assert funnel_chart([FunnelStep("in", 0, "in")]) == ""


def test_many_rules_are_taken_together() -> None:
    steps = [
        FunnelStep("in", 10_000, "in"),
        *(FunnelStep(f"rule {i}", i + 1) for i in range(100)),
        FunnelStep("kept", 4950, "kept"),
    ]
    drawn = funnel_chart(steps)
    assert len(bars(drawn)) == 24
    assert "79 more rules" in texts(drawn)
    assert texts(drawn)[-2] == "kept"
