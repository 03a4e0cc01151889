"""Slurm arrays as users of NeMo Curator submit them: a job that fails, the shards to retry, one output at the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import tamis
from tamis import InProcessExecutor, Pipeline
from tamis.backends.slurm_array import (
    SlurmArrayConfig,
    SlurmArrayRetryPlan,
    build_slurm_array_completion_manifest,
    build_slurm_array_retry_submissions,
    configure_slurm_array_source_filtering,
    filter_slurm_array_source_tasks,
    find_slurm_array_retries,
    format_slurm_array_indices,
    ignoring_array,
    resolve_slurm_array_config,
    slurm_array_shard_for_task,
)
from tamis.dedup.semantic.workflow import SemanticDeduplicationWorkflow
from tamis.errors import RunConflict, UsageError
from tamis.stages.base import ProcessingStage
from tamis.stages.deduplication.exact.workflow import ExactDeduplicationWorkflow
from tamis.stages.text.deduplication.removal_workflow import TextDuplicatesRemovalWorkflow
from tamis.stages.text.io.reader import JsonlReader
from tamis.stages.text.io.writer import JsonlWriter
from tamis.tasks import DocumentBatch, EmptyTask, FileGroupTask, Task
from tests.support.cli_runner import CliRunner

VARIABLE = "NEMO_CURATOR_SLURM_ARRAY_"
# A job as the array starts it. It is killed at a document of the second shard, as long as the file `failing` exists.
JOB = """
import os
import signal
import sys

from tamis.backends.slurm_array import is_slurm_array_driver_process
from tamis.pipeline import Pipeline
from tamis.stages.base import ProcessingStage
from tamis.stages.text.io.reader import JsonlReader
from tamis.stages.text.io.writer import JsonlWriter
from tamis.tasks import DocumentBatch

source, output, checkpoint, failing = sys.argv[1:]
os.environ["DRIVER"] = str(os.getpid())


class Fail(ProcessingStage[DocumentBatch, DocumentBatch]):
    name = "fail"

    def process(self, task):
        if os.path.exists(failing) and "b7" in task.data["id"].tolist():
            os.kill(int(os.environ["DRIVER"]), signal.SIGKILL)
        return task


