"""The public path of FuzzyDeduplicationWorkflow; the code is in tamis/dedup."""

from tamis.dedup.documented.fuzzy import FuzzyDeduplicationWorkflow

__all__ = ["FuzzyDeduplicationWorkflow"]
