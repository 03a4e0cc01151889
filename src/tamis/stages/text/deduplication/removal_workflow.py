"""The public path of TextDuplicatesRemovalWorkflow; the code is in tamis/dedup."""

from tamis.dedup.documented.removal import TextDuplicatesRemovalWorkflow

__all__ = ["TextDuplicatesRemovalWorkflow"]
