"""The part of the page about evaluation sets: what of each was found, and the text that did not count."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

from tamis.files import read_json
from tamis.observe.charts.svg import number, text
from tamis.observe.charts.tables import table

_CERTIFICATE, _EXCEPTED = "decontamination.json", "excepted.jsonl"
_MAX_CERTIFICATES, _MAX_SETS, _MAX_EXCEPTED = 10, 200, 20
_MAX_BYTES = 4_000_000
_LINE_BYTES = 4000


def decontamination(run_dir: Path) -> str:
    """Return a table for each certificate of a run; "" if there are none or they cannot be read."""
    paths = sorted((run_dir / "duplicates").glob(f"*{_CERTIFICATE}"))[:_MAX_CERTIFICATES]
    return "".join(_section(path) for path in paths)


def _section(path: Path) -> str:
    try:
        about = read_json(path) if path.stat().st_size <= _MAX_BYTES else None
    except (OSError, ValueError, RecursionError):
        return ""
    if not isinstance(about, dict) or not isinstance(sets := about.get("sets"), list):
        return ""
    rows = [
        [text(one.get("name"), 200), *(_count(one.get(k)) for k in _COLUMNS)]
        for one in sets[:_MAX_SETS]
        if isinstance(one, dict)
    ]
    columns = ["evaluation set", "documents with it", "items found", "items", "as a whole", "too short to check"]
    done = {"drop": "dropped", "cut": "cut", "report": "listed only"}.get(str(about.get("action")), "")
    note = (
        f'<p class="dim">{_count(about.get("n_contaminated"))} of {_count(about.get("n_documents"))} documents share a '
        f"run of at least {_count(about.get('min_words'))} words with an item ({text(done, 20)}). The certificate is "
        f"<code>{text(path.name, 200)}</code>.</p>"
    )
    return table(columns, rows, range(1, 6)) + note + _excepted(path, about)


_COLUMNS = ("n_documents", "n_found", "n_items", "n_short", "n_unchecked")


def _excepted(path: Path, about: dict[str, Any]) -> str:
    if not number(about.get("n_excepted")):
        return ""
    listed = path.with_name(path.name.removesuffix(_CERTIFICATE) + _EXCEPTED)
    rows = []
    try:
        with open(listed, "rb") as file:
            for line in itertools.islice(iter(lambda: file.readline(_LINE_BYTES), b""), _MAX_EXCEPTED):
                entry = json.loads(line)
                rows.append(
                    [text(entry.get("words"), 300), text(entry.get("set"), 200), _count(entry.get("n_documents"))]
                )
    except (OSError, ValueError, AttributeError, RecursionError):
        return ""
    head = (
        f'<h3>Common text</h3><p class="dim">{_count(about.get("n_excepted"))} n-grams are in more than '
        f"{_count(about.get('max_documents'))} documents and did not count. The most frequent:</p>"
    )
    return head + table(["words", "evaluation set", "documents"], rows, (2,))


def _count(value: Any) -> str:
    return f"{int(number(value)):,}"
