"""The supervisor, driven by lists of events: who gets memory, who has to go, when it is over."""

from __future__ import annotations

import heapq
from dataclasses import replace
from typing import Any, get_args

import pytest

from tamis.engine.ledger import Ledger
from tamis.engine.messages import (
    Done,
    Failure,
    FailureKind,
    Handover,
    RowsTooLarge,
    StagedFile,
    StreamTooLarge,
    WorkerMessage,
)
from tamis.engine.schema import FileKind
from tamis.engine.supervisor.actions import (
    Action,
    AssignUnit,
    CommitPartition,
    DiscardFiles,
    KillWorker,
    Note,
    ReplaceFiles,
    RequestBlock,
    StartWorker,
    StopWorker,
)
from tamis.engine.supervisor.cursor import Cursor
from tamis.engine.supervisor.events import Event, Tick
from tamis.engine.supervisor.retry_policy import Misfit
from tamis.engine.supervisor.state import FEEDER, Config, KillReason, NodeSpec, WorkerState
from tamis.engine.supervisor.supervisor import MAX_STILLBORN, TRANSITIONS, Supervisor
from tamis.engine.units import Mode, Piece, PieceKind, Rewrite
from tamis.engine.workers_interface import Died, Received
from tamis.formats.input_files.listing import FileList
from tamis.memory.predictor import Predictor
from tests.engine import supervise

MB = 1_000_000


def supervisor(
    *files: tuple[PieceKind, int], pool: int = 100 * MB, slots: int = 1, segments: int = 1, **more: Any
) -> Supervisor:
    listed = FileList()
    for i, (_, size) in enumerate(files):
        listed.append(f"in{i}", size, 0)
    config = Config(
        2 * pool, pool, 20 * MB, slots, [None] * segments, max_partition_bytes=1 * MB, timeout_s=100.0, **more
    )
    return Supervisor(config, Cursor(listed, [k for k, _ in files]), [Predictor(1 * MB) for _ in range(segments)])


def report(**more: Any) -> Done:
    return Done(**more)


def only(actions: list[Action], kind: Any) -> Any:
    found = [a for a in actions if isinstance(a, kind)]
    assert len(found) == 1, actions
    return found[0]


def begin(s: Supervisor) -> AssignUnit:
    """Start the first worker and give it its first unit."""
    start = only(supervise.tick(s, 0.0), StartWorker)
    return only(supervise.ready(s, start.worker, 0.0), AssignUnit)


def test_one_worker_gets_the_pool_less_what_it_holds_anyway() -> None:
    assigned = begin(supervisor((PieceKind.BYTES, 500)))
    assert (assigned.cap_bytes, assigned.fence, [(p.start, p.end) for p in assigned.unit.pieces]) == (
        80 * MB,
        1,
        [(0, 500)],
    )


def test_room_is_kept_for_workers_that_are_still_to_come() -> None:
    assert begin(supervisor((PieceKind.BYTES, 5 * MB), slots=2)).cap_bytes == 30 * MB


def test_more_workers_than_can_work_are_not_started() -> None:
    s = supervisor((PieceKind.BYTES, 50 * MB), slots=8)  # 100 MB: two workers of 20 MB with at least 24 MB each
    actions = supervise.tick(s, 0.0)
    for _ in range(10):
        actions = [
            a for start in actions if isinstance(start, StartWorker) for a in supervise.ready(s, start.worker, 0.0)
        ]
    assert len(s.pool.workers) == 2


def test_done_is_committed_and_the_run_ends() -> None:
    s = supervisor((PieceKind.BYTES, 500))
    a = begin(s)
    assert not s.finished
    files = [StagedFile("u1", FileKind.OUTPUT, n_bytes=7)]
    commit = only(
        supervise.done(s, a.worker, a.fence, report(files=files, covered=[(0, 0, 500, False)]), 1.0), CommitPartition
    )
    assert (commit.covered, commit.files, s.queue.n_committing, s.queue.unsynced_bytes, s.finished) == (
        [(0, 0, 500, False)],
        [replace(files[0], place=(0, 0, 0))],
        1,
        7,
        False,
    )
    supervise.committed(s, commit.partition, commit.covered, 7, 2.0)
    assert (s.finished, s.queue.unsynced_bytes, s.status.counters.committed) == (True, 0, 1)


