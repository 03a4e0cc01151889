"""FilePartitioningStage: the files to read, and the size of partitions."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import field
from typing import Any

from tamis._dataclasses import dataclass
from tamis.errors import UsageError
from tamis.formats.input_files.skipped import checked_paths
from tamis.formats.registry import codecs_of, suffixes
from tamis.sizes import check_optional_integer, format_size, parse_size
from tamis.stages.base import ProcessingStage
from tamis.stages.resources import Resources
from tamis.stores.options import check, keep_keys, remember
from tamis.tasks import EmptyTask, FileGroupTask
from tamis.tasks.file_group import infer_dataset_name

JSONL_SUFFIXES = suffixes("jsonl")
PARQUET_SUFFIXES = suffixes("parquet")
LARGE_FILE_BYTES = 512 << 20  # of a file that is a partition of its own by default


@dataclass(repr=False)
class FilePartitioningStage(ProcessingStage[EmptyTask, FileGroupTask]):
    """The source of a pipeline: a folder (searched recursively), a glob, a file, or a list of these.

    `blocksize` is an upper bound on the decoded bytes of one partition: large files are split, small ones grouped.
    `files_per_partition` groups whole files instead. With neither, each file is one partition, as far as it fits its
    worker (512 MB at most): larger ones are cut.
    """

    file_paths: str | Sequence[str]
    files_per_partition: int | None = None
    blocksize: int | str | None = None
    file_extensions: Sequence[str] | None = None
    storage_options: dict[str, Any] | None = None
    limit: int | None = None
    name: str = "file_partitioning"
    resources: Resources = field(default_factory=lambda: Resources(cpus=0.5), kw_only=True)
    leave_out: tuple[str, ...] = field(default=(), init=False)  # output folders, which are never input
    one_per_file: bool = field(default=True, init=False)  # the partitions, where no size is given

    is_source_stage = True
    columns_out = ()

    def __post_init__(self) -> None:
        if self.files_per_partition is not None and self.blocksize is not None:
            raise UsageError(f"{self.name}: give files_per_partition or blocksize, not both")
        check_optional_integer(self.files_per_partition, f"{self.name}: files_per_partition")
        check_optional_integer(self.limit, f"{self.name}: limit")
        owner = f"{self.name}: storage_options"
        self.storage_options = keep_keys(self.file_paths, self.storage_options, owner)
        if self.storage_options:
            check(self.storage_options, owner)
        if not self.file_paths:
            raise UsageError(f"{self.name}: file_paths is empty; give a folder, a glob, a file or a list of these")
        self.file_paths = checked_paths(self.file_paths, f"{self.name}: file_paths")
        if self.blocksize is not None:
            parse_size(self.blocksize, f"{self.name}: blocksize")
        if self.file_extensions is None:
            self.file_extensions = suffixes()

    @property
    def partition_bytes(self) -> int | None:
        return None if self.blocksize is None else parse_size(self.blocksize)

    @property
    def files_apart(self) -> bool:
        """True if a file is a partition of its own, and not grouped with others."""
        return self.one_per_file and self.files_per_partition is None and self.blocksize is None

    def suffixes(self) -> tuple[str, ...]:
        """Return the accepted suffixes of file names (in any case): each extension, plain or compressed."""
        bases = [(e if e.startswith(".") else "." + e).lower() for e in self.file_extensions or ()]
        return tuple(b + c for b in bases for c in codecs_of(b))

    def reach(self) -> None:
        """Register `storage_options` before the files are listed."""
        remember(self.file_paths, self.storage_options, f"{self.name}: storage_options")

    def num_workers(self) -> int | None:
        return 1

    def process(self, task: EmptyTask) -> list[FileGroupTask]:
        """Return groups of whole files, for use outside of a run; a run also splits large files."""
        from tamis.formats.input_files.listing import list_files

        self.reach()
        files = list_files(self.file_paths, self.suffixes(), self.limit, self.leave_out)
        sizes = list(zip(files.paths, files.sizes, strict=True))
        if self.files_per_partition is None:
            self._warn_of_large(sizes)
        groups = group_files(sizes, self.files_per_partition, self.partition_bytes)
        tasks, dataset = [], infer_dataset_name(files.paths[:1]) or "dataset"
        for i, group in enumerate(groups):
            metadata = {"partition_index": i, "total_partitions": len(groups), "source_files": group}
            tasks.append(FileGroupTask(dataset, group, _metadata=metadata))
        return tasks

    def _warn_of_large(self, files: Sequence[tuple[str, int]]) -> None:
        """Warn of groups of whole files that are too large; a run would split them."""
        limit = self.partition_bytes or LARGE_FILE_BYTES
        large = [(path, size) for path, size in files if size > limit]
        if large:
            path, size = max(large, key=lambda file: file[1])
            than = f"blocksize ({format_size(limit)})" if self.partition_bytes else format_size(limit)
            warnings.warn(
                f"{self.name}: {len(large)} of {len(files)} files are larger than {than}, such as {path!r} "
                f"({format_size(size)}); each is a group of its own. A pipeline with a reader splits them",
                stacklevel=3,
            )


def group_files(
    files: Sequence[tuple[str, int]], files_per_partition: int | None = None, partition_bytes: int | None = None
) -> list[list[str]]:
    """Group consecutive files (path, bytes) by number or by size, or each alone.

    >>> files = [("a", 1), ("b", 1), ("c", 5)]
    >>> group_files(files, files_per_partition=2), group_files(files, partition_bytes=3), group_files(files)
    ([['a', 'b'], ['c']], [['a', 'b'], ['c']], [['a'], ['b'], ['c']])
    """
    if partition_bytes is None:
        n = files_per_partition or 1
        return [[path for path, _ in files[i : i + n]] for i in range(0, len(files), n)]
    groups: list[list[str]] = []
    room = 0
    for path, n_bytes in files:
        if not groups or n_bytes > room:
            groups.append([])
            room = partition_bytes
        groups[-1].append(path)
        room -= n_bytes
    return groups
