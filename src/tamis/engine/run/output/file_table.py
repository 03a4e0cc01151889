"""Committed files by name, in about 200 bytes each (a run may write 100,000)."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator
from typing import Any

_KINDS = ("output", "quarantine", "listed", "verdicts", "rejected", "scores")


class FileTable:
    def __init__(self) -> None:
        self._at: dict[str, int] = {}
        self._kinds = bytearray()
        self._rows, self._bytes = array("q"), array("q")
        self._contents = bytearray()  # 16 bytes each
        self._more: dict[int, dict[str, Any]] = {}  # what only some files have (schemas)

    def add(self, about: dict[str, Any]) -> None:
        name = str(about["name"])
        i = self._at.setdefault(name, len(self._kinds))
        if i == len(self._kinds):
            self._kinds.append(0)
            self._rows.append(0)
            self._bytes.append(0)
            self._contents.extend(bytes(16))
        self._kinds[i] = _KINDS.index(about["kind"])
        self._rows[i], self._bytes[i] = int(about.get("rows", 0)), int(about.get("bytes", 0))
        self._contents[i * 16 : i * 16 + 16] = int(about.get("content", "0"), 16).to_bytes(16, "big")
        more = {
            k: sys.intern(v) if isinstance(v, str) else v
            for k, v in about.items()
            if k in ("schema", "observed", "check")
        }
        if more:
            self._more[i] = more

    def discard(self, name: str) -> None:
        self._at.pop(name, None)

    def __getitem__(self, name: str) -> dict[str, Any]:
        i = self._at[name]
        content = self._contents[i * 16 : i * 16 + 16].hex()
        about = {
            "name": name,
            "kind": _KINDS[self._kinds[i]],
            "rows": self._rows[i],
            "bytes": self._bytes[i],
            "content": content,
        }
        return {**about, **self._more.get(i, {})}

    def __contains__(self, name: object) -> bool:
        return name in self._at

    def values(self) -> Iterator[dict[str, Any]]:
        return (self[name] for name in self._at)

    def written(self) -> Iterator[dict[str, Any]]:
        """Output files and files that stages listed, in the order of their names."""
        return (about for name in sorted(self._at) if (about := self[name])["kind"] in ("output", "listed"))
