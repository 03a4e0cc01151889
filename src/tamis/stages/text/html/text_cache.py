"""Texts that were extracted in one pass of a workflow, stored for later passes by the position of their document.

Compressed Arrow files, each named by the positions of its first and last document, so that a reader opens only those
it needs. A unit that is retried writes the same rows again, which changes nothing. Nothing is stored where the disk
has no room, or where extracting again takes less time: later passes extract what is not stored.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tamis import files
from tamis._lazy import np, pa
from tamis.stages.text.io.reader.ids import ids_of
from tamis.stages.vector_cache import is_worth_storing
from tamis.tasks import DocumentBatch

_NAME = re.compile(r"(\d{20})-(\d{20})-[0-9a-f]+\.texts")


@dataclass(frozen=True)
class CachedDrop:
    """The rule that drops a page."""

    rule: str


class TextCache:
    """Texts in the files of a folder. A document that is dropped has a rule instead."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def store(self, batch: DocumentBatch, outcomes: Mapping[int, Any], seconds: float) -> int | None:
        """Store outcomes by their row in the batch, unless `seconds`, which they took, are too few for that.

        Returns the bytes of their texts; None if some are not stored.
        """
        keys = _position_keys(batch)
        rows = sorted((i for i in outcomes if keys[i] >= 0), key=lambda i: int(keys[i]))
        texts = [outcomes[i] if isinstance(outcomes[i], str) else None for i in rows]
        n_bytes = sum(len(t) for t in texts if t is not None)
        if not rows:
            return None if outcomes else 0
        if not is_worth_storing(seconds, n_bytes, shutil.disk_usage(self.folder).free):
            return None
        rules = [None if isinstance(outcomes[i], str) else outcomes[i].rule for i in rows]
        table = pa.table(
            {
                "key": pa.array(keys[rows], pa.int64()),
                "text": pa.array(texts, pa.large_string()),
                "rule": pa.array(rules, pa.string()),
            }
        )
        part = files.unguessable(self.folder, ".new-")
        with (
            files.create(part) as out,
            pa.ipc.new_file(out, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer,
        ):
            writer.write_table(table)
        name = f"{int(keys[rows[0]]):020d}-{int(keys[rows[-1]]):020d}-{os.path.basename(part).rpartition('-')[2]}.texts"
        files.finish(part, os.path.join(self.folder, name))
        return n_bytes if len(rows) == len(outcomes) else None

    def load(self, batch: DocumentBatch) -> dict[int, Any]:
        """Return the outcome of each row that is stored."""
        keys = _position_keys(batch)
        outcomes: dict[int, Any] = {}
        for name in self._names(int(keys.min()), int(keys.max())) if len(keys) else []:
            with pa.OSFile(os.path.join(self.folder, name)) as source:
                table = pa.ipc.open_file(source).read_all()
            stored = table.column("key").to_numpy()
            indices = np.minimum(np.searchsorted(stored, keys), len(stored) - 1)
            for i in np.flatnonzero(stored[indices] == keys).tolist():
                at = int(indices[i])
                rule = table.column("rule")[at].as_py()
                outcomes[i] = table.column("text")[at].as_py() if rule is None else CachedDrop(rule)
        return outcomes

    def _names(self, low: int, high: int) -> list[str]:
        with contextlib.suppress(OSError), os.scandir(self.folder) as entries:
            matches = [(e.name, m) for e in entries if (m := _NAME.fullmatch(e.name))]
            return sorted(name for name, m in matches if int(m[1]) <= high and int(m[2]) >= low)
        return []


def _position_keys(batch: DocumentBatch) -> np.ndarray[Any, Any]:
    """Return positions as single numbers, -1 if unknown."""
    numbers, offsets = batch.places()
    return np.where(numbers < 0, -1, ids_of(numbers, offsets))
