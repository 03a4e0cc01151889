"""Compare a removed duplicate with the document that was kept for it: location, similarity, differences.

Reads the run directory, and of the input these two records alone: plain JSONL by its offset, compressed JSONL by
decoding up to it, Parquet by its row.
"""

from __future__ import annotations

import difflib
import itertools
import json
import os
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tamis._lazy import pa, pc
from tamis.errors import FormatError, UsageError
from tamis.formats.registry import holds_rows, load_table_format, table_format, table_name
from tamis.observe.records import line_at
from tamis.observe.snapshot import read_object
from tamis.observe.verdicts import Verdict, find, input_paths, offset_of, read_plan, run_folder
from tamis.stores.run_locations import local_output_dir, run_dir_of
from tamis.stores.urls import is_remote, path_of, path_text

MAX_DIFF_LINES = 60
_MAX_PARTS = 4000  # words or lines that are compared; difflib takes their product in the worst case
_CONTEXT = 8
_WIDTH = 110
_MAX_OVERLAPS = 20
IMAGES = "images"
_PLACE_ID = re.compile(r"([0-9]{6,9})_([0-9]{1,18})")


@dataclass(frozen=True)
class Side:
    """One of the two documents. `problem`: why its text cannot be shown."""

    path: str
    offset: int
    text: str | None = None
    problem: str | None = None

    @property
    def place(self) -> str:
        return f"{self.path}:{self.offset}"


@dataclass(frozen=True)
class Pair:
    """A removed document and the one that was kept for it. `similarity` None: it was not measured."""

    removed: Side
    kept: Side
    similarity: float | None
    threshold: float | None

    def to_dict(self, n_chars: int = 2000) -> dict[str, Any]:
        return {
            "similarity": self.similarity,
            "threshold": self.threshold,
            "removed": _about(self.removed, n_chars),
            "kept": _about(self.kept, n_chars),
        }


def place_of(output: str, document: str) -> str:
    """Convert `000003_12345`, the id by file and position, to FILE:OFFSET, which other commands understand.

    Others as they are.
    """
    match = _PLACE_ID.fullmatch(document)
    if match is None:
        return document
    try:
        paths = input_paths(run_folder(output))
    except UsageError:  # a run that only looked for duplicates has no plan
        return document
    file = int(match[1])
    return f"{paths[file]}:{int(match[2])}" if file < len(paths) else document


def verdicts_on(output: str, document: str) -> list[Verdict]:
    """Return the verdicts on a document named by its own id, by FILE:OFFSET, or by its id by file and position."""
    verdicts = find(output, document)
    place = place_of(output, document)
    if verdicts or place == document:
        return verdicts
    path, _, _ = place.rpartition(":")
    return [v for v in find(output, place) if v.path == path]


def has_verdicts(output: str) -> bool:
    """Return True if a run wrote documents here; one that only looked for duplicates did not."""
    return any(
        (folder / "plan.json").exists() for folder in (Path(run_dir_of(output)), Path(local_output_dir(str(output))))
    )


def is_duplicate(verdict: Verdict) -> bool:
    return isinstance(verdict.value, dict) and isinstance(verdict.value.get("kept"), str)


def pair_of(output: str, verdict: Verdict) -> Pair:
    """Return both documents of a verdict that names the kept one."""
    path, _, offset = str(verdict.value["kept"]).rpartition(":")
    if offset_of(offset) is None:
        raise UsageError(
            f"the verdict names no kept document ({verdict.value['kept']!r}); the run directory is damaged"
        )
    similarity = verdict.value.get("similarity")
    limits = verdict.threshold if isinstance(verdict.threshold, dict) else {}
    return _pair(output, (verdict.path, verdict.offset), (path, int(offset)), similarity, limits.get("min_similarity"))


