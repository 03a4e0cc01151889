"""Near duplicates: documents whose sets of shingles overlap."""

from tamis.stages.deduplication.fuzzy.workflow import FuzzyDeduplicationWorkflow

__all__ = ["FuzzyDeduplicationWorkflow"]
