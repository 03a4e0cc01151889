"""Expands the stages that a user lists into those that run, and checks their order and columns. Pure.

Called by a pipeline, and by an executor that gets stages without one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

from tamis._dataclasses import dataclass
from tamis.errors import PipelineError
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.file_partitioning import FilePartitioningStage
from tamis.stages.io import Reader, Writer

Stages = list[ProcessingStage[Any, Any]]


@dataclass
class ExpandedStages:
    """The stages that run, and of each composite, by name, the names of its parts."""

    stages: Stages = field(default_factory=list)
    parts: dict[str, list[str]] = field(default_factory=dict)


def expand_stages(name: str, stages: Sequence[ProcessingStage[Any, Any]]) -> ExpandedStages:
    """Expand the composites of the pipeline `name`; raise PipelineError if order or columns are wrong."""
    if not stages:
        raise PipelineError(f"pipeline {name!r} has no stages; add some with add_stage()")
    expanded = ExpandedStages()
    for stage in stages:
        if isinstance(stage, CompositeStage):
            parts = _parts_of(stage)
            expanded.parts[stage.name] = [part.name for part in parts]
            expanded.stages += parts
        else:
            expanded.stages.append(stage)
    source, *later = expanded.stages
    if isinstance(source, FilePartitioningStage) and later and hasattr(later[0], "note_files"):
        later[0].note_files(source)
    if isinstance(source, FilePartitioningStage) and later and hasattr(later[0], "stages_after"):
        expanded.stages[2:2] = later[0].stages_after(source, later[1:])
    _check_ends(name, expanded.stages)
    _check_columns(expanded.stages)
    return expanded


def _parts_of(stage: CompositeStage[Any, Any]) -> Stages:
    parts = stage.decompose_and_apply_with()
    for part in parts:
        if isinstance(part, CompositeStage):
            raise TypeError(
                f"{stage.name} decomposes into {part.name}, which is a composite itself; decompose it there"
            )
    return parts


def _check_ends(name: str, stages: Stages) -> None:
    sources = [s for s in stages if s.is_source_stage]
    sinks = [s for s in stages if s.is_sink_stage]
    if len(sources) > 1:
        raise PipelineError(
            f"pipeline {name!r} has two sources, {sources[0].name!r} and {sources[1].name!r}; give one reader several "
            "paths, or run two pipelines"
        )
    if len(sinks) > 1:
        raise PipelineError(
            f"pipeline {name!r} has two writers, {sinks[0].name!r} and {sinks[1].name!r}; run two pipelines"
        )
    if sources and stages[0] is not sources[0]:
        raise PipelineError(f"pipeline {name!r}: its source {sources[0].name!r} must be the first stage")
    if sinks and stages[-1] is not sinks[0]:
        raise PipelineError(f"pipeline {name!r}: its writer {sinks[0].name!r} must be the last stage")


def _check_columns(stages: Stages) -> None:
    """Check the columns that stages need, if the reader names its fields, so that all columns are known."""
    reader = next((s for s in stages if isinstance(s, Reader)), None)
    if reader is None or reader.fields is None:
        return
    columns = dict.fromkeys(reader.fields)
    for stage in stages:
        missing = [c for c in stage.input_columns() if c not in columns]
        if missing:
            raise PipelineError(
                f"stage {stage.name!r} needs column {missing[0]!r}, which no stage provides; {reader.name} reads only "
                f"{list(reader.fields)} - add {missing[0]!r} to its fields, or insert a stage that adds it before "
                f"{stage.name!r}"
            )
        columns.update(dict.fromkeys(stage.output_columns()))
        if isinstance(stage, Writer) and stage.fields is not None:
            absent = [f for f in stage.fields if f not in columns]
            if absent:
                raise PipelineError(
                    f"{stage.name} writes {absent[0]!r}, which no stage provides; columns: {list(columns)}"
                )
