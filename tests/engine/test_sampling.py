"""Sampling: documents chosen by content hash, each step reusing the one before."""

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from tamis.backends.local import InProcessExecutor
from tamis.errors import BudgetError, RunConflict, UsageError
from tamis.pipeline import Pipeline
from tamis.stages.base import ProcessingStage
from tamis.stages.text.filters import ScoreFilter, WordCountFilter
from tamis.stages.text.io.reader import JsonlReader
from tamis.stages.text.io.writer import JsonlWriter, ParquetWriter

N = 4000


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    for k in range(4):
        lines = [json.dumps({"id": k * 1000 + i, "text": f"document {k} {i}"}) for i in range(N // 4)]
        (folder / f"{k}.jsonl").write_text("\n".join([*lines, "not json"]) + "\n")
    return folder


def pipeline(source, target, stages=()):
    return Pipeline("sampling", stages=[JsonlReader(str(source)), *stages, JsonlWriter(str(target))])


def run(source, target, stages=(), **settings):
    return pipeline(source, target, stages).execute(InProcessExecutor(), quarantine_limit="50%", **settings)


def ids(target):
    return sorted(json.loads(line)["id"] for p in target.glob("*.jsonl") for line in p.read_text().splitlines())


def test_a_sample_is_about_its_share_and_always_the_same(source, tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    result = run(source, first, sample="10%")
    run(source, second, sample=0.1, blocksize="64KiB", workers=1)
    assert ids(first) == ids(second)
    assert 0.07 * N < len(ids(first)) < 0.13 * N
    ledger = result.ledger
    assert (result.status, result.share) == ("finished", 0.1)
    assert ledger.records.n == N + 4
    assert ledger.written.n + ledger.not_sampled.n + ledger.quarantined.n == N + 4
    assert ledger.problems() == []


@dataclass(repr=False)
class LongestText(ProcessingStage[Any, Any]):
    """Fails for a batch without documents, as many a statistic does."""

    name: str = "longest_text"
    sizes: ClassVar[list[int]] = []

    def process(self, task: Any) -> Any:
        self.sizes.append(task.num_items)
        longest = max(len(text) for text in task.data["text"])
        task.data["is_longest"] = task.data["text"].str.len() == longest
        return task


@pytest.mark.parametrize("writer", [JsonlWriter, ParquetWriter])
def test_stages_are_not_called_for_partitions_of_which_nothing_is_sampled(tmp_path, writer):
    pytest.importorskip("pandas")
    folder, target = tmp_path / "few", tmp_path / "out"
    folder.mkdir()
    for k in range(30):
        (folder / f"{k:02}.jsonl").write_text("".join(f'{{"id": {k * 5 + i}, "text": "a {i}"}}\n' for i in range(5)))
    LongestText.sizes.clear()
    stages = [JsonlReader(str(folder), files_per_partition=1), LongestText(), writer(str(target))]
    result = Pipeline("few", stages=stages).execute(InProcessExecutor(), sample="10%", quarantine_limit="100%")
    ledger = result.ledger
    assert (result.status, ledger.quarantined.n, ledger.problems()) == ("finished", 0, [])
    assert ledger.written.n == 150 - ledger.not_sampled.n == ledger.stages[0].into.n
    assert 0 < ledger.written.n < 30  # so that at least one file has nothing in the sample
    assert sum(LongestText.sizes) == ledger.written.n
    assert min(LongestText.sizes) > 0


def test_stages_behind_a_filter_that_drops_everything_are_not_called(source, tmp_path):
    pytest.importorskip("pandas")
    none = ScoreFilter(WordCountFilter(min_words=1000), score_field="words")
    result = run(source, tmp_path / "out", [none, LongestText()])
    assert (result.status, result.ledger.quarantined.n, result.ledger.written.n) == ("finished", 4, 0)
    assert [book.into.n for book in result.ledger.stages] == [N, 0]


def test_a_larger_sample_holds_the_smaller_one_and_keeps_its_files(source, tmp_path):
    target = tmp_path / "out"
    run(source, target, sample="1%")
    small = {p.name: p.stat().st_ino for p in target.glob("*.jsonl")}
    few = ids(target)
    run(source, target, sample="10%")
    assert set(few) < set(ids(target))
    assert {name: (target / name).stat().st_ino for name in small} == small
    result = run(source, target)
    assert ids(target) == list(range(N))
    assert result.ledger.quarantined.n == 4  # bad lines belong to the first step and are not reported again
    assert run(source, target).status == "already"


def test_progressive_delivers_everything_in_three_steps(source, tmp_path):
    target, plain = tmp_path / "out", tmp_path / "plain"
    result = run(source, target, progressive=True)
    assert json.loads((target / "_tamis" / "manifest.json").read_text())["steps"] == [0.01, 0.1, 1.0]
    assert ids(target) == list(range(N))
    assert result.ledger.content == run(source, plain).ledger.content
    steps = {p.name.split("-s")[1][0] if "-s" in p.name else "0" for p in target.glob("*.jsonl")}
    assert steps == {"0", "1", "2"}


def test_a_smaller_sample_than_what_is_there_is_refused(source, tmp_path):
    run(source, tmp_path / "out", sample="10%")
    with pytest.raises(RunConflict, match="already holds"):
        run(source, tmp_path / "out", sample="1%")


def test_sample_and_progressive_exclude_each_other(source, tmp_path):
    with pytest.raises(UsageError, match="not both"):
        run(source, tmp_path / "out", sample="1%", progressive=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small tmpfs needs root")
def test_what_does_not_fit_the_disk_is_sampled(tmp_path):
    source, disk = tmp_path / "in", tmp_path / "disk"
    source.mkdir()
    disk.mkdir()
    with open(source / "a.jsonl", "w") as out:
        for i in range(20_000):
            out.write(json.dumps({"id": i, "text": f"{i} " + "x" * 1000}) + "\n")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=10m", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mount refused: " + mounted.stderr.decode())
    try:
        result = run(source, disk / "out", on_infeasible="sample")
        assert (result.status, result.share, result.exit_code) == ("sampled", 0.1, 3)
        assert "10% of the documents were delivered" in result.message
        assert "Make room and run the same command again" in result.message
        assert 0.07 * 20_000 < result.ledger.written.n < 0.13 * 20_000
        why = json.loads((disk / "out" / "_tamis" / "settings.json").read_text())["settings"]
        assert any(e["name"] == "sample" and "free" in e["why"] for e in why)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@dataclass(repr=False)
class Hungry(ProcessingStage[Any, Any]):
    """One document takes more memory than there is."""

    victim: int
    name: str = "hungry"

    def process(self, task):
        if self.victim in task.column("id").to_pylist():
            raise MemoryError
        return task


def test_what_does_not_fit_the_memory_is_sampled(source, tmp_path):
    run(source, tmp_path / "sample", sample="10%")
    sample = ids(tmp_path / "sample")
    victim = next(i for i in range(N) if i not in sample)
    target = tmp_path / "out"
    result = run(source, target, stages=[Hungry(victim)], on_infeasible="sample")
    assert (result.status, result.share, result.exit_code) == ("sampled", 0.1, 3)
    assert "does not fit the memory budget even alone" in result.message
    assert ids(target) == sample  # a clean sample: nothing of the step that was given up
    assert result.ledger.problems() == []
    assert len(list((target / "_tamis" / "staged").iterdir())) == 0
    # Not in it: the same command delivers everything once it can.
    again = run(source, target, stages=[Hungry(victim)], on_infeasible="sample")
    assert (again.status, ids(target)) == ("sampled", sample)
    with pytest.warns(UserWarning, match="10% of the documents were delivered"):
        pipeline(source, target, [Hungry(victim)]).run(
            InProcessExecutor(), on_infeasible="sample", quarantine_limit="50%"
        )


def test_a_step_that_is_taken_back_survives_a_crash_at_any_point(source, tmp_path, monkeypatch):
    from tamis import files
    from tamis.engine.run.output.directory import RunDir

    run(source, tmp_path / "done", sample="10%")
    run(source, tmp_path / "done", sample="50%")
    run(source, tmp_path / "ten", sample="10%")
    wanted = ids(tmp_path / "ten")

    class Cut(BaseException):
        pass

    def crash(n):
        left = [n]

        def counted(real):
            def call(*args, **kwargs):
                left[0] -= 1
                if left[0] < 0:
                    raise Cut
                return real(*args, **kwargs)

            return call

        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        shutil.copytree(tmp_path / "done", tmp_path / "out")
        folder = RunDir(str(tmp_path / "out"))
        with monkeypatch.context() as patch:
            for name in ("unlink", "replace"):
                patch.setattr(files.os, name, counted(getattr(os, name)))
            try:
                folder.retract(1)
            except Cut:
                return False
        return True

    for n in range(50):
        ended = crash(n)
        past = RunDir(str(tmp_path / "out")).recover()
        assert (list(past.done), past.ledger.problems()) == ([0], []), n
        assert ids(tmp_path / "out") == wanted, n
        if ended:
            break
    assert n > 2


def test_an_attempt_that_committed_nothing_claims_no_sample(source, tmp_path):
    with pytest.raises(BudgetError):
        Pipeline("sample", stages=[JsonlReader(source), JsonlWriter(str(tmp_path / "out"))]).run(memory="1MB")
    assert os.path.exists(tmp_path / "out" / "_tamis" / "steps.json")
    assert run(source, tmp_path / "out", sample="10%").ledger.written.n > 0
