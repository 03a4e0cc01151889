"""`python -m tamis.observe.thumbnails RUN_DIR`: print its thumbnail grids as JSON, each image a small JPEG in base64.

A process of its own, with limits on memory and time, because decoders read untrusted bytes.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

from tamis._lazy import np
from tamis.errors import TamisError
from tamis.observe.thumbnails.choose import ChosenImage, choose
from tamis.observe.thumbnails.clips import clip_sheets, is_about_videos

SIDE = 112
_MAX_WORK_BYTES = 48_000_000  # of an image while it is decoded: larger ones are named, not shown
_MAX_THUMB_BYTES = 12_000
_DATA_BYTES = 400_000_000
_CPU_S = 20


def main() -> int:
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (_DATA_BYTES, resource.getrlimit(resource.RLIMIT_DATA)[1]))
        resource.setrlimit(resource.RLIMIT_CPU, (_CPU_S, resource.getrlimit(resource.RLIMIT_CPU)[1]))
    folder = Path(sys.argv[1])
    if is_about_videos(folder):
        print(json.dumps(clip_sheets(folder)))
        return 0
    sheets = []
    for sheet in choose(folder):
        shown = [images for images in map(_made, sheet.images) if images is not None]
        if shown:
            sheets.append({"stage": sheet.stage, "rule": sheet.rule, "images": shown})
    print(json.dumps(sheets))
    return 0


def _made(chosen: ChosenImage) -> dict[str, Any] | None:
    """Return an image in the form that the page needs; None if there is no such row."""
    row = _row(chosen.path, chosen.row)
    if row is None:
        return None
    name = row["member"] or os.path.basename(row["image_path"])
    entry = {"name": name, "id": chosen.name or row["id"], "value": chosen.value, "jpeg": _thumbnail(row)}
    entry["size"] = f"{row['width']} x {row['height']}"
    if chosen.partner is not None and (other := _row(*chosen.partner)) is not None:
        entry["partner"] = {"name": other["member"] or os.path.basename(other["image_path"]), "jpeg": _thumbnail(other)}
    return entry


def _row(path: str, number: int) -> dict[str, Any] | None:
    from tamis.images.format import iter_rows

    try:
        for first, table in iter_rows(path, number, number + 1):
            if first == number and len(table):
                rows: dict[str, Any] = table.to_pylist()[0]
                return rows
    except (OSError, TamisError):
        pass
    return None


def _thumbnail(row: dict[str, Any]) -> str:
    """Return a JPEG as base64; "" if the image cannot be decoded, or takes too much memory."""
    from PIL import Image

    from tamis.images.decode import decode, header_of, read_span, scale_of
    from tamis.images.encode import encode
    from tamis.stores.urls import path_of

    try:
        data = read_span(path_of(row["image_path"]), row["offset"], row["length"])
        header = header_of(data)
        n = scale_of(header, SIDE) if header.format == "jpeg" else 1
        if header.decoded_bytes // (n * n) + header.work_bytes > _MAX_WORK_BYTES:
            return ""
        image = Image.fromarray(decode(data, header, min_side=SIDE))
        image.thumbnail((SIDE, SIDE))
        jpeg = encode(np.asarray(image), "jpeg", quality=70)[0]
    except (OSError, TamisError, MemoryError, ValueError):
        return ""
    return base64.b64encode(jpeg).decode() if len(jpeg) <= _MAX_THUMB_BYTES else ""


if __name__ == "__main__":
    sys.exit(main())
