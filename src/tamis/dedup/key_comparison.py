"""The usual procedure of a deduplication: passes that make keys, decisions between them, and a pass that removes.

keys-0, keys-1, ...   over the input: keys of documents, some bands at a time, each linked by the solver before the next
texts                 over the input: the texts of candidates, where they cannot be read from the input by position
removal               over the input: documents that the decision lists are dropped, the others written
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tamis.dedup.range_passes import ranges
from tamis.dedup.range_passes.passes import RangePasses
from tamis.dedup.solver_task import CompareCandidates, DecideEqual, FindCandidates, LinkBands, RangeResults, SolverStep
from tamis.dedup.stages import RecordWriter, RemoveDuplicates
from tamis.dedup.state import BandChoice, FirstPass, LinkedPass, RangeRoom, SolverRoom, Summary
from tamis.engine.run.run_result import RunResult
from tamis.engine.schema import read_plan
from tamis.errors import ConservationError, WorkerError
from tamis.formats.input_files.skipped import ends_in
from tamis.pipeline import Pipeline
from tamis.stages.base import ProcessingStage
from tamis.stages.file_partitioning import JSONL_SUFFIXES
from tamis.stages.io import ReadHints, with_hints
from tamis.stores.urls import is_remote

if TYPE_CHECKING:
    from tamis.dedup.passes import KeyPass, Passes
    from tamis.dedup.workflow import Workflow

_ALL_BANDS = 1 << 30


class KeyComparison:
    """Decides by comparing keys of all documents. Passes and steps that finished before a kill are not repeated.

    `prepare` builds what all first passes need, and returns these; shards cannot do that for each other.
    """

    def __init__(self, prepare: Callable[[Workflow], list[KeyPass]] | None = None) -> None:
        self._prepare = prepare

    def plan(self, workflow: Workflow, n_key_passes: int | None = None) -> list[str]:
        """Return the labels of the passes to come. `n_key_passes`: once it is known."""
        passes = workflow.passes
        n = n_key_passes or len(passes.keys) or 1
        labels = [label for i in range(n) for label in (f"keys-{i}", f"decision-{i}")]
        if self._needs_texts(workflow):
            labels += ["texts", "decision-texts"]
        return labels + (["removal"] if passes.writer is not None else [])

    def decide(self, workflow: Workflow) -> Summary:
        """Run all passes up to the decision and return its summary."""
        state = workflow.work.state
        if not state.summary.exists():
            workflow.clear_duplicates()
            forget_other_room(workflow, lambda name: name.startswith("keys-"))
            workflow.solver.prepare(workflow.passes.decision)
            try:
                first = self._link_bands(workflow)
            finally:
                workflow.solver.discard()
            if workflow.passes.texts is not None and not state.summary.exists():
                self._compare_texts(workflow, first)
        return read_summary(workflow)

    # -- keys ---------------------------------------------------------------------------------------------------------
    def shard_stage(self, passes: Passes) -> ProcessingStage[Any, Any] | None:
        """Return the stage that computes all keys in one pass."""
        if self._prepare is not None:
            return None
        keys = passes.keys if passes.choose is None else passes.keys_of(_ALL_BANDS)
        return keys[0][0] if keys else None

    def _key_passes(self, workflow: Workflow) -> list[KeyPass]:
        """Return the stages that compute keys, each with its bands; all in one pass where shards made them."""
        passes, state = workflow.passes, workflow.work.state
        if self._prepare is not None:
            return self._prepare(workflow)
        if passes.choose is None:
            return passes.keys
        chosen = BandChoice(_ALL_BANDS) if workflow.settings.merge else state.band_choice.read()
        if chosen is None:
            chosen = BandChoice(passes.choose(workflow.work.bucket_url or workflow.work.path))
        state.band_choice.write(chosen)  # a resumed run must not choose again
        return passes.keys_of(chosen.bands_per_pass)

    def _link_bands(self, workflow: Workflow) -> list[str]:
        """Run the passes that compute keys, each followed by its step of the decision.

        Return the files of the first.
        """
        first: list[str] = []
        state = workflow.work.state
        keys = self._key_passes(workflow)
        workflow.runner.plan(self.plan(workflow, len(keys)))
        for i, (stage, bands) in enumerate(keys):
            if i and state.linked(i).exists():
                continue
            files = run_key_pass(workflow, f"keys-{i}", stage)
            first = first or files
            if not state.linked(i).exists():
                steps = self._steps_after(workflow, files, bands, is_last=i == len(keys) - 1)
                if workflow.passes.step is not None and not i:
                    steps = [*workflow.passes.step.first_steps, *steps]
                workflow.measure_scratch()
                results = self._search_ranges(workflow, steps, i, first, files, bands)
                if results is not None:
                    steps = [
                        replace(step, ranges=results) if isinstance(step, DecideEqual | LinkBands) else step
                        for step in steps
                    ]
                workflow.solver.solve(steps, first, f"decision-{i}")
                state.linked(i).write(LinkedPass(bands))
            if i:
                workflow.work.drop(f"keys-{i}")
        return first

    def _steps_after(self, workflow: Workflow, files: list[str], bands: list[int], is_last: bool) -> list[SolverStep]:
        """Return the steps of the solver after a pass that made the keys of these bands."""
        decision = workflow.passes.decision
        assert decision is not None
        if not bands:
            return [decision]
        steps: list[SolverStep] = [LinkBands(files, bands)]
        if is_last:
            steps += [FindCandidates()] if self._needs_texts(workflow) else [FindCandidates(), decision]
        return steps

    def _search_ranges(
        self, workflow: Workflow, steps: list[SolverStep], i: int, first: list[str], paths: list[str], bands: list[int]
    ) -> RangeResults | None:
        """Search ranges of keys with all workers of a cluster, where one process would be the bottleneck."""
        state, settings, runner = workflow.work.state, workflow.settings, workflow.runner
        n = (state.first_pass.read() or FirstPass()).n_records
        is_by_key = any(isinstance(step, DecideEqual | LinkBands) for step in steps)
        if not (is_by_key and runner.session.is_cluster and n >= ranges.MIN_DOCUMENTS):
            return None
        pins = state.index_pins.read()
        if pins is not None and pins.pins:  # documents of an index are numbered with the new ones, in one process
            return None
        # As at first: a run that resumes with other workers searches the ranges that remain, not others.
        room = state.range_room.read() or RangeRoom(ranges.worker_room(settings.budget_bytes(), settings.n_workers()))
        state.range_room.write(room)
        spreading = RangePasses(workflow.passes.name, workflow.work.path, n, room.room_bytes, runner.execute)
        return spreading.search(i, first, paths, bands)

    # -- texts --------------------------------------------------------------------------------------------------------
    def _needs_texts(self, workflow: Workflow) -> bool:
        """Return True if texts must be collected to be compared.

        They need not be where each can be read from the input by its position.
        """
        passes = workflow.passes
        if passes.texts is None:
            return False
        paths = workflow.work.state.paths() or workflow.files().paths
        is_plain = all(ends_in(path, JSONL_SUFFIXES) and not is_remote(path) for path in paths)
        is_as_read = passes.step is None or passes.step.is_as_read
        return not (is_plain and is_as_read and passes.against is None)

    def _compare_texts(self, workflow: Workflow, first: list[str]) -> None:
        passes, work = workflow.passes, workflow.work
        assert passes.texts is not None
        assert isinstance(passes.decision, CompareCandidates)
        candidates = work.state.candidates.exists()
        texts = run_key_pass(workflow, "texts", passes.texts(work.table("candidates"))) if candidates else []
        workflow.solver.solve([replace(passes.decision, texts=texts)], first, "decision-texts")

    # -- removal ------------------------------------------------------------------------------------------------------
    def remove(self, workflow: Workflow) -> RunResult:
        """Run the pass that writes the documents that stay."""
        return remove_listed(workflow)

    def check_counts(self, workflow: Workflow, summary: Summary, removed: RunResult) -> Summary:
        """Check after the removal that exactly the intended documents were removed.

        A document may be quarantined in one pass (a worker crashed on it) and not in the other: the number of
        documents that each pass met must be the same, and those that were to be removed and were not must be in
        quarantine. Documents that were written without having been compared are reported.
        """
        if workflow.passes.remove is not None:
            return {}
        ledger = removed.ledger
        n_not_read = (workflow.work.state.first_pass.read() or FirstPass()).n_quarantined
        # Pages without a text are dropped by both passes as they read.
        books = [book for book in ledger.stages if book.name == RemoveDuplicates.name]
        n_removed = sum(t.n for book in books for t in book.dropped.values())
        n_met = ledger.written.n + n_removed + ledger.quarantined.n
        n_read = summary["n_documents"] + n_not_read
        if n_met != n_read or not 0 <= summary["n_duplicates"] - n_removed <= ledger.quarantined.n:
            raise ConservationError(
                f"{n_read:,} documents were read to be compared and {summary['n_duplicates']:,} found to be "
                f"duplicates, but the pass that removes them met {n_met:,} and removed {n_removed:,}; do not use "
                f"{workflow.output.path}, start over with fresh (--fresh)"
            )
        n_not_compared = max(0, n_not_read - ledger.quarantined.n)
        return {"n_not_compared": n_not_compared} if n_not_compared else {}


def forget_other_room(workflow: Workflow, keeps: Callable[[str], bool]) -> None:
    """Discard earlier decisions if the memory has changed: their files are cut for the memory of that time.

    `keeps`: whether a file or folder, by its name, is the result of a pass over the input.
    """
    work, room = workflow.work, SolverRoom(workflow.solver.room_bytes())
    if work.state.solver_room.read() not in (None, room):
        undecided = work.state.undecided_names()
        for name in os.listdir(work.path):
            if name not in undecided and not keeps(name):
                work.drop(name)
    work.state.solver_room.write(room)


def read_summary(workflow: Workflow) -> Summary:
    """Return the summary that the solver wrote with its decision."""
    workflow.measure_scratch()
    summary = workflow.work.state.summary.read()
    if summary is None:
        raise WorkerError("the deciding process ended without a result; run the same command again")
    return summary


def remove_listed(workflow: Workflow) -> RunResult:
    """Run the pass that drops the documents that the decision lists, and writes the others."""
    passes, state = workflow.passes, workflow.work.state
    assert passes.writer is not None
    table = workflow.work.table("removal")
    paths = state.removal_paths_file
    remove: ProcessingStage[Any, Any] = (
        passes.remove(table, paths)
        if passes.remove is not None
        else RemoveDuplicates(table, paths, threshold=passes.threshold)
    )
    hints = ReadHints(all_valid=workflow.is_clean(), record_index=workflow.known_records())
    source = with_hints(workflow.input.reader(), hints)
    pipeline = Pipeline(f"{passes.name}: removal", stages=[source, remove, passes.writer()])
    return workflow.execute_checked(pipeline, "removal", **workflow.settings.of_output)


def run_key_pass(workflow: Workflow, name: str, stage: ProcessingStage[Any, Any]) -> list[str]:
    """Run one pass over the documents that writes records into a folder of this name; return its files."""
    state = workflow.work.state
    pipeline = key_pipeline(workflow, name, stage, workflow.work.pass_output(name))
    more = {"merge": workflow.shards_path} if workflow.settings.merge and name == "keys-0" else {}
    result = workflow.execute_checked(pipeline, name, **more)
    if not state.first_pass.exists():
        plan = read_plan(os.path.join(result.run_dir, "plan.json"))
        state.write_paths(plan.inputs.paths)
        n_quarantined = result.ledger.quarantined.n
        is_clean = not n_quarantined and not result.ledger.n_bad_ranges
        # Last: it says that the paths are there.
        state.first_pass.write(FirstPass(result.ledger.written.n, n_quarantined, is_clean, result.skipped_files))
    return workflow.solver.files_of(result)


def key_pipeline(workflow: Workflow, name: str, stage: ProcessingStage[Any, Any], output: str) -> Pipeline:
    """Return the pipeline of a pass that writes records."""
    passes = workflow.passes
    source, before = workflow.input.reader(), passes.before
    if passes.step is not None:
        source, before = with_hints(source, passes.step.hints(name)), passes.step.before(name)
    settings = workflow.settings
    # Shards are joined later, maybe on another machine, and nodes of a cluster may restart one by one.
    is_kept = settings.shard is not None or settings.merge or workflow.runner.session.is_cluster
    stages: list[Any] = [source, *before, stage, RecordWriter(output, _is_synced=is_kept)]
    return Pipeline(f"{passes.name}: {name}", stages=stages)
