"""What the workflows accept beside their own parameters: readers, writers and the names that the original's users know."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tamis.errors import UsageError
from tamis.stages.base import ProcessingStage
from tamis.stages.io import Writer, refuse_unknown

if TYPE_CHECKING:
    from tamis.dedup.planning import DedupPlan

# Of the original's GPU memory pools; there is nothing like them here, and the value changes no result.
GPU_ONLY = ("rmm_pool_size", "spill_memory_limit", "lsh_rmm_pool_size", "lsh_spill_memory_limit", "use_async_memory")


def absolute(path: str | os.PathLike[str] | Sequence[str]) -> Any:
    """A folder, glob or file as an absolute path; a list of them as a list."""
    if isinstance(path, (str, os.PathLike)):
        return os.path.abspath(os.path.expanduser(os.fspath(path)))
    return [os.path.abspath(os.path.expanduser(p)) for p in path]


def make_source(
    input_path: Any,
    blocksize: str | int | None,
    extensions: Sequence[str] | None,
    read_kwargs: Mapping[str, Any] | None,
) -> Callable[[], ProcessingStage[Any, Any]]:
    from tamis.stages.text.io.reader import DocumentReader

    refuse_unknown("deduplication", "read_kwargs", read_kwargs, ())
    if not input_path:
        raise UsageError("deduplication: input_path must name a folder, a glob or files")
    more: dict[str, Any] = {"blocksize": blocksize} if blocksize is not None else {}
    if extensions is not None:
        more["file_extensions"] = list(extensions)
    return lambda: DocumentReader(input_path, **more)


def make_writer(input_path: Any, output: str, filetype: str | None) -> Callable[[], Writer]:
    """A writer in the format of the input, or the one named."""
    from tamis.stages.text.io.formats import output_format
    from tamis.stages.text.io.writer import JsonlWriter, ParquetWriter

    if filetype not in (None, "jsonl", "parquet"):
        raise UsageError(f"deduplication: output_filetype must be 'jsonl' or 'parquet', got {filetype!r}")
    is_parquet, extension = output_format(input_path)
    if filetype is not None and is_parquet != (filetype == "parquet"):
        is_parquet, extension = filetype == "parquet", filetype
    return lambda: ParquetWriter(output) if is_parquet else JsonlWriter(output, file_extension=extension)


def make_plan(input_path: Any, bands: int, rows: int, per_pass: int | None, memory: Any, work: str) -> DedupPlan:
    from tamis.dedup import planning
    from tamis.formats.listing import list_files
    from tamis.memory.budget import find_budget
    from tamis.stages.file_partitioning import FilePartitioningStage

    files = list_files(input_path, FilePartitioningStage(input_path).suffixes())
    paths = [os.fsdecode(p) for p in files.paths]
    budget = find_budget(memory, os.environ).bytes
    return planning.make_plan(paths, list(files.sizes), bands, rows, per_pass, budget, work)
