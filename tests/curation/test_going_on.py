"""A curation that was stopped between or in its passes goes on, and what a stage failed on stays out of the output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tamis.backends.local import InProcessExecutor
from tamis.curation import Curation, ExactDuplicates, FuzzyDuplicates
from tamis.curation.group import remaining_after
from tamis.curation.runner import CurationRun
from tamis.dedup.pass_runner import PassRunner
from tamis.dedup.solver_launcher import SolverLauncher
from tamis.dedup.state import Summary
from tamis.engine.run_record import load_run_record
from tamis.errors import PipelineError, RunConflict, TamisError, UsageError
from tamis.stages.base import ProcessingStage
from tamis.stages.text.filters import ScoreFilter
from tamis.stages.text.filters.heuristic import WordCountFilter
from tamis.stages.text.io.reader import JsonlReader
from tamis.stages.text.io.writer import JsonlWriter
from tamis.stages.text.modules.splitter import DocumentSplitter
from tamis.tasks import DocumentBatch
from tests.curation.small_corpus import MEMORY, write
from tests.support.run_dirs import run_dir_path


class Stopped(Exception):
    """Stands for kill -9: nobody tidies up."""


def steps() -> list[Any]:
    return [ScoreFilter(WordCountFilter(min_words=30)), ExactDuplicates(), FuzzyDuplicates()]


def run(source: Path, output: Path, made: list[Any] | None = None, **more: Any) -> Any:
    settings = {"memory": MEMORY, "quarantine_limit": "5%", "blocksize": "20kB", **more}
    return Curation(made or steps(), str(source), str(output)).run(InProcessExecutor(), **settings)


def test_stopped_before_every_pass_and_decision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path / "in", 90)
    expected = run(source, tmp_path / "whole").about["content_hash"]
    places: list[str] = []
    for owner, method in (
        (PassRunner, "execute"),
        (SolverLauncher, "solve"),
        (CurationRun, "_write"),
        (CurationRun, "_facts"),
    ):
        real = getattr(owner, method)

        def stop_once(self: Any, *args: Any, real: Any = real, method: str = method, **more: Any) -> Any:
            if method not in places:
                places.append(method)
                raise Stopped(method)
            return real(self, *args, **more)

        monkeypatch.setattr(owner, method, stop_once)
    out = tmp_path / "out"
    for _ in range(4):
        with pytest.raises(Stopped):
            run(source, out)
    before = {p.label: p.seconds for p in load_run_record(run_dir_path(out)).passes}  # type: ignore[union-attr]
    result = run(source, out)
    assert places == ["execute", "solve", "_write", "_facts"]
    assert (result.status, result.about["content_hash"]) == ("finished", expected)
    assert [p.label for p in result.record.passes if p.seconds != before[p.label]] == ["write", "scores"]
    assert run(source, out).status == "already"


def test_other_steps_or_another_input_are_not_mixed_with_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = write(tmp_path / "in", 60), tmp_path / "out"

    def stop(self: Any) -> Any:
        raise Stopped

    with monkeypatch.context() as patched:
        patched.setattr(CurationRun, "_write", stop)
        with pytest.raises(Stopped):
            run(source, out)
    with pytest.raises(
        RunConflict,
        match=r"already contains another curation: its steps were .*; a recipe that has the earlier ones resumes",
    ):
        run(source, out, [ExactDuplicates()])
    with pytest.raises(RunConflict, match="a parameter of a deduplication differs"):
        run(source, out, [*steps()[:2], FuzzyDuplicates(min_shingles=11)])
    with open(source / "0.jsonl", "a") as file:
        file.write('{"text": "a new one"}\n')
    with pytest.raises(RunConflict, match="the input changed after it was compared"):
        run(source, out)
    with pytest.raises(RunConflict, match="already contains another curation"):
        run(source, out, [ExactDuplicates()])


def test_a_version_that_moved_its_modules_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, out = write(tmp_path / "in", 60), tmp_path / "out"

    def stop(self: Any) -> Any:
        raise Stopped

    with monkeypatch.context() as patched:
        patched.setattr(CurationRun, "_write", stop)
        with pytest.raises(Stopped):
            run(source, out)
    told = [p for p in run_dir_path(out).rglob("*.json") if p.name in ("identity.json", "plan.json")]
    recorded = [(p, p.read_text()) for p in told if '"tamis.stages.text.filters.' in p.read_text()]
    assert {p.name for p, _ in recorded} == {"identity.json", "plan.json"}
    for path, text in recorded:
        path.write_text(text.replace('"tamis.stages.text.filters.', '"tamis.stages.text.old_room.'))
    before = {p.label: p.seconds for p in load_run_record(run_dir_path(out)).passes}  # type: ignore[union-attr]
    result = run(source, out)
    assert result.status == "finished"
    assert [p.label for p in result.record.passes if p.seconds != before[p.label]] == ["write", "scores"]


class FailsOn(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Fails on one document, in the first pass alone: as a stage does that ran out of memory once."""

    name = "fails_on"

    def __init__(self, flag: Path) -> None:
        self.flag = str(flag)

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        if Path(self.flag).exists() and "d7" in batch.values("id"):
            raise ValueError("no")
        return batch