def test_a_report_with_an_old_fence_is_thrown_away() -> None:
    s = supervisor((PieceKind.BYTES, 500))
    a = begin(s)
    late = report(
        files=[StagedFile("u1", FileKind.OUTPUT), StagedFile("x", FileKind.LISTED)],
        handover=Handover("h", 1, 1),
    )
    assert supervise.done(s, a.worker, a.fence + 1, late, 1.0) == [DiscardFiles(["u1", "h"])]
    assert supervise.done(s, 99, a.fence, late, 1.0) == [DiscardFiles(["u1", "h"])]
    assert supervise.failed(s, a.worker, a.fence + 1, Failure(FailureKind.ERROR), 1.0) == []
    assert supervise.too_large(s, a.worker, a.fence + 1, StreamTooLarge(0, 1, 1), 1.0) == []
    assert supervise.block(s, 99, 1, Piece(0, PieceKind.BLOCK, "b", 0, 5), 5, 0, 1.0) == [DiscardFiles(["b"])]
    assert s.status.counters.late == 2
    assert s.pool.workers[a.worker].unit is a.unit


def test_a_worker_that_takes_too_long_is_killed_once_and_its_unit_tried_again() -> None:
    s = supervisor((PieceKind.BYTES, 500))
    a = begin(s)
    assert supervise.tick(s, 100.0) == []
    assert only(supervise.tick(s, 100.5), KillWorker) == KillWorker(a.worker, "timeout")
    assert supervise.tick(s, 101.0) == []
    start = only(supervise.died(s, a.worker, "signal SIGKILL", 9, 101.0), StartWorker)
    again = only(supervise.ready(s, start.worker, 101.0), AssignUnit)
    assert (again.unit.id, again.unit.n_failures, again.fence) == (a.unit.id, 1, 2)


def test_a_worker_over_its_cap_is_killed_and_its_unit_cut() -> None:
    s = supervisor((PieceKind.BYTES, 500))
    a = begin(s)
    supervise.read(s, a.worker, a.fence, 4, 300)
    assert supervise.measured(s, 100 * MB, {a.worker: 109 * MB}, 1.0) == []
    assert only(supervise.measured(s, 100 * MB, {a.worker: 110 * MB}, 1.0), KillWorker).why == "over its cap"
    supervise.died(s, a.worker, "signal SIGKILL", 9, 1.0)
    assert [[(p.start, p.end) for p in u.pieces] for u in s.queue.segments[0]] == [[(0, 300)], [(300, 500)]]
    assert (s.status.counters.splits, s.status.counters.memory_failures, s.status.counters.crashes) == (1, 1, 0)


def test_a_kill_that_came_before_the_process_is_repeated_when_it_is_there() -> None:
    s = supervisor((PieceKind.BYTES, 500))
    start = only(supervise.tick(s, 0.0), StartWorker)
    assert supervise.stop(s, "interrupted") == [Note("stop", "interrupted"), KillWorker(start.worker, "stopping")]
    assert supervise.ready(s, start.worker, 1.0) == [KillWorker(start.worker, "stopping")]
    assert not s.finished
    supervise.died(s, start.worker, "signal SIGKILL", 9, 1.0)
    assert s.finished


def test_workers_that_die_while_starting_end_the_run_at_some_point() -> None:
    s = supervisor((PieceKind.BYTES, 500))
    actions = supervise.tick(s, 0.0)
    for n in range(1, MAX_STILLBORN):
        actions = supervise.died(s, only(actions, StartWorker).worker, "exit status 1", 0, float(n))
    actions = supervise.died(s, only(actions, StartWorker).worker, "exit status 1", 0, 99.0)
    assert not [a for a in actions if isinstance(a, StartWorker)]
    assert (s.status.fatal_kind, s.status.fatal) == (
        "worker",
        "20 workers in a row died while starting, the last one with exit status 1",
    )
    assert s.finished


def test_a_full_disk_ends_the_run() -> None:
    s = supervisor((PieceKind.BYTES, 500))
    a = begin(s)
    supervise.failed(s, a.worker, a.fence, Failure(FailureKind.DISK, "No space left"), 1.0)
    assert (s.status.fatal, s.status.fatal_kind, s.status.stopping) == ("No space left", "disk", "No space left")
    assert supervise.tick(s, 2.0) == []


def test_a_failed_commit_ends_the_run() -> None:
    s = supervisor((PieceKind.BYTES, 500))
    a = begin(s)
    supervise.done(s, a.worker, a.fence, report(), 1.0)
    supervise.commit_failed(s, "cannot commit")
    assert (s.status.fatal, s.status.fatal_kind, s.queue.n_committing) == ("cannot commit", "disk", 0)


def test_a_stage_that_fails_on_nearly_everything_stops_the_run() -> None:
    s = supervisor((PieceKind.BYTES, 500))
    a = begin(s)
    s.status.n_stage_failures = 20
    ledger = Ledger()
    ledger.records.add(100, 1)
    supervise.done(s, a.worker, a.fence, report(ledger=ledger), 1.0)
    assert s.status.stopping == "a stage fails on 20 of 100 documents so far: see `tamis quarantine`"


