"""A path of NeMo Curator for `processing_stage`."""

from tamis.stages.function_decorators import processing_stage

__all__ = ["processing_stage"]
