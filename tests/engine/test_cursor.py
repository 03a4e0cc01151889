"""Which part of the input comes next."""

from __future__ import annotations

from tamis.engine.supervisor.coverage import Coverage
from tamis.engine.supervisor.cursor import Cursor, WorkItem
from tamis.engine.units import TO_END, Mode, PieceKind
from tamis.formats.input_files.listing import FileList

END = TO_END


def cursor(
    *files: tuple[PieceKind, int],
    done: list[tuple[int, int, int, bool]] | None = None,
    per_partition: int | None = None,
) -> Cursor:
    listed = FileList()
    for i, (_, size) in enumerate(files):
        listed.append(f"in{i}", size, 0)
    coverage = Coverage(lambda i: files[i][1] if files[i][0] is PieceKind.BYTES else -1)
    for entry in done or []:
        coverage.add(*entry)
    return Cursor(listed, [k for k, _ in files], coverage, per_partition)


def shown(work: WorkItem | None) -> list[tuple[int, int, int]] | None:
    return None if work is None else [(p.file, p.start, p.end) for p in work.pieces]


def everything(made: Cursor, max_bytes: int) -> list[list[tuple[int, int, int]]]:
    found = []
    while (work := made.next(max_bytes)) is not None:
        found.append([(p.file, p.start, p.end) for p in work.pieces])
    assert made.exhausted
    return found


def test_a_large_file_is_cut_evenly() -> None:
    assert everything(cursor((PieceKind.BYTES, 250)), 100) == [[(0, 0, 84)], [(0, 84, 167)], [(0, 167, 250)]]


def test_the_block_size_may_change_on_the_way() -> None:
    made = cursor((PieceKind.BYTES, 250))
    assert shown(made.next(50)) == [(0, 0, 50)]
    assert made.remaining_bytes == 200
    assert shown(made.next(1000)) == [(0, 50, 250)]
    assert made.remaining_bytes == 0


def test_small_files_are_grouped_by_kind_and_size() -> None:
    files = [
        (PieceKind.BYTES, 40),
        (PieceKind.BYTES, 40),
        (PieceKind.BYTES, 40),
        (PieceKind.STREAM, 10),
        (PieceKind.BYTES, 5),
        (PieceKind.BYTES, 500),
    ]
    assert everything(cursor(*files), 100) == [
        [(0, 0, 40), (1, 0, 40)],
        [(2, 0, 40)],
        [(3, 0, END)],
        [(4, 0, 5)],
        [(5, 0, 100)],
        [(5, 100, 200)],
        [(5, 200, 300)],
        [(5, 300, 400)],
        [(5, 400, 500)],
    ]


def test_files_per_partition_bounds_a_group() -> None:
    made = cursor(*[(PieceKind.BYTES, 10)] * 5, per_partition=2)
    assert [[f for f, _, _ in group] for group in everything(made, 1 << 40)] == [[0, 1], [2, 3], [4]]


def test_empty_files_are_skipped_and_unreadable_ones_are_not() -> None:
    assert everything(cursor((PieceKind.BYTES, 0), (PieceKind.BYTES, -1), (PieceKind.BYTES, 5)), 100) == [
        [(1, 0, -1), (2, 0, 5)]
    ]


def test_what_is_done_is_not_handed_out_again() -> None:
    done = [(0, 0, 100, False), (1, 20, 40, False), (1, 90, 100, False)]
    assert everything(cursor((PieceKind.BYTES, 100), (PieceKind.BYTES, 100), done=done), 100) == [
        [(1, 0, 20)],
        [(1, 40, 90)],
    ]


def test_a_group_is_not_lost_when_a_file_that_is_partly_done_follows() -> None:
    """Whole files were forgotten here once, silently."""
    for kind, rest in (
        (PieceKind.BYTES, [(2, 30, 50)]),
        (PieceKind.STREAM, [(2, 30, END)]),
        (PieceKind.ROWS, [(2, 0, END)]),
    ):
        made = cursor((kind, 10), (kind, 10), (kind, 50), done=[(2, 0, 30, False)])
        assert everything(made, 1000) == [
            [(0, 0, 10 if kind is PieceKind.BYTES else END), (1, 0, 10 if kind is PieceKind.BYTES else END)],
            rest,
        ]


def test_a_large_stream_becomes_a_feed_of_what_is_missing() -> None:
    made = cursor((PieceKind.STREAM, 1000), done=[(0, 0, 300, False), (0, 500, 600, False)])
    assert made.next(100, may_feed=False) is None
    work = made.next(100)
    assert work is not None
    assert work.mode is Mode.FEED
    assert shown(work) == [(0, 300, 500), (0, 600, END)]


def test_a_parquet_file_that_is_partly_done_is_only_described() -> None:
    made = cursor((PieceKind.ROWS, 1000), done=[(0, 10, 20, False)])
    work = made.next(10_000)
    assert work is not None
    assert (work.describe, shown(work)) == (True, [(0, 0, END)])
    made.cut_at_row_groups(0, [(0, 15, 50), (15, 15, 50)], 30, 100)
    assert everything(made, 100) == [[(0, 0, 10)], [(0, 20, 30)]]


def test_row_groups_are_joined_up_to_a_block_and_large_ones_fed() -> None:
    made = cursor((PieceKind.ROWS, 1000))
    made.next(10_000)
    made.cut_at_row_groups(
        0, [(0, 10, 40), (10, 10, 40), (20, 10, 40), (30, 10, 400), (40, 1, 400), (41, 9, 10)], 50, 100
    )
    works = []
    while (work := made.next(100)) is not None:
        works.append((str(work.mode), shown(work)))
    assert works == [
        ("run", [(0, 0, 20)]),
        ("run", [(0, 20, 30)]),
        ("feed", [(0, 30, 40)]),
        ("run", [(0, 40, 41)]),
        ("run", [(0, 41, 50)]),
    ]


def test_expanding_the_rest_of_a_file_leaves_its_beginning_alone() -> None:
    made = cursor((PieceKind.ROWS, 1000))
    made.next(10_000)
    made.cut_at_row_groups(0, [(0, 10, 90), (10, 10, 90)], 20, 100, first_row=7)
    assert everything(made, 100) == [[(0, 7, 10)], [(0, 10, 20)]]


def test_files_on_both_sides_of_a_finished_one_are_two_partitions() -> None:
    """In one unit they would come out together, before the finished file: documents would be reordered."""
    files = [(PieceKind.BYTES, 10)] * 5
    assert everything(cursor(*files, done=[(2, 0, 10, False)]), 100) == [
        [(0, 0, 10), (1, 0, 10)],
        [(3, 0, 10), (4, 0, 10)],
    ]
    assert everything(cursor(*[(PieceKind.ROWS, 10)] * 3, done=[(1, 0, 7, True)]), 100) == [
        [(0, 0, END)],
        [(2, 0, END)],
    ]
    assert everything(cursor((PieceKind.BYTES, 10), (PieceKind.BYTES, 0), (PieceKind.BYTES, 10)), 100) == [
        [(0, 0, 10), (2, 0, 10)]
    ]