def test_a_unit_that_runs_alone_gets_everything_when_everybody_else_is_gone() -> None:
    s = supervisor((PieceKind.BYTES, 2 * MB), slots=2, pool=200 * MB)
    first = begin(s)
    second_id = next(w for w in s.pool.workers if w != first.worker)
    second = only(supervise.ready(s, second_id, 0.0), AssignUnit)
    supervise.read(s, first.worker, first.fence, 1, -1)
    supervise.failed(s, first.worker, first.fence, Failure(FailureKind.MEMORY), 1.0)
    supervise.died(s, first.worker, "exit status 77", 0, 1.0)
    assert supervise.tick(s, 2.0) == []  # the other one still works
    actions = supervise.done(s, second.worker, second.fence, report(), 3.0)
    alone = only(actions, AssignUnit)
    assert (alone.unit.id, alone.unit.alone, alone.cap_bytes) == (first.unit.id, True, 180 * MB)
    assert supervise.tick(s, 4.0) == []  # and nobody starts beside it


def test_segments_share_one_seat_in_turn() -> None:
    """A budget for one worker, and two segments."""
    s = supervisor((PieceKind.BYTES, 500), pool=50 * MB, segments=2)
    a = begin(s)
    actions = supervise.done(s, a.worker, a.fence, report(handover=Handover("h", 3, 10)), 1.0)
    assert only(actions, StopWorker).worker == a.worker
    start = only(supervise.died(s, a.worker, "exit status 0", 0, 2.0), StartWorker)
    assert start.segment == 1
    second = only(supervise.ready(s, start.worker, 2.0), AssignUnit)
    assert (second.unit.handover, second.unit.handover_rows, second.unit.partition) == ("h", (0, 3), a.unit.partition)
    actions = supervise.done(s, second.worker, second.fence, report(), 3.0)
    assert only(actions, CommitPartition).partition == a.unit.partition
    assert only(actions, DiscardFiles).paths == ["h"]


def busy_by_segment(s: Supervisor, segments: int) -> list[int]:
    """Run to the end, each unit taking one second.

    Return how many workers of each segment were busy at once at most.
    """
    now, most = 0.0, [0] * segments
    assigned: list[AssignUnit] = []
    actions = supervise.tick(s, now)
    while not s.finished:
        while actions:
            action = actions.pop(0)
            match action:
                case StartWorker():
                    actions += supervise.ready(s, action.worker, now)
                case StopWorker():
                    actions += supervise.died(s, action.worker, "exit status 0", 0, now)
                case CommitPartition():
                    actions += supervise.committed(s, action.partition, action.covered, 0, now)
                case AssignUnit():
                    assigned.append(action)
        assert now < 100.0, "no worker has anything to do, and the run is not over"
        busy = [s.pool.workers[a.worker].segment for a in assigned]
        most = [max(n, busy.count(segment)) for segment, n in enumerate(most)]
        assert len({*busy}) <= 1 or s.config.mode != "batch", "stages of batch mode run one after the other"
        now += 1.0
        for done in assigned:
            unit = done.unit
            size = sum(p.end - p.start for p in unit.pieces)
            covered = [(p.file, p.start, p.end, False) for p in unit.pieces] if unit.segment == 0 else []
            passed_on = Handover(f"h{unit.id}", 1, 10) if unit.segment + 1 < segments else None
            made = report(covered=covered, handover=passed_on, decoded_bytes=size, seconds=1.0)
            actions += supervise.done(s, done.worker, done.fence, made, now)
        assigned = []
        actions += supervise.tick(s, now)
    return most


def test_all_workers_go_to_the_active_segment_of_batch_mode() -> None:
    files = [(PieceKind.BYTES, 500)] * 12
    alike = supervisor(*files, pool=1000 * MB, slots=4, segments=3, mode="batch", bounded_in_time=False)
    alike.queue.cursor.files_per_partition = 1
    assert busy_by_segment(alike, 3) == [4, 4, 4]


def test_batch_mode_keeps_fixed_numbers_of_workers_and_the_cores_that_each_asks_for() -> None:
    files = [(PieceKind.BYTES, 500)] * 12
    s = supervisor(
        *files, pool=1000 * MB, slots=4, segments=3, mode="batch", bounded_in_time=False, cpus=[1.0, 1.0, 2.0]
    )
    s.config.fixed_workers[1] = 1
    s.queue.cursor.files_per_partition = 1
    assert busy_by_segment(s, 3) == [4, 1, 2]


def node(number: int, pool: int) -> NodeSpec:
    return NodeSpec(number, f"node {number}", 2 * pool, pool, 20 * MB, 1)


