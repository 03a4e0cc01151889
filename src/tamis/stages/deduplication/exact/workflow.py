"""The public path of ExactDeduplicationWorkflow; the code is in tamis/dedup."""

from tamis.dedup.documented.exact import ExactDeduplicationWorkflow

__all__ = ["ExactDeduplicationWorkflow"]
