"""Files on their way: to a reader, or from a writer."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

from tamis.tasks.tasks import Task


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
