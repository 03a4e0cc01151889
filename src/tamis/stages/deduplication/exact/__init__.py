"""Exact duplicates: documents whose texts are equal, byte by byte or after a named normalisation."""

from tamis.stages.deduplication.exact.workflow import ExactDeduplicationWorkflow

__all__ = ["ExactDeduplicationWorkflow"]
