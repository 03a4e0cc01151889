"""Files on their way: to a reader, or from a writer."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import field
from typing import Any

from tamis._dataclasses import dataclass
from tamis.tasks.tasks import Task


def infer_dataset_name(paths: Sequence[str]) -> str:
    """Return the name of the folder of the first file, in lower case; without one, that of the file; "" for no files.

    >>> infer_dataset_name(["/data/Stories/a.jsonl"]), infer_dataset_name(["a.jsonl"])
    ('stories', 'a')
    """
    if not paths:
        return ""
    folder = os.path.basename(os.path.dirname(paths[0]))
    name = folder if folder not in ("", ".") else os.path.basename(paths[0]).partition(".")[0]
    return name.lower()


@dataclass
class FileGroupTask(Task[list[str]]):
    """A group of files, to be read by the next stage, or written by the last one."""

    data: list[str] = field(default_factory=list)
    reader_config: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.task_id = self.task_id or self.get_deterministic_id()

    @property
    def num_items(self) -> int:
        return len(self.data)

    def get_deterministic_id(self) -> str:
        """Return an id derived from the paths, in any order, not from the contents of the files."""
        return hashlib.blake2b("\0".join(sorted(self.data)).encode(), digest_size=8).hexdigest()
