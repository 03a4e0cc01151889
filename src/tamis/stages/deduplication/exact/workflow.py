"""The public path of ExactDeduplicationWorkflow; the code is in tamis/dedup/exact."""

from tamis.dedup.exact.workflow import ExactDeduplicationWorkflow

__all__ = ["ExactDeduplicationWorkflow"]
