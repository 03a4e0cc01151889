"""Removal of the images that a deduplication found."""

from tamis.stages.image.deduplication.removal import ImageDuplicatesRemovalStage

__all__ = ["ImageDuplicatesRemovalStage"]
