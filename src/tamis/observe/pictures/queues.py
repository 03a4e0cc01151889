"""Bytes that wait: decoded blocks in the queue and everything in scratch, over time."""

from __future__ import annotations

from collections.abc import Sequence

from tamis.observe.pictures.lines import Line, lines_picture
from tamis.observe.pictures.svg import number
from tamis.sizes import format_size


def queues_picture(
    queue: Sequence[tuple[float, float]],
    scratch: Sequence[tuple[float, float]],
    disk_free_bytes: float | None = None,
    began_at: float = 0.0,
) -> str:
    """(seconds, bytes) each."""
    note = (
        f"{format_size(disk_free_bytes)} are free on the disk." if disk_free_bytes and number(disk_free_bytes) else ""
    )
    lines = [Line("queue", queue, area=True, kind="k1"), Line("scratch", scratch, kind="k5")]
    return lines_picture("bytes in the queue and in scratch", lines, format_size, began_at, note=note, height=110)
