"""Pieces and units: what travels, and where they are cut."""

from __future__ import annotations

import pytest

from tamis.engine.messages import ORDERS, Assign
from tamis.engine.units import TO_END, Mode, Piece, PieceKind, Unit, split_pieces
from tamis.engine.wire import decode, encode


def unit(*pieces: Piece, n_records: int = -1, cut: int = -1) -> Unit:
    made = Unit(1, list(pieces))
    made.n_records, made.cut = n_records, cut
    return made


def ranges(cut: tuple[list[Piece], list[Piece]] | None) -> list[list[tuple[int, int]]] | None:
    return None if cut is None else [[(p.start, p.end) for p in half] for half in cut]


def test_a_unit_survives_the_trip_through_json() -> None:
    sent = Unit(
        7,
        [Piece(2, PieceKind.BLOCK, "s/f.block", 10, 20, 5, "in.gz")],
        segment=1,
        mode=Mode.QUARANTINE,
        partition=3,
        sampling_step=2,
        alone=True,
    )
    sent.reason, sent.stage, sent.max_bytes, sent.handover, sent.handover_rows = "why", "stage", 99, "h.arrow", (3, 8)
    sent.describe = True
    message = decode(encode(Assign(sent, 41)), ORDERS)
    got = message.unit
    assert message.fence == 41
    assert got.pieces == sent.pieces
    assert (got.id, got.segment, got.mode, got.sampling_step, got.alone) == (7, 1, Mode.QUARANTINE, 2, True)
    assert (got.reason, got.stage, got.max_bytes, got.handover, got.handover_rows) == (
        "why",
        "stage",
        99,
        "h.arrow",
        (3, 8),
    )
    assert got.describe


def test_a_unit_is_its_own_root_by_default() -> None:
    assert Unit(5, []).partition == 5
    assert Unit(5, [], partition=2).partition == 2


def test_known_bytes_counts_ranges_with_an_end() -> None:
    pieces = [
        Piece(0, PieceKind.BYTES, "a", 10, 30),
        Piece(1, PieceKind.BLOCK, "b", 5, 10),
        Piece(2, PieceKind.STREAM, "c", 0),
        Piece(3, PieceKind.ROWS, "d", 0, 9),
    ]
    assert unit(*pieces).known_bytes == 25


def test_a_message_names_the_users_file_and_not_the_block() -> None:
    assert Piece(0, PieceKind.BLOCK, "scratch/f1.block", 0, 1, 0, "in.gz").input_path == "in.gz"
    assert Piece(0, PieceKind.BYTES, "in.jsonl", 0, 1).input_path == "in.jsonl"


def test_several_pieces_are_shared_out() -> None:
    pieces = [Piece(i, PieceKind.BYTES, str(i), 0, 10) for i in range(3)]
    assert split_pieces(unit(*pieces)) == (pieces[:1], pieces[1:])


def test_one_piece_is_cut_at_the_middle_record_or_in_the_middle() -> None:
    piece = Piece(0, PieceKind.BYTES, "a", 100, 200)
    assert ranges(split_pieces(unit(piece, n_records=5, cut=170))) == [[(100, 170)], [(170, 200)]]
    assert ranges(split_pieces(unit(piece))) == [[(100, 150)], [(150, 200)]]
    assert ranges(split_pieces(unit(piece, cut=100))) == [[(100, 150)], [(150, 200)]]


@pytest.mark.parametrize(
    ("piece", "n_records", "cut"),
    [
        (Piece(0, PieceKind.BYTES, "a", 0, 100), 1, -1),  # one record
        (Piece(0, PieceKind.BYTES, "a", 0, 1), -1, -1),  # one byte
        (Piece(0, PieceKind.BYTES, "a", 0, 100), 3, -1),  # records, but nowhere to cut
        (Piece(0, PieceKind.ROWS, "a", 0, TO_END), -1, -1),  # nobody knows how many rows
        (Piece(0, PieceKind.STREAM, "a", 0, TO_END), 9, 50),  # cannot be entered in the middle
        (Piece(0, PieceKind.FILES, "a", 0, 100), 9, 50),
        (Piece(0, PieceKind.START, "", 0, 1), -1, -1),
    ],
)
def test_what_cannot_be_cut(piece: Piece, n_records: int, cut: int) -> None:
    assert split_pieces(unit(piece, n_records=n_records, cut=cut)) is None
