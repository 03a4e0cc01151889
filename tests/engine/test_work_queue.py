"""The work queue alone: units, halves, partitions, scratch files and commits."""

from __future__ import annotations

from tamis.engine.messages import Done, Handover, RowsTooLarge, StagedFile, StreamTooLarge
from tamis.engine.schema import FileKind
from tamis.engine.supervisor.actions import CommitPartition, DiscardFiles
from tamis.engine.supervisor.cursor import Cursor
from tamis.engine.supervisor.work_queue import ScratchFiles, WorkQueue
from tamis.engine.units import TO_END, Mode, Piece, PieceKind
from tamis.formats.input_files.listing import FileList


def work_queue(*kinds: PieceKind, n_segments: int = 1, size: int = 100) -> WorkQueue:
    files = FileList()
    for i in range(len(kinds)):
        files.append(f"in{i}", size, 0)
    return WorkQueue(Cursor(files, list(kinds)), n_segments)


def piece(start: int = 0, end: int = 100) -> Piece:
    return Piece(0, PieceKind.BYTES, "in0", start, end)


def test_a_queue_is_empty_when_the_input_is_handed_out_and_nothing_waits() -> None:
    queue = work_queue(PieceKind.BYTES)
    assert not queue.is_empty
    work = queue.cursor.next(1000)
    assert work is not None
    assert queue.is_empty
    queue.requeue(queue.new_unit(work.pieces))
    assert not queue.is_empty


def test_a_partition_is_committed_with_its_last_unit() -> None:
    queue = work_queue(PieceKind.BYTES)
    unit = queue.new_unit([piece()])
    unit.n_records, unit.cut = 2, 40
    queue.split(unit, n_failures=1)
    first, second = queue.segments[0]
    assert [(u.pieces[0].start, u.pieces[0].end, u.n_failures) for u in (first, second)] == [(0, 40, 1), (40, 100, 1)]
    assert first.partition == second.partition == unit.partition
    assert queue.add_result(first, Done(covered=[(0, 0, 40, False)]), 40) == []
    files = [StagedFile("u2", FileKind.OUTPUT, n_bytes=7)]
    (commit,) = queue.add_result(second, Done(covered=[(0, 40, 100, False)], files=files), 60)
    assert isinstance(commit, CommitPartition)
    assert commit.covered == [(0, 0, 40, False), (0, 40, 100, False)]
    assert (queue.n_committing, queue.unsynced_bytes) == (1, 7)
    queue.commit_ended(7)
    assert (queue.n_committing, queue.unsynced_bytes, queue.partitions) == (0, 0, {})


def test_what_is_passed_on_waits_for_the_next_segment() -> None:
    queue = work_queue(PieceKind.BYTES, n_segments=2)
    unit = queue.new_unit([piece()])
    assert queue.add_result(unit, Done(handover=Handover("h", 3, 10)), 100) == []
    (successor,) = queue.segments[1]
    assert (successor.handover, successor.handover_rows, successor.input_bytes) == ("h", (0, 3), 100)
    assert queue.scratch.total_bytes == 10
    commit, discard = queue.add_result(successor, Done(), 100)
    assert isinstance(commit, CommitPartition)
    assert discard == DiscardFiles(["h"])


def test_giving_up_a_later_unit_gives_up_its_partition() -> None:
    queue = work_queue(PieceKind.BYTES, n_segments=2)
    unit = queue.new_unit([piece()])
    queue.add_result(unit, Done(files=[StagedFile("u1", FileKind.OUTPUT)], handover=Handover("h", 4, 10)), 100)
    queue.split(queue.segments[1].popleft(), n_failures=0)
    queue.give_up(queue.segments[1][1])
    assert not any(queue.segments[0])
    assert queue.partitions == {}


def test_only_a_single_segment_commits_what_was_begun() -> None:
    for n_segments, n_commits in ((1, 1), (2, 0)):
        queue = work_queue(PieceKind.BYTES, n_segments=n_segments)
        unit = queue.new_unit([piece()])
        unit.n_records, unit.cut = 2, 40
        queue.split(unit, n_failures=1)
        queue.add_result(queue.segments[0].popleft(), Done(), 40)
        assert len(queue.begin_commits()) == n_commits


def test_a_block_leaves_the_feeder_the_rest_of_its_file() -> None:
    queue = work_queue(PieceKind.STREAM)
    feed = queue.new_unit([Piece(0, PieceKind.STREAM, "in0", 0)])
    feed.mode, feed.n_failures = Mode.FEED, 2
    queue.add_block(feed, Piece(0, PieceKind.BLOCK, "b0", 0, 60), 60, 5)
    assert [(p.start, p.end) for p in feed.pieces] == [(60, TO_END)]
    assert (feed.n_failures, feed.compressed_bytes, queue.scratch.total_bytes) == (0, 5, 60)
    assert queue.segments[0][0].scratch_paths == ["b0"]


def test_a_patient_feed_is_queued_after_others() -> None:
    queue = work_queue(PieceKind.STREAM, PieceKind.STREAM, PieceKind.STREAM)
    feeds = [queue.new_unit([Piece(i, PieceKind.STREAM, f"in{i}", 0)]) for i in range(3)]
    for feed in feeds:
        feed.mode = Mode.FEED
    feeds[2].is_patient = True
    for feed in feeds:
        queue.requeue(feed)
    assert [u.id for u in queue.feeds] == [feeds[1].id, feeds[0].id, feeds[2].id]


def test_a_unit_that_decodes_to_more_is_cut_anew() -> None:
    queue = work_queue(PieceKind.STREAM, PieceKind.STREAM)
    unit = queue.new_unit([Piece(i, PieceKind.STREAM, f"in{i}", 0) for i in range(2)])
    assert queue.recut(unit, StreamTooLarge(0, 10**9, 100)) == []
    assert [p.file for p in queue.segments[0][0].pieces] == [1]
    assert queue.cursor.ratio == 1000.0
    queue = work_queue(PieceKind.ROWS)
    unit = queue.new_unit([Piece(0, PieceKind.ROWS, "in0", 0)])
    (commit,) = queue.recut(unit, RowsTooLarge(0, [(0, 90, 9_000_000)], 90))
    assert isinstance(commit, CommitPartition)
    assert commit.covered == [(0, 90, 90, True)]


def test_a_scratch_file_goes_with_its_last_user() -> None:
    scratch = ScratchFiles()
    scratch.add("a", 5)
    scratch.share("a")
    assert (scratch.free(["a"]), scratch.bytes_of("a")) == ([], 5)
    assert (scratch.free(["a"]), scratch.total_bytes) == ([DiscardFiles(["a"])], 0)