assert is_slurm_array_driver_process()
pipeline = Pipeline("array", stages=[JsonlReader(source, files_per_partition=1), Fail(), JsonlWriter(output)])
pipeline.run(checkpoint_path=checkpoint, workers=1, memory="400MB", progress=False)
"""


@pytest.fixture(autouse=True)
def _no_array(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith((VARIABLE, "SLURM_"))]:
        monkeypatch.delenv(name)
    for name in ("ENABLED", "SHARD_INDEX", "TOTAL_SHARDS", "MINIMUM_SHARD_INDEX"):  # so that they are removed again
        monkeypatch.setenv(VARIABLE + name, "")
        monkeypatch.delenv(VARIABLE + name)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    for name in "abc":
        rows = [{"id": f"{name}{i}", "text": f"text {name} {i % 4}"} for i in range(10)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def ids(output: Path) -> list[str]:
    return sorted(json.loads(line)["id"] for file in output.rglob("part-*") for line in file.read_text().splitlines())


def copy(source: Path, output: Path) -> Pipeline:
    return Pipeline("copy", stages=[JsonlReader(str(source)), JsonlWriter(str(output))])


def test_an_array_of_three_with_one_retry(source: Path, tmp_path: Path) -> None:
    output, checkpoint, failing = tmp_path / "out", tmp_path / "checkpoint", tmp_path / "failing"
    failing.touch()
    assert find_slurm_array_retries(checkpoint) is None

    def job(index: int, **variables: str) -> int:
        paths = os.pathsep.join([str(Path(tamis.__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")])
        env = {**os.environ, "PYTHONPATH": paths, "SLURM_ARRAY_TASK_ID": str(index), **variables}
        arguments = [str(path) for path in (source, output, checkpoint, failing)]
        return subprocess.run([sys.executable, "-c", JOB, *arguments], env=env, capture_output=True).returncode

    assert [job(i, SLURM_ARRAY_TASK_COUNT="3") for i in range(3)] == [0, -signal.SIGKILL, 0]
    plan = find_slurm_array_retries(checkpoint)
    assert plan == SlurmArrayRetryPlan((1,), total_shards=3, minimum_shard_index=0)
    assert json.loads((checkpoint / ".nemo_curator_metadata/.slurm_array_completion/run.json").read_text()) == {
        "minimum_shard_index": 0,
        "total_shards": 3,
    }
    failing.unlink()
    (submission,) = build_slurm_array_retry_submissions(plan)
    retry = {VARIABLE + "TOTAL_SHARDS": str(plan.total_shards), "SLURM_ARRAY_TASK_COUNT": "1"}
    assert format_slurm_array_indices(submission.array_indices) == "1"
    assert [job(i, **retry) for i in submission.array_indices] == [0]
    done = find_slurm_array_retries(checkpoint)
    assert done is not None
    assert done.shard_indices == build_slurm_array_retry_submissions(done) == ()
    everything = [f"{name}{i}" for name in "abc" for i in range(10)]
    assert ids(output) == everything
    assert sorted(os.listdir(output)) == [f"shard-{i:05d}-of-00003" for i in range(3)]


def test_shards_are_joined_by_the_same_pipeline(source: Path, tmp_path: Path) -> None:
    for index in (1, 2):  # an array that begins at 1
        configure_slurm_array_source_filtering(index, 2, 1)
        copy(source, tmp_path / "out").run(InProcessExecutor(), progress=False, checkpoint_path=str(tmp_path / "c"))
    copy(source, tmp_path / "out").run(InProcessExecutor(), progress=False, merge=True)
    assert len(ids(tmp_path / "out")) == 30
    assert not list((tmp_path / "out").glob("shard-*"))
    configure_slurm_array_source_filtering(0, 3, 0)
    with pytest.raises(RunConflict, match=r"2 shards from 1, this one has 3 shards from 0; give another checkpoint"):
        copy(source, tmp_path / "out").run(InProcessExecutor(), progress=False, checkpoint_path=str(tmp_path / "c"))


def test_the_outermost_run_takes_the_shard(source: Path, tmp_path: Path) -> None:
    for index in range(2):
        configure_slurm_array_source_filtering(index, 2, 0)
        workflow = ExactDeduplicationWorkflow(
            input_path=str(source), output_path=str(tmp_path / "exact"), input_filetype="jsonl"
        )
        workflow.run(executor=InProcessExecutor(), progress=False)
    merged = workflow.run(executor=InProcessExecutor(), progress=False, merge=True)
    assert merged.get_metadata("num_duplicates") == 18
    with ignoring_array():
        tasks = copy(source, tmp_path / "whole").run(InProcessExecutor(), progress=False)
    assert len(ids(tmp_path / "whole")) == 30
    assert [Path(path).parent.name for path in tasks[0].data] == ["whole"]


def test_commands_and_an_explicit_shard_do_not_look_at_the_environment(source: Path, tmp_path: Path) -> None:
    from tamis.cli.main import app

    configure_slurm_array_source_filtering(0, 2, 0)
    copy(source, tmp_path / "out").run(InProcessExecutor(), progress=False, shard="1/3")
    assert os.listdir(tmp_path / "out") == ["shard-00001-of-00003"]
    command = ["dedup", "exact", str(source), str(tmp_path / "unique"), "--memory", "8GB"]
    assert CliRunner().invoke(app, command).exit_code == 0
    assert len(ids(tmp_path / "unique")) == 12
    os.environ[VARIABLE + "ENABLED"] = "off"
    copy(source, tmp_path / "all").run(InProcessExecutor(), progress=False)
    assert len(ids(tmp_path / "all")) == 30


class Numbers(ProcessingStage[EmptyTask, DocumentBatch]):
    """A source of the user's own, which takes its tasks by hand, too: in a pipeline that changes nothing."""

    name = "numbers"

    def inputs(self) -> tuple[list[str], list[str]]:
        return [], []

    def process(self, task: EmptyTask) -> list[Task[Any]]:
        frames = [pd.DataFrame({"id": [f"{i}{letter}" for letter in "ab"]}) for i in range(7)]
        tasks = [DocumentBatch("numbers", frame, task_id=f"0_{i}") for i, frame in enumerate(frames)]
        return filter_slurm_array_source_tasks(list(tasks), resolve_slurm_array_config(True), self.name)


