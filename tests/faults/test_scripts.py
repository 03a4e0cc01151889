"""Pipelines as users write them: plain scripts, stages in __main__, documents given in memory, no writer."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from tamis import DocumentBatch, FileGroupTask, InProcessExecutor, LocalExecutor, Pipeline
from tamis.stages.text.io.reader import JsonlReader
from tamis.stages.text.io.writer import JsonlWriter
from tests.faults.fault_harness import (
    assert_conserved,
    content_hash,
    documents,
    env,
    execute,
    lines_of,
    make_pipeline,
    write_lines,
)
from tests.faults.fault_stages import AddLength, DropOdd
from tests.support.run_dirs import run_dir_path
from tests.support.warm_python import run_python

SCRIPT = """
import sys
from dataclasses import dataclass

import pyarrow as pa

from tamis import Pipeline, ProcessingStage, processing_stage
from tamis.stages.text.io.reader import JsonlReader
from tamis.stages.text.io.writer import JsonlWriter

print("script runs")
FACTOR = 3


@dataclass
class Twice(ProcessingStage):
    factor: int = 2
    name: str = "twice"

    def process(self, task):
        return task.with_column("by", pa.array([self.factor * FACTOR] * task.num_items))


@processing_stage(name="short")
def short(task):
    return task.filter([len(t) % 2 == 0 for t in task.column("text").to_pylist()])


pipeline = Pipeline("script")
pipeline.add_stage(JsonlReader(sys.argv[1], blocksize="64KiB")).add_stage(Twice()).add_stage(short)
pipeline.add_stage(JsonlWriter(sys.argv[2]))
tasks = pipeline.run(memory="512MB")
print("files", len(tasks), sum(len(t.data) for t in tasks))
"""


def test_a_plain_script_with_stages_in_main_and_no_guard(tmp_path: Path) -> None:
    lines = documents(1500)
    write_lines(tmp_path / "in" / "a.jsonl", lines)
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [str(tmp_path / "script.py"), str(tmp_path / "in"), str(tmp_path / "out")]
    for _ in range(2):  # the second time it says that all is done, and returns the same files
        done = run_python(*command, env=env(), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("script runs") == 1, "the script was imported again by a worker"
    n_files = len([p for p in (tmp_path / "out").iterdir() if p.is_file()])
    assert n_files > 1
    assert done.stdout == f"script runs\nfiles {n_files} {n_files}\n"
    expected = [
        line[:-1] + b',"by":6}'
        for line in lines
        if len(line.split(b'"text" : "')[1].split(b'", "n"')[0].decode().replace("\\u00e9", "é")) % 2 == 0
    ]
    assert lines_of(tmp_path / "out") == expected
    assert 0 < len(expected) < 1500


@pytest.mark.parametrize("local", [False, True])
def test_initial_tasks_with_documents(tmp_path: Path, local: bool) -> None:
    batches = [
        DocumentBatch("one", pa.table({"id": [1, 2], "text": ["a", "bb"]})),
        DocumentBatch("two", pd.DataFrame({"id": [3, 4], "text": ["ccc", ""]})),
    ]
    executor = LocalExecutor() if local else InProcessExecutor()
    for _ in range(2):
        pipeline = Pipeline("given", stages=[AddLength(), DropOdd(), JsonlWriter(os.fspath(tmp_path / "out"))])
        result = pipeline.execute(executor, batches, memory="512MB")
        assert_conserved(result)
    assert result.status == "already"
    assert sorted(lines_of(tmp_path / "out")) == [b'{"id":2,"text":"bb","length":2}', b'{"id":4,"text":"","length":0}']


def test_initial_tasks_with_files(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "in" / "a.jsonl", documents(10))
    from tamis.stages.text.io.reader import JsonlReaderStage

    pipeline = Pipeline("given", stages=[JsonlReaderStage(), JsonlWriter(os.fspath(tmp_path / "out"))])
    pipeline.run(InProcessExecutor(), [FileGroupTask("d", [str(path)])], memory="512MB")
    assert lines_of(tmp_path / "out") == documents(10)


@pytest.mark.parametrize("run_dir", [False, True])
def test_without_a_writer_results_are_loaded_when_looked_at(tmp_path: Path, run_dir: bool) -> None:
    write_lines(tmp_path / "in" / "a.jsonl", documents(1200))
    settings: dict[str, Any] = {"run_dir": str(tmp_path / "run")} if run_dir else {}
    pipeline = Pipeline("loose", stages=[JsonlReader(str(tmp_path / "in"), blocksize="64KiB"), AddLength(), DropOdd()])
    tasks = pipeline.run(LocalExecutor(), memory="512MB", **settings)
    assert len(tasks) > 1
    loaded = [t for t in tasks if isinstance(t, DocumentBatch)]
    assert len(loaded) == len(tasks)
    assert sum(t.num_items for t in tasks) == 600
    assert all(not t.__dict__["_loaded"] for t in tasks), "counting must not load anything"
    table = pa.concat_tables([t.to_pyarrow(["id", "length"]) for t in loaded])
    assert table["id"].to_pylist() == list(range(0, 1200, 2))
    assert loaded[0].column("text").to_pylist()[0].endswith("é 0")
    if run_dir:
        again = pipeline.run(LocalExecutor(), memory="512MB", **settings)
        assert sum(t.num_items for t in again) == 600


def test_results_of_one_run_are_the_input_of_the_next(tmp_path: Path) -> None:
    write_lines(tmp_path / "in" / "a.jsonl", documents(300))
    tasks = Pipeline("first", stages=[JsonlReader(str(tmp_path / "in")), AddLength()]).run(
        InProcessExecutor(), memory="512MB"
    )
    second = Pipeline("second", stages=[DropOdd(), JsonlWriter(os.fspath(tmp_path / "out"))])
    second.run(InProcessExecutor(), tasks, memory="512MB")
    assert len(lines_of(tmp_path / "out")) == 150


def test_a_resumed_run_may_use_other_settings(tmp_path: Path) -> None:
    """Half the work is there already, done with other partitions; what is left is done with new ones."""
    write_lines(tmp_path / "in" / "a.jsonl", documents(4000))
    execute(tmp_path / "in", tmp_path / "calm", [AddLength()], local=False)
    out = tmp_path / "out"
    execute(tmp_path / "in", out, [AddLength()], local=False, blocksize="64KiB")
    log = run_dir_path(out) / "commit.log"
    entries = log.read_bytes().splitlines(keepends=True)
    assert len(entries) > 6
    kept = entries[:1] + entries[3:5]
    log.write_bytes(b"".join(kept) + entries[5][:40])  # a crash while the log was being written
    names = [p.name for p in out.iterdir() if p.is_file()]
    for name in names:
        if not any(name.encode() in entry for entry in kept):
            (out / name).unlink()
    (run_dir_path(out) / "manifest.json").unlink()
    result = execute(tmp_path / "in", out, [AddLength()], blocksize="200KB", settings={"workers": 1, "memory": "420MB"})
    assert (result.status, result.exit_code) == ("finished", 0)
    assert_conserved(result)
    assert lines_of(out) == lines_of(tmp_path / "calm")
    assert content_hash(out) == content_hash(tmp_path / "calm")


def test_describe_and_repr_of_a_pipeline_change_nothing(tmp_path: Path) -> None:
    write_lines(tmp_path / "in" / "a.jsonl", documents(3))
    pipeline = make_pipeline(tmp_path / "in", tmp_path / "out", [AddLength()])
    assert "add_length" in pipeline.describe()
    assert not (tmp_path / "out").exists()
