"""What a run took, from its events."""

from __future__ import annotations

import time

from tamis.engine.job import Job, Segment
from tamis.engine.ledger import Ledger
from tamis.engine.run.budget.expectation import Expectation
from tamis.engine.run.budget.outcome import Outcome
from tamis.engine.run.settings import SettingsLog
from tamis.engine.schema import EventKind
from tamis.forecast.prediction import Conditions
from tamis.memory.predictor import Predictor
from tamis.stages.resources import Resources

MB = 10**6


def unit(size: int, peak: int, seconds: float = 1.0, cpu_s: float = 0.5, record: int = 10) -> dict[str, float]:
    return {"decoded_bytes": size, "peak_bytes": peak, "seconds": seconds, "cpu_s": cpu_s, "largest_record": record}


def test_partitions_are_summed() -> None:
    outcome = Outcome()
    for size in (1, 4, 2):
        outcome.add(EventKind.UNIT, unit(size * MB, 3 * size * MB))
    outcome.add(
        EventKind.UNIT, {"seconds": 2.0, "cpu_s": None, "decoded_bytes": None}
    )  # a feeder, which works but reads no partition
    outcome.add(EventKind.COMMIT, {"bytes": 5})
    assert (outcome.n_partitions, outcome.busy_s, outcome.cpu_s) == (3, 5.0, 1.5)
    assert (outcome.first_bytes, outcome.largest_bytes, outcome.last_bytes) == (1 * MB, 4 * MB, 2 * MB)
    assert (outcome.largest_peak, outcome.peak_of_largest, outcome.n_by_kind) == (12 * MB, 12 * MB, {})


def test_what_a_run_took_is_that_of_its_partitions() -> None:
    job = Job("p", None, None, [], None, [Segment(0, 0, Resources())])
    expected = Expectation(job, [], Outcome(), started_s=time.monotonic() - 2, is_usual=True, is_part=False)
    expected.outcome.add(EventKind.UNIT, unit(4 * MB, 9 * MB))
    expected._conditions = Conditions(10**9, 2, 1, 1, 1, 4 * MB, 4 * MB, 32 * MB)
    expected.from_profile = [True]
    expected.end(100 * MB, Ledger())
    took = expected._measurement
    assert took is not None
    assert 2.0 <= took.seconds == round(took.seconds, 3)
    assert (took.busy_s, took.cpu_s, took.n_partitions, took.learned, took.peak_bytes) == (1.0, 0.5, 1, True, 100 * MB)


def test_what_the_run_changed_by_itself_is_noted_with_its_evidence() -> None:
    outcome, record = Outcome(), SettingsLog()
    outcome.add(EventKind.UNIT, unit(1 * MB, 3 * MB))
    outcome.add(EventKind.UNIT, unit(4 * MB, 9 * MB))
    outcome.add(EventKind.PRESSURE, {"text": "memory yellow", "level": 1})
    outcome.add(EventKind.PRESSURE, {"text": "memory orange", "level": 2})
    outcome.add(EventKind.KILL, {"worker": 1, "why": "over its cap"})
    outcome.add(EventKind.RECYCLE, {"text": "worker 1 is replaced"})
    outcome.note(record, [Predictor()], {"memory_failures": 2, "splits": 3, "recycled": 1, "kills": 1})
    found = {e["name"]: e for e in record.entries}
    assert {e["chosen_by"] for e in record.entries} == {"adaptation"}
    assert list(found) == [
        "partition model 0 at the end",
        "partition size",
        "pressure level",
        "workers replaced",
        "workers ended",
        "scratch used",
    ]
    assert found["partition size"]["value"] == 4 * MB
    assert found["partition size"]["evidence"] == {
        "n_partitions": 2,
        "first_bytes": MB,
        "largest_bytes": 4 * MB,
        "memory_failures": 2,
        "splits": 3,
        "largest_record_bytes": 10,
    }
    assert (found["pressure level"]["value"], found["pressure level"]["evidence"]["changes"]) == (2, 2)
    assert found["workers ended"]["evidence"] == {"events": ["over its cap"]}


def test_examples_are_few_and_short() -> None:
    outcome = Outcome()
    for _ in range(1000):
        outcome.add(EventKind.FAILED, {"error": "x" * 10_000})
    assert outcome.n_by_kind == {"failed": 1000}
    assert [len(text) for text in outcome.examples["failed"]] == [200] * 5
