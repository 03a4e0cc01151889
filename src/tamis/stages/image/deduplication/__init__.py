"""Reanimated previews that are there already."""

from tamis.stages.image.deduplication.removal import ImageDuplicatesRemovalStage

__all__ = ["ImageDuplicatesRemovalStage"]
