"""Another path of the base classes of stages, which some users know."""

from tamis.stages.base import CompositeStage, ProcessingStage

__all__ = ["CompositeStage", "ProcessingStage"]
