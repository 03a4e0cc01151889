"""Settings of a run: checked early, named when wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tamis.engine.run.settings import RunSettings, SettingsLog
from tamis.errors import UsageError


def test_defaults() -> None:
    s = RunSettings()
    assert (s.max_record_bytes, s.quarantine_share, s.quarantine_floor, s.targets, s.mode, s.timeout) == (
        64 << 20,
        0.001,
        100,
        [1.0],
        "streaming",
        1800.0,
    )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"memory": "lots"}, "memory: cannot read"),
        ({"workers": 0}, "workers: expected a whole number of at least 1, got 0"),
        ({"workers": True}, "workers: expected a whole number"),
        ({"workers": 1.5}, "workers: expected a whole number"),
        ({"mode": "turbo"}, "mode: expected 'streaming' or 'batch', got 'turbo'"),
        ({"on_infeasible": "cry"}, "on_infeasible: expected 'stop' or 'sample'"),
        ({"max_record": "0"}, "max_record: must be above zero"),
        ({"queue": "x"}, "queue: cannot read"),
        ({"blocksize": "x"}, "blocksize: cannot read"),
        ({"timeout": 0}, "timeout: expected a number of seconds above zero"),
        ({"timeout": "1h"}, "timeout: expected a number of seconds above zero"),
        ({"quarantine_limit": "200%"}, "quarantine_limit: must be above 0 and at most 100%"),
        ({"sample": 0}, "sample: must be above 0"),
        ({"sample": 0.1, "progressive": True}, "--sample or --progressive, not both"),
        ({"scratch": "/no/such/folder"}, "scratch: /no/such/folder is not a folder"),
        ({"memry": "1GB"}, r"unknown setting 'memry'; did you mean 'memory'\?"),
        ({"zzz": 1}, "unknown setting 'zzz'; known: memory, workers"),
    ],
)
def test_mistakes_are_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        RunSettings.from_mapping(values)


@pytest.mark.parametrize(("given", "limit"), [(0, 0.0), ("0%", 0.0), ("1%", 0.01), (0.5, 0.5)])
def test_a_quarantine_limit_of_ones_own_has_no_floor(given: Any, limit: float) -> None:
    s = RunSettings(quarantine_limit=given)
    assert (s.quarantine_share, s.quarantine_floor) == (limit, 0)


def test_shares_to_deliver(tmp_path: Path) -> None:
    assert RunSettings(sample="1%").targets == [0.01]
    assert RunSettings(progressive=True, scratch=str(tmp_path)).targets == [0.01, 0.1, 1.0]


def test_the_last_reason_for_a_setting_counts() -> None:
    record = SettingsLog()
    record.note("workers", 4, "machine", "4 cores")
    record.note("memory", 1, "user", "given")
    record.note("workers", 2, "adaptation", "small budget", {"cores": 4})
    assert record.entries == [
        {"name": "memory", "value": 1, "chosen_by": "user", "why": "given", "evidence": {}},
        {"name": "workers", "value": 2, "chosen_by": "adaptation", "why": "small budget", "evidence": {"cores": 4}},
    ]


def test_who_chose_a_setting() -> None:
    given = RunSettings.from_mapping({"memory": "1GB", "queue": "256MB", "chosen_by": {"memory": "recipe"}})
    assert [given.origin(name) for name in ("memory", "queue", "max_record")] == ["recipe", "user", "default"]
    assert [RunSettings(workers=2).origin(name) for name in ("workers", "memory")] == ["user", "default"]
