"""The part of the page about repeated passages: those that occur most often, and how they begin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tamis.errors import FormatError, TamisError
from tamis.files import read_json
from tamis.observe.charts.svg import number, text
from tamis.observe.charts.tables import table
from tamis.observe.records import text_at
from tamis.observe.report.facts import Facts
from tamis.observe.snapshot import read_object
from tamis.sizes import format_size

_LIST = "most-frequent.json"
_MAX_LISTS, _MAX_ROWS, _MAX_BYTES = 10, 20, 1_000_000
_CHARS = 160


def passages(facts: Facts) -> str:
    """Return a table for each list of frequent passages of a run; "" if there are none or they cannot be read."""
    paths = sorted((facts.run_dir / "duplicates").glob(f"*{_LIST}"))[:_MAX_LISTS]
    return "".join(_section(path, facts) for path in paths) + _of_index(facts)


def _of_index(facts: Facts) -> str:
    """Return how many passages have their first copy in an index; "" without one."""
    counts = read_object(facts.run_dir / "dedup.json", facts.problems).get("summary")
    if not isinstance(counts, dict) or not number(counts.get("n_passages_of_indexed")):
        return ""
    names = ("n_passages_of_indexed", "n_passages", "n_duplicates_of_indexed", "n_duplicates", "n_indexed")
    mine, n, n_bytes, n_bytes_in_all, n_indexed = (int(number(counts.get(name))) for name in names)
    return (
        f"<p>{mine:,} of {n:,} passages ({format_size(n_bytes)} of {format_size(n_bytes_in_all)}) are in the index of "
        f"earlier runs, which has {n_indexed:,} documents.</p>"
    )


def _section(path: Path, facts: Facts) -> str:
    try:
        listed = read_json(str(path)) if path.stat().st_size <= _MAX_BYTES else None
    except (OSError, ValueError, RecursionError, TamisError):
        return ""
    if not isinstance(listed, list):
        return ""
    rows = [_row(entry, facts) for entry in listed[:_MAX_ROWS] if isinstance(entry, dict)]
    note = (
        '<p class="dim">The passages that occur most often, by their first copy. All are in '
        f"<code>{text(path.name.removesuffix(_LIST), 200)}part-*.parquet</code>, next to <code>report.html</code> in "
        "<code>duplicates</code>.</p>"
    )
    return table(["occurs", "bytes", "first copy", "begins"], rows, (0, 1)) + note if rows else ""


def _row(entry: dict[str, Any], facts: Facts) -> list[str]:
    path, offset, start = _place(entry)
    place = f"{path}:{offset}"
    is_indexed = bool(entry.get("entry"))
    cells = [f"{int(number(entry.get('n_occurrences'))):,}", f"{int(number(entry.get('n_bytes'))):,}"]
    return [
        *cells,
        f"<code>{text(place, 200)}</code>, byte {start:,}{' (in the index)' if is_indexed else ''}",
        # Of a text in an index, what was kept has other offsets than the file, if that still exists.
        text(_beginning(*_place(entry, "copy_" if is_indexed else ""), facts), 200),
    ]


def _place(entry: dict[str, Any], prefix: str = "") -> tuple[str, int, int]:
    """Return path, offset of the document and start in its text."""
    path = entry.get(f"{prefix}path", "")
    return str(path), int(number(entry.get(f"{prefix}offset"))), int(number(entry.get(f"{prefix}start")))


def _beginning(path: str, offset: int, start: int, facts: Facts) -> str:
    """Return how a passage begins; "" where its text is not to be shown, or cannot be read now."""
    if not facts.reads_texts or start < 0:
        return ""
    try:
        value = text_at(path, offset, facts.text_field)
    except (OSError, ValueError, FormatError, RecursionError):
        return ""
    return (
        ""
        if value is None
        else value.encode("utf-8", "replace")[start:][: 4 * _CHARS].decode("utf-8", "ignore")[:_CHARS]
    )