def test_what_a_step_failed_on_in_the_first_pass_goes_to_quarantine_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, flag = write(tmp_path / "in", 30), tmp_path / "flag"
    flag.touch()
    real = CurationRun._write

    def unflagged(self: Any) -> Any:
        flag.unlink()
        return real(self)

    monkeypatch.setattr(CurationRun, "_write", unflagged)
    result = run(source, tmp_path / "out", [FailsOn(flag), ExactDuplicates()], quarantine_limit="50%", fail_fast=False)
    entries = "".join(p.read_text() for p in sorted((run_dir_path(tmp_path / "out") / "quarantine").glob("*.jsonl")))
    assert result.about["n_quarantined"] == 2  # with the line that is no JSON
    assert "quarantined by an earlier pass: stage 'fails_on'" in entries
    assert "earlier_quarantine" in [book.name for book in result.run.ledger.stages]
    assert '"d7' not in "".join(p.read_text() for p in (tmp_path / "out").glob("*.jsonl"))


def test_steps_that_leave_nothing(tmp_path: Path) -> None:
    source = write(tmp_path / "in", 20)
    result = run(source, tmp_path / "out", [ScoreFilter(WordCountFilter(min_words=1000)), *steps()[1:]])
    assert (result.about["n_written"], result.about["n_dropped"]) == (0, 21)


def test_what_cannot_be_is_said_at_once(tmp_path: Path) -> None:
    source, out = str(write(tmp_path / "in", 6)), str(tmp_path / "out")
    assert repr(Curation([JsonlReader(source), *steps(), JsonlWriter(out)]).steps[-1]).startswith("FuzzyDuplicates")
    for given, error, message in (
        (lambda: Curation(steps()), UsageError, "give input_path, or a reader as the first step; got neither"),
        (lambda: Curation([JsonlReader(source), *steps()], source, out), UsageError, "got both"),
        (lambda: Curation(steps(), source), UsageError, "give output_path, or a writer"),
        (lambda: Curation([*steps(), ExactDuplicates()], source, out), UsageError, "give each a name"),
        (lambda: Curation([DocumentSplitter("\n"), *steps()], source, out), PipelineError, "makes new documents"),
        (lambda: Curation([lambda x: x], source, out), TypeError, "a step is a stage or a deduplication"),
        (lambda: run(Path(source), Path(out), sample="10%"), UsageError, "sample is for runs of one pass"),
        (lambda: run(tmp_path / "nothing", Path(out)), TamisError, "nothing"),
    ):
        with pytest.raises(error, match=message):
            given()  # type: ignore[no-untyped-call]
    assert not Path(out).exists()


def test_a_source_that_would_be_lost_stops_it_and_the_step_says_that_it_may_go(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    lines = "".join(f'{{"id":{i},"text":"document number {i} of three times as many"}}\n' for i in range(150))
    for name in "ab":
        (source / f"{name}.jsonl").write_text(lines)
    with pytest.raises(
        TamisError, match=r"1 of 2 sources would lose.*`max_source_loss: 1` in step remove_exact_duplicates of"
    ):
        run(source, tmp_path / "out", [ExactDuplicates()])
    told = run(source, tmp_path / "out", [ExactDuplicates(max_source_loss=1)])
    assert told.about["n_written"] == 150


def test_each_of_two_deduplications_that_are_decided_together_has_its_own_limit(tmp_path: Path) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    lines = [f'{{"id":{i},"text":"document number {i} of three times as many"}}\n' for i in range(300)]
    (source / "a.jsonl").write_text("".join(lines))
    (source / "b.jsonl").write_text("".join([*lines[:150], *(line.replace("document", "paper") for line in lines)]))
    both = [ExactDuplicates(max_source_loss=0.3), FuzzyDuplicates(max_source_loss=1)]
    with pytest.raises(
        TamisError, match=r"remove_exact_duplicates: nothing was removed: .*33.3% of 450.*duplicates_equal;"
    ):
        run(source, out, both)
    # Another limit is no other curation.
    done = run(source, out, [ExactDuplicates(max_source_loss=0.4), FuzzyDuplicates(max_source_loss=1)])
    assert done.deduplications["remove_exact_duplicates"]["n_duplicates"] == 150


def test_the_limit_of_a_second_deduplication_is_a_share_of_what_the_first_one_leaves() -> None:
    equal: Summary = {"documents_by_file": [10, 4], "duplicates_by_file": [2, 1]}
    similar: Summary = {"documents_by_file": [10, 4], "duplicates_by_file": [3, 0]}
    assert remaining_after(equal, similar) == {"documents_by_file": [8, 3], "duplicates_by_file": [3, 0]}