def test_tasks_of_a_source_of_ones_own_are_divided(tmp_path: Path) -> None:
    def job(**settings: Any) -> Pipeline:
        pipeline = Pipeline("own", stages=[Numbers(), JsonlWriter(str(tmp_path / "out"))])
        pipeline.run(InProcessExecutor(), progress=False, **settings)
        return pipeline

    written = []
    for index in range(3):
        configure_slurm_array_source_filtering(index, 3, 0)
        result = job(checkpoint_path=str(tmp_path / "c")).last_result
        assert result is not None
        written.append(result.ledger.written.n)
    assert sum(written) == 14
    assert min(written) > 0
    assert ids(tmp_path / "out") == sorted(f"{i}{letter}" for i in range(7) for letter in "ab")
    done = find_slurm_array_retries(tmp_path / "c")
    assert done is not None
    assert done.shard_indices == ()


def test_initial_tasks_are_divided(source: Path, tmp_path: Path) -> None:
    for index in range(2):
        configure_slurm_array_source_filtering(index, 2, 0)
        tasks = [FileGroupTask("files", [str(path)]) for path in sorted(source.iterdir())]
        stages: list[Any] = [JsonlReader(str(source)).decompose()[-1], JsonlWriter(str(tmp_path / "out"))]
        Pipeline("given", stages=stages).run(InProcessExecutor(), initial_tasks=tasks, progress=False)
    assert len(ids(tmp_path / "out")) == 30


def test_tasks_are_taken_by_hand() -> None:
    tasks: list[Task[Any]] = [EmptyTask("d", task_id=f"0_{i}") for i in range(40)]
    assert filter_slurm_array_source_tasks(tasks, None, "source") == tasks
    shards = [filter_slurm_array_source_tasks(tasks, SlurmArrayConfig(index, 4, 3), "source") for index in range(3, 7)]
    assert all(shards)
    assert sorted(t.task_id for shard in shards for t in shard) == sorted(t.task_id for t in tasks)
    assert [slurm_array_shard_for_task(task, SlurmArrayConfig(0, 11)) for task in tasks[:4]] == [3, 8, 9, 5]
    with pytest.raises(UsageError, match="source: 1 of 41 tasks have no task_id that is the same in every job"):
        filter_slurm_array_source_tasks([*tasks, EmptyTask("d", task_id="r123")], SlurmArrayConfig(0, 4), "source")


def test_the_shard_of_stages_that_make_tasks() -> None:
    assert resolve_slurm_array_config(is_source_stage=True) is None
    configure_slurm_array_source_filtering(1, 4, 0)
    assert resolve_slurm_array_config(is_source_stage=False) is None
    assert resolve_slurm_array_config(is_source_stage=True) == SlurmArrayConfig(1, 4, 0)
    configure_slurm_array_source_filtering(9, 4, 0)
    with pytest.raises(UsageError, match="expected 0 to 3, got 9"):
        resolve_slurm_array_config(is_source_stage=True)


