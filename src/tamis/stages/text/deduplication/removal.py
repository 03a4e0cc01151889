"""The public path of TextDuplicatesRemovalStage; the code is in tamis/dedup."""

from tamis.dedup.documented.removal import TextDuplicatesRemovalStage

__all__ = ["TextDuplicatesRemovalStage"]
