"""Another path of `processing_stage`, which some users know."""

from tamis.stages.function_decorators import processing_stage

__all__ = ["processing_stage"]