def test_a_feeder_that_waits_on_a_node_with_too_little_memory_makes_room_for_one_elsewhere() -> None:
    s = supervisor((PieceKind.STREAM, 100 * MB), pool=100 * MB, nodes=[node(1, 100 * MB)], queue_bytes=10)
    actions = supervise.tick(s, 0.0)
    assigned: list[AssignUnit] = []
    while not assigned:
        actions = [
            a for start in actions if isinstance(start, StartWorker) for a in supervise.ready(s, start.worker, 0.0)
        ]
        assigned = [a for a in actions if isinstance(a, AssignUnit)]
    (feed,) = assigned
    supervise.block(s, feed.worker, feed.fence, Piece(0, PieceKind.BLOCK, "b1", 0, 50), 50, 5, 1.0)
    assert s.pool.workers[feed.worker].is_blocked
    supervise.node_up(s, node(2, 500 * MB), 2.0)
    worker = next(w for w in s.pool.workers.values() if w.segment == 0)
    s.arbiter.learn_setup(worker, 200 * MB, 200 * MB)  # more than the first node has
    assert StopWorker(feed.worker) in supervise.tick(s, 3.0)


def test_what_a_feeder_needs_is_not_forgotten_on_a_smaller_node() -> None:
    s, feed = feeding()
    assert feed.unit.need_bytes == 0
    feed.unit.need_bytes = 150 * MB  # a larger node failed with less
    supervise.failed(s, feed.worker, feed.fence, Failure(FailureKind.MEMORY, peak_bytes=MB), 1.0)
    assert feed.unit.need_bytes == 150 * MB


def test_an_empty_handover_is_removed_and_committed() -> None:
    s = supervisor((PieceKind.BYTES, 500), segments=2)
    a = begin(s)
    actions = supervise.done(s, a.worker, a.fence, report(handover=Handover("h", 0, 10)), 1.0)
    assert DiscardFiles(["h"]) in actions
    assert only(actions, CommitPartition).partition == a.unit.partition


def feeding(**more: Any) -> tuple[Supervisor, AssignUnit]:
    s = supervisor((PieceKind.STREAM, 100 * MB), **{"pool": 200 * MB, "slots": 2, **more})
    actions = supervise.tick(s, 0.0)
    assigned: list[AssignUnit] = []
    while not assigned:
        actions = [
            a for start in actions if isinstance(start, StartWorker) for a in supervise.ready(s, start.worker, 0.0)
        ]
        assigned = [a for a in actions if isinstance(a, AssignUnit)]
    assert assigned[0].unit.mode is Mode.FEED
    assert s.pool.workers[assigned[0].worker].segment == FEEDER
    return s, assigned[0]


def test_a_feeder_continues_while_the_queue_has_room() -> None:
    s, feed = feeding(queue_bytes=10)
    blocks = [Piece(0, PieceKind.BLOCK, f"b{i}", i * 6, i * 6 + 6, i * 6) for i in range(2)]
    actions = supervise.block(s, feed.worker, feed.fence, blocks[0], 6, 1, 1.0)
    assert only(actions, RequestBlock).worker == feed.worker
    actions = supervise.block(s, feed.worker, feed.fence, blocks[1], 6, 2, 2.0)
    assert not [a for a in actions if isinstance(a, RequestBlock)]
    assert s.pool.workers[feed.worker].is_blocked
    supervise.tick(s, 500.0)
    assert not s.pool.workers[feed.worker].dying  # who waits is not late


def test_a_feeder_does_not_run_far_ahead_of_the_workers() -> None:
    s, feed = feeding(slots=1)
    blocks = [Piece(0, PieceKind.BLOCK, f"b{i}", i * 6, i * 6 + 6, i * 6) for i in range(4)]
    actions = supervise.block(s, feed.worker, feed.fence, blocks[0], 6, 1, 1.0)
    first = only(actions, AssignUnit)
    assert has_request(actions)
    assert has_request(supervise.block(s, feed.worker, feed.fence, blocks[1], 6, 2, 2.0))
    assert not has_request(supervise.block(s, feed.worker, feed.fence, blocks[2], 6, 3, 3.0))  # two wait for one worker
    actions = supervise.done(s, first.worker, first.fence, Done(n_records=1, decoded_bytes=6), 4.0)
    assert only(actions, AssignUnit).worker == first.worker
    assert has_request(supervise.tick(s, 5.0))


def test_the_last_blocks_of_a_file_are_small() -> None:
    s, feed = feeding(slots=1)
    worker = s.pool.workers[feed.worker]
    assert worker.unit is not None
    sizes = []
    for compressed, decoded in ((10 * MB, 40 * MB), (90 * MB, 360 * MB), (99 * MB, 396 * MB)):
        worker.unit.compressed_bytes = compressed
        worker.unit.pieces = [worker.unit.pieces[0]._replace(start=decoded)]
        sizes.append(s.dispatcher._bound_by_rest(24 * MB, worker))
    assert sizes == [24 * MB, 20 * MB, 4 << 20]  # half of what is left, but not less than 4 MiB


