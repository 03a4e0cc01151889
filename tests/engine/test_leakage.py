"""Leaks as the supervisor sees them: lines of workers, probes, the note, when a worker is replaced."""

from __future__ import annotations

from typing import Any

import pytest

from tamis.engine.messages import Done, RetainedMemory, Vitals
from tamis.engine.supervisor.actions import Note
from tamis.engine.supervisor.leakage import Leakage, WorkerSeries
from tamis.engine.units import Mode, Piece, PieceKind, Unit

MB, KB = 1_000_000, 1_000
CAP = 200 * MB


def report(i: int, leak: int = 100 * KB, retained: RetainedMemory | None = None, **more: Any) -> Done:
    return Done(
        vitals=Vitals(
            **{
                "floor_bytes": 80 * MB + leak * i,
                "python_blocks": 200_000 + i,
                "malloc_bytes": 30 * MB + leak * i,
                **more,
            }
        ),
        retained=retained,
    )


def unit(mode: Mode = Mode.RUN) -> Unit:
    return Unit(1, [Piece(0, PieceKind.BYTES, "a", 0, 10)], mode=mode)


def retained(python: int = 0, python_type: str = "bytes", **stages: int) -> RetainedMemory:
    rows = [
        (label, {"malloc_bytes": n, "python_blocks": 1, "arrow_bytes": 0, "rss_bytes": n})
        for label, n in stages.items()
    ]
    return RetainedMemory(rows, python, python_type)


def drive(
    leakage: Leakage, n: int, leak: int = 100 * KB, worker: int = 1, first: int = 0, probe: RetainedMemory | None = None
) -> list[Note]:
    """Let a worker do n units, some of which are probed."""
    notes = []
    for i in range(first, first + n):
        work = unit()
        leakage.probe(worker, work)
        more = {"retained": probe} if work.probe and probe is not None else {}
        made = leakage.after_unit(worker, 0, report(i, leak, **more), CAP, leak * i)
        notes += [a for a in made if isinstance(a, Note)]
    return notes


def test_a_leak_is_noted_once_with_stage_kind_and_time_left() -> None:
    leakage = Leakage()
    (note,) = drive(leakage, 200, probe=retained(99 * KB, read=500, shout=99 * KB, write=-2_000))
    assert note.kind == "leak"
    assert note.text.startswith("stage 'shout' keeps 100 kB of every partition (Python objects, mostly bytes): ")
    assert note.text.endswith("its workers are replaced after about 200")
    (leak,) = leakage.leaks
    assert (leak["stage"], leak["kind"], leak["bytes_per_partition"]) == ("shout", "Python objects", 100_000)
    assert (leak["worker"], leak["workers"], leak["segment"], leak["replaced_every"]) == (1, [1], 0, 200)
    assert leak["partitions_left"] == pytest.approx(CAP / 100_000 - 199, abs=3)
    assert (leak["python_bytes"], leak["native_bytes"], leak["unexplained_bytes"]) == (99 * KB, 1 * KB, 0)


def test_a_clean_worker_is_neither_probed_nor_accused() -> None:
    leakage = Leakage()
    assert drive(leakage, 300, leak=0, probe=retained(shout=0)) == []
    assert leakage.leaks == []
    assert leakage.line(1, 0).n_probes == 0


def test_only_a_few_units_are_probed_and_only_those_that_run_stages() -> None:
    leakage = Leakage()
    drive(leakage, 104)
    feed = unit(Mode.FEED)
    leakage.probe(1, feed)
    assert not feed.probe
    drive(leakage, 100, first=104, probe=retained(shout=90 * KB))
    assert leakage.line(1, 0).n_probes <= 8
    again = unit()
    again.probe = True  # an attempt that failed
    leakage.probe(1, again)
    assert not again.probe


def test_a_leak_in_shared_memory_is_one_and_named_so() -> None:
    leakage, notes = Leakage(), []
    for i in range(200):
        work = unit()
        leakage.probe(1, work)
        found = RetainedMemory(
            [("a", {"malloc_bytes": 0, "rss_bytes": 0}), ("b", {"malloc_bytes": 0, "rss_bytes": 100 * KB})]
        )
        more = {"retained": found} if work.probe else {}
        notes += leakage.after_unit(1, 0, report(0, shared_bytes=100 * KB * i, **more), CAP, 100 * KB * i)
    (note,) = notes
    assert isinstance(note, Note)
    assert note.text.startswith("stage 'b' keeps 100 kB of every partition (shared memory): ")
    assert leakage.leaks[0]["shared_bytes"] == 100 * KB


