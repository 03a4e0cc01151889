"""The facts of a step that the planner needs, derived from the step itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tamis.curation.planner import CHANGES, COLUMNS, DROPS, StepFacts
from tamis.curation.steps import CorpusStep, Mix, Step
from tamis.errors import PipelineError
from tamis.stages.base import ProcessingStage
from tamis.stages.text.filters.score_filter import Score, ScoreFilter
from tamis.stages.text.modules.add_id import AddId
from tamis.stages.text.modules.joiner import DocumentJoiner
from tamis.stages.text.modules.splitter import DocumentSplitter


def facts_of(steps: Sequence[Step]) -> list[StepFacts]:
    """Return one entry per step; raise PipelineError for a step that is not allowed at its position."""
    facts: list[StepFacts] = []
    last = max((i for i, s in enumerate(steps) if isinstance(s, CorpusStep)), default=-1)
    for i, step in enumerate(steps):
        if isinstance(step, Mix) and i < last:
            raise PipelineError(
                f"curation: {step.name!r} writes copies, and {steps[last].name!r} after it looks at all documents; put "
                "the mix last"
            )
        if isinstance(step, CorpusStep):
            before = steps[i - 1] if i else None
            joins = isinstance(before, CorpusStep) and step.is_decided_with(before)
            facts.append(
                StepFacts(step.name, step.kind.name, joins, step.compares_texts, reads=frozenset([step.text_field]))
            )
            continue
        if i < last and makes_documents(step):
            raise PipelineError(
                f"curation: {step.name!r} makes new documents, which have no position in the input by which a "
                "deduplication could find them again; put it after the last deduplication, or run it first with an "
                "output of its own"
            )
        adds = frozenset(step.output_columns())
        facts.append(
            StepFacts(
                step.name,
                kind_of(step),
                reads=_reads(step),
                adds=adds,
                is_expensive=is_expensive(step),
                keeps=step.traits.keeps_results,
                replaces=step.replaced_field(),
            )
        )
    return facts


def kind_of(stage: ProcessingStage[Any, Any]) -> str:
    """Classify what later passes can do without the stage; a stage that does not declare it is run again."""
    if stage.traits.only_drops:
        return DROPS
    if isinstance(stage, ScoreFilter):
        return DROPS if not stage.output_columns() else _columns(stage)
    return _columns(stage) if stage.traits.only_adds or isinstance(stage, (Score, AddId)) else CHANGES


def _reads(stage: ProcessingStage[Any, Any]) -> frozenset[str] | None:
    """Return the columns that a stage reads, or None if unknown: a user's stage may read more than it asks for."""
    columns = stage.input_columns()
    return frozenset(columns) if columns and type(stage).__module__.startswith("tamis.") else None


def _columns(stage: ProcessingStage[Any, Any]) -> str:
    """Return CHANGES if the stage overwrites a field that it reads, else COLUMNS."""
    return CHANGES if set(stage.output_columns()) & set(stage.input_columns()) else COLUMNS


def makes_documents(stage: ProcessingStage[Any, Any]) -> bool:
    return isinstance(stage, (DocumentSplitter, DocumentJoiner)) or stage.is_fanout_stage()


def is_expensive(stage: ProcessingStage[Any, Any]) -> bool:
    return (stage.resources.gpus > 0 or stage.resources.requires_gpu) and not stage.traits.keeps_results
