"""The partition map: every byte of the input is in one state, whatever the files are."""

from __future__ import annotations

from tamis.engine.monitor.partition_map import CellRow, Cells
from tamis.engine.supervisor.coverage import Coverage
from tamis.engine.units import TO_END, Mode, Piece, PieceKind, Unit


def unit(number: int, *pieces: Piece, mode: Mode = Mode.RUN) -> Unit:
    return Unit(number, list(pieces), mode=mode)


def plain(file: int, start: int, end: int) -> Piece:
    return Piece(file, PieceKind.BYTES, f"in{file}", start, end)


def drawn(cells: Cells, *units: Unit) -> list[tuple[int, int, int, int, int]]:
    """Return waiting, running, committed, quarantined and split of every cell that changed."""
    return [row[3:] for row in cells.changed(units)]


def all_plain(_: int) -> bool:
    return True


def test_plain_files_lie_end_to_end() -> None:
    cells = Cells([100, 0, 100], all_plain, n_cells=4)
    first = list(cells.changed([unit(1, plain(0, 0, 60)), unit(2, plain(0, 80, 100), plain(2, 0, 10))]))
    assert first == [
        (0, 0, 50, 0, 50, 0, 0, 0),
        (1, 50, 100, 20, 30, 0, 0, 0),
        (2, 100, 150, 40, 10, 0, 0, 0),
        (3, 150, 200, 50, 0, 0, 0, 0),
    ]
    cells.commit([(0, 0, 60, False)])
    assert list(cells.changed([])) == [
        (0, 0, 50, 0, 0, 50, 0, 0),
        (1, 50, 100, 40, 0, 10, 0, 0),
        (2, 100, 150, 50, 0, 0, 0, 0),
    ]
    assert list(cells.changed([])) == []  # nothing happened


def test_a_share_of_a_commit_is_in_quarantine() -> None:
    cells = Cells([100], all_plain, n_cells=1)
    cells.commit([(0, 0, 40, False)], 0.25)
    assert drawn(cells) == [(60, 0, 30, 10, 0)]
    cells.commit([(0, 40, 100, True)], 1.0)
    assert drawn(cells) == [(0, 0, 30, 70, 0)]


def test_a_split_is_counted_where_it_happened() -> None:
    cells = Cells([100, 100], all_plain, n_cells=4)
    cells.split(unit(1, plain(1, 60, 90)))
    cells.split(unit(2, plain(1, 60, 70)))
    assert [row[7] for row in cells.changed([])] == [0, 0, 0, 2]
    cells.split(Unit(3, []))  # a feeder whose pieces are all handed out


def test_a_small_compressed_file_is_done_as_a_whole() -> None:
    cells = Cells([50, 50], lambda file: file == 1, n_cells=2)
    whole = unit(1, Piece(0, PieceKind.STREAM, "in0", 0, TO_END))
    assert drawn(cells, whole) == [(0, 50, 0, 0, 0), (50, 0, 0, 0, 0)]
    cells.commit([(0, 0, 2000, True)], 0.1)
    assert drawn(cells) == [(0, 0, 45, 5, 0)]


def test_a_large_compressed_file_is_placed_by_its_share() -> None:
    cells = Cells([100], lambda _: False, n_cells=2)
    assert drawn(cells) == [(50, 0, 0, 0, 0), (50, 0, 0, 0, 0)]
    feeder = unit(1, Piece(0, PieceKind.STREAM, "in0", 400, TO_END), mode=Mode.FEED)
    cells.estimate(0, 400, 40)  # 400 bytes came out of 40: the whole would give 1,000
    block = unit(2, Piece(0, PieceKind.BLOCK, "scratch/1", 200, 400))
    cells.commit([(0, 0, 200, False)])
    assert drawn(cells, feeder, block) == [(10, 20, 20, 0, 0)]
    cells.commit([(0, 200, 400, False)], 0.5)
    cells.commit([(0, 400, 800, True)])  # it ends earlier than was thought, and all of it is done
    assert drawn(cells) == [(0, 0, 44, 6, 0), (0, 0, 44, 6, 0)]


def test_a_parquet_file_whose_rows_are_known() -> None:
    cells = Cells([100], lambda _: False, n_cells=1)
    cells.commit([(0, 10, 10, True)])  # the log learns where it ends before anything is done
    assert drawn(cells, unit(1, Piece(0, PieceKind.ROWS, "in0", 0, 4))) == [(60, 40, 0, 0, 0)]
    cells.commit([(0, 0, 4, False)])
    assert drawn(cells) == [(60, 0, 40, 0, 0)]
    cells.commit([(0, 4, 10, False)])
    assert drawn(cells) == [(0, 0, 100, 0, 0)]


def test_what_an_earlier_run_committed_is_on_the_map() -> None:
    sizes = [100, 100, 100, 100]
    done = Coverage(lambda file: sizes[file] if file < 3 else -1)
    done.add(0, 0, 100, False)
    done.add(1, 30, 60, False)
    done.add(3, 0, 50, False)
    done.add(3, 200, 200, True)
    cells = Cells(sizes, lambda file: file < 3, done, n_cells=4)
    assert drawn(cells) == [(0, 0, 100, 0, 0), (70, 0, 30, 0, 0), (100, 0, 0, 0, 0), (75, 0, 25, 0, 0)]


def test_inputs_without_bytes_have_no_map() -> None:
    for sizes in ([], [0, 0], [-1]):
        cells = Cells(sizes, all_plain)
        cells.commit([(0, 0, 5, True), (99, 0, 1, True)])
        cells.split(unit(1, plain(0, 0, 1)))
        assert drawn(cells, unit(1, Piece(0, PieceKind.START, "", 0, 1))) == []


def test_no_byte_is_counted_twice_or_lost() -> None:
    cells = Cells([999_983] * 37, all_plain)
    for file in range(0, 37, 2):
        cells.commit([(file, start, min(start + 70_001, 999_983), False) for start in range(0, 999_983, 70_001)], 0.13)
    rows: list[CellRow] = list(cells.changed([unit(1, *(plain(file, 0, 999_983) for file in range(1, 37, 4)))]))
    assert len(rows) == 1000
    assert all(sum(row[3:7]) == row.last_byte - row.first_byte for row in rows)
    assert rows[-1].last_byte == 37 * 999_983


def test_a_finished_file_is_forgotten() -> None:
    """So that a look after 100,000 partitions does what a look after one does."""
    cells = Cells([1000] * 100_000, lambda _: False)
    for file in range(100_000):
        cells.commit([(file, 0, 5000, True)])
    assert (cells._open, cells._extents) == ({}, {})
    assert sum(row[5] for row in cells.changed([])) == 100_000_000
