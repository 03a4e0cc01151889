"""How a unit is cut: in two, or without what a feeder has handed out already. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tamis.engine.supervisor.units import TO_END, Kind, Piece, Unit


@dataclass(frozen=True)
class Half:
    pieces: list[Piece]
    rows: tuple[int, int]


def split_pieces(unit: Unit) -> tuple[list[Piece], list[Piece]] | None:
    """Split the unit's pieces in two halves.

    Returns None if the unit cannot be cut (one record, or nothing known to cut by).
    """
    pieces = unit.pieces
    if len(pieces) > 1:
        half = len(pieces) // 2
        return pieces[:half], pieces[half:]
    piece = pieces[0]
    if unit.n_records == 1 or piece.kind in (Kind.FILES, Kind.START, Kind.STREAM):
        return None  # a stream cannot be entered in the middle: it is fed instead (recovery.py)
    cut = unit.cut
    if not piece.start < cut < piece.end:
        if piece.end == TO_END or piece.end - piece.start < 2 or unit.n_records >= 0:
            return None
        cut = (piece.start + piece.end) // 2
    return [replace(piece, end=cut)], [replace(piece, start=cut)]


def can_split(unit: Unit) -> bool:
    if unit.segment > 0:
        start, end = unit.handover_rows
        return end - start > 1
    return split_pieces(unit) is not None


def halves(unit: Unit) -> list[Half]:
    """Split the unit in two, by rows of its handover file or by its pieces."""
    if unit.segment > 0:
        start, end = unit.handover_rows
        middle = unit.cut if start < unit.cut < end else (start + end) // 2
        return [Half(unit.pieces, (middle, end)), Half(unit.pieces, (start, middle))]
    cut = split_pieces(unit)
    assert cut is not None
    return [Half(cut[1], unit.handover_rows), Half(cut[0], unit.handover_rows)]


def without(pieces: list[Piece], done: Piece) -> list[Piece]:
    """Return what a feeder still has to hand out after the block `done`."""
    rest = []
    for piece in pieces:
        if done.start > piece.start:
            rest.append(replace(piece, end=min(piece.end, done.start)))
        if done.end < piece.end:
            rest.append(replace(piece, start=max(piece.start, done.end)))
    return [p for p in rest if p.start < p.end]
