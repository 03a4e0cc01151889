"""The partition map: the whole input laid end to end, cut into cells, each coloured by what became of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tamis.observe.charts.svg import Key, coordinate, figure, text
from tamis.observe.points import Cell
from tamis.sizes import format_size

COLUMNS = 50
MAX_CELLS = 1000
_SIDE = 10
_BAD_SHARE = 0.01  # ten times the default limit of a run
STATES = ("waiting", "running", "committed")


def state_of(cell: Cell) -> str:
    """Return the state that the map shows for a cell.

    >>> state_of(Cell(0, 0, 9, waiting=4, running=2)), state_of(Cell(0, 0, 9, waiting=4, committed=5))
    ('running', 'part')
    """
    if cell.running:
        return "running"
    if cell.committed:
        return "part" if cell.waiting else "committed"
    return "waiting"


def is_bad(cell: Cell) -> bool:
    """Return True if so much of a cell is in quarantine that it is marked.

    A few bad records are everywhere; the totals report them.
    """
    whole = cell.waiting + cell.running + cell.committed
    return cell.quarantined > _BAD_SHARE * whole


def map_chart(cells: Sequence[Cell]) -> str:
    """Draw the map; adjacent cells of the same state are one shape: a finished map of 1,000 cells has 20."""
    cells = cells[:MAX_CELLS]
    if not cells:
        return ""
    n_rows = -(-len(cells) // COLUMNS)
    states = [state_of(cell) for cell in cells]
    parts = [_piece(cells, states[first], first, last) for first, last in _stretches(states)]
    width, height = COLUMNS * _SIDE, n_rows * _SIDE  # cells are of one size, however few there are
    lines = "".join(f"M{x} 0V{height}" for x in range(_SIDE, min(len(cells), COLUMNS) * _SIDE, _SIDE))
    lines += "".join(f"M0 {y}H{width}" for y in range(_SIDE, height, _SIDE))
    marks = "".join(_marks(cell, i) for i, cell in enumerate(cells) if cell.split or is_bad(cell))
    total = sum(c.waiting + c.running + c.committed for c in cells)
    sums = {state: sum(getattr(c, state) for c in cells) for state in (*STATES, "quarantined")}
    shares = ", ".join(f"{sums[s] / total:.0%} {s}" for s in STATES) if total else "no bytes"
    label = f"partition map: {shares}"
    svg = (
        f'<svg class="map" role="img" aria-label="{text(label)}" viewBox="0 0 {width} {height}" '
        'preserveAspectRatio="xMinYMin meet">'
        f'{"".join(parts)}<path class="cut" d="{lines}"/>{marks}</svg>'
    )
    return figure(svg, _keys(sums, sum(c.split for c in cells)))


def _keys(sums: Mapping[str, float], n_splits: float) -> list[Key]:
    """Return the legend: every state with its bytes, and the marks that occur."""
    keys = [Key(f"s-{state}", state, format_size(sums[state])) for state in STATES]
    keys.append(Key("s-part", "part of it committed"))
    if sums["quarantined"]:
        keys.append(Key("s-quarantined", "quarantined", format_size(sums["quarantined"])))
    if n_splits:
        keys.append(Key("s-split", "split", f"{n_splits:,.0f} times"))
    return keys


def _stretches(states: Sequence[str]) -> list[tuple[int, int]]:
    """Return the first and last of neighbours in one state, each within a row."""
    stretches: list[tuple[int, int]] = []
    for i, state in enumerate(states):
        if i % COLUMNS and state == states[i - 1] and state not in ("running", "part"):
            stretches[-1] = (stretches[-1][0], i)
        else:
            stretches.append((i, i))
    return stretches


def _piece(cells: Sequence[Cell], state: str, first: int, last: int) -> str:
    some = cells[first : last + 1]
    where = f"{format_size(some[0].first_byte)} to {format_size(some[-1].last_byte)} of the input"
    facts = [f"{s} {format_size(n)}" for s in (*STATES, "quarantined") if (n := sum(getattr(c, s) for c in some))]
    if n := sum(c.split for c in some):
        facts.append(f"split {n:,.0f} times")
    return (
        f'<rect class="s-{state}" x="{first % COLUMNS * _SIDE}" y="{first // COLUMNS * _SIDE}" '
        f'width="{(last - first + 1) * _SIDE}" '
        f'height="{_SIDE}"><title>{text(where)}\n{text(", ".join(facts))}</title></rect>'
    )


def _marks(cell: Cell, i: int) -> str:
    """Draw a ring if something is in quarantine and a stroke if something was split.

    The marks are shapes, so that colours alone do not carry the meaning.
    """
    x, y = i % COLUMNS * _SIDE, i // COLUMNS * _SIDE
    marks = ""
    if cell.split:
        marks += f'<path class="s-split" d="M{x + 2} {y + _SIDE - 2}L{x + _SIDE - 2} {y + 2}"/>'
    if is_bad(cell):
        half = _SIDE / 2
        marks += f'<circle class="s-quarantined" cx="{coordinate(x + half)}" cy="{coordinate(y + half)}" r="2.2"/>'
    return marks