def has_request(actions: list[Action]) -> bool:
    return any(isinstance(action, RequestBlock) for action in actions)


def test_a_feeder_that_dies_continues_after_what_it_handed_out() -> None:
    s, feed = feeding()
    supervise.block(s, feed.worker, feed.fence, Piece(0, PieceKind.BLOCK, "b0", 0, 60), 60, 1, 1.0)
    supervise.died(s, feed.worker, "signal SIGSEGV", 11, 2.0)
    left = list(s.queue.feeds)
    assert [[(p.start, p.end) for p in u.pieces] for u in left] == [[(60, 1 << 62)]]


def starved(s: Supervisor, a: AssignUnit, now_s: float, **more: Any) -> list[Action]:
    """Let a feeder fail for want of memory and exit."""
    failed = Failure(FailureKind.MEMORY, "MemoryError: .", **more)
    return supervise.failed(s, a.worker, a.fence, failed, now_s) + supervise.died(
        s, a.worker, "exit status 77", 0, now_s
    )


def fed_again(s: Supervisor, actions: list[Action], now_s: float) -> AssignUnit:
    """Start the feeder's next attempt: stopped workers exit, a started one becomes ready."""
    for _ in range(10):
        found = [a for a in actions if isinstance(a, AssignUnit) and a.unit.mode is Mode.FEED]
        if found:
            return found[0]
        more: list[Action] = []
        for action in actions:
            if isinstance(action, StopWorker):
                more += supervise.died(s, action.worker, "exit status 0", 0, now_s)
            elif isinstance(action, StartWorker):
                more += supervise.ready(s, action.worker, now_s)
        actions = more or supervise.tick(s, now_s)
    raise AssertionError("the feeder does not start again")


def test_a_feeder_gets_what_it_requested_and_others_work_next_to_it() -> None:
    s, feed = feeding(pool=300 * MB, slots=2)
    again = fed_again(s, starved(s, feed, 1.0, requested_bytes=134 * MB, peak_bytes=3 * MB), 1.0)
    assert (again.cap_bytes, s.arbiter.fits_next_to_others(again.cap_bytes)) == (int(137 * MB * 1.1), True)
    assert not s.queue.feeds
    actions = supervise.block(s, again.worker, again.fence, Piece(0, PieceKind.BLOCK, "b0", 0, 60), 60, 1, 2.0)
    starts = [a for a in actions + supervise.tick(s, 2.0) if isinstance(a, StartWorker)]
    work = [a for start in starts for a in supervise.ready(s, start.worker, 2.0) if isinstance(a, AssignUnit)]
    assert work or any(w.unit is not None and w.segment == 0 for w in s.pool.workers.values())


def test_a_feeder_that_needs_everything_gets_it_alone_and_its_file_is_refused_with_a_number() -> None:
    s, feed = feeding(pool=100 * MB, slots=2)
    feed = fed_again(s, starved(s, feed, 1.0), 1.0)
    while feed.cap_bytes < 80 * MB:
        before, feed = feed.cap_bytes, fed_again(s, starved(s, feed, 1.0), 1.0)
        assert feed.cap_bytes > before
    assert (feed.cap_bytes, len(s.pool.workers), feed.unit.is_patient) == (80 * MB, 1, True)
    starved(s, feed, 2.0, requested_bytes=100 * MB)
    (told,) = s.status.infeasible
    assert told.startswith("in0 cannot be decoded in the memory that the budget leaves: it asked for 100 MB at once")
    assert "one worker can get 80 MB; run again with --memory" in told
    assert s.finished


def test_memory_that_no_machine_has_is_not_advised() -> None:
    told = Misfit("stage 'x'", 100, 835_868 * 10**12, 80 * MB, 10**18).advice()
    assert told.startswith("it asked for 835868 TB at once, which no machine has")
    assert "run again with --memory" not in told


def test_a_small_allocation_that_failed_does_not_tell_what_a_file_needs() -> None:
    """Ten thousand columns fail at any of their 4 kB: half as much again is a better guess than 4 kB more."""
    s, feed = feeding(pool=100 * MB, slots=2)
    while not s.status.infeasible:
        had, told = feed.cap_bytes, starved(s, feed, 1.0, requested_bytes=4032, peak_bytes=feed.cap_bytes - 1)
        if not s.status.infeasible:
            feed = fed_again(s, told, 1.0)
    least = int(s.status.infeasible[0].split("--memory ")[1].split("MB")[0]) * MB
    assert s.status.infeasible[0].startswith("in0 cannot be decoded in the memory that the budget leaves: it took all")
    assert least >= s.config.budget_bytes + had // 2


