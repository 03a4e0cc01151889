"""Tags of a web page one by one, with Python's regular expressions: the twin of kernels/markup/html_tags.py."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tamis.kernels.markup.html_tags import FLAT as _FLAT
from tamis.kernels.markup.html_tags import RAW

_HTML_TAG = re.compile(r"<(?:(!--)|(/?)([a-zA-Z][^\t-\r \x1c-\x1f/>]*))")
_RAW = {name: re.compile(f"</{name}", re.I) for name in RAW}


def html_tags(html: str) -> Iterator[tuple[str, bool]]:
    """Yield (name, is_end) of each tag."""
    position, n_drawings = 0, 0
    while (tag := _HTML_TAG.search(html, position)) is not None:
        position = tag.end()
        if tag[1]:
            end = html.find("-->", position)
            if end < 0:
                return
            position = end
            continue
        name, is_end = tag[3].lower(), bool(tag[2])
        if name in ("svg", "math"):
            n_drawings = max(0, n_drawings + (-1 if is_end else 1))
        if name in _FLAT:
            if not is_end:
                yield "", False
                yield "", True
            continue
        yield name, is_end
        if is_end:
            continue
        if n_drawings:  # only here a tag can end itself
            end = html.find(">", position)
            if end < 0:
                return
            if html[end - 1] == "/":
                yield name, True
        elif name in _RAW:
            close = _RAW[name].search(html, position)
            if close is None:
                return
            position = close.start()
