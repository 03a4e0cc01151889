"""Descriptors and threads as the supervisor counts them: the leaking stage, the note, the replacement."""

from __future__ import annotations

from tamis.engine.messages import Done, StageUse, Vitals
from tamis.engine.supervisor.actions import Action, Note
from tamis.engine.supervisor.handles import Handles, is_short_of_descriptors
from tamis.engine.supervisor.state import Worker

MB = 1_000_000
CAP = 200 * MB


def report(descriptors: int = 10, threads: int = 1, keeps: tuple[int, int] = (0, 0), limit: int = 1024) -> Done:
    uses = [StageUse("read ids", 0, 0.0, 0), StageUse("open", 0, 0.0, 0, *keeps), StageUse("count", 0, 0.0, 0)]
    vitals = Vitals(floor_bytes=50 * MB, n_descriptors=descriptors, max_descriptors=limit, n_threads=threads)
    return Done(stages=uses, vitals=vitals)


def drive(handles: Handles, worker: Worker, n: int, per_unit: tuple[int, int], end: int = 1 << 30) -> list[Note]:
    """Let a worker do `n` units, each of which leaks this many descriptors and threads, up to `end`."""
    notes: list[Action] = []
    for _ in range(n):
        worker.n_units += 1
        gained = [min(worker.n_units * step, end) for step in per_unit]
        notes += handles.after_unit(worker, report(10 + gained[0], 1 + gained[1], per_unit))
    return [note for note in notes if isinstance(note, Note)]


def worker(number: int = 1) -> Worker:
    return Worker(number, 0, cap_bytes=CAP)


def test_descriptors_that_are_kept_are_noted_once_with_stage_limit_and_time_left() -> None:
    handles = Handles()
    (note,) = drive(handles, worker(), 60, (3, 0))
    assert note.kind == "leak"
    assert note.text == (
        "stage 'open' keeps 3 file descriptors of every partition: 60 over 20 partitions; the 1,024 that worker 1 may "
        "open would be "
        "used up after 316 more (EMFILE, too many open files); its workers are replaced before that"
    )
    (leak,) = handles.leaks
    assert (leak["stage"], leak["kind"], leak["limit"], leak["worker"]) == ("open", "file descriptors", 1024, 1)


def test_threads_that_are_kept_are_noted() -> None:
    handles = Handles()
    (note,) = drive(handles, worker(), 40, (0, 2))
    assert note.text.startswith("stage 'open' keeps 2 threads of every partition: 40 over 20 partitions; ")


def test_a_pool_that_fills_in_the_first_partitions_is_no_leak() -> None:
    handles, pooled = Handles(), worker()
    assert drive(handles, pooled, 100, (20, 8), end=40) == []
    assert handles.why_replace(pooled, report(50, 41), 0) == ""


def test_what_ended_is_cleared() -> None:
    handles, filling = Handles(), worker()
    notes = drive(handles, filling, 120, (1, 0), end=60)
    assert [note.kind for note in notes] == ["leak", "leak_over"]
    assert handles.leaks == []


def test_a_worker_near_its_limit_of_descriptors_is_replaced() -> None:
    handles, leaking = Handles(), worker()
    drive(handles, leaking, 40, (10, 0))
    assert handles.why_replace(leaking, report(700), 0) == ""
    why = handles.why_replace(leaking, report(760), 0)
    assert why.startswith("760 of its 1,024 file descriptors are open (stage 'open' keeps them), and one of the next ")


def test_a_worker_that_holds_many_from_the_start_is_left_alone() -> None:
    handles, holding = Handles(), worker()
    for _ in range(30):
        holding.n_units += 1
        handles.after_unit(holding, report(900))
        assert handles.why_replace(holding, report(900), 0) == ""


def test_once_a_worker_ran_out_after_one_unit_the_next_ones_do_one_unit() -> None:
    handles, first, second = Handles(), worker(1), worker(2)
    first.n_units = second.n_units = 1
    handles.after_unit(second, report(610, keeps=(600, 0)))
    assert handles.why_replace(second, report(610, keeps=(600, 0)), 0) == ""
    handles.ran_out(first)
    assert "stage 'open' keeps them" in handles.why_replace(second, report(610, keeps=(600, 0)), 0)
    assert handles.why_replace(second, report(100), 0) == ""


def test_a_worker_whose_threads_fill_its_cap_is_replaced() -> None:
    handles, leaking = Handles(), worker()
    drive(handles, leaking, 20, (0, 1))
    assert handles.why_replace(leaking, report(threads=21), 150 * MB) == ""
    why = handles.why_replace(leaking, report(threads=21), 195 * MB)
    assert why.startswith("it has 21 threads, 18 more than after its first partitions (stage 'open' keeps them), whose")
    assert handles.why_replace(leaking, report(threads=70), 10 * MB)


def test_an_executor_that_counts_nothing_is_left_alone() -> None:
    handles = Handles()
    assert handles.after_unit(worker(), Done()) == []
    assert handles.why_replace(worker(), Done(vitals=Vitals()), 0) == ""


def test_a_worker_with_hardly_any_descriptor_left_is_known() -> None:
    assert is_short_of_descriptors(Vitals(n_descriptors=1000, max_descriptors=1024))
    assert not is_short_of_descriptors(Vitals(n_descriptors=500, max_descriptors=1024))
    assert not is_short_of_descriptors(Vitals())
    assert not is_short_of_descriptors(None)