def found_only(output: str, document: str) -> Pair | None:
    """Return the row of the table of duplicates on a document, for runs that removed nothing; None if there is none."""
    for row in _listed(output, document, ("id", "path", "kept_id", "kept_path", "similarity")):
        gone, kept = ((path_of(row[f"{k}path"]), int(row[f"{k}id"].rpartition("_")[2])) for k in ("", "kept_"))
        similarity = row["similarity"] if row["similarity"] == row["similarity"] else None
        return _pair(output, gone, kept, similarity, settings_of(output).get("threshold"))
    return None


def overlaps_with_sets(output: str, document: str) -> list[dict[str, Any]]:
    """Return what a document shares with evaluation sets, for decontaminations that only report."""
    rows = _listed(output, document, ("id", "path", "set", "item", "words", "share", "item_text"))
    return list(itertools.islice(rows, _MAX_OVERLAPS))


def _listed(output: str, document: str, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the rows on a document of those tables of duplicates that have these columns."""
    from tamis.formats.parquet import format as parquet

    folder = Path(run_dir_of(output)) / "duplicates"
    name, _, place = document.rpartition(":")
    for part in sorted(folder.glob("*.parquet")):
        try:
            file = parquet.open_file(part)
            if not set(columns) <= set(file.schema_arrow.names):  # of lines or passages, or scores
                continue
            table = file.read(columns=list(columns), use_threads=False)
        except (pa.ArrowException, OSError) as exc:
            raise UsageError(f"{part} cannot be read: {exc}") from None
        mask = pc.equal(table["id"], document)
        if name and offset_of(place) is not None:
            here = pc.ends_with(table["path"].cast(pa.large_string()), path_text(name).removeprefix("file://"))
            mask = pc.or_(mask, pc.and_(here, pc.ends_with(table["id"], f"_{int(place)}")))
        yield from table.filter(mask).to_pylist()


def _pair(output: str, gone: tuple[str, int], kept: tuple[str, int], similarity: Any, threshold: Any) -> Pair:
    field = str(settings_of(output).get("text_field") or "text")
    changed = read_times(output)
    return Pair(
        read_side(*gone, field, changed),
        read_side(*kept, field, changed),
        float(similarity) if isinstance(similarity, (int, float)) else None,
        float(threshold) if isinstance(threshold, (int, float)) else None,
    )


def settings_of(output: str) -> dict[str, Any]:
    """Return the settings of a deduplication or curation; nothing for a user-defined pipeline."""
    for name in ("dedup.json", "curation.json"):
        record = read_object(Path(run_dir_of(output)) / name, [])
        if "identity" in record:
            return record["identity"] if isinstance(record["identity"], dict) else {}
    return {}


def read_times(output: str) -> dict[str, tuple[int, int]]:
    """Return size and time of the input files when they were read."""
    try:
        return read_plan(run_folder(output)).inputs.planned()
    except (ValueError, UsageError):
        return {}


# -- reading one record ----------------------------------------------------------------------------------------------
def read_side(path: str, offset: int, field: str, known: dict[str, tuple[int, int]]) -> Side:
    """Read the text of the record at an offset; report what prevents that instead of raising it."""
    if is_remote(path):
        return Side(path, offset, None, "it lies in a store, and files there are not read for this")
    try:
        info = os.stat(path)
        if path in known and known[path] != (info.st_size, info.st_mtime_ns):
            return Side(path, offset, None, "the file was changed after the run")
        if table_name(path) == IMAGES:
            return Side(path, offset, _image(path, offset))
        record = _row(path, offset, field) if holds_rows(path) else _json_line(path, offset)
        text = record.get(field) if isinstance(record, dict) else None
    except FileNotFoundError:
        return Side(path, offset, None, "the file is gone")
    except (OSError, ValueError, FormatError, RecursionError) as exc:
        return Side(path, offset, None, f"it cannot be read there ({exc})")
    if not isinstance(text, str):
        return Side(path, offset, None, f"there is no text in its field {field!r}")
    return Side(path, offset, text)


def _json_line(path: str, offset: int) -> Any:
    line = line_at(path, offset)
    if line is None:
        raise ValueError("no record begins there")
    return json.loads(line.decode("utf-8", "replace"))


def _row(path: str, row: int, field: str) -> Any:
    for start, table in table_format(path).iter_rows(path, row, row + 1):
        if start <= row < start + len(table) and field in table.column_names:
            return {field: table.column(field)[row - start].as_py()}
    return {}


def _image(path: str, row: int) -> str:
    """Describe an image line by line without reading its pixels."""
    for _, table in load_table_format(IMAGES).iter_rows(path, row, row + 1):
        for found in table.to_pylist():
            names = ("member", "format", "width", "height", "length", "caption", "json")
            return "\n".join(f"{name}: {found[name]}" for name in names if found[name] is not None)
    raise ValueError("there is no such image")


def _about(side: Side, n_chars: int) -> dict[str, Any]:
    text = None if side.text is None else side.text[:n_chars]
    return {"path": side.path, "offset": side.offset, "text": text, "problem": side.problem}


# -- what differs ----------------------------------------------------------------------------------------------------
def diff_lines(kept: str, removed: str, max_lines: int = MAX_DIFF_LINES) -> list[str]:
    """Return what only the kept document has (-) and what only the removed one has (+).

    Differences are shown between a few words or lines that both have.

    >>> diff_lines("one two three four", "one two 3 four")
    ['@@ word 3 @@', '  one two', '- three', '+ 3', '  four']
    """
    if kept == removed:
        return ["the two texts are the same"]
    by_line = _is_lined(kept) and _is_lined(removed)
    a, b = (t.splitlines() if by_line else t.split() for t in (kept, removed))
    if a == b:
        return ["the two texts differ in whitespace alone"]
    lines = list(itertools.islice(_hunks(a, b, by_line), max_lines + 1))
    return [*lines[: max_lines - 1], "... (the rest is not shown)"] if len(lines) > max_lines else lines


def _is_lined(text: str) -> bool:
    """Return True if lines are the better unit: there are several, and they are not too long to read."""
    lines = text.splitlines()
    return len(lines) > 3 and len(text) / len(lines) <= _WIDTH


def _hunks(a: list[str], b: list[str], by_line: bool) -> Iterator[str]:
    # Near duplicates agree at both ends: without those the comparison is short.
    start = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))
    ends = zip(reversed(a[start:]), reversed(b[start:]), strict=False)
    end = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], ends))
    context = 2 if by_line else _CONTEXT
    first = max(0, start - context)
    one, two = (t[first : max(len(t) - end + context, first)] for t in (a, b))
    cut = max(len(one), len(two)) > _MAX_PARTS
    one, two = one[:_MAX_PARTS], two[:_MAX_PARTS]
    matcher = difflib.SequenceMatcher(None, one, two, autojunk=True)
    unit = "line" if by_line else "word"
    for group in matcher.get_grouped_opcodes(context):
        changed = next(op for op in group if op[0] != "equal")
        yield f"@@ {unit} {first + changed[1] + 1} @@"
        for kind, a1, a2, b1, b2 in group:
            if kind == "equal":
                yield from _shown("  ", one[a1:a2], by_line)
            if kind in ("delete", "replace"):
                yield from _shown("- ", one[a1:a2], by_line)
            if kind in ("insert", "replace"):
                yield from _shown("+ ", two[b1:b2], by_line)
    if cut:
        yield f"... (only {_MAX_PARTS:,} {unit}s from the first difference on were compared)"


def _shown(mark: str, parts: list[str], by_line: bool) -> list[str]:
    if by_line:
        return [mark + (p if len(p) <= 2 * _WIDTH else p[: 2 * _WIDTH] + "...") for p in parts]
    text = " ".join(p if len(p) <= _WIDTH else p[:_WIDTH] + "..." for p in parts)
    return [mark + line for line in textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False)]