def test_a_feeder_that_would_start_over_waits_until_what_it_handed_out_is_used_up() -> None:
    s, feed = feeding(queue_bytes=10, patient_queue_bytes=100)
    supervise.block(s, feed.worker, feed.fence, Piece(0, PieceKind.BLOCK, "b0", 0, 60), 60, 1, 1.0)
    assert s.pool.workers[feed.worker].is_blocked
    s.pool.workers[feed.worker].kill_reason = KillReason.REPLACED
    supervise.died(s, feed.worker, "exit status 0", 0, 1.0)
    assert not s.dispatcher._feed_may_start(s.pool.nodes[0])
    s.queue.segments[0].clear()
    s.queue.scratch.free(["b0"])
    assert s.dispatcher._feed_may_start(s.pool.nodes[0])


def test_a_file_that_no_feeder_survives_is_named_and_the_others_are_read() -> None:
    s, feed = feeding()
    for _ in range(4):
        feed = fed_again(s, supervise.died(s, feed.worker, "signal SIGSEGV", 11, 1.0), 1.0)
    supervise.died(s, feed.worker, "signal SIGSEGV", 11, 1.0)
    assert s.status.infeasible == ["in0 cannot be decoded: the worker process died: signal SIGSEGV"]
    assert not s.status.fatal


def test_rows_too_large_to_be_read_at_once_are_fed() -> None:
    s = supervisor((PieceKind.ROWS, 500))
    a = begin(s)
    info = RowsTooLarge(0, [(0, 90, 9 * MB)], 90)
    assert only(supervise.too_large(s, a.worker, a.fence, info, 1.0), CommitPartition).covered == [(0, 90, 90, True)]
    assert [(u.mode, u.pieces[0].start, u.pieces[0].end) for u in s.queue.feeds] == [(Mode.FEED, 0, 90)]
    s = supervisor((PieceKind.ROWS, 500))
    a = begin(s)
    supervise.too_large(s, a.worker, a.fence, replace(info, groups=[(0, 90, 0)], measured=True), 1.0)
    assert [(u.mode, u.pieces[0].start, u.pieces[0].end) for u in s.queue.feeds] == [(Mode.FEED, 0, 90)]
    s = supervisor((PieceKind.ROWS, 500))
    a = begin(s)
    supervise.too_large(s, a.worker, a.fence, replace(info, groups=[(0, 90, 5)]), 1.0)
    part = next(w.unit for w in s.pool.workers.values() if w.unit is not None)
    supervise.failed(s, a.worker, s.pool.workers[a.worker].fence, Failure(FailureKind.MEMORY), 2.0)
    assert (part.pieces[0].end, [u.pieces for u in s.queue.feeds] or [w.pieces for w in s.queue.cursor._ready]) == (
        90,
        [part.pieces],
    )


def test_a_stream_that_decodes_to_more_is_fed_and_the_rest_of_its_group_runs() -> None:
    s = supervisor((PieceKind.STREAM, 500), (PieceKind.STREAM, 500))
    a = begin(s)
    assert len(a.unit.pieces) == 2
    supervise.too_large(s, a.worker, a.fence, StreamTooLarge(0, 5 * MB, 500), 1.0)
    assert s.queue.cursor.ratio == 1000.0
    rest = s.pool.workers[a.worker].unit
    assert rest is not None
    assert [p.file for p in rest.pieces] == [1]


def test_schemas_are_joined_and_files_rewritten() -> None:
    s = supervisor()
    s.join_schemas(["a", "b"])
    a = begin(s)
    assert (a.unit.mode, a.unit.rewrite) == (Mode.REWRITE, Rewrite(schemas=["a", "b"]))
    supervise.done(s, a.worker, a.fence, Done(schema="ab"), 1.0)
    assert s.schema == "ab"
    assert s.finished
    s = supervisor()
    work = Rewrite(union="ab", paths=["out/part-1.parquet"], old=["part-1.parquet"])
    s.rewrite([work])
    a = begin(s)
    assert a.unit.rewrite == work
    made = StagedFile("u1.out", FileKind.OUTPUT)
    assert only(supervise.done(s, a.worker, a.fence, Done(files=[made]), 1.0), ReplaceFiles) == ReplaceFiles(
        a.unit.id, ["part-1.parquet"], [made], names=[]
    )