def test_shards_are_recorded_by_hand(tmp_path: Path) -> None:
    assert build_slurm_array_completion_manifest(None, 1, 2, 0) is None
    record = build_slurm_array_completion_manifest(tmp_path, 1, 3, 0)
    assert record is not None
    with pytest.raises(ZeroDivisionError), record:
        raise ZeroDivisionError
    assert find_slurm_array_retries(tmp_path) == SlurmArrayRetryPlan((0, 1, 2), 3, 0)
    with record:
        pass
    assert find_slurm_array_retries(tmp_path) == SlurmArrayRetryPlan((0, 2), 3, 0)
    path = record.mark_completed()
    assert json.loads(path.read_text()) == {
        "minimum_shard_index": 0,
        "shard_index": 1,
        "status": "completed",
        "total_shards": 3,
    }
    with pytest.raises(RunConflict, match="give another checkpoint_path"):
        build_slurm_array_completion_manifest(tmp_path, 1, 4, 0)


def test_what_is_done_as_a_whole_says_so(source: Path, tmp_path: Path) -> None:
    configure_slurm_array_source_filtering(0, 2, 0)
    (tmp_path / "ids").mkdir()
    vectors = SemanticDeduplicationWorkflow(str(source), str(tmp_path / "semantic"), n_clusters=2, eps=None)
    removal = TextDuplicatesRemovalWorkflow(
        str(source), str(tmp_path / "ids"), str(tmp_path / "left"), input_filetype="jsonl"
    )
    for workflow in (vectors, removal):
        with pytest.raises(UsageError, match=r"is done as a whole and not by shards; run it in a job that is not"):
            workflow.run(progress=False)
    reader_only = Pipeline("unstored", stages=[JsonlReader(str(source))])
    with pytest.raises(UsageError, match="end with a writer, or give run_dir") as failed:
        reader_only.run(InProcessExecutor(), progress=False)
    assert failed.value.__notes__ == [
        "The shard 0/2 is that of this Slurm array; NEMO_CURATOR_SLURM_ARRAY_ENABLED=0 processes everything."
    ]


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"SHARD_INDEX": "1"}, r"TOTAL_SHARDS \(or \$SLURM_ARRAY_TASK_COUNT\) is not set"),
        ({"SHARD_INDEX": "one", "TOTAL_SHARDS": "2"}, "SHARD_INDEX: expected an integer, got 'one'"),
        ({"SHARD_INDEX": "2", "TOTAL_SHARDS": "2"}, "expected 0 to 1, got 2; if the array does not begin at 0"),
        ({"SHARD_INDEX": "0", "TOTAL_SHARDS": "0"}, "expected at least 1 shard, got 0"),
        ({"ENABLED": "maybe"}, "expected 1, on, true, yes or 0, false, no, off, got 'maybe'"),
    ],
)
def test_variables_that_make_no_shard(
    variables: dict[str, str], message: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(VARIABLE + name, value)
    with pytest.raises(UsageError, match=message):
        copy(source, tmp_path / "out").run(InProcessExecutor(), progress=False)
    assert not (tmp_path / "out").exists()


def test_no_array_is_no_shard() -> None:
    assert SlurmArrayConfig.from_env() is None


def test_retries_within_the_size_of_an_array() -> None:
    plan = SlurmArrayRetryPlan((1, 2, 5, 1003, 2999), total_shards=3000, minimum_shard_index=0)
    submissions = build_slurm_array_retry_submissions(plan, max_array_size=1000)
    written = [(format_slurm_array_indices(s.array_indices), s.shard_index_offset) for s in submissions]
    assert written == [("1-2,5", 0), ("3", 1000), ("999", 2000)]


def test_a_damaged_record_names_its_file(source: Path, tmp_path: Path) -> None:
    configure_slurm_array_source_filtering(0, 2, 0)
    copy(source, tmp_path / "out").run(InProcessExecutor(), progress=False, checkpoint_path=str(tmp_path / "c"))
    assert find_slurm_array_retries(tmp_path / "c") == SlurmArrayRetryPlan((1,), 2, 0)
    (record,) = (tmp_path / "c").rglob("completed_*.json")
    record.write_text("{")
    with pytest.raises(UsageError, match=r"completed_slurm_array_.*\.json is damaged .*; remove it, and run its shard"):
        find_slurm_array_retries(tmp_path / "c")
