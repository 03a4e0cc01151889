"""The public path of TextDuplicatesRemovalStage; the code is in tamis/dedup."""

from tamis.dedup.ids.stages import TextDuplicatesRemovalStage

__all__ = ["TextDuplicatesRemovalStage"]