def test_samples_are_described_by_a_worker_that_lives() -> None:
    s = supervisor((PieceKind.BYTES, 500))
    a = begin(s)
    commit = only(supervise.done(s, a.worker, a.fence, report(decoded_bytes=500), 1.0), CommitPartition)
    supervise.committed(s, commit.partition, commit.covered, 0, 2.0)
    assert s.finished
    s.describe_samples("samples.jsonl")
    assert not s.finished
    again = only(supervise.tick(s, 3.0), AssignUnit)
    assert (again.worker, again.unit.rewrite) == (a.worker, Rewrite(samples="samples.jsonl"))
    supervise.done(s, again.worker, again.fence, Done(files=[StagedFile("u2.samples", FileKind.SAMPLES)]), 4.0)
    assert (s.finished, s.described) == (True, "u2.samples")


@pytest.mark.parametrize("how", ["failed", "died"])
def test_a_run_ends_well_though_describing_its_samples_fails(how: str) -> None:
    s = supervisor()
    s.describe_samples("samples.jsonl")
    a = begin(s)
    if how == "failed":
        supervise.failed(s, a.worker, a.fence, Failure(FailureKind.MEMORY, "MemoryError"), 1.0)
    else:
        supervise.died(s, a.worker, "SIGKILL", 9, 1.0)
    assert (s.finished, s.described, s.status.stopping) == (True, None, "")
    assert s.status.infeasible == []


def test_high_use_of_memory_stops_growth_and_kills_in_the_end() -> None:
    s = supervisor((PieceKind.BYTES, 50 * MB), slots=2)
    a = begin(s)
    other = only(supervise.ready(s, next(w for w in s.pool.workers if w != a.worker), 0.0), AssignUnit)
    uses = {a.worker: 40 * MB, other.worker: 30 * MB}
    note = only(supervise.measured(s, 150 * MB, uses, 1.0), Note)
    assert note.text == "memory yellow: 75 % of the budget, 150 MB of 200 MB"
    assert s.pool.nodes[0].decision.allow_new_workers is False
    killed = [x.worker for x in supervise.measured(s, 185 * MB, uses, 2.0) if isinstance(x, KillWorker)]
    assert len(killed) == 1
    assert supervise.measured(s, 185 * MB, uses, 2.1) == []  # who is dying counts as gone


def test_a_worker_with_a_gpu_waits_until_the_one_before_it_is_gone() -> None:
    s = supervisor((PieceKind.BYTES, 500), slots=4, gpus=[1.0], devices=["7"])
    first = only(supervise.tick(s, 0.0), StartWorker)
    assert first.environment == {"CUDA_VISIBLE_DEVICES": "7", "TAMIS_GPU_SHARE": "1"}
    supervise.ready(s, first.worker, 0.0)
    again = supervise.failed(s, first.worker, 1, Failure(FailureKind.ERROR, "CUDA error: device-side assert"), 1.0)
    assert not [a for a in again if isinstance(a, StartWorker)]  # its process still holds the device
    assert only(supervise.died(s, first.worker, "exit status 0", 0, 2.0), StartWorker).environment == first.environment


def roomy(n_bytes: int, slots: int, predictor: Predictor, **more: Any) -> Supervisor:
    """With memory for units as large as there are."""
    files = FileList()
    files.append("in0", n_bytes, 0)
    config = Config(4000 * MB, 2000 * MB, 20 * MB, slots, [None], max_partition_bytes=32 * MB, **more)
    return Supervisor(config, Cursor(files, [PieceKind.BYTES]), [predictor])


