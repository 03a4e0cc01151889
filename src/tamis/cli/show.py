"""Pieces of terminal output shared by the commands: tables, bars, the version. rich is imported when something is printed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

# Without a terminal rich assumes 80 columns and cuts paths; logs and pipes have room.
_PLAIN_WIDTH = 160


def tamis_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("tamis")
    except PackageNotFoundError:
        return "(not installed: run from a source folder)"


def console() -> Console:
    from rich.console import Console

    is_terminal = sys.stdout.isatty()
    return Console(highlight=False, width=None if is_terminal else _PLAIN_WIDTH)


def print_json(value: Any) -> None:
    """One JSON document on stdout. Lone surrogates (possible in examples of odd data) are written as escapes."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=True) + "\n")


def print_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[int] = ()
) -> None:
    """A plain table; the columns numbered in `right` are aligned to the right. Cell text is never read as markup."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title, style="bold"), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for i, name in enumerate(columns):
        table.add_column(name, justify="right" if i in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(str(cell))) for cell in row))
    console().print(table)


def print_lines(lines: Iterable[str]) -> None:
    from rich.text import Text

    out = console()
    for line in lines:
        out.print(Text(printable(line)), soft_wrap=True)


def bar(share: float, width: int = 30) -> str:
    """A bar for a share between 0 and 1.

    >>> bar(0.5, 4), bar(0, 4), bar(0.01, 4)
    ('██', '', '▏')
    """
    eighths = round(share * width * 8)
    if share > 0:
        eighths = max(eighths, 1)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def printable(text: str) -> str:
    """Control characters and lone surrogates escaped: data must not be able to steer the terminal.

    >>> printable("a\\tb\\x1b[2J")
    'a\\\\tb\\\\x1b[2J'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def clip(text: str, n_chars: int = 60) -> str:
    """
    >>> clip("abcdef", 4)
    'abc…'
    """
    return text if len(text) <= n_chars else text[: n_chars - 1] + "…"


def count(n: float, noun: str) -> str:
    """
    >>> count(1, "file"), count(1200, "document")
    ('1 file', '1,200 documents')
    """
    return f"{n:,.0f} {noun}{'' if n == 1 else 's'}"
