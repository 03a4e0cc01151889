"""From the stages that a user lists to those that run: composites taken apart, order and columns checked. Pure.

Called by a pipeline, and by an executor that is given stages without one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tamis.errors import PipelineError
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.io import Reader, Writer

Stages = list[ProcessingStage[Any, Any]]


@dataclass
class Built:
    """The stages that run; and of each composite, by name, what it was taken apart into."""

    stages: Stages = field(default_factory=list)
    parts: dict[str, list[str]] = field(default_factory=dict)


def build(name: str, stages: Sequence[ProcessingStage[Any, Any]]) -> Built:
    """Decompose composites and check order and columns of a pipeline of this name. PipelineError says what is wrong."""
    if not stages:
        raise PipelineError(f"pipeline {name!r} has no stages; add some with add_stage()")
    built = Built()
    for stage in stages:
        built.stages += _decompose(stage, built.parts)
    _check_ends(name, built.stages)
    _check_columns(built.stages)
    return built


def _decompose(stage: ProcessingStage[Any, Any], made: dict[str, list[str]]) -> Stages:
    if not isinstance(stage, CompositeStage):
        return [stage]
    parts = stage.decompose_and_apply_with()
    for part in parts:
        if isinstance(part, CompositeStage):
            raise TypeError(
                f"{stage.name} decomposes into {part.name}, which is a composite itself; decompose it there"
            )
    made[stage.name] = [p.name for p in parts]
    return parts


def _check_ends(name: str, flat: Stages) -> None:
    sources = [s for s in flat if s.is_source_stage]
    sinks = [s for s in flat if s.is_sink_stage]
    if len(sources) > 1:
        raise PipelineError(
            f"pipeline {name!r} has two sources, {sources[0].name!r} and {sources[1].name!r}; give one reader several "
            "paths, or run two pipelines"
        )
    if len(sinks) > 1:
        raise PipelineError(
            f"pipeline {name!r} has two writers, {sinks[0].name!r} and {sinks[1].name!r}; run two pipelines"
        )
    if sources and flat[0] is not sources[0]:
        raise PipelineError(f"pipeline {name!r}: its source {sources[0].name!r} must be the first stage")
    if sinks and flat[-1] is not sinks[0]:
        raise PipelineError(f"pipeline {name!r}: its writer {sinks[0].name!r} must be the last stage")


def _check_columns(flat: Stages) -> None:
    """Columns that a stage needs, where it is known which ones there are (the reader names its fields)."""
    reader = next((s for s in flat if isinstance(s, Reader)), None)
    if reader is None or reader.fields is None:
        return
    known = dict.fromkeys(reader.fields)
    for stage in flat:
        missing = [c for c in stage.input_columns() if c not in known]
        if missing:
            raise PipelineError(
                f"stage {stage.name!r} needs column {missing[0]!r}, which nobody provides; {reader.name} reads only "
                f"{list(reader.fields)} - add {missing[0]!r} to its fields, or put a stage that makes it before {stage.name!r}"
            )
        known.update(dict.fromkeys(stage.output_columns()))
        if isinstance(stage, Writer) and stage.fields is not None:
            absent = [f for f in stage.fields if f not in known]
            if absent:
                raise PipelineError(
                    f"{stage.name} is to write {absent[0]!r}, which nobody provides; there are {list(known)}"
                )
