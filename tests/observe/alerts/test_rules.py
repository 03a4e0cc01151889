"""Literal sequences of samples, and what is told."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tamis.observe.alerts.measures import MAX_SUBJECTS, MEASURES, RunContext
from tamis.observe.alerts.rules import Alert, AlertLimit, AlertRule, Rulebook, default_rules

MB = 1_000_000
PLACE = RunContext("out")


def book(*rules: AlertRule, **more: Any) -> Rulebook:
    return Rulebook(rules, PLACE, **more)


def memory(used_mb: float) -> dict[str, Any]:
    return {"used_bytes": int(used_mb * MB), "budget_bytes": 512 * MB}


def told(rules: Rulebook, samples: Iterable[tuple[float, dict[str, Any]]]) -> list[tuple[float, str, str]]:
    """(second, level, text) of all alerts."""
    return [(now, a.level, a.text) for now, sample in samples for a in rules.judge(sample, now)]


def first(rule: AlertRule, sample: dict[str, Any]) -> Alert:
    (alert,) = book(rule).judge(sample, 0.0, 1000.0)
    return alert


MEMORY = AlertRule("memory", "memory", (AlertLimit(0.85, "share"),), for_s=30.0)


def test_memory_above_the_limit_for_long_enough() -> None:
    samples = [(float(t), memory(466)) for t in range(0, 35, 2)]
    assert told(book(MEMORY), samples) == [
        (
            30.0,
            "warning",
            "memory at 91 % of the budget (466 MB of 512 MB) for 30 s, limit 85 %: the run slows down to stay inside "
            "it; give more "
            "with --memory, or fewer --workers or a smaller --blocksize",
        )
    ]


def test_a_break_starts_the_count_anew() -> None:
    samples = [(float(t), memory(430 if t == 29 else 466)) for t in range(59)]
    assert told(book(MEMORY), samples) == []
    samples = [(float(t), memory(430 if t == 29 else 466)) for t in range(61)]
    assert [at for at, *_ in told(book(MEMORY), samples)] == [60.0]


def test_exactly_at_the_limit_is_within_it() -> None:
    assert told(book(MEMORY), [(float(t), memory(435.2)) for t in range(100)]) == []


def test_resolved_only_when_well_back_and_for_a_while() -> None:
    rules = book(MEMORY)
    levels = [466] * 31 + [430] * 60 + [400] * 5 + [430] * 5 + [400] * 11 + [466] * 5
    found = told(rules, ((float(t), memory(used)) for t, used in enumerate(levels)))
    # 430 MB is below 85 % and above 95 % of that: it is not resolved by that, nor by 5 s at 400 MB.
    assert [(at, level) for at, level, _ in found] == [(30.0, "warning"), (111.0, "resolved")]
    assert found[1][2] == "resolved after 111 s: memory at 78 % of the budget (400 MB of 512 MB)"


def test_a_rule_speaks_at_most_every_so_often() -> None:
    rules = book(MEMORY, every_s=300.0)
    samples = [(float(t), memory(466)) for t in range(1000)]
    assert [(at, level) for at, level, _ in told(rules, samples)] == [
        (30.0, "warning"),
        (330.0, "warning"),
        (630.0, "warning"),
        (930.0, "warning"),
    ]


def test_flapping_is_counted_and_reported_once() -> None:
    rules = book(AlertRule("memory", "memory", (AlertLimit(0.85, "share"),), for_s=0.0), every_s=100.0)
    samples = [(float(t), memory(466 if t % 10 < 5 else 100)) for t in range(106)]
    found = told(rules, samples)
    assert [(at, level) for at, level, _ in found] == [
        (0.0, "warning"),
        (5.0, "resolved"),
        (100.0, "warning"),
        (105.0, "resolved"),
    ]
    assert "limit 85 % (9 more since the last alert): " in found[2][2]


def test_what_was_not_reported_is_not_resolved_either() -> None:
    rules = book(AlertRule("memory", "memory", (AlertLimit(0.85, "share"),)), every_s=1000.0)
    samples = [(float(t), memory(466 if t in (0, 50) else 100)) for t in range(100)]
    assert [(at, level) for at, level, _ in told(rules, samples)] == [(0.0, "warning"), (1.0, "resolved")]


def test_rules_of_one_measure_are_independent() -> None:
    rules = book(
        MEMORY, AlertRule("worse", "memory", (AlertLimit(0.95, "share"),), level="critical", remedies=("stop",))
    )
    found = [a for t in range(40) for a in rules.judge(memory(500), float(t))]
    assert [(a.rule, a.level, a.remedies) for a in found] == [
        ("worse", "critical", ("stop",)),
        ("memory", "warning", ()),
    ]


def test_a_rule_that_is_off_says_nothing() -> None:
    assert told(book(AlertRule("memory", "memory", (AlertLimit(0.1, "share"),), on=False)), [(0.0, memory(500))]) == []


@pytest.mark.parametrize(
    "sample", [{}, {"used_bytes": None}, {"used_bytes": "x", "budget_bytes": 5}, {"budget_bytes": 0}]
)
def test_what_a_sample_lacks_is_no_alert(sample: dict[str, Any]) -> None:
    assert told(Rulebook(default_rules(PLACE), PLACE), [(float(t), sample) for t in range(0, 1000, 10)]) == []


def test_an_alert_has_percent_absolute_limit_and_what_to_do() -> None:
    data = first(AlertRule("memory", "memory", (AlertLimit(0.85, "share"),)), memory(466)).to_dict()
    assert data == {
        "rule": "memory",
        "level": "warning",
        "at": 1000.0,
        "subject": "",
        "value": 466 / 512,
        "percent": 91.016,
        "limit": 0.85,
        "unit": "share",
        "n_bytes": 466e6,
        "whole": 512e6,
        "for_s": 0.0,
        "n_untold": 0,
        "worker": None,
        "remedies": [],
        "text": "memory at 91 % of the budget (466 MB of 512 MB), limit 85 %: the run slows down to stay inside it; "
        "give more with "
        "--memory, or fewer --workers or a smaller --blocksize",
        "advice": "the run slows down to stay inside it; give more with --memory, or fewer --workers or a smaller "
        "--blocksize",
    }


DISK = next(rule for rule in default_rules(PLACE) if rule.name == "disk")


@pytest.mark.parametrize(
    ("free", "total", "expected"),
    [
        (40e9, 1e12, "the disk has 4 % free (40 GB of 1 TB) for 5 s, limit 5 %: make room"),
        (0.9e9, 10e9, "the disk has 9 % free (900 MB of 10 GB) for 5 s, limit 1 GB: make room"),
        (0.9e9, None, "the disk has 900 MB free for 5 s, limit 1 GB: make room"),
        (1.1e9, 10e9, None),
        (5e9, None, None),
    ],
)
def test_disk_by_share_or_size(free: float, total: float | None, expected: str | None) -> None:
    sample = {"disk_free_bytes": free, "disk_total_bytes": total}
    found = told(book(DISK), [(0.0, sample), (5.0, sample)])
    assert [(level, text.startswith(expected or "")) for _, level, text in found] == (
        [("critical", True)] if expected else []
    )


def stage_sample(t: int, n_bytes: float, seconds: float) -> dict[str, Any]:
    return {
        "stages": {
            "gopher": {"in_bytes": n_bytes, "seconds": seconds},
            "read": {"in_bytes": 1e6 * t, "seconds": float(t)},
        }
    }


def test_a_stage_at_less_than_half_of_its_median_speed() -> None:
    rule = next(rule for rule in default_rules(PLACE) if rule.name == "throughput")
    n_bytes, samples = 0.0, []
    for t in range(201):
        n_bytes += 8e6 if t <= 100 else 3e6
        samples.append((float(t), stage_sample(t, n_bytes, float(t))))
    assert told(book(rule), samples) == [
        (
            140.0,
            "warning",
            "stage gopher at 38 % of its usual speed (3 MB/s, usually 8 MB/s) for 30 s, limit 50 %: look for what "
            "changed: other "
            "programs on the machine, a slow disk, harder documents; tamis top out",
        )
    ]


def test_a_stage_that_rests_or_has_just_begun_is_not_slow() -> None:
    rule = AlertRule("throughput", "throughput", (AlertLimit(0.5, "share"),), low=True)
    fast = [(float(t), stage_sample(t, 8e6 * t, float(t))) for t in range(100)]
    rest = [(float(t), stage_sample(99, 8e6 * 99, 99.0)) for t in range(100, 1000)]
    again = [(float(t), stage_sample(t, 8e6 * t, float(t))) for t in range(50)]  # a sampling step counts from zero
    begun = [(float(t), stage_sample(t, 8e6 * t if t < 20 else 8e6 * 20 + 1e5 * t, float(t))) for t in range(50)]
    assert told(book(rule), [*fast, *rest, *((1000 + t, s) for t, s in again)]) == []
    assert told(book(rule), begun) == []


def test_speed_falls_only_for_the_stage_that_is_named() -> None:
    rules = book(AlertRule("throughput", "throughput", (AlertLimit(0.9, "share"),), low=True, only="read"))
    samples = [(float(t), stage_sample(t, 8e6 * min(t, 100), float(t))) for t in range(300)]
    assert told(rules, samples) == []


def test_quarantine_at_half_of_its_limit() -> None:
    rules = Rulebook(default_rules(PLACE), PLACE)
    few = [(float(t), {"quarantined": 50, "documents": 1000}) for t in range(20)]
    many = [(float(t), {"quarantined": 60, "documents": 100_000}) for t in range(20, 40)]
    assert told(rules, [*few, *many]) == [
        (
            30.0,
            "warning",
            "0.06 % of the records are in quarantine (60 of 100,000) for 10 s, limit 0.05 %: above 0.1 % the run ends "
            "incomplete; see "
            "what is wrong: tamis quarantine out",
        )
    ]
    strict = RunContext("out", quarantine_limit=0.0, quarantine_floor=0)
    one = [(float(t), {"quarantined": 1, "documents": 100_000}) for t in range(20)]
    assert [at for at, *_ in told(Rulebook(default_rules(strict), strict), one)] == [10.0]


def gpu(busy: float, ours: int = 10**9) -> dict[str, Any]:
    card = {
        "gpu": 0,
        "busy": busy,
        "used_bytes": 2 * 10**9,
        "total_bytes": 80 * 10**9,
        "ours_bytes": ours,
        "temperature_c": 70,
    }
    return {"gpus": [card]}


def test_an_idle_gpu_of_this_run() -> None:
    rules = Rulebook(default_rules(PLACE), PLACE)
    assert told(rules, [(float(t), gpu(0.3, ours=0)) for t in range(200)]) == []
    # one busy second in ten does not hide it
    found = told(rules, [(float(t), gpu(1.0 if t % 10 == 0 else 0.3)) for t in range(200, 300)])
    assert [at for at, *_ in found] == [261.0]
    assert found[0][2].startswith(
        "GPU 0 busy 37 % of the time (this run holds 1 GB on it) for 60 s, limit 80 %: the GPU waits"
    )
    assert told(book(AlertRule("hot", "gpu_temperature", (AlertLimit(60, "degrees"),))), [(0.0, gpu(1))])[0][
        2
    ].startswith("GPU 0 at 70 °C, limit 60 °C: a hot GPU")


def test_a_leak_is_reported_once_for_a_stage_with_its_worst_worker() -> None:
    leaks = [
        {"worker": 1, "stage": "parse", "slope_bytes": 40_000.0},
        {"worker": 7, "stage": "parse", "slope_bytes": 64_000.0, "partitions_left": 120, "kind": "native memory"},
        {"worker": 2, "stage": "parse", "slope_bytes": -5.0},
        "nonsense",
    ]
    rules = Rulebook(default_rules(PLACE), PLACE)
    (alert,) = rules.judge({"leaks": leaks}, 0.0)
    assert alert.text == (
        "stage parse keeps 64 kB more after each partition, in native memory; the worker reaches its limit in 120 "
        "partitions: the "
        "worker is replaced in time; release what the stage keeps, or report it to who wrote the stage"
    )
    assert (alert.worker, alert.subject) == (7, "stage parse")
    assert told(rules, [(1.0, {"leaks": leaks}), (2.0, {"leaks": []})]) == [
        (2.0, "resolved", "resolved after 2 s: leak of stage parse is over")
    ]


def test_no_progress() -> None:
    rules = Rulebook(default_rules(PLACE), PLACE)
    found = told(rules, [(float(t), {"progress_s": float(t), "left_bytes": 5 * MB}) for t in range(320)])
    assert [(at, level) for at, level, _ in found] == [(301.0, "warning")]
    assert found[0][2].startswith("nothing was committed for 5 min 1 s (5 MB of input are left), limit 5 min: see what")


def test_own_words_instead_of_the_advice_and_what_is_done() -> None:
    rule = AlertRule(
        "memory", "memory", (AlertLimit(100e6, "bytes"),), advice="call Ann", remedies=("shrink", "pause:30")
    )
    assert first(rule, memory(466)).text == (
        "memory at 91 % of the budget (466 MB of 512 MB), limit 100 MB: call Ann [halving partitions, pausing for 30 s]"
    )


def test_subjects_are_bounded() -> None:
    rules = book(AlertRule("leak", "leak", (AlertLimit(0, "bytes"),)))
    found = [
        a
        for t in range(3)
        for a in rules.judge({"leaks": [{"stage": f"{t}-{i}", "slope_bytes": 5} for i in range(500)]}, float(t))
    ]
    assert len([a for a in found if a.level == "warning"]) == MAX_SUBJECTS


def test_every_measure_has_a_reader_and_words() -> None:
    for measure in MEASURES.values():
        assert measure.about
        assert measure.advice
        rules = book(AlertRule("r", measure.name, (AlertLimit(0.0, measure.unit),)))
        assert rules.judge({}, 0.0) == []


NUMBERS = st.one_of(
    st.none(), st.booleans(), st.text(max_size=3), st.integers(), st.floats(), st.lists(st.integers(), max_size=2)
)
BOOKS = st.dictionaries(
    st.sampled_from(["in_bytes", "seconds", "n_in", "gpu", "busy", "ours_bytes", "stage", "slope_bytes"]), NUMBERS
)
NAMES = (
    "used_bytes", "budget_bytes", "documents", "quarantined", "dropped", "disk_free_bytes", "disk_total_bytes",
    "progress_s", "seconds", "psi_some", "queue_bytes", "scratch_bytes", "left_bytes", "read_bytes", "stages", "gpus",
    "leaks",
)  # fmt: skip
VALUES = st.one_of(NUMBERS, st.lists(BOOKS, max_size=2), st.dictionaries(st.text(max_size=3), BOOKS, max_size=2))
SAMPLES = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=6)


@settings(max_examples=100, deadline=None)
@given(st.lists(SAMPLES, max_size=4))
def test_no_sample_makes_it_fail(samples: list[dict[str, Any]]) -> None:
    every = [
        AlertRule(f"{m.name} {low}", m.name, (AlertLimit(0.5, m.unit),), low=low)
        for m in MEASURES.values()
        for low in (False, True)
    ]
    rules = book(*every)
    for t, sample in enumerate(samples):
        for alert in rules.judge(sample, float(20 * t)):
            json.dumps(alert.to_dict(), allow_nan=False)


def test_the_page_lists_every_measure_and_every_default_rule() -> None:
    page = (Path(__file__).parents[3] / "docs/guides/alerts.md").read_text(encoding="utf-8")
    for measure in MEASURES.values():
        assert f"| `{measure.name}` | {measure.about} |\n" in page
    for rule in default_rules(PLACE):
        assert re.search(rf"^\| `{rule.name}` \| .*\| {rule.level} \|$", page, re.MULTILINE)


def test_kept_descriptors_are_reported_with_the_stage_and_the_partitions_left() -> None:
    rules = book(*default_rules(RunContext()))
    leaks = [
        {
            "stage": "open",
            "kind": "file descriptors",
            "handles_per_partition": 3.0,
            "partitions_left": 300,
            "worker": 4,
        },
        {"stage": "open", "kind": "threads", "handles_per_partition": 1.0, "worker": 4},
    ]
    (alert,) = rules.judge({"leaks": leaks}, 0.0)
    assert (alert.rule, alert.worker) == ("handles", 4)
    assert alert.text.startswith(
        "stage open keeps 3 file descriptors more after each partition; the worker reaches its limit in 300 partitions"
    )
