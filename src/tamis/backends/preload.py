"""What a worker needs before its first unit: libraries, kernels, the job's stages, all warm."""

from __future__ import annotations

import io
import json
import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet

from tamis.engine.job import Job
from tamis.engine.place import Workplace
from tamis.engine.process import UnitRunner
from tamis.formats.encode import encode_jsonl
from tamis.formats.jsonl import JsonlBlock
from tamis.tasks import DocumentBatch


def load(payload: bytes, place: dict[str, Any]) -> UnitRunner:
    """The runner for a job. `payload` comes from the supervisor over a private socket, never from a file."""
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    job: Job = pickle.loads(payload)
    for stage in job.stages:
        stage.setup_on_node(None, None)
    _warm_up()
    return UnitRunner(job, Workplace.from_dict(place["workplace"], expected_inputs(place["plan"])))


def expected_inputs(path: str) -> dict[str, tuple[int, int]]:
    """Sizes and times of the inputs as planned, from the plan file (it may name 100,000 files)."""
    with open(path, "rb") as file:
        inputs = json.load(file)["inputs"]
    return {p: (s, m) for p, s, m in zip(inputs["paths"], inputs["sizes"], inputs["mtimes_ns"], strict=True)}


def _warm_up() -> None:
    """One tiny partition through every library, so that first-time allocations happen here, once, before any cap."""
    block = JsonlBlock.parse(np.frombuffer(b'{"text":"a","n":1}\n{"text":"b\\n","n":2}\n', np.uint8), ["text"])
    batch = DocumentBatch.over(block, np.arange(block.n_rows))
    batch = batch.with_column("score", pa.array([0.5, 1.0]))
    encode_jsonl(batch)
    sink = io.BytesIO()
    pyarrow.parquet.write_table(batch.to_pyarrow(), sink, use_dictionary=False)
    pyarrow.parquet.read_table(io.BytesIO(sink.getvalue()), use_threads=False)