def test_what_was_taken_for_a_leak_is_cleared_when_it_ends() -> None:
    leakage = Leakage()
    assert len(drive(leakage, 180, probe=retained(99 * KB, shout=99 * KB))) == 1
    assert leakage.is_due(2, 0, CAP, 20 * MB, has_room=True)
    notes: list[Note] = []
    for _ in range(100):
        made = leakage.after_unit(1, 0, report(180), CAP, 18 * MB)
        notes += [a for a in made if isinstance(a, Note)]
    (over,) = notes
    assert (over.kind, over.data) == ("leak_over", {"stage": "shout", "segment": 0, "worker": 1})
    assert over.text == "stage 'shout' keeps no more than it has: what looked like a leak was a cache that is full now"
    assert leakage.leaks == []
    assert not leakage.is_due(2, 0, CAP, 20 * MB, has_room=True)


def test_a_leak_without_probes_is_noted_without_a_stage() -> None:
    leakage = Leakage()
    (note,) = drive(leakage, 200)
    assert note.text.startswith("a worker keeps 100 kB of every partition (native memory): ")
    assert leakage.leaks[0]["stage"] == ""


def test_reading_and_writing_are_no_stages() -> None:
    leakage = Leakage()
    (note,) = drive(leakage, 200, probe=retained(**{"(reading)": 90 * KB, "shout": 0}))
    assert note.text.startswith("a worker while reading keeps ")


def test_no_stage_is_named_when_none_stands_out() -> None:
    line = WorkerSeries(probes=[retained(a=5_000, b=6_000)])
    assert line.stage(100_000) == ""
    assert line.stage(10_000) == "b"
    assert WorkerSeries().stage(10_000) == ""


def test_memory_that_no_allocator_counts_is_found_by_the_resident_pages() -> None:
    mapped = RetainedMemory(
        [("a", {"malloc_bytes": 10, "rss_bytes": 0}), ("b", {"malloc_bytes": 0, "rss_bytes": 70 * KB})]
    )
    assert WorkerSeries(probes=[mapped]).stage(64_000) == "b"


def test_a_line_continues_in_the_next_worker() -> None:
    leakage = Leakage()
    notes = []
    for worker in range(1, 8):
        notes += drive(leakage, 25, leak=MB, worker=worker, probe=retained(a=MB))
        leakage.forget_worker(worker, 0, heir=True)
    assert len(notes) == 1
    assert leakage.leaks[0]["stage"] == "a"


def test_a_line_ends_with_a_worker_that_died_otherwise() -> None:
    leakage = Leakage()
    for worker in range(1, 8):
        assert drive(leakage, 25, leak=MB, worker=worker) == []
        leakage.forget_worker(worker, 0, heir=False)
    leakage.forget_worker(99, 0, heir=True)
    assert leakage.leaks == []


def test_workers_are_replaced_once_the_leak_is_known_and_a_tenth_of_the_cap_is_gone() -> None:
    leakage = Leakage()
    assert not leakage.is_due(2, 0, CAP, 50 * MB, has_room=False)
    drive(leakage, 200, probe=retained(shout=99 * KB))
    assert leakage.is_due(2, 0, CAP, 20 * MB, has_room=True)
    assert not leakage.is_due(2, 0, CAP, 19 * MB, has_room=True)
    assert not leakage.is_due(2, 1, CAP, 20 * MB, has_room=True)


def test_another_worker_with_the_same_leak_adds_itself_without_a_note() -> None:
    leakage = Leakage()
    assert len(drive(leakage, 200, probe=retained(shout=99 * KB))) == 1
    assert drive(leakage, 200, worker=2) == []
    (leak,) = leakage.leaks
    assert (leak["workers"], leak["stage"]) == ([1, 2], "shout")


def test_an_executor_without_floors_is_left_alone() -> None:
    leakage = Leakage()
    assert leakage.after_unit(1, 0, Done(), CAP, 0) == []
    assert leakage.leaks == []


def test_the_worker_that_proved_a_leak_stays_while_its_partitions_fit() -> None:
    """It alone can show that a large cache is full."""
    leakage = Leakage()
    drive(leakage, 200, probe=retained(shout=99 * KB))
    assert leakage.leaks[0]["proven"]
    assert not leakage.is_due(1, 0, CAP, 60 * MB, has_room=True)
    assert leakage.is_due(1, 0, CAP, 60 * MB, has_room=False)


def test_a_rise_across_replaced_workers_is_noted_as_not_proven_and_replaces_nothing_early() -> None:
    leakage, notes = Leakage(), []
    for worker in range(1, 8):
        notes += drive(leakage, 25, leak=MB, worker=worker, probe=retained(a=MB))
        leakage.forget_worker(worker, 0, heir=True)
    (note,) = notes
    assert "not proven a leak" in note.text
    assert not leakage.leaks[0]["proven"]
    assert not leakage.is_due(7, 0, CAP, 50 * MB, has_room=True)


def test_a_rise_that_one_worker_proves_later_is_noted_again() -> None:
    leakage = Leakage()
    for worker in range(1, 8):
        drive(leakage, 25, leak=MB, worker=worker, probe=retained(a=MB))
        leakage.forget_worker(worker, 0, heir=True)
    (note,) = drive(leakage, 170, leak=MB, worker=8)
    assert "not proven" not in note.text
    assert leakage.leaks[0]["proven"]
