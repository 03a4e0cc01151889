"""A table as lines of text: pure, so that it can be tested without a terminal. Called by show.print_table."""

from __future__ import annotations

from collections.abc import Sequence

from tamis.terminal import cells, fold

_GAP = 3  # columns between two columns of the table
_NARROWEST = 8  # no column is folded below this


def table_lines(columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int], width: int) -> list[str]:
    r"""Return head, rule and rows in at most `width` columns where possible; the widest cells are folded.

    >>> print("\n".join(table_lines(["what", "n"], [["one", "1"], ["twenty", "20"]], [1], 80)))
     what      n
     ───────────
     one       1
     twenty   20
    """
    widths = _fit([max([cells(name), *(cells(row[i]) for row in rows)]) for i, name in enumerate(columns)], width)
    rule = " " + "─" * (sum(widths) + _GAP * (len(widths) - 1))
    lines = [*_row(columns, widths, right), rule]
    for row in rows:
        lines += _row(row, widths, right)
    return lines


def _fit(widths: list[int], width: int) -> list[int]:
    """Shrink the widest column by one until all columns fit, so that short columns stay whole."""
    room = width - 2 - _GAP * (len(widths) - 1)
    while sum(widths) > room and max(widths) > _NARROWEST:
        widths[widths.index(max(widths))] -= 1
    return widths


def _row(row: Sequence[str], widths: Sequence[int], right: Sequence[int]) -> list[str]:
    folded = [fold(cell, width) for cell, width in zip(row, widths, strict=True)]
    lines = []
    for at in range(max(map(len, folded), default=0)):
        parts = []
        for i, (cell, width) in enumerate(zip(folded, widths, strict=True)):
            text = cell[at] if at < len(cell) else ""
            pad = " " * (width - cells(text))
            parts.append(pad + text if i in right else text + pad)
        lines.append(" " + (" " * _GAP).join(parts).rstrip())
    return lines
