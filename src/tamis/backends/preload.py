"""Loads what a worker needs before its first unit: libraries, kernels, the job's stages."""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import logging
import os
import pickle
import sys
import traceback
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet

from tamis.engine import activity
from tamis.engine.job import Job
from tamis.engine.schema import read_plan
from tamis.engine.worker.config import WorkerConfig
from tamis.engine.worker.node import WorkerMetadata, this_node
from tamis.engine.worker.process import UnitRunner
from tamis.errors import PipelineError
from tamis.failures import is_memory_failure
from tamis.formats.jsonl.block import JsonlBlock
from tamis.formats.jsonl.encode import encode_jsonl
from tamis.kernels.loading.native import load_all
from tamis.memory import meter
from tamis.memory.machine import filesystem
from tamis.stores import opening as stores
from tamis.stores import options, spool
from tamis.stores.urls import is_bucket
from tamis.tasks import DocumentBatch

_WHILE_LOADING = "while loading stage "


def load_libraries(groups: Iterable[str], warm: bool = False) -> None:
    """Load everything that does not depend on the stages of a job. `warm`: load only the kernels."""
    if not warm:
        pa.set_cpu_count(1)
        pa.set_io_thread_count(1)
        _leave_pandas_out()
        _warm_up()
    for group in groups:
        load_all(group)
    if not gc.isenabled():  # in a process of ours: all of it stays, and looking through it for garbage would take 40 ms
        gc.freeze()


def load(payload: bytes, config: WorkerConfig) -> UnitRunner:
    """Return the runner for a job, once the libraries are loaded.

    `payload` comes from the supervisor over a private socket, never from a file.
    """
    log_to_file()
    job: Job = pickle.loads(payload)
    if job.wants_frames():
        importlib.import_module("pandas")
    if "pandas" in sys.modules:
        _take_pandas_in()
    load_libraries(job.kernel_groups(), warm=True)
    for stage in job.stages:
        try:
            activity.note(activity.setting_up(stage.name))
            set_up_on_node(stage)
            activity.note("")
        except BaseException as exc:
            exc.add_note(f"{_WHILE_LOADING}{stage.name}")
            raise
    config = with_inputs(config)
    options.restore(config.stores)
    if config.output_url or config.remote_scratch or any(is_bucket(path) for path in config.inputs):
        stores.warm()
    keep_copies_in(config.scratch)
    return UnitRunner(job, config)


def stage_of(exc: BaseException) -> str:
    """Return the name of the stage that raised an exception in `load`; an empty string if it was none."""
    notes = (note for note in getattr(exc, "__notes__", ()) if note.startswith(_WHILE_LOADING))
    return next((note.removeprefix(_WHILE_LOADING) for note in notes), "")


def keep_copies_in(scratch: str) -> None:
    """Keep local copies of remote files for decoders below the scratch folder, unless that is in memory."""
    spool.keep_copies(None if filesystem(scratch) in ("tmpfs", "ramfs") else os.path.join(scratch, "spool"))


def log_to_file() -> None:
    """Send what Tamis stages log (`verbose`) to the workers' log, which is stderr here.

    Other loggers are not changed.
    """
    logger = logging.getLogger("tamis")
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger.handlers = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False


def set_up_on_node(stage: Any) -> None:
    """Set a stage up in this process, from which workers are forked, so that they share what it loads.

    A stage that needs a GPU in a separate process.

    A process that has used CUDA cannot be forked: whatever such a stage does here would break every worker. What it
    leaves on disk stays, what it leaves in memory does not.
    """
    if not stage.resources.requires_gpu:
        stage.setup_on_node(this_node(), WorkerMetadata())
        return
    read, write = os.pipe()
    child = os.fork()
    if not child:
        message = ""
        try:
            stage.setup_on_node(this_node(), WorkerMetadata())
        except BaseException as exc:
            meter.set_data_limit("self", None)  # the message takes memory as well
            kind = MemoryError if is_memory_failure(exc) else type(exc)
            message = f"{kind.__name__}: {exc}"[:4000]
            traceback.print_exc()
        with contextlib.suppress(OSError):
            os.write(write, message.encode("utf-8", "replace"))
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        message = pipe.read().decode("utf-8", "replace")
    _, status = os.waitpid(child, 0)
    if message.startswith(f"{MemoryError.__name__}: "):
        raise MemoryError(message)
    if message or status:
        raise PipelineError(
            f"stage {stage.name!r}: its setup_on_node failed: {message or f'its process died, status {status}'}"
        )


def with_inputs(config: WorkerConfig) -> WorkerConfig:
    """Add the inputs as planned, from the plan file (it may name 100,000 files)."""
    return replace(config, inputs=read_plan(config.plan_path).inputs.planned())


class _NoPandas:
    """An importer that has never heard of pandas."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name, name=name)


def _leave_pandas_out() -> None:
    """Keep pa.array() from importing pandas where it is installed (0.2 s, 25 MB).

    Arrow remembers that the import failed and continues; its to_pandas() and a stage's own import still find it.
    """
    if "pandas" not in sys.modules:
        blocker: Any = _NoPandas()
        sys.meta_path.insert(0, blocker)
        try:
            pa.array([0])
        finally:
            sys.meta_path.remove(blocker)


def _take_pandas_in() -> None:
    """Make Arrow recognize pandas frames and series again.

    Needed if a stage's module imported pandas after Arrow had continued without it.
    """
    pa.lib._pandas_api.pd  # noqa: B018 - asks for it, which makes Arrow look again


def _warm_up() -> None:
    """Pass a tiny partition through every library, so that first-time allocations happen once, before any cap."""
    try:
        raise MemoryError
    except MemoryError as exc:  # from Python 3.15 on the first traceback imports what it is written with
        traceback.format_exception(exc)
    block = JsonlBlock.parse(np.frombuffer(b'{"text":"a","n":1}\n{"text":"b\\n","n":2}\n', np.uint8), ["text"])
    batch = DocumentBatch.over(block, np.arange(block.n_rows))
    batch = batch.with_column("score", pa.array([0.5, 1.0]))
    encode_jsonl(batch)
    sink = io.BytesIO()
    table = batch.to_pyarrow()
    with pyarrow.parquet.ParquetWriter(sink, table.schema) as writer:
        writer.write_table(table)
    # Neither read_table() nor pre_buffer, which is on unless said otherwise: both start threads, and a forking server
    # must have one.
    pyarrow.parquet.ParquetFile(io.BytesIO(sink.getvalue()), pre_buffer=False).read(use_threads=False)
