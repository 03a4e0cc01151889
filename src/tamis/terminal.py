"""Output to terminals: width of texts, cutting and folding, a line that is rewritten, a full screen, times.

Used by the progress of runs and by the commands. Sequences are those that every terminal since the VT100 understands.
"""

from __future__ import annotations

import os
import sys
import time
from types import TracebackType
from typing import TextIO

CLEAR_LINE = "\r\x1b[2K"
_SCREEN_ON, _SCREEN_OFF = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME, _CLEAR_BELOW = "\x1b[H", "\x1b[J"
_STYLES = {"bold": "1", "red": "1;31", "yellow": "33", "green": "32"}


def clock(seconds: float) -> str:
    """Format seconds as on a clock.

    >>> clock(5), clock(75), clock(3700)
    ('0:05', '1:15', '1:01:40')
    """
    whole = round(seconds)
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def time_of_day(unix_time: float) -> str:
    """Format the local time of day; return "-" for an invalid time."""
    try:
        return time.strftime("%H:%M:%S", time.localtime(unix_time))
    except (ValueError, OverflowError, OSError):
        return "-"


def printable(text: str, keep: str = "") -> str:
    r"""Escape what is not printable (control and format characters, lone surrogates), except the characters in `keep`.

    Everything shown to a person passes through here: names of files, stages and runs come from data and must not
    control a terminal. Text that was escaped before stays as it is.

    >>> printable("a\tb\x1b[2J"), printable("two\nlines\r", keep="\n")
    ('a\\tb\\x1b[2J', 'two\nlines\\r')
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode("ascii") for c in text)


def is_terminal(stream: TextIO) -> bool:
    """Return True if a stream shows text to a person and understands control sequences."""
    return stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


def shows_color(stream: TextIO) -> bool:
    """Return True if text on a stream may have colors and weight: not in a pipe, and not with NO_COLOR."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR")


def styled(text: str, style: str, stream: TextIO) -> str:
    """Return a text in a style ("bold", "red", "yellow", "green") where the stream shows it."""
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if shows_color(stream) else text


def width_of(stream: TextIO) -> int:
    """Return the columns of the terminal that a stream writes to."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        import shutil

        return shutil.get_terminal_size().columns


def cells(text: str) -> int:
    r"""Return the columns that a text takes: two for wide characters, none for combining ones.

    >>> cells("abc"), cells("日本"), cells("e\u0301")
    (3, 4, 1)
    """
    return len(text) if text.isascii() else sum(_cells_of(c) for c in text)


def _cells_of(character: str) -> int:
    import unicodedata  # every command imports this module; few measure a text that is not ASCII

    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def cut(text: str, width: int) -> str:
    """Cut a text to at most `width` columns; one that was cut ends with an ellipsis."""
    return text if cells(text) <= width else fold(text, max(width - 1, 1))[0] + "…"


def fold(text: str, width: int) -> list[str]:
    """Break a text into lines of at most `width` columns, anywhere: paths have no spaces."""
    lines, line, used = [], "", 0
    for character in text:
        wide = _cells_of(character)
        if used + wide > width and line:
            lines.append(line)
            line, used = "", 0
        line, used = line + character, used + wide
    return [*lines, line]


def fold_words(text: str, width: int) -> list[str]:
    """Break a text into lines at its spaces; a word that is wider than a line has one of its own.

    >>> fold_words("doc-1, doc-2, a-long-name", 13), fold_words("", 5)
    (['doc-1, doc-2,', 'a-long-name'], [''])
    """
    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if cells(longer) <= width or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


class LiveLine:
    """One line at the bottom of a terminal that is written over; other lines can be put above it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._text = stream, ""

    def show(self, text: str) -> None:
        # One column stays free: a line that fills the last one wraps on some terminals, and could not be cleared again.
        self._text = cut(printable(text), max(width_of(self._stream) - 1, 1))
        self._write(CLEAR_LINE + self._text)

    def above(self, text: str) -> None:
        self._write(f"{CLEAR_LINE}{styled(printable(text), 'bold', self._stream)}\n{self._text}")

    def print(self, lines: str) -> None:
        """Print lines above, as they are."""
        self._write(f"{CLEAR_LINE}{lines}\n{self._text}")

    def close(self) -> None:
        self._write(CLEAR_LINE)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


class Screen:
    """The whole terminal for a while; what was there before comes back at the end. A context manager."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout

    def __enter__(self) -> Screen:
        self._write(_SCREEN_ON)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._write(_SCREEN_OFF)

    @property
    def width(self) -> int:
        return width_of(self._stream)

    def show(self, lines: list[str]) -> None:
        """Show the first lines, as many as there is room for, each cut to the width, instead of the current ones."""
        import shutil

        height = shutil.get_terminal_size().lines
        rows = [f"{cut(printable(line), self.width)}\x1b[K" for line in lines[: max(height - 1, 1)]]
        self._write(_HOME + "\r\n".join(rows) + _CLEAR_BELOW)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
