"""The public path of FuzzyDeduplicationWorkflow; the code is in tamis/dedup."""

from tamis.dedup.fuzzy.workflow import FuzzyDeduplicationWorkflow

__all__ = ["FuzzyDeduplicationWorkflow"]
