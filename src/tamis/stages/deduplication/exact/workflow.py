"""The public path of ExactDeduplicationWorkflow; the code is in tamis/dedup."""

from tamis.dedup.exact.workflow import ExactDeduplicationWorkflow

__all__ = ["ExactDeduplicationWorkflow"]