def units_of(
    n_bytes: int, *s_per_mb: float, slots: int = 1, setup_s: float = 0.0, **more: Any
) -> list[tuple[int, float]]:
    """Return input bytes and seconds of the units of a run, by the time they are done.

    Each segment takes a fixed time per MB of the input, each worker one to be set up. Of what the first segment reads,
    the next one gets a hundredth.
    """
    files = FileList()
    files.append("in0", n_bytes, 0)
    n = len(s_per_mb)
    config = Config(8000 * MB, 4000 * MB, 20 * MB, slots, [None] * n, max_partition_bytes=32 * MB, **more)
    s = Supervisor(config, Cursor(files, [PieceKind.BYTES]), [Predictor(32 * MB) for _ in range(n)])
    busy: list[Any] = []
    found, set_up, now_s, actions = [], set(), 0.0, supervise.tick(s, 0.0)
    while True:
        for action in actions:
            if isinstance(action, StartWorker):
                heapq.heappush(busy, (now_s, action.worker, None))
            elif isinstance(action, AssignUnit):
                unit, first = action.unit, action.worker not in set_up
                set_up.add(action.worker)
                size = unit.input_bytes or unit.pieces[0].end - unit.pieces[0].start
                seconds = size / MB * s_per_mb[unit.segment]
                heapq.heappush(
                    busy, (now_s + seconds + setup_s * first, action.worker, (action, size, seconds, setup_s * first))
                )
        if not busy:
            break
        now_s, worker, done = heapq.heappop(busy)
        if done is None:
            actions = supervise.ready(s, worker, now_s)
            continue
        assigned, size, seconds, spent_s = done
        found.append((size, seconds))
        last = assigned.unit.segment == n - 1
        made = None if last else Handover(f"h{assigned.unit.id}", 10, size // 100)
        covered = [(0, p.start, p.end, False) for p in assigned.unit.pieces] if assigned.unit.segment == 0 else []
        told = report(
            n_records=10,
            decoded_bytes=size if assigned.unit.segment == 0 else size // 100,
            peak_bytes=size,
            handover=made,
            covered=covered,
            seconds=seconds + spent_s,
            setup_s=spent_s,
        )
        actions = supervise.done(s, worker, assigned.fence, told, now_s) or supervise.tick(s, now_s)
    assert sum(size for size, _ in found) == n * n_bytes
    return found


def test_units_of_fast_stages_are_as_large_as_memory_allows() -> None:
    assert 30 * MB < max(units_of(2000 * MB, 0.01))[0] <= 32 * MB


def test_a_unit_of_a_slow_stage_takes_two_minutes_at_most() -> None:
    """At this rate 32 MB would take longer than the timeout, and the worker would be stopped again and again."""
    seconds = [seconds for _, seconds in units_of(400 * MB, 60.0)]
    assert 110 < max(seconds) <= 120.1
    assert seconds[len(seconds) // 2] > 110


def test_a_unit_takes_a_small_part_of_the_time_so_far() -> None:
    """So that workers end together, however much there is to do."""
    units = units_of(40 * MB, 10.0, slots=4)
    for i, (_, seconds) in enumerate(units[4:]):
        passed_s = sum(s for _, s in units[: i + 4]) / 4
        assert seconds <= max(5.01, passed_s / 7)


def test_a_slow_segment_after_a_fast_one_bounds_what_is_read() -> None:
    """While nothing is through a segment, nothing large is begun.

    Then the time that a byte of the input takes there counts.
    """
    units = units_of(400 * MB, 0.01, 60.0, slots=2, setup_s=10.0, queue_bytes=40 * MB // 100)
    assert max(units)[0] <= 4 << 20
    assert max(units[len(units) // 2 :])[0] <= 2 * MB


def test_setting_up_does_not_make_units_small() -> None:
    assert max(units_of(300 * MB, 0.2, slots=8, setup_s=60.0))[0] > 20 * MB


def test_nothing_large_is_begun_before_it_is_known_how_long_it_takes() -> None:
    learned = Predictor(32 * MB)
    learned._size_bytes, learned._slow_start = 32.0 * MB, False  # as earlier runs left it
    assert begin(roomy(500 * MB, 1, learned)).unit.pieces[0].end in range(4 * MB, (4 << 20) + 1)
    assert (
        begin(roomy(500 * MB, 1, learned, expected_s=1e-9)).unit.pieces[0].end > 30 * MB
    )  # ... which knew how long, too
    assert begin(roomy(500 * MB, 1, learned, expected_s=1e-3)).unit.pieces[0].end in range(MB, (1 << 20) + 1)


def test_a_size_that_the_user_chose_is_not_cut_for_time() -> None:
    assert max(units_of(400 * MB, 60.0, bounded_in_time=False, timeout_s=1e9))[0] > 30 * MB


def test_every_event_has_a_handler_in_every_state() -> None:
    about_workers = {*get_args(WorkerMessage), Died}
    about_run = {*get_args(Event)} - {Received, Died}
    expected = {(event, state) for event in about_workers for state in WorkerState} | {(e, None) for e in about_run}
    assert set(TRANSITIONS) == expected


def test_the_state_of_a_worker_follows_its_process_and_its_unit() -> None:
    s = supervisor((PieceKind.BYTES, 500))
    start = only(supervise.tick(s, 0.0), StartWorker)
    gone = Died(start.worker, "exit status 1")
    assert s.state_of(gone) is WorkerState.STARTING
    assigned = only(supervise.ready(s, start.worker, 0.0), AssignUnit)
    assert s.state_of(gone) is WorkerState.BUSY
    assert s.state_of(Received(start.worker, Done(fence=assigned.fence))) is WorkerState.BUSY
    assert s.state_of(Received(start.worker, Done(fence=assigned.fence - 1))) is WorkerState.STALE
    supervise.done(s, assigned.worker, assigned.fence, report(), 1.0)
    assert s.state_of(gone) is WorkerState.IDLE
    assert s.state_of(Died(99, "exit status 1")) is WorkerState.UNKNOWN
    assert s.state_of(Tick()) is None
