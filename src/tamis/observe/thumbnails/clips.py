"""Choose the clips of a run about videos that are shown, each by the keyframe nearest to its middle.

Bounded in number and time.

Kept clips are rows of the output's tables, dropped ones those of `rejected/` (`tamis video` keeps them: a row of a clip
is small). Only videos that were input of the run are opened, whatever these rows name.
"""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tamis.errors import TamisError
from tamis.observe.thumbnails.choose import MAX_KEPT, by_rule, first_rows, is_about_images, outputs, spread

SIDE = 112
_READER = "tamis.stages.video.io.video_reader."
_MAX_TABLES = 32
_MAX_ROWS = 2000  # of one file of rejected clips that are looked at
_MAX_LINE_BYTES = 1 << 20
_MAX_THUMB_BYTES = 12_000
_WORK_S = 12.0
_SCORES = ("motion_score_global_mean", "aesthetic_score")
_FIELDS = ("id", "path", "start_s", "end_s", "pixel_aspect", *_SCORES)


def is_about_videos(folder: Path) -> bool:
    """Return True if the plan of a run has a reader of videos."""
    return is_about_images(folder, _READER)


def clip_sheets(folder: Path) -> list[dict[str, Any]]:
    """Return the sheets of the run directory `folder` for the page: kept clips first, then rule by rule."""
    from tamis.observe.verdicts import input_paths

    try:
        videos = set(input_paths(folder))
    except TamisError:
        return []
    until = time.monotonic() + _WORK_S
    kept = [_figure(row, _score(row), videos, until) for row in _kept(folder)]
    sheets = [{"stage": "", "rule": "", "images": kept}] if kept else []
    for (stage, rule), rows in by_rule(_dropped(folder / "rejected")).items():
        drawn = [_figure(row, _shown(row["_tamis_rejected"].get("value")), videos, until) for row in rows]
        sheets.append({"stage": stage, "rule": rule, "images": drawn})
    return sheets


def _kept(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for path in spread(outputs(folder, ".parquet"), _MAX_TABLES):
        rows += spread(list(first_rows(path, _FIELDS)), MAX_KEPT)
    return spread([row for row in rows if _is_clip(row)], MAX_KEPT)


def _dropped(folder: Path) -> Iterator[tuple[tuple[str, str], dict[str, Any]]]:
    for path in spread(sorted(folder.glob("*.jsonl")), _MAX_TABLES):
        for row in _lines(path):
            rejected = row.get("_tamis_rejected")
            if isinstance(rejected, Mapping) and _is_clip(row):
                yield (str(rejected.get("stage") or ""), str(rejected.get("rule") or "")), row


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with path.open("rb") as file:
            for _ in range(_MAX_ROWS):
                line = file.readline(_MAX_LINE_BYTES)
                if not line:
                    return
                try:
                    row = json.loads(line)
                except ValueError:
                    continue
                if isinstance(row, dict):
                    yield row
    except OSError:
        return


def _is_clip(row: Mapping[str, Any]) -> bool:
    numbers = all(isinstance(row.get(name), (int, float)) for name in ("start_s", "end_s"))
    return numbers and isinstance(row.get("path"), str)


def _figure(row: Mapping[str, Any], value: str, videos: set[str], until: float) -> dict[str, Any]:
    span = f"{row['start_s']:.1f} to {row['end_s']:.1f} s"
    shown = {
        "name": os.path.basename(str(row["path"])),
        "id": str(row.get("id") or ""),
        "size": span,
        "value": value,
        "jpeg": "",
    }
    if time.monotonic() < until:
        shown["jpeg"] = _thumbnail(row, videos)
    return shown


def _thumbnail(row: Mapping[str, Any], videos: set[str]) -> str:
    """Return a JPEG as base64; "" if it cannot be made, takes too much, or is of a file that the run did not read."""
    from tamis.stores.urls import path_of
    from tamis.video.previews import thumbnail

    path = path_of(str(row["path"]))
    if path not in videos:
        return ""
    aspect = row.get("pixel_aspect")
    try:
        middle = (float(row["start_s"]) + float(row["end_s"])) / 2
        jpeg = thumbnail(
            path, middle, SIDE, aspect if isinstance(aspect, float) and 0.1 < aspect < 10 else 1.0, quick=True
        )
    except (OSError, TamisError, MemoryError, ValueError):
        return ""
    return base64.b64encode(jpeg).decode() if len(jpeg) <= _MAX_THUMB_BYTES else ""


def _score(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name.split('_')[0]} {row[name]:.4g}" for name in _SCORES if isinstance(row.get(name), float))


def _shown(value: Any) -> str:
    try:
        return f"{float(value):.4g}"
    except (TypeError, ValueError):
        return "" if value is None else str(value)
