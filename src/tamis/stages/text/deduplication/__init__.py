"""Removal of documents that a deduplication found."""

from tamis.stages.text.deduplication.removal_workflow import TextDuplicatesRemovalWorkflow

__all__ = ["TextDuplicatesRemovalWorkflow"]
