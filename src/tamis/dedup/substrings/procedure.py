"""The passes of substring deduplication.

keys-0          over the input: what the windows of each text select
indexed-keys    over the texts of an index: the same
decision-0      selections with equal k-grams are grouped, and most groups decided
texts           over the input: the texts of the candidates that are not decided
indexed-texts   over the texts of an index: the same
decision-texts  these are compared, and everything is written down
removal         over the input: repeated passages are cut out
kept            over the input: what is left of each text, for an index (Workflow)

The documents of an index come before those of the input, so that they have the first copies, and nothing is cut out of
them: what goes is what would go if they were the first files of the input.

The selections are deleted once they are grouped, before texts of candidates are written: they are most of the scratch.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

from tamis.dedup.key_comparison import forget_other_room, read_summary, remove_listed, run_key_pass
from tamis.dedup.solver_task import CompareWindows, GroupSelections
from tamis.dedup.stages import RecordWriter
from tamis.dedup.state import LinkedPass, Summary
from tamis.dedup.substrings.stages import CandidateContexts, WindowSelections
from tamis.engine.run.output.directory import RunDir
from tamis.engine.run.run_result import RunResult
from tamis.pipeline import Pipeline
from tamis.stages.base import ProcessingStage
from tamis.stages.text.io.reader import ParquetReader

if TYPE_CHECKING:
    from tamis.dedup.passes import Passes
    from tamis.dedup.workflow import Workflow

_SELECTIONS, _INDEXED, _INDEXED_TEXTS = "keys-0", "indexed-keys", "indexed-texts"
_TEXT = "text"  # the field of an index


class SubstringComparison:
    """Finds repeated passages. Passes and steps that finished before a kill are not repeated."""

    def plan(self, workflow: Workflow) -> list[str]:
        """Return the labels of the passes to come."""
        passes = workflow.passes
        if passes.against is None:
            labels = [_SELECTIONS, "decision-0", "texts", "decision-texts"]
        else:
            labels = [_SELECTIONS, _INDEXED, "decision-0", "texts", _INDEXED_TEXTS, "decision-texts"]
        labels += ["removal"] if passes.writer is not None else []
        return labels + (["kept", "index"] if passes.index is not None else [])

    def shard_stage(self, passes: Passes) -> ProcessingStage[Any, Any]:
        """Return the stage that selects windows."""
        ((stage, _),) = passes.keys
        return stage

    def decide(self, workflow: Workflow) -> Summary:
        """Group what the windows of all texts select, and compare the candidates that this leaves."""
        state = workflow.work.state
        if not state.summary.exists():
            workflow.clear_duplicates()
            are_dropped = state.linked(0).exists()
            forget_other_room(workflow, lambda name: name in (_SELECTIONS, _INDEXED) and not are_dropped)
            if not state.linked(0).exists():
                self._group(workflow)
            self._drop_selections(workflow)
            self._compare(workflow)
        return read_summary(workflow)

    def remove(self, workflow: Workflow) -> RunResult:
        """Run the pass that cuts repeated passages out."""
        return remove_listed(workflow)

    def check_counts(self, workflow: Workflow, summary: Summary, removed: RunResult) -> Summary:
        """Check nothing: passages are removed, and no documents."""
        return {}

    def _group(self, workflow: Workflow) -> None:
        """Run the first pass, and group what it selected."""
        passes = workflow.passes
        ((stage, _),) = passes.keys
        assert isinstance(stage, WindowSelections)
        files = run_key_pass(workflow, _SELECTIONS, stage)
        indexed = _run_over_index(workflow, _INDEXED, WindowSelections(_TEXT, stage.min_bytes))
        workflow.measure_scratch()
        first_steps = passes.step.first_steps if passes.step is not None else []
        workflow.solver.solve([*first_steps, GroupSelections(stage.min_bytes, indexed)], files, "decision-0")
        workflow.measure_scratch()
        workflow.work.state.linked(0).write(LinkedPass([0]))

    def _drop_selections(self, workflow: Workflow) -> None:
        """Delete the selections, but not the books of the passes that made them."""
        for folder in map(workflow.work.pass_output, (_SELECTIONS, _INDEXED)):
            for name in {file.name for file in RunDir(folder).files().written()} if os.path.isdir(folder) else ():
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(folder, name))

    def _compare(self, workflow: Workflow) -> None:
        """Collect the texts of candidates, and decide."""
        passes, state = workflow.passes, workflow.work.state
        ((stage, _),) = passes.keys
        decision = passes.decision
        assert isinstance(stage, WindowSelections)
        assert isinstance(decision, CompareWindows)
        texts: list[str] = []
        indexed: list[str] = []
        if (state.candidates.read() or {}).get("n_candidates"):
            table = workflow.work.table("candidates")
            collect = CandidateContexts(table, stage.text_field, stage.min_bytes, stage.normalize_text)
            texts = run_key_pass(workflow, "texts", collect)
            groups = state.passage_groups.read()
            if groups is not None and groups.n_indexed_candidates:
                table = workflow.work.table("candidates-of-index")
                indexed = _run_over_index(workflow, _INDEXED_TEXTS, CandidateContexts(table, _TEXT, stage.min_bytes))
            workflow.measure_scratch()
        step = CompareWindows(decision.min_bytes, decision.keep_first, texts, indexed)
        workflow.solver.solve([step], [], "decision-texts")


def _run_over_index(workflow: Workflow, name: str, stage: ProcessingStage[Any, Any]) -> list[str]:
    """Run one pass over the texts of the index, entry after entry; return its files."""
    pins = workflow.work.state.index_pins.read()
    if pins is None or not pins.pins:
        return []
    source = ParquetReader([pin.data for pin in pins.pins], fields=[_TEXT])
    stages: list[Any] = [source, stage, RecordWriter(workflow.work.pass_output(name))]
    result = workflow.runner.execute(Pipeline(f"{workflow.passes.name}: {name}", stages=stages), name)
    return workflow.solver.files_of(result)
