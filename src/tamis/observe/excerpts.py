"""How dropped documents begin, for the report: the text of a record of plain JSONL, by its place. A bounded stretch is read, nothing is decoded
up to a place: examples from compressed files, tables and stores are told by name alone.
"""

from __future__ import annotations

import json
import os

MAX_CHARS = 300
_READ_BYTES = 1 << 16
_NAMES = ("text", "content", "raw_content", "body")  # looked for first; otherwise the longest text of the record


def excerpt(path: str, offset: int) -> str:
    """Return the beginning of the text of the record at an offset; "" if it cannot be read at once."""
    if not path.endswith(".jsonl") or "://" in path or offset < 0:
        return ""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            data = os.pread(descriptor, _READ_BYTES, offset)
        finally:
            os.close(descriptor)
    except OSError:  # gone since, or no longer to be read
        return ""
    return beginning(data)


def beginning(data: bytes) -> str:
    """
    >>> beginning(b'{"id": "a", "text": "One  line.\\\\nAnother."}\\n{"id": "b"}')
    'One line. Another.'
    >>> beginning(b'{"text": "cut off in the mid')
    'cut off in the mid'
    >>> beginning(b"no JSON")
    ''
    """
    line, end, _ = data.partition(b"\n")
    text = line.decode("utf-8", "replace")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = {} if end else _cut_off(text)
    texts = {k: v for k, v in found.items() if isinstance(v, str)} if isinstance(found, dict) else {}
    named = [texts[name] for name in _NAMES if name in texts]
    chosen = named[0] if named else max(texts.values(), key=len, default="")
    return " ".join(chosen[: 4 * MAX_CHARS].split())[:MAX_CHARS]


def _cut_off(text: str) -> dict[str, str]:
    """Return the text of a record of which only the beginning was read."""
    for name in _NAMES:
        _, key, rest = text.partition(f'"{name}"')
        rest = rest.lstrip().removeprefix(":").lstrip()
        if key and rest.startswith('"'):
            value = rest[: 8 * MAX_CHARS]
            for whole in (rest, f'{value}"', f'{value[: value.rfind(chr(92))]}"'):  # an escape may be cut, too
                try:
                    return {name: json.JSONDecoder().raw_decode(whole)[0]}
                except ValueError:
                    continue
    return {}
