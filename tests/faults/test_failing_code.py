"""Mistakes in a stage, not in the data: the run stops before it has quarantined anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tamis import DocumentBatch, LocalExecutor
from tamis.errors import Incomplete, PipelineError, StageError
from tests.faults.fault_harness import (
    assert_conserved,
    documents,
    env,
    events,
    execute,
    lines_of,
    make_pipeline,
    quarantine,
    write_lines,
)
from tests.faults.fault_stages import RaiseOn, Slow, TextStage, texts
from tests.support.warm_python import run_python

LOCAL = {"memory": "512MB", "workers": 2}


class SetUpBadly(RaiseOn):
    word: str = "NEVER"

    def setup(self, worker_metadata: Any = None) -> None:
        raise KeyError("model")


class Debugged(TextStage):
    name = "debugged"
    call = "breakpoint"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        if self.call == "breakpoint":
            breakpoint()
        else:
            __import__("pdb").set_trace()
        return task


class LeavesGarbage(TextStage):
    """Fails on everything once an exception has been raised in its process: state that an error left behind."""

    name = "leaves_garbage"
    broken = False

    def process(self, task: DocumentBatch) -> DocumentBatch:
        if self.broken or any("BAD" in text for text in texts(task)):
            self.broken = True
            raise ValueError("garbage")
        return task


def run(source: Path, output: Path, *stages: Any, **settings: Any) -> None:
    make_pipeline(source, output, stages).run(LocalExecutor(), progress=False, **{**LOCAL, **settings})


def n_attempts(output: Path) -> int:
    """Return how many units failed."""
    return sum(kind == "failed" for kind, _ in events(output))


@pytest.mark.parametrize("n", [1, 7, 3000])
def test_a_stage_that_fails_on_everything_ends_the_run(tmp_path: Path, n: int) -> None:
    source = write_lines(tmp_path / "in" / "a.jsonl", documents(n)).parent
    with pytest.raises(StageError) as caught:
        run(source, tmp_path / "out", Slow(0.0), RaiseOn(""))
    assert caught.value.exit_code == 7
    for part in ("stage 'raise_on'", "ValueError: cannot bear ''", "fault_stages.py", "raise ValueError"):
        assert part in str(caught.value)
    assert n_attempts(tmp_path / "out") <= 4, "two attempts decide"
    assert lines_of(tmp_path / "out") == quarantine(tmp_path / "out") == []


def test_many_small_partitions_are_enough_together(tmp_path: Path) -> None:
    for i in range(40):
        write_lines(tmp_path / "in" / f"{i:02d}.jsonl", documents(3))
    with pytest.raises(StageError, match=r"first 2\d documents: ValueError"):
        make_pipeline(tmp_path / "in", tmp_path / "out", [RaiseOn("")], files_per_partition=1).run(
            LocalExecutor(), progress=False, **LOCAL
        )
    assert n_attempts(tmp_path / "out") <= 20


def test_bad_first_documents_wait_for_others_and_go_to_quarantine(tmp_path: Path) -> None:
    write_lines(tmp_path / "in" / "a.jsonl", [b'{"text": "BAD %d"}' % i for i in range(5)])
    write_lines(tmp_path / "in" / "b.jsonl", good := documents(200))
    result = execute(
        tmp_path / "in", tmp_path / "out", [RaiseOn("BAD")], settings={"workers": 1}, files_per_partition=1
    )
    assert_conserved(result)
    assert sorted(lines_of(tmp_path / "out")) == sorted(good)
    assert len(quarantine(tmp_path / "out")) == 5


def test_a_stage_that_passed_documents_before_is_proven_when_the_run_resumes(tmp_path: Path) -> None:
    write_lines(tmp_path / "in" / "a.jsonl", good := documents(100))
    write_lines(tmp_path / "in" / "b.jsonl", [b'{"text": "BAD %d"}' % i for i in range(5)])
    with pytest.raises(StageError):
        run_by_file(tmp_path, fail_fast=True, workers=1)
    assert lines_of(tmp_path / "out") == good
    run_by_file(tmp_path, quarantine_limit="90%", workers=1)
    assert len(quarantine(tmp_path / "out")) == 5


def run_by_file(tmp_path: Path, **settings: Any) -> None:
    make_pipeline(tmp_path / "in", tmp_path / "out", [RaiseOn("BAD")], files_per_partition=1).execute(
        LocalExecutor(), **{**LOCAL, **settings}
    )


def test_everything_is_quarantined_if_the_setting_says_so(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in" / "a.jsonl", documents(6)).parent
    result = execute(source, tmp_path / "out", [RaiseOn("")], settings={"fail_fast": False})
    assert (result.exit_code, result.ledger.quarantined.n) == (3, 6)


def test_the_first_failure_ends_the_run_with_fail_fast(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in" / "a.jsonl", [*documents(500), b'{"text": "BAD"}', *documents(500)]).parent
    with pytest.raises(StageError, match="stage 'raise_on': ValueError: cannot bear 'BAD'"):
        run(source, tmp_path / "out", RaiseOn("BAD"), fail_fast=True)
    assert n_attempts(tmp_path / "out") == 1
    assert quarantine(tmp_path / "out") == []


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_the_first_bad_line_ends_the_run_with_fail_fast(tmp_path: Path, suffix: str) -> None:
    import gzip

    data = b"\n".join([*documents(50), b"{not json", *documents(50)])
    path = tmp_path / "in" / f"a.jsonl{suffix}"
    path.parent.mkdir()
    path.write_bytes(gzip.compress(data) if suffix else data)
    with pytest.raises(Incomplete) as caught:
        run(path.parent, tmp_path / "out", RaiseOn("BAD"), fail_fast=True)
    assert f"{path} (at {data.index(b'{not')})" in str(caught.value)
    assert quarantine(tmp_path / "out") == []


def test_the_setup_of_a_stage_names_its_line(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in" / "a.jsonl", documents(10)).parent
    with pytest.raises(StageError, match=r"KeyError: 'model' \[test_failing_code.py, line \d+, in setup: raise"):
        run(source, tmp_path / "out", SetUpBadly())
    assert n_attempts(tmp_path / "out") <= 2


@pytest.mark.parametrize("call", ["breakpoint", "set_trace"])
def test_a_debugger_in_a_worker_is_refused_with_the_remedy(tmp_path: Path, call: str) -> None:
    source = write_lines(tmp_path / "in" / "a.jsonl", documents(100)).parent
    stage = Debugged()
    stage.call = call
    with pytest.raises(PipelineError, match="in_process"):
        run(source, tmp_path / "out", stage)
    assert n_attempts(tmp_path / "out") <= 2


def test_halves_share_a_worker_and_what_an_error_leaves_takes_no_other_record(tmp_path: Path) -> None:
    lines = documents(600)
    for position in (100, 300, 500):
        lines.insert(position, b'{"text": "BAD %d"}' % position)
    source = write_lines(tmp_path / "in" / "a.jsonl", lines).parent
    result = execute(source, tmp_path / "out", [LeavesGarbage()], settings={"workers": 1})
    assert_conserved(result)
    assert len(lines_of(tmp_path / "out")) == 600
    assert sorted(e["bytes"] for e in quarantine(tmp_path / "out")) == sorted(x for x in lines if b"BAD" in x)


def test_bisecting_does_not_fork_for_every_half(tmp_path: Path) -> None:
    lines = documents(4000)
    lines.insert(2222, b'{"text": "BAD"}')
    source = write_lines(tmp_path / "in" / "a.jsonl", lines).parent
    result = execute(source, tmp_path / "out", [RaiseOn("BAD")], settings={"workers": 1})
    assert result.counters["splits"] >= 8
    assert sum(kind == "died" for kind, _ in events(tmp_path / "out")) <= 4


def test_the_command_line_reports_stage_exception_and_line(tmp_path: Path) -> None:
    write_lines(tmp_path / "in" / "a.jsonl", documents(100))
    (tmp_path / "mine.py").write_text(
        "from tamis import ProcessingStage\n\n\nclass Wrong(ProcessingStage):\n    name = 'wrong'\n\n"
        "    def process(self, batch):\n        return batch.txt\n"
    )
    recipe = {
        "name": "r",
        "stages": [
            {"_target_": "tamis.stages.text.io.JsonlReader", "file_paths": str(tmp_path / "in")},
            {"_target_": "mine.Wrong"},
            {"_target_": "tamis.stages.text.io.JsonlWriter", "path": str(tmp_path / "out")},
        ],
        "settings": {"memory": "512MB"},
    }
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe))
    command = ["-m", "tamis.cli.start", "run", "recipe.yaml", "--allow-module", "mine"]
    done = run_python(*command, cwd=tmp_path, env=env())
    assert done.returncode == 7
    for part in ("stage 'wrong'", "AttributeError", "mine.py, line 8, in process: return batch.txt"):
        assert part in done.stderr
    (tmp_path / "mine.py").write_text((tmp_path / "mine.py").read_text().replace("batch.txt", "batch"))
    assert run_python(*command, cwd=tmp_path, env=env()).returncode == 0, (
        "nothing was committed: the corrected stage may start"
    )
