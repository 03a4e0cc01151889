"""The current activity of a worker: reading, setting up a stage, running one, writing.

A worker notes it in memory that it shares with the process that forked it, so that it is known also of a worker that
died or was killed: failures are booked where they happened. Noting costs less than a microsecond.
"""

from __future__ import annotations

import mmap

READING, WRITING = "(reading)", "(writing)"
_SETTING_UP = " (its setup)"
_MAX_BYTES = 250

_page: mmap.mmap | None = None
_now = ""


def shared_page() -> mmap.mmap:
    """Map memory for `note_in`, before the fork."""
    return mmap.mmap(-1, mmap.PAGESIZE)


def note_in(page: mmap.mmap) -> None:
    """Record the activity in this page, too, from now on; called by a process that was just forked."""
    global _page
    _page = page


def note(activity: str) -> None:
    """Record what this process does: the label of a stage, READING or WRITING; "" between units."""
    global _now
    _now = activity
    if _page is not None:
        raw = activity.encode("utf-8", "replace")[:_MAX_BYTES]
        _page[: len(raw) + 1] = bytes([len(raw)]) + raw


def now() -> str:
    """Return what this process recorded last."""
    return _now


def noted(page: mmap.mmap) -> str:
    """Return what was recorded last in this page."""
    return page[1 : 1 + page[0]].decode("utf-8", "replace")


def setting_up(label: str) -> str:
    """Return what a worker records while it sets up a stage."""
    return label + _SETTING_UP


def is_setting_up(activity: str) -> bool:
    return activity.endswith(_SETTING_UP)


def in_words(stage: str) -> str:
    """Return the activity as words for messages; "" if nothing is known.

    >>> in_words("c4"), in_words(READING), in_words("")
    ("stage 'c4'", 'reading', '')
    """
    if stage in (READING, WRITING):
        return stage[1:-1]
    return f"stage {stage!r}" if stage else ""
