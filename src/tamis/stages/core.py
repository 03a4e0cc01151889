"""A path of NeMo Curator for the base classes of stages."""

from tamis.stages.base import CompositeStage, ProcessingStage

__all__ = ["CompositeStage", "ProcessingStage"]
