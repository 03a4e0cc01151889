"""The public path of TextDuplicatesRemovalWorkflow; the code is in tamis/dedup."""

from tamis.dedup.ids.workflow import TextDuplicatesRemovalWorkflow

__all__ = ["TextDuplicatesRemovalWorkflow"]
