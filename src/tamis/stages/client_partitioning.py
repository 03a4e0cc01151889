"""ClientPartitioningStage: the files of a folder, or those that a list names."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

from tamis.errors import UsageError
from tamis.stages.file_partitioning import FilePartitioningStage
from tamis.tasks import EmptyTask, FileGroupTask


@dataclass(repr=False)
class ClientPartitioningStage(FilePartitioningStage):
    """Like FilePartitioningStage, of which it is a subclass in NeMo Curator, too.

    `input_list_json_path` is a JSON file with a list of paths, all of them below `file_paths`.
    """

    name: str = "client_partitioning"
    input_list_json_path: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.root = self.file_paths
        if self.input_list_json_path is not None:
            self.file_paths = self._read_list(self.input_list_json_path)

    def setup(self, worker_metadata: Any = None) -> None:
        """Prepare nothing, because paths are local."""

    def process(self, task: EmptyTask) -> list[FileGroupTask]:
        return super().process(task)

    def _read_list(self, path: str) -> list[str]:
        if not isinstance(self.root, (str, os.PathLike)):
            raise UsageError(
                f"{self.name}: with input_list_json_path, file_paths must be the folder that contains the paths"
            )
        try:
            with open(path, encoding="utf-8") as file:
                names = json.load(file)
        except (OSError, ValueError) as exc:
            raise UsageError(f"{self.name}: {path}: expected a JSON file with a list of paths: {exc}") from exc
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            raise UsageError(f"{self.name}: {path}: expected a list of at least one path")
        root = os.path.abspath(os.path.expanduser(self.root))
        paths: dict[str, None] = {}
        for name in names:
            absolute = os.path.normpath(os.path.join(root, os.path.expanduser(name)))
            if os.path.commonpath([root, absolute]) != root:
                raise UsageError(f"{self.name}: {path}: {name} is not below {root}")
            paths[absolute] = None
        return sorted(p for p in paths if p.endswith(self.suffixes()))
