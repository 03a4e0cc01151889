"""Types of JSON fields in frames, found by one pass over the whole input before a run.

The pass is a run of its own, with the same executor and memory, over all files: before sharding and sampling, so that
every shard and every sample has the same types. Its result is stored in the run directory of the output
(`ColumnScan`), and as the reader's `column_types` it is part of what the run is.

Covers: when a scan is needed, doing it, storing it. Does not cover: how types follow from values
(tasks/columns/frame_types.py), nor what a run does with them.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tamis import files
from tamis.engine.job import Job, make_job
from tamis.engine.run.code_used import reads_frames
from tamis.engine.run.input_identity import identify_inputs
from tamis.engine.run.inputs import Inputs
from tamis.engine.run.output.directory import own_run_dir
from tamis.engine.run.results import load_results
from tamis.engine.run.run import Run
from tamis.engine.run.settings import RunSettings
from tamis.engine.schema import ColumnScan, read_fields
from tamis.errors import Incomplete, RunConflict, TamisError
from tamis.sizes import format_size
from tamis.stages.column_kinds import ColumnKinds, counted
from tamis.stores.run_locations import run_dir_of
from tamis.tasks import DocumentBatch
from tamis.tasks.columns.frame_types import joined_types

if TYPE_CHECKING:
    from tamis.backends.base import BaseExecutor

FILE = "column_types.json"
_WORTH_A_NOTE_BYTES = 256 << 20
_FOLDER = "column_types"  # of the pass, inside the run directory


def wants_scan(job: Job) -> bool:
    """Return True if a stage of the user reads frames of JSON records without declared types."""
    return (
        job.reader is not None
        and job.partitioning is not None
        and job.reader.column_types is None
        and job.reader.batch is DocumentBatch
        and "jsonl" in job.reader.formats
        and any(reads_frames(stage) for stage in job.stages)
    )


def find_column_types(job: Job, inputs: Inputs, settings: RunSettings, executor: BaseExecutor, output: str) -> None:
    """Give the job's reader the types of all fields; from the run directory of `output`, or by scanning the input."""
    assert job.reader is not None
    run_dir = run_dir_of(output)
    identity = _fingerprint(inputs, job.reader.fields, settings.max_record_bytes)
    scan = _stored(os.path.join(run_dir, FILE))
    if scan is None or scan.input != identity:
        scan = ColumnScan(identity, _scan(job, inputs, settings, executor, os.path.join(run_dir, _FOLDER)))
        own_run_dir(run_dir)
        files.write_json(os.path.join(run_dir, FILE), scan.to_dict(), indent=1)
        shutil.rmtree(os.path.join(run_dir, _FOLDER), ignore_errors=True)
    job.reader = copy.copy(job.reader)
    job.reader.column_types = scan.types


def _scan(job: Job, inputs: Inputs, settings: RunSettings, executor: BaseExecutor, folder: str) -> dict[str, str]:
    assert job.source is not None
    assert job.reader is not None
    counting = make_job(f"{job.name}: types of columns", [job.source, job.reader, ColumnKinds()], "streaming")
    # All records of all files, whatever part of them this run is to process; bad ones are the business of that run.
    plain = replace(
        settings, sample=None, progressive=False, shard=None, merge=False, fresh=False, run_dir=None,
        on_infeasible="stop", quarantine_limit="100%", fail_fast=None, keep_rejected=False, file_size=None,
        mode="streaming",
    )  # fmt: skip
    own_run_dir(os.path.dirname(folder))
    os.makedirs(folder, exist_ok=True)
    if executor.note is not None and inputs.files.total_bytes > _WORTH_A_NOTE_BYTES:
        executor.note(
            f"{job.name}: finding the types of columns in {format_size(inputs.files.total_bytes)}, for a stage that "
            "reads `data`; the reader's fields={'name': 'int64', ...} declares them instead"
        )
    run = Run(counting, inputs, plain, executor.make_workers, folder, executor.progress, is_part=True)
    result = run.execute()
    if result.exit_code not in (0, Incomplete.exit_code):
        raise TamisError(f"finding the types of columns: {result.message}")
    tasks: Any = load_results(result, counting.name)
    return joined_types(counted(tasks))


def _fingerprint(inputs: Inputs, fields: Any, max_record_bytes: int) -> str:
    """Hash what the types follow from: the files as they are now, and what of them is read."""
    state = [identify_inputs(inputs.files).to_dict(), fields, max_record_bytes]
    text = json.dumps(state, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def _stored(path: str) -> ColumnScan | None:
    data: Mapping[str, Any] | None = files.read_json(path)
    try:
        return None if data is None else read_fields(ColumnScan, data)
    except (LookupError, TypeError, ValueError) as exc:
        raise RunConflict(f"{path} is damaged ({exc}); delete it, and it is made again") from None
