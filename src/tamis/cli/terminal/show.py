"""Pieces of terminal output shared by the commands: tables and bars."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from tamis import secrets
from tamis.cli.terminal.streams import LAYOUT, put
from tamis.errors import TamisError
from tamis.terminal import cells, fold, fold_words, is_terminal, printable, styled, width_of

# Logs and pipes have room for paths.
_PLAIN_WIDTH = 160
_GAP = 3  # columns between two columns of a table
_NARROWEST = 8  # no column is folded below this
_LABEL = 16  # columns up to this width hold names and reasons, and are folded last
_INDENT = 4  # of the last column, where it is below the others


def print_json(value: Any) -> None:
    """Print one JSON document on stdout.

    Lone surrogates (possible in examples of odd data) are written as escapes.
    """
    put(json.dumps(value, indent=2, ensure_ascii=True) + "\n")


def report_failure(exc: TamisError, as_json: bool) -> int:
    """Print a failure as JSON, and its message on stderr, and return the exit code.

    For commands that print JSON; otherwise the failure is raised.
    """
    if not as_json:
        raise exc
    message = secrets.hide(str(exc))
    sys.stderr.write(f"{styled('error:', 'red', sys.stderr)} {printable(message, keep=LAYOUT)}\n")
    print_json({"status": "failed", "exit_code": exc.exit_code, "message": message})
    return exc.exit_code


def print_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[int] = ()
) -> None:
    """Print a plain table, with the columns numbered in `right` aligned to the right.

    Cell text is never read as markup.
    """
    to_person = is_terminal(sys.stdout)
    lines = table_lines(
        [printable(name) for name in columns],
        [[printable(str(cell)) for cell in row] for row in rows],
        right,
        width_of(sys.stdout) if to_person else _PLAIN_WIDTH,
    )
    head = styled(printable(title), "bold", sys.stdout)
    _write([*([head, ""] if title else []), *lines, ""])


def print_lines(lines: Iterable[str]) -> None:
    """Print lines unchanged; a terminal wraps those that are too long for it."""
    _write(printable(line) for line in lines)


def print_folded(lines: Iterable[str]) -> None:
    """Print lines, which a terminal gets folded at their spaces. Not for lines with commands to be copied."""
    width = width_of(sys.stdout) if is_terminal(sys.stdout) else None
    printed = map(printable, lines)
    _write(printed if width is None else (part for line in printed for part in fold_line(line, width)))


def fold_line(line: str, width: int) -> list[str]:
    """Fold a line; where it begins with a label and a gap, what follows stays to the right of both.

    >>> fold_line("time     about 4.2 s (1.0 s to 5.0 s)", 30)
    ['time     about 4.2 s (1.0 s to', '         5.0 s)']
    >>> fold_line("  why  one two three", 16)
    ['  why  one two', '       three']
    >>> fold_line("one two", 4)
    ['one', 'two']
    """
    label = _LABELLED.match(line)
    indent = label.end() if label is not None and label.end() < width // 2 else 0
    first, *rest = fold_words(line[indent:], width - indent)
    return [line[:indent] + first, *(" " * indent + part for part in rest)]


_LABELLED = re.compile(r" *\S+(?: \S+)* {2,}")


def _write(lines: Iterable[str]) -> None:
    """Write lines to stdout, with "?" for characters that it cannot encode.

    An old locale thus does not end the command.
    """
    encoding = sys.stdout.encoding or "utf-8"
    text = "".join(f"{line}\n" for line in lines)
    put(text.encode(encoding, "replace").decode(encoding))


def bar(share: float, width: int = 30) -> str:
    """Draw a bar for a share between 0 and 1.

    >>> bar(0.5, 4), bar(0, 4), bar(0.01, 4)
    ('██', '', '▏')
    """
    eighths = round(share * width * 8)
    if share > 0:
        eighths = max(eighths, 1)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def clip(text: str, n_chars: int = 60) -> str:
    """Cut a text to a number of characters.

    >>> clip("abcdef", 4)
    'abc…'
    """
    return text if len(text) <= n_chars else text[: n_chars - 1] + "…"


def count(n: float, noun: str) -> str:
    """Format a number of things.

    >>> count(1, "file"), count(1200, "document")
    ('1 file', '1,200 documents')
    """
    return f"{n:,.0f} {noun}{'' if n == 1 else 's'}"


def table_lines(columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int], width: int) -> list[str]:
    r"""Return head, rule and rows in at most `width` columns where possible.

    Wide cells are folded at their spaces, so that names stay whole. If that is not enough, the last column gets lines
    of its own, below each row.

    >>> print("\n".join(table_lines(["what", "n"], [["one", "1"], ["twenty", "20"]], [1], 80)))
     what      n
     ───────────
     one       1
     twenty   20
    """
    widths, is_below = _fit([columns, *rows], width), False
    if sum(widths) > _room(len(widths), width):
        is_below = len(columns) > 2
        beside = slice(0, -1) if is_below else slice(0, None)
        widths = _fit([row[beside] for row in (columns, *rows)], width, break_words=True)
    rule = " " + "─" * (sum(widths) + _GAP * (len(widths) - 1))
    lines = [*_row(columns[: len(widths)], widths, right), rule]
    for row in rows:
        lines += _row(row[: len(widths)], widths, right)
        if is_below:
            lines += [" " * _INDENT + line for line in fold_words(row[-1], width - _INDENT) if line]
    return lines


def _room(n_columns: int, width: int) -> int:
    return width - 2 - _GAP * (n_columns - 1)


def _fit(rows: Sequence[Sequence[str]], width: int, break_words: bool = False) -> list[int]:
    """Shrink the widest column by one until all columns fit.

    Unless words may break, no column gets narrower than its longest word, and those of labels keep their width.
    """
    widths = [max(map(cells, column)) for column in zip(*rows, strict=True)]
    words = [max(cells(word) for cell in column for word in cell.split(" ")) for column in zip(*rows, strict=True)]
    least = [min(n, _NARROWEST) for n in widths]
    if not break_words:
        least = [n if n <= _LABEL else max(low, word) for n, low, word in zip(widths, least, words, strict=True)]
    while sum(widths) > _room(len(widths), width):
        spare = [n - low for n, low in zip(widths, least, strict=True)]
        if max(spare) <= 0:
            break
        widest = max((i for i, n in enumerate(spare) if n > 0), key=lambda i: widths[i])
        widths[widest] -= 1
    return widths


def _row(row: Sequence[str], widths: Sequence[int], right: Sequence[int]) -> list[str]:
    folded = [
        [part for line in fold_words(cell, width) for part in fold(line, width)]
        for cell, width in zip(row, widths, strict=True)
    ]
    lines = []
    for at in range(max(map(len, folded), default=0)):
        parts = []
        for i, (cell, width) in enumerate(zip(folded, widths, strict=True)):
            text = cell[at] if at < len(cell) else ""
            pad = " " * (width - cells(text))
            parts.append(pad + text if i in right else text + pad)
        lines.append(" " + (" " * _GAP).join(parts).rstrip())
    return lines
