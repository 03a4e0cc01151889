"""The inputs of a job, before they are cut into partitions."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Sequence
from typing import Any

from tamis import files as own_files
from tamis._dataclasses import dataclass
from tamis.engine.job import Job
from tamis.engine.run import disk
from tamis.engine.run.output.directory import own_run_dir
from tamis.engine.units import PieceKind
from tamis.errors import PipelineError, UsageError
from tamis.formats.input_files.listing import FileList, check_named, list_files
from tamis.formats.registry import TABLES, is_stream, is_table
from tamis.sizes import parse_size
from tamis.stages.file_partitioning import LARGE_FILE_BYTES, FilePartitioningStage
from tamis.stores.opening import state_of
from tamis.stores.urls import is_remote
from tamis.tasks import ROW_ID, DocumentBatch, EmptyTask, FileGroupTask, Task

DEFAULT_PARTITION_BYTES = 32 << 20
_EXPANSION = 4  # decoded bytes of a compressed file, by those on disk


@dataclass
class Inputs:
    files: FileList
    kinds: list[PieceKind]
    partition_bytes: int | None = None
    files_per_partition: int | None = None
    files_apart: int = 0
    """Number of files in a unit if each is a partition of its own, as far as it fits; 0: sizes decide alone."""

    @property
    def whole_file_bytes(self) -> int:
        """Decoded bytes of a file up to which it is a partition of its own; 0 if files are grouped by size."""
        return largest_whole_file(self.files.sizes, self.kinds) if self.files_apart else 0


def largest_whole_file(sizes: Sequence[int], kinds: Sequence[PieceKind]) -> int:
    """Return the decoded bytes of a file up to which files of these sizes are partitions of their own."""
    decoded = (n if kind is PieceKind.BYTES else n * _EXPANSION for n, kind in zip(sizes, kinds, strict=True))
    return min(LARGE_FILE_BYTES, max(DEFAULT_PARTITION_BYTES, *decoded, 0))


def find_inputs(
    job: Job,
    initial_tasks: Sequence[Task[Any]] | None,
    blocksize: str | int | None,
    keep: str,
    output: str | None = None,
    scratch: str | None = None,
) -> Inputs:
    """List the files of the job's source or initial tasks; documents given in memory are stored below `keep`.

    `output`: the folder that the run writes to, which is no input even inside the input folder.
    `scratch`: the folder of its temporary files, if another one; UsageError if that is inside the input.
    """
    partition_bytes = parse_size(blocksize, "blocksize") if blocksize is not None else None
    source = job.partitioning
    if initial_tasks is not None and source is not None:
        raise PipelineError(f"the pipeline has a source ({source.name}) and was given initial_tasks; drop one of them")
    if source is not None:
        return _from_source(job, source, files_of(source, output, scratch), partition_bytes)
    if initial_tasks is None:
        if job.reader is not None:
            raise PipelineError(
                f"the pipeline has no source: {job.reader.name} needs files; begin with a reader that names them "
                "(JsonlReader, ParquetReader), or pass initial_tasks"
            )
        initial_tasks = [EmptyTask()]
    if job.stages and job.stages[0].traits.lists_work and all(type(task) is EmptyTask for task in initial_tasks):
        return _own_tasks(job, _listed(job, initial_tasks), partition_bytes)
    return _from_tasks(job, list(initial_tasks), partition_bytes, keep)


def _from_source(job: Job, source: FilePartitioningStage, files: FileList, partition_bytes: int | None) -> Inputs:
    """Return the files of a source, to be cut as the job, the source or `partition_bytes` (if given) requires."""
    if job.takes_all_files:
        return Inputs(files, kinds_of(files, job), None, max(1, len(files)))
    together = source.files_per_partition and source.files_per_partition * job.tasks_together
    apart = 0 if partition_bytes or not source.files_apart else job.tasks_together
    return Inputs(files, kinds_of(files, job), partition_bytes or source.partition_bytes, together, apart)


def files_of(source: FilePartitioningStage, output: str | None, scratch: str | None = None) -> FileList:
    """List the files that a source refers to.

    What this run writes, or the run that it is a pass of, is never among them.
    """
    source.reach()
    leave_out = [*source.leave_out, *([output] if output is not None else [])]
    return list_files(source.file_paths, source.suffixes(), source.limit, leave_out, scratch)


def kinds_of(files: FileList, job: Job) -> list[PieceKind]:
    if job.reader is None:
        return [PieceKind.FILES] * len(files)
    if all(name in TABLES for name in job.reader.formats):  # the reader says what is in them, whatever they are called
        return [PieceKind.ROWS] * len(files)
    if not any(name in TABLES for name in job.reader.formats):
        return [PieceKind.STREAM if is_stream(p) else PieceKind.BYTES for p in files.paths]
    return [
        PieceKind.ROWS if is_table(p) else PieceKind.STREAM if is_stream(p) else PieceKind.BYTES for p in files.paths
    ]


def _listed(job: Job, tasks: Sequence[Task[Any]]) -> list[Task[Any]]:
    """Return the tasks that the first stage lists: each becomes a partition of its own."""
    listed: list[Task[Any]] = []
    for task in tasks:
        listed += job.stages[0].process(task) or []
    if not listed:
        raise UsageError(f"{job.stages[0].name} lists nothing to do")
    return listed


def _own_tasks(job: Job, tasks: list[Task[Any]], partition_bytes: int | None) -> Inputs:
    """Return inputs for tasks of a user's own kinds, which travel with the job.

    Each is a partition, known by its contents when a run is resumed.
    """
    import cloudpickle

    for task in tasks:
        if not isinstance(task, Task):
            raise UsageError(f"initial_tasks: expected tasks, got {type(task).__name__}")
    if job.reader is not None:
        raise PipelineError(
            f"{job.reader.name} reads files: give initial_tasks as FileGroupTask, or name its file_paths"
        )
    job.initial = tasks
    files = FileList()
    for i, task in enumerate(tasks):
        about = (
            hashlib.blake2b(cloudpickle.dumps(task), digest_size=8).hexdigest() if len(tasks) > 1 or task.data else ""
        )
        files.append(f"task {i} {about}" if about else "", 1, 0)
    together = max((stage.batch_size for stage in job.stages), default=1)
    return Inputs(files, [PieceKind.START] * len(tasks), partition_bytes, files_per_partition=together)


def _from_tasks(job: Job, tasks: list[Task[Any]], partition_bytes: int | None, keep: str) -> Inputs:
    if not tasks:
        raise UsageError("initial_tasks is empty: there is nothing to do")
    if not any(isinstance(t, (DocumentBatch, FileGroupTask)) for t in tasks):
        return _own_tasks(job, tasks, partition_bytes)
    files = FileList()
    for task in tasks:
        if isinstance(task, FileGroupTask):
            for path in task.data:
                if is_remote(path):
                    files.append(path, *state_of(path))
                    continue
                info = check_named(path)
                files.append(os.path.abspath(path), info.st_size, info.st_mtime_ns, info.st_ino)
        elif isinstance(task, DocumentBatch):
            files.append(*_keep_batch(task, keep))
        else:
            raise UsageError(
                f"initial_tasks: {type(task).__name__} among documents or files; give tasks of one kind, or run two "
                "pipelines"
            )
    if isinstance(tasks[0], DocumentBatch):
        return Inputs(files, [PieceKind.ROWS if is_table(p) else PieceKind.BYTES for p in files.paths], partition_bytes)
    return Inputs(files, kinds_of(files, job), partition_bytes, max(1, len(files)) if job.takes_all_files else None)


def _keep_batch(batch: DocumentBatch, keep: str) -> tuple[str, int, int]:
    """Store a batch as a file named by its contents, so that the same cell run again reuses the same input.

    The format is Parquet, unless values would change in it: documents from JSONL, and columns of several kinds, are
    stored as JSONL.
    """
    from tamis.formats.jsonl.encode import json_lines_of
    from tamis.formats.parquet import format as parquet

    own_run_dir(os.path.dirname(keep))
    own_files.own_folder(keep, "remove it")
    lines = json_lines_of(batch)
    path = own_files.fresh(own_files.unguessable(keep, ".new-"))
    try:
        if lines is not None:
            with open(path, "wb") as new:
                new.write(lines)
        else:
            table = batch.to_pyarrow()
            parquet.write_table(table.drop_columns([ROW_ID]) if ROW_ID in table.column_names else table, path)
        with open(path, "rb") as file:
            name = hashlib.file_digest(file, "blake2b").hexdigest()[:24]
        final = os.path.join(keep, f"{name}.{'parquet' if lines is None else 'jsonl'}")
        with contextlib.suppress(FileExistsError):  # the same documents, from an earlier call
            own_files.move(path, final)
    except OSError as exc:
        raise disk.explained(exc, [keep]) from exc
    finally:
        own_files.remove(path)
    info = os.stat(final)
    return final, info.st_size, info.st_mtime_ns
