"""The part of the page that shows images and clips: what was kept, and what each rule dropped.

"" for runs about anything else.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tamis.observe.charts.svg import text
from tamis.observe.thumbnails.choose import MAX_KEPT, MAX_PER_RULE, MAX_RULES, is_about_images
from tamis.observe.thumbnails.clips import is_about_videos

_TIMEOUT_S = 30
_MAX_BYTES = 4_000_000
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
CSS = """
.sheet{display:flex;flex-wrap:wrap;gap:.7rem}.sheet figure{margin:0;width:7.4rem}
.sheet img{max-width:100%;border-radius:3px;display:block}
.sheet .pair{display:flex;gap:2px}.sheet .pair img{width:50%;object-fit:contain;align-self:end}
.sheet figcaption{font-size:.72rem;overflow-wrap:anywhere}.sheet .none{height:4rem;border:1px dashed;border-radius:3px}
"""


def thumbnail_grids(folder: Path) -> str:
    """Return the thumbnail grids of the run directory `folder`, in their present state."""
    return markup(_ask(folder)) if is_about_images(folder) or is_about_videos(folder) else ""


def _ask(folder: Path) -> list[Any]:
    """Return the answer of the decoding process; nothing if it fails, as the report is written all the same."""
    command = [sys.executable, "-m", "tamis.observe.thumbnails", str(folder)]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_TIMEOUT_S,
            check=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # memory for every core would be all that it may have
        )
        answer = json.loads(done.stdout) if len(done.stdout) <= _MAX_BYTES else []
    except (OSError, ValueError, subprocess.SubprocessError):
        return []
    return answer if isinstance(answer, list) else []


def markup(sheets: list[Any]) -> str:
    """Return the HTML of thumbnail grids.

    Every name is escaped, every image is base64 or left out; numbers of both are bounded.
    """
    parts = []
    for sheet in sheets[: MAX_RULES + 1]:
        if not isinstance(sheet, Mapping):
            continue
        rule, stage = str(sheet.get("rule") or ""), str(sheet.get("stage") or "")
        title = "Kept" if not stage else f"Dropped by {rule}" + (f" ({stage})" if rule != stage else "")
        images = [p for p in sheet.get("images") or () if isinstance(p, Mapping)]
        drawn = "".join(map(_figure, images[: MAX_PER_RULE if stage else MAX_KEPT]))
        parts.append(f'<h3>{text(title, 200)}</h3><div class="sheet">{drawn}</div>')
    return "".join(parts)


def _figure(image: Mapping[str, Any]) -> str:
    name, value = str(image.get("name") or ""), str(image.get("value") or "")
    partner = image.get("partner")
    drawn = _image(image)
    lines = [name, str(image.get("size") or ""), value]
    if isinstance(partner, Mapping):
        drawn = f'<div class="pair">{drawn}{_image(partner)}</div>'
        lines.append(f"repeats {partner.get('name')}")
    caption = "<br/>".join(text(line, 80) for line in lines if line)
    return f'<figure title="{_attribute(image.get("id"))}">{drawn}<figcaption>{caption}</figcaption></figure>'


def _image(image: Mapping[str, Any]) -> str:
    data = image.get("jpeg")
    if not isinstance(data, str) or not _BASE64.fullmatch(data):
        return '<div class="none"></div>'
    return f'<img alt="{_attribute(image.get("name"))}" src="data:image/jpeg;base64,{data}"/>'


def _attribute(value: Any) -> str:
    return text(value, 120).replace('"', "&quot;")
