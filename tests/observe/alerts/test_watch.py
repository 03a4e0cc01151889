"""The watch: samples in; alerts kept, sent and counted; remedies out."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tamis.engine.monitor.database import RunDatabase
from tamis.observe.alerts.choose import AlertSetup
from tamis.observe.alerts.measures import RunContext
from tamis.observe.alerts.rules import AlertLimit, AlertRule, default_rules
from tamis.observe.alerts.sinks import AlertSink, CommandSink
from tamis.observe.alerts.watch import Watch
from tamis.observe.series import open_series

MB = 1_000_000


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def memory_rule(*remedies: str, **more: Any) -> AlertRule:
    return AlertRule("memory", "memory", (AlertLimit(0.85, "share"),), remedies=remedies, **more)


def sample(used_mb: int = 480, **more: Any) -> dict[str, Any]:
    return {
        "used_bytes": used_mb * MB,
        "budget_bytes": 512 * MB,
        "workers": {1: 100 * MB, 3: 300 * MB, 2: 50 * MB},
    } | more


def watch(
    tmp_path: Path, *rules: AlertRule, sinks: dict[str, AlertSink] | None = None, clock: Any = None
) -> tuple[Watch, list[str]]:
    shown: list[str] = []
    clock = clock or Clock()
    made = Watch(
        AlertSetup(rules, sinks or {}),
        RunContext(str(tmp_path)),
        str(tmp_path),
        shown.append,
        "t",
        clock=clock,
        wall=lambda: clock() + 1e9,
    )
    return made, shown


def test_an_alert_is_kept_in_the_run_database(tmp_path: Path) -> None:
    db = RunDatabase(str(tmp_path / "run.sqlite"))
    made, _ = watch(tmp_path, memory_rule())
    made.attach(db.alert)
    assert made(sample()) == []
    made(sample(100))
    db.close()
    made.close()
    with open_series(tmp_path) as series:
        found = [(a.rule, a.level, a.text) for a in series.alerts()]
    text = (
        "memory at 94 % of the budget (480 MB of 512 MB), limit 85 %: the run slows down to stay inside it; give more "
        "with --memory, or fewer --workers or a smaller --blocksize"
    )
    resolved = "resolved after 0 s: memory at 20 % of the budget (100 MB of 512 MB)"
    assert sorted(found) == sorted([("memory", "warning", text), ("memory", "resolved", resolved)])


def test_alerts_are_sent_where_their_rule_says_and_counted(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    script = CommandSink("script", ("/bin/sh", "-c", f"cat > {out}"))
    made, shown = watch(
        tmp_path,
        memory_rule(sinks=("terminal", "script")),
        AlertRule("queue", "queue", (AlertLimit(5, "bytes"),), sinks=("log",)),
        sinks={"script": script},
    )
    made(sample(queue_bytes=10))
    made(sample(100, queue_bytes=0))
    made.close()
    assert [line[:30] for line in shown] == ["alert memory: memory at 94 % o", "resolved memory: after 0 s: me"]
    assert (tmp_path / "alerts.log").read_text().splitlines() == [
        "2001-09-09T02:03:20Z WARNING  queue: 10 B wait for a stage, limit 5 B: a later stage is slower than an "
        "earlier one",
        "2001-09-09T02:03:20Z RESOLVED queue: resolved after 0 s: 0 B wait for a stage",
    ]
    assert made.summary() == {
        "n": 2,
        "rules": {"memory": 1, "queue": 1},
        "undelivered": {},
        "log": str(tmp_path / "alerts.log"),
    }
    sent = json.loads(out.read_text())  # the last one
    assert (sent["level"], sent["run"]) == (
        "resolved",
        {
            "name": "t",
            "output": str(tmp_path),
            "run_dir": str(tmp_path),
            "host": os.uname().nodename,
            "pid": os.getpid(),
        },
    )


@pytest.mark.parametrize(
    ("remedy", "expected"),
    [
        ("shrink", "shrink"),
        ("pause:30", "pause:30"),
        ("recycle", "recycle:3"),
        ("stop", "stop:alert memory: memory at 94 %"),
    ],
)
def test_remedies_come_with_what_the_rule_leaves_open(remedy: str, expected: str, tmp_path: Path) -> None:
    made, _ = watch(tmp_path, memory_rule(remedy))
    (found,) = made(sample())
    assert found.startswith(expected)
    assert made(sample()) == []  # once for each alert, not for each sample


def test_the_worker_that_leaks_is_replaced_and_not_the_largest(tmp_path: Path) -> None:
    made, _ = watch(tmp_path, AlertRule("leak", "leak", (AlertLimit(0, "bytes"),), remedies=("recycle",)))
    assert made(sample(leaks=[{"worker": 2, "stage": "s", "slope_bytes": 64_000}])) == ["recycle:2"]
    made, _ = watch(tmp_path, memory_rule("recycle"))
    assert made(sample(workers={})) == ["recycle"]


def test_a_pause_is_no_lack_of_progress(tmp_path: Path) -> None:
    clock = Clock()
    progress = next(rule for rule in default_rules(RunContext()) if rule.name == "progress")
    made, _ = watch(tmp_path, memory_rule("pause:600"), progress, clock=clock)
    assert made(sample()) == ["pause:600"]
    for passed in range(1, 899):
        clock.now = 1000.0 + passed
        made(sample(progress_s=float(passed)))
    assert made.counts == {"memory": 2}  # told again after ten minutes
    clock.now = 1000.0 + 600 + 600 + 302  # the pause was ordered a second time
    made(sample(100, progress_s=1502.0))
    assert made.counts == {"memory": 2, "progress": 1}


def test_the_disk_is_that_of_the_run_unless_another_one_is_fuller(tmp_path: Path) -> None:
    seen = os.statvfs(tmp_path)
    free = seen.f_bavail * seen.f_frsize
    always = AlertRule("disk", "disk", (AlertLimit(1.0, "share"),), low=True)
    made, shown = watch(tmp_path, always)
    made({"disk_free_bytes": free})
    made.close()
    assert len(shown) == 1
    assert " free (" in shown[0]
    elsewhere, shown = watch(tmp_path, always)
    elsewhere({"disk_free_bytes": 5})
    elsewhere({})
    elsewhere.close()
    assert shown == []


def test_a_sink_that_fails_is_reported_and_logged_once(tmp_path: Path) -> None:
    bad = CommandSink("bad", ("no/such/program",))
    made, shown = watch(tmp_path, memory_rule(sinks=("bad",), every_s=0.0), sinks={"bad": bad})
    for _ in range(3):
        made(sample())
    made.close()
    complaint = (
        "an alert did not reach bad: no/such/program cannot be started: No such file or directory (further failures "
        "are only counted)"
    )
    assert shown == [complaint]
    assert (tmp_path / "alerts.log").read_text() == f"2001-09-09T02:03:20Z FAILED   alerts: {complaint}\n"
    assert made.summary()["undelivered"] == {"bad": 3}
